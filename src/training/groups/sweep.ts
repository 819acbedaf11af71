/**
 * Sweeps: runs with several settings, each with several seeds. The runs of a setting are a group (`run-group.ts`) in a
 * subfolder; beside the groups are `sweep.json` (the settings), `summary.json` and `learning-curves.svg`. Runs that can
 * be trained side by side share a world (`side-by-side.ts`), with the same bits as alone.
 */
import { join } from 'node:path'
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { listFolder, within, writeWhole } from '../../base/files/files.ts'
import { keysOfToday } from '../../base/former-names.ts'
import type { SettingValue } from '../../base/settings.ts'
import { type Curve, drawCurves } from '../../telemetry/curves.ts'
import { readMetrics } from '../../telemetry/metrics-lines.ts'
import { judgeMetrics } from '../evaluate/judge.ts'
import type { RunDefinition } from '../run/definition.ts'
import { configureRun, resolveRunKeys, runKeys, runMetrics } from '../run/run.ts'
import { goingOn, type HalvingOptions, rungsOf } from './halving.ts'
import {
  boundsOf,
  checkMetric,
  importanceOf,
  lastValue,
  type RankingOptions,
  rank,
  type Worth,
  worthOf,
} from './ranking.ts'
import {
  claim,
  claimGroup,
  curveOfGroup,
  type GroupPlace,
  partAt,
  type RunGroupSummary,
  runFolderOf,
  type Spread,
  type TrainRun,
  trainSeeds,
} from './run-group.ts'
import { isRange, isSeveral, rangeOf, type Values } from './sampled-settings.ts'
import { checkSearch, nextCount, propose, type SearchOptions } from './search.ts'
import { type ComingRun, type SideBySideOptions, shareWorlds, trainSideBySide, whyApart } from './side-by-side.ts'

/** One setting of a sweep, and its runs' results. */
export interface SweepSetting {
  /** The varied keys, with this setting's values. */
  readonly varied: Readonly<Record<string, string>>
  readonly folder: string
  /** `paused`: it was not among the best at a rung (`halving`). */
  readonly status: RunGroupSummary['status']
  /** The part of its training after which its figures are. */
  readonly part: number
  /** Over its seeds, by name. */
  readonly figures: Readonly<Record<string, Spread>>
  /** Why its runs were trained one after another; null if they were trained together. */
  readonly apart: string | null
}

/** The results of a sweep. */
export interface SweepSummary {
  /** `interrupted` if a run was; the same call continues. */
  readonly status: 'complete' | 'interrupted'
  readonly folder: string
  readonly environment: string
  readonly seeds: readonly number[]
  /** In the order of their values, the last key varying fastest, or as they were drawn. Those with a result. */
  readonly settings: readonly SweepSetting[]
  /** The comparison of settings, and the best of those that trained longest; null while none is within the bounds. */
  readonly best: { readonly figure: string; readonly setting: number } | null
  /** How much of the variance of the settings' ranks each key explains alone, 0 to 1; null of fewer than 8 settings. */
  readonly importance: Readonly<Record<string, number>> | null
  readonly files: Readonly<Record<string, string>>
}

/** Options of a sweep. `onUpdate` observes runs trained together; `signal` stops them, and the same call continues. */
export interface SweepOptions
  extends Omit<SideBySideOptions, 'part'>,
    GroupPlace,
    SearchOptions,
    HalvingOptions,
    RankingOptions {
  /** Trains a run that must be trained alone; default silently. */
  readonly train?: TrainRun
}

/** Keys that cannot be varied: they do not affect learning, or name files whose names may have commas. */
const NOT_VARIED = ['out', 'from', 'weights', 'loggers']

/** Keys that determine further keys, and the separator of their values. */
const PARTS = { policy: /[,|]/, algorithm: /[,|]/, systems: '|', wrappers: '|' } as const

/** Figures to compare settings by; the first that all have is used. */
const COMPARED = ['evaluation', 'heldOut', 'episodeReturn', 'reward']

/**
 * Parses each key's values: `0.9,0.99`, lists with bars `64,64|128`, or a range `1e-4..1e-2`.
 * @throws InputError for a wrong text.
 */
