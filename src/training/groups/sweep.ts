/**
 * Sweeps: runs of several settings, each with several seeds. Those of one setting are a group of runs (`run-group.ts`), in a folder of
 * the sweep's; beside the groups stand `sweep.json` (what it was told), `summary.json` and `learning-curves.svg`. Runs that can learn
 * side by side do so in one world (`side-by-side.ts`), with the bits that each has alone.
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
import { type ComingRun, type SideBySideOptions, shareWorlds, trainSideBySide, whyApart } from './side-by-side.ts'

/** One setting of a sweep, and what its runs came to. */
export interface SweepSetting {
  /** The keys that the sweep varies, with the values that they have here. */
  readonly varied: Readonly<Record<string, string>>
  readonly folder: string
  readonly status: RunGroupSummary['status']
  /** Over its seeds, by name. */
  readonly figures: Readonly<Record<string, Spread>>
  /** Why its runs were trained one after another; null where they learned side by side with others. */
  readonly apart: string | null
}

/** What a sweep came to. */
export interface SweepSummary {
  /** `interrupted` where a run was: the same call goes on. */
  readonly status: 'complete' | 'interrupted'
  readonly folder: string
  readonly environment: string
  readonly seeds: readonly number[]
  /** In the order of their values, the last key's first. Where it was interrupted, those that are done. */
  readonly settings: readonly SweepSetting[]
  /** The figure by which settings are compared, and the setting whose mean is the highest; null while there is none. */
  readonly best: { readonly figure: string; readonly setting: number } | null
  readonly files: Readonly<Record<string, string>>
}

/** How a sweep is trained. `onUpdate` is told of runs that learn side by side, and `signal` ends them; the same call goes on. */
export interface SweepOptions extends SideBySideOptions, GroupPlace {
  /** Trains a run that learns alone to its end; by default without telling anybody. */
  readonly train?: (run: Run) => Promise<RunSummary>
}

/** Keys of which a sweep has one value: they say nothing of how a run learns, or name files whose names may have commas. */
const NOT_VARIED = ['out', 'from', 'weights', 'loggers']

/** Keys that say which further keys there are, and what stands between their values. */
const PARTS = { policy: /[,|]/, algorithm: /[,|]/, systems: '|', wrappers: '|' } as const

/** The figures by which settings are compared, of which the first that all have is taken. */
const COMPARED = ['evaluation', 'heldOut', 'episodeReturn', 'reward']

/**
 * The values of each key as they are written: `0.9,0.99`; of a key whose value is a list, like `mlp.hidden`, behind bars: `64,64|128`.
 * @throws InputError for an unknown environment, a value twice, or an empty one, and where no key has several.
 */
async function valuesOf(
  environment: string,
  texts: Readonly<Record<string, string>>,
): Promise<ReadonlyMap<string, readonly string[]>> {
  checkGiven('environment', environment, 'a text')
  checkGiven('keys', texts, [])
  const named = Object.entries(PARTS).filter(([part]) => texts[part] !== undefined)
  const first = named.map(([part, separator]) => [part, texts[part]!.split(separator)[0]!])
  const keys = await runKeys(environment, Object.fromEntries(first))
  const values = new Map<string, readonly string[]>()
  for (const [key, text] of Object.entries(keysOfToday(keys, texts))) {
    const isList = Array.isArray(keys.get(key)?.default)
    const separator = text.includes('|') || isList ? '|' : ','
    const list = NOT_VARIED.includes(key) ? [text] : text.split(separator)
    if (list.length > 1 && list.some((value) => value === '')) {
      const expected = `values between ${separator === '|' ? 'bars' : 'commas'}, none of them empty`
      throw new InputError(key, show(text), expected)
    }
    if (new Set(list).size < list.length) throw new InputError(key, show(text), 'each value once')
    values.set(key, list)
  }
  if ([...values.values()].some(({ length }) => length > 1)) return values
  throw new InputError('sweep', 'one value of each key', 'a key with several, like ppo.gamma=0.9,0.99')
}

/**
 * What `resolveRunKeys` says of every run of a sweep; of keys that the sweep varies their values, and of keys that differ otherwise nothing.
 * @throws InputError as `trainSweep` does for its texts.
 */
