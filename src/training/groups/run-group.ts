/** Runs that differ in their seed: `seed-1` …, with `group.json`, `summary.json` and `learning-curve.svg` of all. */
import { realpath } from 'node:fs/promises'
import { join } from 'node:path'
import { isModulePath } from '../../base/definition.ts'
import { checkGiven, InputError, show } from '../../base/errors.ts'
import {
  listFolder,
  makeFolder,
  parseObject,
  RECORD_BYTES,
  readText,
  removeWhole,
  within,
  writeNew,
  writeWhole,
} from '../../base/files/files.ts'
import type { ModuleTrust } from '../../base/trust.ts'
import { VERSION } from '../../base/version.ts'
import { type CurvePoint, drawCurves, smooth, together } from '../../telemetry/curves.ts'
import { readMetrics } from '../../telemetry/metrics-lines.ts'
import type { Cohort } from '../../world/cohort.ts'
import { firstFree, TakenError } from '../folder/free-folder.ts'
import { checkIfExists, type IfExists } from '../folder/if-exists.ts'
import { meanAndStd } from '../loop/metrics.ts'
import type { MetricsOf } from '../loop/trainer.ts'
import type { RunDefinition } from '../run/definition.ts'
import type { RunListeners, SharedSummary } from '../run/kind.ts'
import { reachOf } from '../run/reach.ts'
import { configureRun, curveOfRun, type Run, type RunSummary, resumeRun, startRun } from '../run/run.ts'

/** Statistics of a figure over the seeds that have it; `std` with n in the denominator. */
export interface Spread {
  readonly mean: number
  readonly std: number
  readonly min: number
  readonly max: number
  /** Number of seeds that have it. */
  readonly count: number
}

/** The results of runs with several seeds. */
export interface RunGroupSummary {
  /** `interrupted` if a run was; the same call continues. `paused`: all have reached the part that was asked for. */
  readonly status: 'complete' | 'interrupted' | 'paused'
  readonly folder: string
  readonly environment: string
  readonly algorithm: string
  /** In the order of the seeds. */
  readonly runs: readonly {
    readonly seed: number
    readonly folder: string
    readonly status: SharedSummary['status']
    /** By name; null if the run lacks the figure. */
    readonly figures: Readonly<Record<string, number | null>>
  }[]
  /** Of each figure that a run has. */
  readonly figures: Readonly<Record<string, Spread>>
  readonly files: Readonly<Record<string, string>>
}

/** Options of `trainSeeds`. */
export interface RunGroupOptions extends GroupPlace {
  /** Trains a run to its end, or until the listeners' signal pauses it; default silently. */
  readonly train?: TrainRun
  /** Part of the training after which each run pauses, to be continued by a later call; default 1: none. */
  readonly part?: number
}

/** Trains a run with these listeners. */
export type TrainRun = (run: Run, listeners: RunListeners<Cohort>) => Promise<RunSummary>

/** Parses seeds: `1..5`, `3,7`, `1..3,10`. @throws InputError for an invalid or repeated one, or a bad range. */
export function parseSeeds(text: string): number[] {
  checkGiven('text of parseSeeds', text, 'a text')
  const seeds = text.split(',').flatMap((part) => {
    const [, first, last = first] = /^(\d+)(?:\.\.(\d+))?$/.exec(part.trim()) ?? []
    const [from, to] = [Number(first), Number(last)]
    const isRange = first !== undefined && Number.isSafeInteger(to) && to >= from && to - from < 1000
    if (!isRange) throw new InputError('seeds', show(text), 'seeds like 1..5 or 1,4,7')
    return Array.from({ length: to - from + 1 }, (_, i) => from + i)
  })
  if (new Set(seeds).size < seeds.length) throw new InputError('seeds', show(text), 'each seed once')
  return seeds
}

/**
 * Trains a run for each seed, one after another, and combines the results. Called again with the same settings and
 * folder, it keeps finished runs, resumes an interrupted one, and starts the missing ones.
 * @throws InputError as `configureRun`, `startRun` and `resumeRun` do, and for a folder with anything else.
 */
export async function trainSeeds(
  environment: string,
  given: Readonly<Record<string, string>>,
  seeds: readonly number[],
  { train = (run, listeners) => run.train(listeners), part = 1, ...place }: RunGroupOptions = {},
): Promise<RunGroupSummary> {
  checkGiven('environment of trainSeeds', environment, 'a text')
  checkGiven('options of trainSeeds', given, [])
  checkGiven('seeds of trainSeeds', seeds, 'a list')
  if (seeds.length === 0) throw new InputError('seeds', 'none', 'at least one')
  if (given.seed !== undefined) throw new InputError('seed', show(given.seed), 'seeds alone, or seed alone')
  const definitions: RunDefinition[] = [] // Configure all before training the first, to find errors early.
  for (const seed of seeds) definitions.push(await configureRun(environment, { ...given, seed: String(seed) }))
  const trust = await trustOf([environment, ...Object.values(given)])
  const folder = await claimGroup(environment, given, definitions[0]!, place)
  const summaries: RunSummary[] = []
  for (const [i, definition] of definitions.entries()) {
    const path = await within(folder, runFolderOf(seeds[i]!))
    const known = await summaryIn(path)
    const isKept = known !== null && (known.status !== 'interrupted' || partOf(definition, known) >= part)
    const summary = isKept ? known : await trainPart(await openOrStart(path, definition, trust), part, train)
    summaries.push(summary)
    if (summary.status === 'interrupted' && partOf(definition, summary) < part) break
  }
  return summarize(folder, definitions, summaries, part)
}