async function valuesOf(
  environment: string,
  texts: Readonly<Record<string, string>>,
): Promise<ReadonlyMap<string, Values>> {
  checkGiven('environment', environment, 'a text')
  checkGiven('keys', texts, [])
  const named = Object.entries(PARTS).filter(([part]) => texts[part] !== undefined)
  const first = named.map(([part, separator]) => [part, texts[part]!.split(separator)[0]!])
  const keys = await runKeys(environment, Object.fromEntries(first))
  const values = new Map<string, Values>()
  for (const [key, text] of Object.entries(keysOfToday(keys, texts))) {
    const range = rangeOf(key, text, keys.get(key))
    if (range !== null) {
      values.set(key, range)
      continue
    }
    const isList = Array.isArray(keys.get(key)?.default)
    const separator = text.includes('|') || isList ? '|' : ','
    const list = NOT_VARIED.includes(key) ? [text] : splitAt(separator, text)
    if (list.length > 1 && list.some((value) => value === '')) {
      const expected = `values between ${separator === '|' ? 'bars' : 'commas'}, none empty`
      throw new InputError(key, show(text), expected)
    }
    if (new Set(list).size < list.length) throw new InputError(key, show(text), 'each value once')
    values.set(key, list)
  }
  if ([...values.values()].some(isSeveral)) return values
  throw new InputError('sweep', 'one value of each key', 'a key with several, like ppo.gamma=0.9,0.99')
}

/** The parts between separators that are in no parentheses, which are those of a formula, like `if(progress < 0.5, 1, 0)`. */
function splitAt(separator: string, text: string): string[] {
  const parts = ['']
  let depth = 0
  for (const letter of text) {
    if (letter === '(') depth++
    else if (letter === ')') depth--
    if (letter === separator && depth <= 0) parts.push('')
    else parts[parts.length - 1] += letter
  }
  return parts
}

/**
 * `resolveRunKeys` for all runs of a sweep. Varied keys keep their lists of values, and keys that differ for other
 * reasons are left out.
 * @throws InputError as `trainSweep` does for its texts.
 */
export async function resolveSweepKeys(
  environment: string,
  texts: Readonly<Record<string, string>>,
): Promise<Map<string, SettingValue | readonly SettingValue[]>> {
  const values = await valuesOf(environment, texts)
  const listed = [...values].map(([key, each]) => [key, isRange(each) ? [String(each.from)] : each] as const)
  const runs: Map<string, SettingValue>[] = []
  for (const given of combinationsOf(new Map(listed))) runs.push(await resolveRunKeys(environment, given))
  const resolved = new Map<string, SettingValue | readonly SettingValue[]>()
  for (const key of new Set(runs.flatMap((run) => [...run.keys()]))) {
    const different = [...new Map(runs.map((run) => [JSON.stringify(run.get(key)), run.get(key)])).values()]
    const told = values.get(key)
    const found = different.filter((value) => value !== undefined)
    if (told !== undefined && isRange(told)) resolved.set(key, `${told.from}..${told.to}`)
    else if (told !== undefined && told.length > 1) resolved.set(key, found)
    else if (different.length === 1) resolved.set(key, found[0]!)
  }
  resolved.delete('seed') // A sweep has several.
  return resolved
}

/** Every combination of the values. @throws InputError for ranges, which need samples. */
function settingsOf(values: ReadonlyMap<string, Values>): Record<string, string>[] {
  const range = [...values.keys()].find((key) => isRange(values.get(key)!))
  if (range === undefined) return combinationsOf(values as ReadonlyMap<string, readonly string[]>)
  throw new InputError('samples', `0, with a range of ${range}`, 'the number of settings to draw, like samples=16')
}

/** Every combination of one value per key; the last key varies fastest. */
function combinationsOf(values: ReadonlyMap<string, readonly string[]>): Record<string, string>[] {
  let choices: Record<string, string>[] = [{}]
  for (const [key, list] of values) {
    choices = choices.flatMap((choice) => list.map((value) => ({ ...choice, [key]: value })))
  }
  return choices
}

