/** The record of a run in its folder: `config.json`, and the training that it describes. */
import { type DefinitionRecord, withoutModule } from '../../base/definition.ts'
import { checkGiven, InputError, nearestWords, show } from '../../base/errors.ts'
import { decodeText, disk, RECORD_BYTES, readText, refuseDeep, removeWhole } from '../../base/files/files.ts'
import { dirname, join } from '../../base/files/path.ts'
import { withTodaysNames } from '../../base/former-names.ts'
import { RUN_FILES, RUN_FOLDERS } from './owner.ts'

/** Files of the run and of loggers with default paths. */
const LOGS = ['run.log', 'tensorboard', 'log.jsonl', 'metrics.csv']
/** Maximum folders searched for runs to suggest in an error. */
const FOLDERS_MAX = 64
/** Whether a folder holds a run, with its `config.json`. */
export async function holdsRun(folder: string): Promise<boolean> {
  return (await readText(join(folder, 'config.json'), RECORD_BYTES)).includes('"colonnade"')
}

/** Removes the files of a training and its loggers from a folder; other files stay. */
export async function emptyRun(folder: string): Promise<void> {
  for (const name of [...RUN_FILES, ...RUN_FOLDERS, ...LOGS]) await removeWhole(join(folder, name))
}

/** The training in a `config.json`, without modules; missing parts are undefined. */
export interface RunRecord {
  readonly seed: unknown
  readonly numLanes: unknown
  readonly environment: DefinitionRecord
  readonly policy: DefinitionRecord
  /** Undefined in runs of language models. */
  readonly algorithm: DefinitionRecord
  /** Null if absent; undefined in runs without a language model, like the next two. */
  readonly sft: DefinitionRecord | null
  readonly rl: DefinitionRecord | null
  readonly rewardReduction: unknown
}

export function runRecordOf(config: Readonly<Record<string, unknown>>): RunRecord {
  const part = (key: string) => {
    const value = config[key]
    return typeof value === 'object' && value !== null ? withoutModule(value as DefinitionRecord) : value
  }
  const { seed, numLanes, rewardReduction } = (config.settings ?? {}) as Record<string, unknown>
  const records = ['environment', 'policy', 'algorithm', 'sft', 'rl'].map((key) => [key, part(key)])
  return { ...(Object.fromEntries(records) as RunRecord), seed, numLanes, rewardReduction }
}

/** The content of `config.json`. @throws InputError if it is missing, unreadable or not an object. */
export async function readConfig(folder: string): Promise<Readonly<Record<string, unknown>>> {
  checkGiven('folder', folder, 'a text')
  const path = join(folder, 'config.json')
  const expected = 'a run folder with a config.json'
  const bytes = await disk.read(path, RECORD_BYTES).catch(async (cause: NodeJS.ErrnoException) => {
    if (['ENOENT', 'ENOTDIR'].includes(cause.code!)) throw await noRun(folder)
    throw new InputError('run', `${folder} (${cause.message})`, expected, { cause })
  })
  let config: unknown
  try {
    config = JSON.parse(decodeText(bytes))
  } catch (cause) {
    throw new InputError('run', `${folder} (${(cause as Error).message})`, expected, { cause })
  }
  refuseDeep(`run ${folder}`, config)
  if (typeof config === 'object' && config !== null && !Array.isArray(config)) return todaysConfig(config)
  throw new InputError('run', `${folder} (it holds ${show(config)})`, expected)
}

/** Names that may be a model's id, `owner/name`, and not a folder of runs. */
const MODEL_ID = /^(?!runs\/)\w[\w.-]*(\/\w[\w.-]*)?$/

/** A `config.json` with former setting names replaced. */
function todaysConfig(config: object): Readonly<Record<string, unknown>> {
  const today = Object.entries(config).map(([name, part]) => {
    if (typeof part !== 'object' || part === null) return [name, part]
    if (name === 'settings') return [name, withTodaysNames('run', part)]
    const { id, parameters } = part as Partial<DefinitionRecord>
    const isRecord = typeof id === 'string' && typeof parameters === 'object' && parameters !== null
    return [name, isRecord ? { ...part, parameters: withTodaysNames(id, parameters) } : part]
  })
  return Object.fromEntries(today)
}

/** As `readConfig`, but null without the file. @throws InputError for a missing folder that cannot be a model's id. */
export async function peekConfig(folder: string): Promise<Readonly<Record<string, unknown>> | null> {
  checkGiven('folder', folder, 'a text')
  if ((await disk.kind(join(folder, 'config.json'))) !== null) return readConfig(folder)
  if (!MODEL_ID.test(folder) && (await disk.kind(folder)) === null) throw await noRun(folder)
  return null
}

/** The error for a folder that is not a run: suggests up to three runs in it or beside it. */
async function noRun(folder: string): Promise<InputError> {
  const isFolder = await disk.isFolder(folder).catch(() => null)
  const got = isFolder === null ? 'no such folder' : isFolder ? 'a folder without a config.json' : 'a file'
  const places = isFolder ? [folder] : [dirname(folder), 'runs']
  for (const place of new Set(places)) {
    const runs = await runsIn(place)
    if (runs.length > 0)
      return new InputError(folder, got, `a run folder, like ${nearestWords(folder, runs).join(', ')}`)
  }
  return new InputError(folder, got, 'a run folder, as colonnade train makes one')
}

/** The runs in a folder, or else in its subfolders; none if it cannot be read. */
async function runsIn(folder: string): Promise<string[]> {
  const below = async (place: string) =>
    (await disk.list(place).catch(() => [])).sort().map((name) => join(place, name))
  const runsOf = async (paths: readonly string[]) => {
    const are = await Promise.all(paths.map((path) => holdsRun(path).catch(() => false)))
    return paths.filter((_, i) => are[i])
  }
  const inner = await below(folder)
  const runs = await runsOf(inner)
  return runs.length > 0 ? runs : runsOf((await Promise.all(inner.slice(0, FOLDERS_MAX).map(below))).flat())
}
