import { drawSimulations, type Simulation, simulate, simulationSettings } from '../entries/orchestration.ts'
import { InputError } from '../errors.ts'
import { writeWhole } from '../files.ts'
import { integers, text } from '../settings.ts'
import { type Command, readKeys, readTexts } from './invocation.ts'
import { progressLine } from './progress.ts'

const { engines, maxStaleness, ...shared } = simulationSettings

export const simulateKeys = {
  engines: integers([1, 2, 4, 8], `${engines.description}: each of these numbers`, 1),
  maxStaleness: integers([0, 1, 2, 4], `${maxStaleness.description}: each of these numbers`, 0),
  ...shared,
  out: text('', 'file for a picture (SVG) of trained tokens a second over engines; none where it is empty'),
}

/** colonnade simulate [key=value …] */
export const simulateCommand: Command = async ({ words, json, quiet }) => {
  const { engines, maxStaleness, out, ...settings } = readKeys(simulateKeys, readTexts(words))
  for (const [name, list] of Object.entries({ engines, maxStaleness })) {
    if (list.length === 0) throw new InputError(name, 'none', 'at least one number')
  }
  if (out !== '' && !out.endsWith('.svg')) throw new InputError('out', out, 'a file whose name ends in .svg')
  const progress = progressLine(engines.length * maxStaleness.length, 'simulations', quiet || json)
  const simulations: Row[] = []
  for (const each of maxStaleness) {
    for (const count of engines) {
      const simulation = await simulate({ ...settings, engines: count, maxStaleness: each })
      simulations.push({ engines: count, maxStaleness: each, simulation })
      progress.update(simulations.length, [])
    }
  }
  progress.end()
  if (out !== '') await writeWhole(out, [drawSimulations(simulations)])
  const needed = enginesNeeded(simulations)
  if (!json) {
    console.log(table(simulations))
    for (const each of needed) console.log(sentence(each, Math.max(...engines)))
    if (out !== '') console.log(out)
  }
  return { settings, simulations, needed, out: out === '' ? null : out }
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

/** What more engines than these bring is less than a tenth, of those that were tried. */
const ENOUGH = 0.9

/** Of each maxStaleness the fewest engines that come near the most that any number of them brought. */
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