/** A setting's label, also its folder's name. */
function labelOf(varied: Readonly<Record<string, string>>): string {
  const words = Object.entries(varied).map(([key, value]) => `${key}=${value}`)
  return words.join(' ')
}

interface Planned {
  readonly varied: Readonly<Record<string, string>>
  readonly given: Readonly<Record<string, string>>
  readonly folder: string
  readonly definitions: readonly RunDefinition[]
}

/**
 * Trains a run for each setting and each seed, side by side if possible, and combines the results. In `texts`, a key's
 * values are separated by commas, or a range from which `samples` are drawn (`valuesOf`). Called again with the same
 * settings and folder, it keeps finished runs, resumes interrupted ones one after another, and starts the missing ones:
 * the proposals of a search depend only on the results.
 * @throws InputError as `trainSeeds` does, if no key has several values, and for a folder with anything else.
 */
export async function trainSweep(
  environment: string,
  texts: Readonly<Record<string, string>>,
  seeds: readonly number[],
  options: SweepOptions = {},
): Promise<SweepSummary> {
  checkGiven('seeds of trainSweep', seeds, 'a list')
  if (seeds.length === 0) throw new InputError('seeds', 'none', 'at least one')
  if (texts.seed !== undefined) throw new InputError('seed', show(texts.seed), 'seeds, since a sweep has several')
  const { signal, objective = '', constraints = [], out, ifExists, tell } = options
  checkSearch(options)
  const rungs = rungsOf(options)
  const values = await valuesOf(environment, texts)
  const choices = options.samples ? [] : settingsOf(values)
  const first = choices.length > 0 ? choices : propose(values, [], nextCount(options, 0), options)
  const several = [...values.keys()].filter((key) => isSeveral(values.get(key)!))
  const configured = await configure(environment, first, several, seeds) // Before training, to find errors early.
  const metrics = Object.keys({ ...(await runMetrics(environment, first[0]!)), ...judgeMetrics })
  if (objective !== '') checkMetric('objective', objective.replace(/^-/, ''), metrics)
  const bounds = boundsOf(constraints, metrics)
  const { id } = configured[0]!.definitions[0]!.environment
  const usual = join('runs', `${id.replaceAll('/', '-')}-sweep`)
  const told = { environment, given: texts, seeds, ...searchRecord(options) }
  const folder = await claim('sweep.json', told, usual, { out, ifExists, tell } as GroupPlace)
  const sweep: Sweep = { environment, seeds, options, rungs, folder, objective, bounds, tried: [] }
  let coming = configured
  while (coming.length > 0) {
    const numbers = coming.map((each) => sweep.tried.push({ ...each, folder: folderOf(sweep, each), at: [] }) - 1)
    await trainTo(sweep, numbers, 0)
    const count = choices.length > 0 ? 0 : nextCount(options, sweep.tried.length)
    for (let rung = 0; rung + 1 < rungs.length && !isStopped(sweep); rung++) {
      const reached = new Map(sweep.tried.map(({ at }, i) => [i, at.length]))
      const ranked = rankAt(sweep, rung)
      await trainTo(sweep, goingOn(ranked, reached, rung, options.halving!, count === 0), rung + 1)
    }
    if (isStopped(sweep) || signal?.aborted || count === 0) break
    const seen = ranking(sweep).map((i) => sweep.tried[i]!.given)
    coming = await configure(environment, propose(values, seen, count, options), several, seeds)
  }
  const isWhole = !isStopped(sweep) && !signal?.aborted && sweep.tried.length === (options.samples || choices.length)
  return summarize(sweep, id, values, isWhole)
}

/** A sweep while it is trained. */
interface Sweep {
  readonly environment: string
  readonly seeds: readonly number[]
  readonly options: SweepOptions
  readonly rungs: readonly number[]
  readonly folder: string
  readonly objective: string
  readonly bounds: ReturnType<typeof boundsOf>
  readonly tried: Tried[]
}

/** A setting, with its results at each rung that it has reached. */
interface Tried extends Planned {
  readonly at: { readonly group: RunGroupSummary; readonly worth: Worth }[]
}

