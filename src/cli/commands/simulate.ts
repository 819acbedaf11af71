import { InputError } from '../../base/errors.ts'
import { writeWhole } from '../../base/files/files.ts'
import { type Command, readKeys, readTexts } from '../../base/invocation.ts'
import { integers, text } from '../../base/settings.ts'
import {
  drawSimulations,
  type EngineSpeed,
  type Simulation,
  simulate,
  simulationSettings,
} from '../../entries/orchestration.ts'
import type { MeasuredRun } from '../../entries/text.ts'
import { openRun } from '../../index.ts'
import { progressLine } from '../show/progress.ts'
import { askForModule, trustKeys } from '../words/trust.ts'

const { engines, maxStaleness, ...shared } = simulationSettings

export const simulateKeys = {
  from: text(
    '',
    'run folder of a language model: its measured answer lengths, speeds and batch sizes replace the defaults below',
  ),
  probe: text(
    '',
    'engine whose speed is measured while it generates 1, 2, 4 … answers of the run in from at the same time, like local or vllm:http://127.0.0.1:8000; empty: take the mean speed in the run',
  ),
  engines: integers([1, 2, 4, 8], 'numbers of engines to simulate', 1),
  maxStaleness: integers([0, 1, 2, 4], `values to simulate: ${maxStaleness.description}`, 0),
  ...shared,
  ...trustKeys,
  out: text('', 'file for an SVG plot of trained tokens per second over engines; empty: no plot'),
}

/** colonnade simulate [key=value …] */
export const simulateCommand: Command = async ({ words, json, quiet }) => {
  const texts = readTexts(words)
  const { from, probe, engines, maxStaleness, out, trust, ...keys } = readKeys(simulateKeys, texts)
  for (const [name, list] of Object.entries({ engines, maxStaleness })) {
    if (list.length === 0) throw new InputError(name, 'none', 'at least one number')
  }
  if (out !== '' && !out.endsWith('.svg')) throw new InputError('out', out, 'a file whose name ends in .svg')
  const measured = from === '' ? null : await (await import('../../entries/text.ts')).measureRun(from)
  if (probe !== '' && from === '')
    throw new InputError('probe', probe, 'from=<run> too: the probe uses its prompts and model')
  const speeds = probe === '' || measured === null ? null : await speedsOf(from, probe, measured, trust)
  const settings = measured === null ? keys : { ...basisOf(measured, speeds), ...givenOf(keys, texts) }
  const progress = progressLine(engines.length * maxStaleness.length, 'simulations', quiet || json)
  const simulations: Row[] = []
  for (const each of maxStaleness) {
    for (const count of engines) {
      const simulation = await simulate({ ...settings, engines: count, maxStaleness: each }, measured?.lengths, speeds)
      simulations.push({ engines: count, maxStaleness: each, simulation })
      progress.update(simulations.length, [])
    }
  }
  progress.end()
  if (out !== '') await writeWhole(out, [drawSimulations(simulations)])
  const needed = enginesNeeded(simulations)
  if (!json) {
    if (measured !== null) console.log(told(from, measured))
    if (speeds !== null) console.log(speedLine(probe, speeds))
    console.log(table(simulations))
    for (const each of needed) console.log(sentence(each, Math.max(...engines)))
    if (out !== '') console.log(out)
  }
  const lengths = measured === null ? null : summaryOf(measured.lengths)
  return {
    ...(lengths === null ? {} : { from, lengths }),
    ...(speeds === null ? {} : { speeds }),
    settings,
    simulations,
    needed,
    out: out === '' ? null : out,
  }
}

/** Measures an engine with the prompts and the model of a run: with 1, 2, 4 … answers, up to the run's lanes. */
async function speedsOf(
  from: string,
  probe: string,
  { settings: { slots } }: MeasuredRun,
  trust: readonly string[],
): Promise<readonly EngineSpeed[]> {
  const { measureEngineSpeed } = await import('../../entries/text.ts')
  const { findEngine } = await import('../../entries/engines.ts')
  const definition = await openRun(from, { allowModule: askForModule(trust) })
  if (definition.kind !== 'conversations') throw new InputError('from', from, 'a run of a language model')
  const { environment, policy } = definition
  const engine = await findEngine([probe], [], 'caller')
  const answers = Array.from({ length: Math.ceil(Math.log2(slots)) }, (_, i) => 2 ** i).concat(slots)
  return measureEngineSpeed({ environment, policy, answers, ...(engine === null ? {} : { engine }) })
}