/** Trains a run until it has done a part of its whole training. */
function trainPart(run: Run, part: number, train: TrainRun): Promise<RunSummary> {
  if (part >= 1) return train(run, {})
  const { definition, trainer } = run
  const pause = new AbortController()
  if (definition.kind === 'episodes' && partAt(definition, { steps: trainer.steps, update: trainer.update }) >= part)
    pause.abort()
  const onUpdate = (metrics: MetricsOf<Cohort>) => {
    if (partAt(definition, metrics) >= part) pause.abort()
  }
  return train(run, { onUpdate, signal: pause.signal })
}

/** The progress of a training, from its summary. */
interface Done {
  readonly totalSteps?: number
  readonly updates?: number
  readonly sftSteps?: number
}

/** The completed fraction of a training: by steps, by passes over recorded rows, or by updates of its last phase. */
function partOf(definition: RunDefinition, { totalSteps = 0, updates = 0, sftSteps = 0 }: Done): number {
  if (definition.kind === 'conversations') {
    return definition.rl === null
      ? sftSteps / Number(definition.sft!.parameters.updates)
      : updates / Number(definition.rl.parameters.updates)
  }
  const { recorded, settings } = definition
  return recorded === null ? totalSteps / settings.totalSteps : updates / settings.epochs
}

/** The part that was done at a line of a run's metrics. */
export function partAt(definition: RunDefinition, line: object): number {
  const { phase, step, update = step, steps } = line as Readonly<Record<string, unknown>>
  const done = phase === 'sft' ? { sftSteps: Number(step) } : { updates: Number(update), totalSteps: Number(steps) }
  return partOf(definition, done)
}

export function runFolderOf(seed: number): string {
  return `seed-${seed}`
}

/** The folder of a group with its runs' settings: a new one, or that of the same group. */
export function claimGroup(
  environment: string,
  given: Readonly<Record<string, string>>,
  definition: RunDefinition,
  place: GroupPlace,
): Promise<string> {
  const folder = join('runs', `${definition.environment.id.replaceAll('/', '-')}-seeds`)
  return claim('group.json', { environment, given }, folder, place)
}

export interface GroupPlace {
  /** Their folder; default `runs/<environment>-seeds-<n>` (sweeps: `-sweep-<n>`) with the lowest free number. */
  readonly out?: string | undefined
  /** What to do if the folder has runs with other settings. Runs with the same settings continue. */
  readonly ifExists?: IfExists
  /** Reports the folder if it is not the requested one. */
  readonly tell?: (line: string) => void
}

/**
 * Claims a folder with a file of its runs' settings: a new one, or that of the same settings. Default: the usual name
 * with the lowest free number. Processes that start at once get different folders, unless they name the same one.
 * @throws InputError for a folder with anything else.
 */
export async function claim(
  file: string,
  told: object,
  usual: string,
  { out, ifExists = 'number', tell = () => {} }: GroupPlace,
): Promise<string> {
  checkIfExists(ifExists)
  if (out === '') throw new InputError('out', 'an empty name', 'a folder')
  const record = `${JSON.stringify({ colonnade: VERSION, ...told }, null, 2)}\n`
  const { path, moved } = await firstFree(out ?? { usual }, ifExists, async (folder) => {
    const path = join(folder, file)
    await makeFolder(folder)
    if ((await listFolder(folder)).length === 0 && (await writeNew(path, record))) return
    const present = await listFolder(folder)
    const { colonnade: _, ...former } = parseObject(await readText(path, RECORD_BYTES)) ?? {}
    const isSame = JSON.stringify(sorted(former)) === JSON.stringify(sorted(told))
    if (isSame && out !== undefined && ifExists !== 'replace') return
    if (!present.includes(file)) {
      if (out === undefined) throw new TakenError('out', folder, 'is not empty')
      const expected = 'a new folder, or one with runs of the same settings'
      throw new InputError('out', `${folder}, which is not empty`, expected)
    }
    if (ifExists === 'replace') {
      for (const name of present) await removeWhole(join(folder, name))
      return writeWhole(path, [record])
    }
    const expected = 'a new folder, or one with runs of the same settings'
    throw new TakenError('out', folder, 'holds runs with other settings', expected)
  })
  if (moved !== null) tell(moved)
  return path
}

/** The value with keys sorted, at all depths. */
function sorted(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  return Object.entries(value)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, inner]) => [key, sorted(inner)])
}

/** The summary of a run that has ended or was stopped; null if there is none. */
async function summaryIn(folder: string): Promise<RunSummary | null> {
  return parseObject(await readText(join(folder, 'summary.json'), RECORD_BYTES)) as RunSummary | null
}