/** The options on which the settings and results depend, for `sweep.json`; without defaults. */
function searchRecord({ samples = 0, search = 'quasi', ...options }: SweepOptions): object {
  const { batch = 4, searchSeed = 0, halving = 0, rungs = 3, objective = '', constraints = [] } = options
  return {
    ...(samples > 0 && { samples }),
    ...(search !== 'quasi' && { search, searchSeed }),
    ...(search === 'tpe' && { batch }),
    ...(halving > 0 && { halving, rungs }),
    ...(objective !== '' && { objective }),
    ...(constraints.length > 0 && { constraints }),
  }
}

async function configure(
  environment: string,
  choices: readonly Record<string, string>[],
  several: readonly string[],
  seeds: readonly number[],
): Promise<Omit<Planned, 'folder'>[]> {
  const configured: Omit<Planned, 'folder'>[] = []
  for (const given of choices) {
    const varied = Object.fromEntries(several.map((key) => [key, given[key]!]))
    const definitions: RunDefinition[] = []
    for (const seed of seeds) definitions.push(await configureRun(environment, { ...given, seed: String(seed) }))
    configured.push({ varied, given, definitions })
  }
  return configured
}

function folderOf({ folder, tried }: Sweep, { varied }: Pick<Planned, 'varied'>): string {
  const name = `${tried.length + 1}-${labelOf(varied).replaceAll(/[^\w.=,-]+/g, '-')}`
  return join(folder, name.slice(0, 120))
}

/** Whether a setting has not reached a rung that it should have. */
function isStopped({ tried }: Sweep): boolean {
  return tried.some(({ at }) => at.length === 0 || at.at(-1)!.group.status === 'interrupted')
}

/** Trains settings, by their numbers, to a rung. */
async function trainTo(sweep: Sweep, numbers: readonly number[], rung: number): Promise<void> {
  const { environment, seeds, options, rungs, tried } = sweep
  const { train, onUpdate, signal } = options
  const part = rungs[rung]!
  const planned = numbers.map((i) => tried[i]!)
  await trainTogether(environment, planned, seeds, { onUpdate, signal, part })
  for (const { at, given, folder, definitions } of planned) {
    if (signal?.aborted) return
    const place = { out: folder, ifExists: 'refuse' } as const
    const group = await trainSeeds(environment, given, seeds, { ...place, part, ...(train && { train }) })
    at[rung] = { group, worth: await worthAt(sweep, definitions, group, part) }
    if (group.status === 'interrupted') return
  }
}

/** The worth of a setting's runs when they had done a part of their training. */
async function worthAt(
  { objective, bounds }: Sweep,
  definitions: readonly RunDefinition[],
  group: RunGroupSummary,
  part: number,
): Promise<Worth> {
  const runs = await Promise.all(group.runs.map(({ folder }, i) => linesUpTo(definitions[i]!, folder, part)))
  if (objective !== '' || part < 1) return worthOf(runs, objective || goalOf(runs), bounds)
  const figure = COMPARED.find((name) => name in group.figures)
  const { excess } = worthOf(runs, goalOf(runs), bounds)
  return { value: figure === undefined ? Number.NEGATIVE_INFINITY : group.figures[figure]!.mean, excess }
}

const goalOf = (runs: readonly (readonly Readonly<Record<string, unknown>>[])[]) =>
  ['evaluation/mean', 'episodeReturn', 'reward'].find((name) => !Number.isNaN(lastValue(runs[0] ?? [], name))) ??
  'episodeReturn'

/** The lines of a run until it had done a part of its training: those of a run that has gone on are cut there. */
async function linesUpTo(definition: RunDefinition, folder: string, part: number): Promise<Record<string, unknown>[]> {
  const lines = await readMetrics(folder)
  const end = part >= 1 ? -1 : lines.findIndex((line) => partAt(definition, line) >= part)
  return end < 0 ? lines : lines.slice(0, end + 1)
}

/** The numbers of the settings that have reached a rung, the best at it first. */
function rankAt({ tried }: Sweep, rung: number): number[] {
  const there = [...tried.keys()].filter((i) => tried[i]!.at.length > rung)
  return rank(there.map((i) => ({ worth: tried[i]!.at[rung]!.worth, reached: 0 }))).map((place) => there[place]!)
}

