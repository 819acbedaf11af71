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
import type { RunDefinition } from '../run/definition.ts'
import { configureRun, type Run, type RunSummary, resolveRunKeys, runKeys } from '../run/run.ts'
import {
  claim,
  claimGroup,
  curveOfGroup,
  type GroupPlace,
  type RunGroupSummary,
  runFolderOf,
  type Spread,
  trainSeeds,
} from './run-group.ts'
import { isRange, isSeveral, rangeOf, sampleSettings, type Values } from './sampled-settings.ts'
import { type ComingRun, type SideBySideOptions, shareWorlds, trainSideBySide, whyApart } from './side-by-side.ts'

/** One setting of a sweep, and its runs' results. */
export interface SweepSetting {
  /** The varied keys, with this setting's values. */
  readonly varied: Readonly<Record<string, string>>
  readonly folder: string
  readonly status: RunGroupSummary['status']
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
  /** In the order of their values, the last key varying fastest. If interrupted, the finished ones. */
  readonly settings: readonly SweepSetting[]
  /** The figure that compares settings, and the setting with the highest mean; null while there is none. */
  readonly best: { readonly figure: string; readonly setting: number } | null
  readonly files: Readonly<Record<string, string>>
}

/** Options of a sweep. `onUpdate` observes runs trained together; `signal` stops them, and the same call continues. */
export interface SweepOptions extends SideBySideOptions, GroupPlace {
  /** Settings to draw from the values and ranges; default 0: every combination. */
  readonly samples?: number
  /** Trains a run that must be trained alone; default silently. */
  readonly train?: (run: Run) => Promise<RunSummary>
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
    const list = NOT_VARIED.includes(key) ? [text] : text.split(separator)
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

/** The settings to train: every combination, or `samples` of them. @throws InputError for ranges without samples. */
function settingsOf(values: ReadonlyMap<string, Values>, samples: number): Record<string, string>[] {
  if (!Number.isSafeInteger(samples) || samples < 0)
    throw new InputError('samples', show(samples), 'a whole number ≥ 0')
  if (samples > 0) return sampleSettings(values, samples)
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
 * values are separated by commas, or a range from which `samples` are drawn (`valuesOf`). Called again with the same settings and folder, it keeps finished runs,
 * resumes interrupted ones one after another, and starts the missing ones.
 * @throws InputError as `trainSeeds` does, if no key has several values, and for a folder with anything else.
 */
export async function trainSweep(
  environment: string,
  texts: Readonly<Record<string, string>>,
  seeds: readonly number[],
  { train, onUpdate, signal, samples = 0, ...place }: SweepOptions = {},
): Promise<SweepSummary> {
  checkGiven('seeds of trainSweep', seeds, 'a list')
  if (seeds.length === 0) throw new InputError('seeds', 'none', 'at least one')
  if (texts.seed !== undefined) throw new InputError('seed', show(texts.seed), 'seeds, since a sweep has several')
  const values = await valuesOf(environment, texts)
  const choices = settingsOf(values, samples)
  const several = [...values.keys()].filter((key) => isSeveral(values.get(key)!))
  const configured: Omit<Planned, 'folder'>[] = [] // Configure all before training the first, to find errors early.
  for (const given of choices) {
    const varied = Object.fromEntries(several.map((key) => [key, given[key]!]))
    const definitions: RunDefinition[] = []
    for (const seed of seeds) definitions.push(await configureRun(environment, { ...given, seed: String(seed) }))
    configured.push({ varied, given, definitions })
  }
  const { id } = configured[0]!.definitions[0]!.environment
  const usual = join('runs', `${id.replaceAll('/', '-')}-sweep`)
  const told = { environment, given: texts, seeds, ...(samples > 0 && { samples }) }
  const folder = await claim('sweep.json', told, usual, place)
  const planned = configured.map((each, i) => {
    const name = `${i + 1}-${labelOf(each.varied).replaceAll(/[^\w.=,-]+/g, '-')}`
    return { ...each, folder: join(folder, name.slice(0, 120)) }
  })
  await trainTogether(environment, planned, seeds, { onUpdate, signal })
  const settings: SweepSetting[] = []
  for (const each of planned) {
    if (signal?.aborted) break
    const { varied, given } = each
    const group = await trainSeeds(environment, given, seeds, {
      out: each.folder,
      ifExists: 'refuse',
      ...(train && { train }),
    })
    const { status, figures } = group
    settings.push({ varied, folder: each.folder, status, figures, apart: whyApart(each.definitions[0]!) })
    if (status === 'interrupted') break
  }
  return summarize({ folder, environment: id, seeds, settings }, planned)
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
  { folder, environment, seeds, settings }: Pick<SweepSummary, 'folder' | 'environment' | 'seeds' | 'settings'>,
  planned: readonly Planned[],
): Promise<SweepSummary> {
  const isWhole = settings.length === planned.length && settings.every(({ status }) => status === 'complete')
  const done = settings.filter(({ status }) => status === 'complete')
  const curves = join(folder, 'learning-curves.svg')
  if (done.length > 0) await writeWhole(curves, [await picture({ environment, seeds }, done, planned)])
  const files = {
    summary: join(folder, 'summary.json'),
    ...(done.length > 0 && { learningCurves: curves }),
  }
  const whole: SweepSummary = {
    status: isWhole ? 'complete' : 'interrupted',
    ...{ folder, environment, seeds, settings, best: bestOf(settings), files },
  }
  await writeWhole(files.summary, [`${JSON.stringify(whole, null, 2)}\n`])
  return whole
}

/** The setting with the highest mean of the first compared figure that all have. */
function bestOf(settings: readonly SweepSetting[]): SweepSummary['best'] {
  const figure = COMPARED.find((name) => settings.length > 0 && settings.every(({ figures }) => name in figures))
  if (figure === undefined) return null
  const means = settings.map(({ figures }) => figures[figure]!.mean)
  return { figure, setting: means.indexOf(Math.max(...means)) }
}

/** A curve per setting: the mean over its seeds, and its spread. */
async function picture(
  { environment, seeds }: Pick<SweepSummary, 'environment' | 'seeds'>,
  settings: readonly SweepSetting[],
  planned: readonly Planned[],
): Promise<string> {
  const curves: Curve[] = []
  const shown = []
  for (const { varied, folder } of settings) {
    const { definitions } = planned.find((each) => each.folder === folder)!
    const runs = seeds.map((seed) => ({ folder: join(folder, runFolderOf(seed)) }))
    const { training, ...axes } = await curveOfGroup(definitions, runs)
    curves.push({ name: labelOf(varied), ...training })
    shown.push(axes)
  }
  const { labels, threshold } = shown[0]!
  return drawCurves(curves, labels, { title: `${environment}, ${seeds.length} seeds each`, threshold })
}