export async function resolveSweepKeys(
  environment: string,
  texts: Readonly<Record<string, string>>,
): Promise<Map<string, SettingValue | readonly SettingValue[]>> {
  const values = await valuesOf(environment, texts)
  const runs: Map<string, SettingValue>[] = []
  for (const given of choicesOf(values)) runs.push(await resolveRunKeys(environment, given))
  const resolved = new Map<string, SettingValue | readonly SettingValue[]>()
  for (const key of new Set(runs.flatMap((run) => [...run.keys()]))) {
    const different = [...new Map(runs.map((run) => [JSON.stringify(run.get(key)), run.get(key)])).values()]
    const isVaried = (values.get(key)?.length ?? 0) > 1
    const found = different.filter((value) => value !== undefined)
    if (isVaried) resolved.set(key, found)
    else if (different.length === 1) resolved.set(key, found[0]!)
  }
  resolved.delete('seed') // Of which a sweep has several.
  return resolved
}

/** Every choice of one value of each key; the last key's values follow one another. */
function choicesOf(values: ReadonlyMap<string, readonly string[]>): Record<string, string>[] {
  let choices: Record<string, string>[] = [{}]
  for (const [key, list] of values) {
    choices = choices.flatMap((choice) => list.map((value) => ({ ...choice, [key]: value })))
  }
  return choices
}

/** What a setting is called, also as a folder. */
function labelOf(varied: Readonly<Record<string, string>>): string {
  const words = Object.entries(varied).map(([key, value]) => `${key}=${value}`)
  return words.join(' ')
}

/** One setting of a sweep, before it is trained. */
interface Planned {
  readonly varied: Readonly<Record<string, string>>
  readonly given: Readonly<Record<string, string>>
  readonly folder: string
  /** Of each seed. */
  readonly definitions: readonly RunDefinition[]
}

/**
 * Trains a run for each of several settings and each of several seeds, side by side where they can be, and puts together what came
 * of them. `texts` has several values of a key between commas (`valuesOf`). Called again with the same words and folder it goes on:
 * runs that have ended stay, those that were interrupted are resumed, one after another, and those that lack are begun.
 * @throws InputError as `trainSeeds` does, where no key has several values, and for a folder that holds anything else.
 */
export async function trainSweep(
  environment: string,
  texts: Readonly<Record<string, string>>,
  seeds: readonly number[],
  { train, onUpdate, signal, ...place }: SweepOptions = {},
): Promise<SweepSummary> {
  checkGiven('seeds of trainSweep', seeds, 'a list')
  if (seeds.length === 0) throw new InputError('seeds', 'none', 'at least one')
  if (texts.seed !== undefined) throw new InputError('seed', show(texts.seed), 'seeds, of which a sweep has several')
  const values = await valuesOf(environment, texts)
  const choices = choicesOf(values)
  const several = [...values.keys()].filter((key) => values.get(key)!.length > 1)
  const configured: Omit<Planned, 'folder'>[] = [] // All before the first is trained: what is wrong is told at once.
  for (const given of choices) {
    const varied = Object.fromEntries(several.map((key) => [key, given[key]!]))
    const definitions: RunDefinition[] = []
    for (const seed of seeds) definitions.push(await configureRun(environment, { ...given, seed: String(seed) }))
    configured.push({ varied, given, definitions })
  }
  const { id } = configured[0]!.definitions[0]!.environment
  const usual = join('runs', `${id.replaceAll('/', '-')}-sweep`)
  const folder = await claim('sweep.json', { environment, given: texts, seeds }, usual, place)
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

/** Trains those runs that have not begun and can share worlds, one world after another. */
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

/** The setting with the highest mean, by the first of the compared figures that all have. */
function bestOf(settings: readonly SweepSetting[]): SweepSummary['best'] {
  const figure = COMPARED.find((name) => settings.length > 0 && settings.every(({ figures }) => name in figures))
  if (figure === undefined) return null
  const means = settings.map(({ figures }) => figures[figure]!.mean)
  return { figure, setting: means.indexOf(Math.max(...means)) }
}

/** A curve of each setting: the mean over its seeds, and how far they are apart. */
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
