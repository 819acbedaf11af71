/**
 * Runs that differ in nothing but their seed, in one folder: `seed-1`, `seed-2` … are runs like any other, and beside them stand
 * `group.json` (what they were all told), `summary.json` and `learning-curve.svg` of all of them.
 */
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
import { checkIfExists, firstFree, type IfExists, numbered, TakenError, tellNumbered } from '../folder/if-exists.ts'
import { readMetrics } from '../folder/run-folder.ts'
import { meanAndStd } from '../loop/metrics.ts'
import type { RunDefinition } from '../run/definition.ts'
import type { SharedSummary } from '../run/kind.ts'
import { reachOf } from '../run/reach.ts'
import { configureRun, curveOfRun, type Run, type RunSummary, resumeRun, startRun } from '../run/run.ts'

/** What a figure came to over the seeds that have it; `std` with n in the denominator. */
export interface Spread {
  readonly mean: number
  readonly std: number
  readonly min: number
  readonly max: number
  /** How many seeds have it. */
  readonly count: number
}

/** What runs of several seeds came to. */
export interface RunGroupSummary {
  /** `interrupted` where a run was: the same call goes on. */
  readonly status: 'complete' | 'interrupted'
  readonly folder: string
  readonly environment: string
  readonly algorithm: string
  /** In the order of the seeds. */
  readonly runs: readonly {
    readonly seed: number
    readonly folder: string
    readonly status: SharedSummary['status']
    /** What it came to, by name; null where it has no such figure. */
    readonly figures: Readonly<Record<string, number | null>>
  }[]
  /** Of each figure that a run has. */
  readonly figures: Readonly<Record<string, Spread>>
  readonly files: Readonly<Record<string, string>>
}

/** How runs of several seeds are trained. */
export interface RunGroupOptions extends GroupPlace {
  /** Trains a run to its end; by default without telling anybody. */
  readonly train?: (run: Run) => Promise<RunSummary>
}

/**
 * Seeds as they are written: `1..5`, `3,7`, `1..3,10`.
 * @throws InputError for what is no seed, a range that falls, and a seed twice.
 */
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
 * Trains a run for each seed, one after the other, and puts together what came of them. Called again with the same words and folder it
 * goes on: runs that have ended stay, one that was interrupted is resumed, and those that lack are begun.
 * @throws InputError as `configureRun`, `startRun` and `resumeRun` do, and for a folder that holds anything else.
 */
export async function trainSeeds(
  environment: string,
  given: Readonly<Record<string, string>>,
  seeds: readonly number[],
  { train = (run) => run.train(), ...place }: RunGroupOptions = {},
): Promise<RunGroupSummary> {
  checkGiven('environment of trainSeeds', environment, 'a text')
  checkGiven('options of trainSeeds', given, [])
  checkGiven('seeds of trainSeeds', seeds, 'a list')
  if (seeds.length === 0) throw new InputError('seeds', 'none', 'at least one')
  if (given.seed !== undefined) throw new InputError('seed', show(given.seed), 'seeds alone, or seed alone')
  const definitions: RunDefinition[] = [] // All before the first is trained: what is wrong is told at once.
  for (const seed of seeds) definitions.push(await configureRun(environment, { ...given, seed: String(seed) }))
  const trust = await trustOf([environment, ...Object.values(given)])
  const folder = await claimGroup(environment, given, definitions[0]!, place)
  const summaries: RunSummary[] = []
  for (const [i, definition] of definitions.entries()) {
    const path = await within(folder, runFolderOf(seeds[i]!))
    const summary = (await endOf(path)) ?? (await train(await openOrStart(path, definition, trust)))
    summaries.push(summary)
    if (summary.status === 'interrupted') break
  }
  return summarize(folder, definitions, summaries)
}

/** What the run of a seed is called in the folder of its group. */
export function runFolderOf(seed: number): string {
  return `seed-${seed}`
}

/** The folder of a group with what its runs are told: a new one, or that of the same. */
export function claimGroup(
  environment: string,
  given: Readonly<Record<string, string>>,
  definition: RunDefinition,
  place: GroupPlace,
): Promise<string> {
  const folder = join('runs', `${definition.environment.id.replaceAll('/', '-')}-seeds`)
  return claim('group.json', { environment, given }, folder, place)
}