/** The numbers of all settings with results, the best first. */
function ranking({ tried }: Sweep): number[] {
  const there = [...tried.keys()].filter((i) => tried[i]!.at.length > 0)
  return rank(there.map((i) => ({ worth: tried[i]!.at.at(-1)!.worth, reached: tried[i]!.at.length }))).map(
    (place) => there[place]!,
  )
}

/** Trains the runs that have not begun and can share worlds, one world after another. */
async function trainTogether(
  environment: string,
  planned: readonly Planned[],
  seeds: readonly number[],
  options: SideBySideOptions,
): Promise<void> {
  const coming: ComingRun[] = []
  for (const { given, folder, definitions } of planned) {
    await claimGroup(environment, given, definitions[0]!, { out: folder, ifExists: 'refuse' })
    for (const [i, definition] of definitions.entries()) {
      const path = await within(folder, runFolderOf(seeds[i]!))
      if ((await listFolder(path)).length === 0) coming.push({ definition, folder: path })
    }
  }
  for (const runs of shareWorlds(coming)) {
    if (options.signal?.aborted) return
    await trainSideBySide(runs, options)
  }
}

async function summarize(
  sweep: Sweep,
  environment: string,
  values: ReadonlyMap<string, Values>,
  isWhole: boolean,
): Promise<SweepSummary> {
  const { seeds, tried, folder, rungs } = sweep
  const done = tried.filter(({ at }) => at.length > 0 && at.at(-1)!.group.status !== 'interrupted')
  const shown = tried.filter(({ at }) => at.length > 0)
  const settings = shown.map(({ varied, folder, at, definitions }): SweepSetting => {
    const { status, figures } = at.at(-1)!.group
    return { varied, folder, status, part: rungs[at.length - 1]!, figures, apart: whyApart(definitions[0]!) }
  })
  const curves = join(folder, 'learning-curves.svg')
  if (done.length > 0) await writeWhole(curves, [await picture({ environment, seeds }, done)])
  const best = bestOf(sweep, settings, shown)
  const preset = join(folder, 'best.json')
  if (best !== null) await writeWhole(preset, [`${JSON.stringify(shown[best.setting]!.given, null, 2)}\n`])
  const files = {
    summary: join(folder, 'summary.json'),
    ...(done.length > 0 && { learningCurves: curves }),
    ...(best !== null && { best: preset }),
  }
  const ranked = ranking(sweep).map((i) => tried[i]!.given)
  const whole: SweepSummary = {
    status: isWhole ? 'complete' : 'interrupted',
    ...{ folder, environment, seeds, settings, best, importance: importanceOf(values, ranked), files },
  }
  await writeWhole(files.summary, [`${JSON.stringify(whole, null, 2)}\n`])
  return whole
}

/** The best setting by the objective, and its name; null while there is none. */
function bestOf(sweep: Sweep, settings: readonly SweepSetting[], shown: readonly Tried[]): SweepSummary['best'] {
  const figure = COMPARED.find((name) => settings.length > 0 && settings.every(({ figures }) => name in figures))
  const [first] = ranking(sweep)
  const name = sweep.objective || figure
  if (first === undefined || name === undefined) return null
  const { worth } = sweep.tried[first]!.at.at(-1)!
  return worth.excess > 0 ? null : { figure: name, setting: shown.indexOf(sweep.tried[first]!) }
}

/** A curve per setting: the mean over its seeds, and its spread. */
async function picture(
  { environment, seeds }: Pick<SweepSummary, 'environment' | 'seeds'>,
  settings: readonly Planned[],
): Promise<string> {
  const curves: Curve[] = []
  const shown = []
  for (const { varied, folder, definitions } of settings) {
    const runs = seeds.map((seed) => ({ folder: join(folder, runFolderOf(seed)) }))
    const { training, ...axes } = await curveOfGroup(definitions, runs)
    curves.push({ name: labelOf(varied), ...training })
    shown.push(axes)
  }
  const { labels, threshold } = shown[0]!
  return drawCurves(curves, labels, { title: `${environment}, ${seeds.length} seeds each`, threshold })
}