async function openOrStart(folder: string, definition: RunDefinition, trust: ModuleTrust): Promise<Run> {
  const isBegun = (await listFolder(folder)).includes('config.json')
  return isBegun
    ? resumeRun(folder, { settings: reachOf(definition.settings), ...trust })
    : startRun(definition, folder, undefined, 'refuse')
}

/** Trusts the modules that these settings name: their definitions were just made from them. */
async function trustOf(words: readonly string[]): Promise<ModuleTrust> {
  const named = words.flatMap((word) => word.split(/[,|]/)).filter(isModulePath)
  const paths = await Promise.all(named.map((path) => realpath(path)))
  return { allowModule: ({ path }) => paths.includes(path) }
}

/** The figures compared between seeds, as far as a run has them. */
function figuresOf(summary: RunSummary): Record<string, number | null> {
  const { evaluation, seconds } = summary
  const judged = { evaluation: evaluation?.last.mean ?? null, bestEvaluation: evaluation?.best?.mean ?? null }
  if ('episodeReturnLast100' in summary) {
    const { episodeReturnLast100, solvedAtStep, stepsPerSecond, from } = summary
    // A run from recorded rows has no episodes and no steps; one that was stopped early may have none yet.
    const known = (value: number) => (from === null && Number.isFinite(value) ? value : null)
    const [episodeReturn, speed] = [known(episodeReturnLast100.mean), known(stepsPerSecond)]
    return { episodeReturn, ...judged, solvedAtStep, stepsPerSecond: speed, seconds }
  }
  const { reward, heldOut } = summary
  return { reward: reward?.last ?? null, heldOut: heldOut?.reward?.mean ?? null, ...judged, seconds }
}

async function summarize(
  folder: string,
  definitions: readonly RunDefinition[],
  summaries: readonly RunSummary[],
  part: number,
): Promise<RunGroupSummary> {
  const runs = summaries.map((summary) => {
    return { seed: summary.seed, folder: summary.folder, status: summary.status, figures: figuresOf(summary) }
  })
  // One that has ended, by `stop` or as solved, is done with every part.
  const isThere = (summary: RunSummary, i: number) =>
    summary.status !== 'interrupted' || partOf(definitions[i]!, summary) >= part
  const isWhole = runs.length === definitions.length && runs.every(({ status }) => status !== 'interrupted')
  const isPaused = runs.length === definitions.length && part < 1 && summaries.every(isThere)
  const { environment, algorithm } = summaries[0]!
  const whole: RunGroupSummary = {
    status: isWhole ? 'complete' : isPaused ? 'paused' : 'interrupted',
    ...{ folder, environment, algorithm, runs },
    figures: spreads(runs.map(({ figures }) => figures)),
    files: { summary: join(folder, 'summary.json'), learningCurve: join(folder, 'learning-curve.svg') },
  }
  const { training, evaluations, labels, threshold } = await curveOfGroup(definitions, runs)
  const title = `${environment} by ${algorithm}, ${runs.length} seeds`
  const shown =
    evaluations.points.length === 0
      ? [{ name: '', ...training }]
      : [
          { name: 'training', ...training },
          { name: 'evaluation', ...evaluations },
        ]
  await writeWhole(whole.files.learningCurve!, [drawCurves(shown, labels, { title, threshold })])
  await writeWhole(whole.files.summary!, [`${JSON.stringify(whole, null, 2)}\n`])
  return whole
}

/** The mean curves over seeds with their spread, and the axis labels. */
export async function curveOfGroup(
  definitions: readonly RunDefinition[],
  runs: readonly { readonly folder: string }[],
) {
  const curves = await Promise.all(
    runs.map(async (run, i) => curveOfRun(definitions[i]!, await readMetrics(run.folder))),
  )
  const { labels, threshold, smoothing } = curves[0]!
  const training = band(
    curves.map(({ points }) => points),
    smoothing,
  )
  const evaluations = band(
    curves.map((curve) => curve.evaluations),
    0,
  )
  return { training, evaluations, labels, threshold }
}

function spreads(figures: readonly Readonly<Record<string, number | null>>[]): Record<string, Spread> {
  const found: Record<string, Spread> = {}
  for (const name of Object.keys(figures[0] ?? {})) {
    const values = figures.flatMap(({ [name]: value }) => (typeof value === 'number' ? [value] : []))
    if (values.length === 0) continue
    const { mean, std } = meanAndStd(Float64Array.from(values), values.length)
    found[name] = { mean, std, min: Math.min(...values), max: Math.max(...values), count: values.length }
  }
  return found
}

/** The mean curve over the common range of several seeds, with its spread. */
function band(curves: readonly (readonly CurvePoint[])[], smoothing: number) {
  const { x, y, low, high } = together(
    curves.map((points) => ({
      x: points.map((point) => point.x),
      y: smooth(
        points.map((point) => point.y),
        smoothing,
      ),
    })),
  )
  return { points: x.map((at, i) => ({ x: at, y: y[i]! })), band: { low, high } }
}