function speedLine(probe: string, speeds: readonly EngineSpeed[]): string {
  const cells = speeds.map(({ answers, tokensPerSecond }) => `${tokensPerSecond.toFixed(0)} with ${answers}`)
  return `${probe}: tokens/s by answers at the same time: ${cells.join(', ')}`
}

/** The settings of a run, without its mean speeds if speeds were measured. */
function basisOf({ settings }: MeasuredRun, speeds: readonly EngineSpeed[] | null): Partial<MeasuredRun['settings']> {
  const { tokensPerSecond: _, engineTokensPerSecond: __, ...others } = settings
  return speeds === null ? settings : others
}

function givenOf<V extends object>(values: V, texts: Readonly<Record<string, string>>): Partial<V> {
  return Object.fromEntries(Object.entries(values).filter(([key]) => Object.hasOwn(texts, key))) as Partial<V>
}

function told(from: string, { settings, lengths }: MeasuredRun): string {
  const { tokensPerSecond, slots, learnerTokensPerSecond } = settings
  const { count, mean, max } = summaryOf(lengths)
  const speeds = `${tokensPerSecond.toFixed(1)} tokens/s in each of ${slots} lanes, ${learnerTokensPerSecond.toFixed(0)} tokens/s learned`
  return `${from}: ${count} answers of ${mean.toFixed(1)} tokens, at most ${max}; ${speeds}`
}

function summaryOf(lengths: readonly number[]) {
  const sum = lengths.reduce((total, length) => total + length, 0)
  const max = lengths.reduce((most, length) => Math.max(most, length))
  return { count: lengths.length, mean: sum / lengths.length, max }
}

interface Row {
  readonly engines: number
  readonly maxStaleness: number
  readonly simulation: Simulation
}

interface Needed {
  readonly maxStaleness: number
  readonly engines: number
  readonly trainedTokensPerSecond: number
  readonly learnerIdle: number
}

/** More engines count as useful only if they bring a tenth more. */
const ENOUGH = 0.9

/** For each maxStaleness the fewest engines that come near the best throughput. */
function enginesNeeded(rows: readonly Row[]): Needed[] {
  const staleness = [...new Set(rows.map(({ maxStaleness }) => maxStaleness))]
  return staleness.map((maxStaleness) => {
    const own = rows.filter((row) => row.maxStaleness === maxStaleness).toSorted((a, b) => a.engines - b.engines)
    const most = Math.max(...own.map(({ simulation }) => simulation.trainedTokensPerSecond))
    const { engines, simulation } = own.find((row) => row.simulation.trainedTokensPerSecond >= ENOUGH * most)!
    const { trainedTokensPerSecond, learnerIdle } = simulation
    return { maxStaleness, engines, trainedTokensPerSecond, learnerIdle }
  })
}

function sentence({ maxStaleness, engines, trainedTokensPerSecond, learnerIdle }: Needed, most: number): string {
  const count = engines === 1 ? '1 engine gives' : `${engines} engines give`
  const waits = `the learner waits ${percent(learnerIdle)} of the time`
  const others = engines === most ? 'more were not tried' : 'more bring less than a tenth'
  return `maxStaleness=${maxStaleness}: ${count} ${trainedTokensPerSecond.toFixed(0)} tokens/s, and ${waits}; ${others}`
}

function table(rows: readonly Row[]): string {
  const head = [
    'maxStaleness',
    'engines',
    'tokens/s',
    'of first',
    'learner idle',
    'engines idle',
    'staleness',
    'queue',
    'dropped',
  ]
  const first = rows[0]!.simulation.trainedTokensPerSecond
  const cells = rows.map(({ engines, maxStaleness, simulation }) => {
    const { trainedTokensPerSecond, learnerIdle, enginesIdle, staleness, queueMax, drops } = simulation
    const dropped = Object.values(drops).reduce((sum, count) => sum + count, 0)
    return [
      ...[String(maxStaleness), String(engines), trainedTokensPerSecond.toFixed(0)],
      ...[`${(trainedTokensPerSecond / first).toFixed(2)}×`, percent(learnerIdle), percent(enginesIdle)],
      ...[`${staleness.mean.toFixed(2)}, ≤ ${staleness.max}`, String(queueMax), String(dropped)],
    ]
  })
  const widths = head.map((title, i) => Math.max(title.length, ...cells.map((row) => row[i]!.length)))
  return [head, ...cells].map((row) => row.map((cell, i) => cell.padStart(widths[i]!)).join('  ')).join('\n')
}

function percent(part: number): string {
  return `${Math.round(100 * part)} %`
}