/** Where a group of runs goes. */
export interface GroupPlace {
  /** Their folder; `runs/<environment>-seeds-<n>` (of a sweep: `-sweep-<n>`) with the lowest free number if none is given. */
  readonly out?: string | undefined
  /** What is done where that folder holds runs that were told other things. With runs of the same words it goes on. */
  readonly ifExists?: IfExists
  /** Told where the runs go if that is not where they were asked to go. */
  readonly tell?: (line: string) => void
}

/**
 * A folder with a file of what its runs are told: a new one, or that of the same. Where none is given, the usual one with the lowest
 * free number. Of several processes that begin at once each gets one of its own, unless they name the same one.
 * @throws InputError for a folder that holds anything else.
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
  const folderOf = out === undefined ? (number: number) => `${usual}-${number}` : numbered(out)
  const free = await firstFree(folderOf, out === undefined ? 'number' : ifExists, async (folder) => {
    const path = join(folder, file)
    await makeFolder(folder)
    if ((await listFolder(folder)).length === 0 && (await writeNew(path, record))) return
    const present = await listFolder(folder)
    const { colonnade: _, ...former } = parseObject(await readText(path, RECORD_BYTES)) ?? {}
    const isSame = JSON.stringify(sorted(former)) === JSON.stringify(sorted(told))
    if (isSame && out !== undefined && ifExists !== 'replace') return
    if (!present.includes(file)) {
      if (out === undefined) throw new TakenError('out', folder, 'is not empty')
      throw new InputError('out', `${folder}, which is not empty`, 'a new folder, or one with runs of the same words')
    }
    if (ifExists === 'replace') {
      for (const name of present) await removeWhole(join(folder, name))
      return writeWhole(path, [record])
    }
    const expected = 'a new folder, or one with runs of the same words'
    throw new TakenError('out', folder, 'holds runs that were told other things', expected)
  })
  const line = out === undefined ? null : tellNumbered(free, (value) => `ifExists=${value}`)
  if (line !== null) tell(line)
  return free.path
}

/** The same with keys in their order, at all depths. */
function sorted(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  return Object.entries(value)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, inner]) => [key, sorted(inner)])
}

/** The summary of a run that has ended; null of one that has not, or is not there. */
async function endOf(folder: string): Promise<RunSummary | null> {
  const summary = parseObject(await readText(join(folder, 'summary.json'), RECORD_BYTES)) as RunSummary | null
  return summary === null || summary.status === 'interrupted' ? null : summary
}

async function openOrStart(folder: string, definition: RunDefinition, trust: ModuleTrust): Promise<Run> {
  const isBegun = (await listFolder(folder)).includes('config.json')
  return isBegun
    ? resumeRun(folder, { settings: reachOf(definition.settings), ...trust })
    : startRun(definition, folder, undefined, 'refuse')
}

/** A run may go on with the modules that these words name: their definitions have just been made of them. */
async function trustOf(words: readonly string[]): Promise<ModuleTrust> {
  const named = words.flatMap((word) => word.split(/[,|]/)).filter(isModulePath)
  const paths = await Promise.all(named.map((path) => realpath(path)))
  return { allowModule: ({ path }) => paths.includes(path) }
}

/** What is compared between seeds, as far as a run of its kind has it. */
function figuresOf(summary: RunSummary): Record<string, number | null> {
  const { evaluation, seconds } = summary
  const judged = { evaluation: evaluation?.last.mean ?? null, bestEvaluation: evaluation?.best?.mean ?? null }
  if ('episodeReturnLast100' in summary) {
    const { episodeReturnLast100, solvedAtStep, stepsPerSecond } = summary
    return { episodeReturn: episodeReturnLast100.mean, ...judged, solvedAtStep, stepsPerSecond, seconds }
  }
  const { reward, heldOut } = summary
  return { reward: reward?.last ?? null, heldOut: heldOut?.reward?.mean ?? null, ...judged, seconds }
}

async function summarize(
  folder: string,
  definitions: readonly RunDefinition[],
  summaries: readonly RunSummary[],
): Promise<RunGroupSummary> {
  const runs = summaries.map((summary) => {
    return { seed: summary.seed, folder: summary.folder, status: summary.status, figures: figuresOf(summary) }
  })
  const isWhole = runs.length === definitions.length && runs.every(({ status }) => status !== 'interrupted')
  const { environment, algorithm } = summaries[0]!
  const whole: RunGroupSummary = {
    status: isWhole ? 'complete' : 'interrupted',
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

/** The mean curves of the runs of several seeds, with how far they are apart, and what their axes show. */
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

/** Of each figure that some seeds have. */
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

/** The mean of the curves of several seeds where all of them are, and how far they are apart. */
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
