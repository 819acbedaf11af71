/**
 * What every kind of run does with its folder: takes one as its owner, keeps its lines and its log, and on resuming drops what
 * is younger than the checkpoint that it goes on from.
 *
 * `owner.ts` says who may write, and `if-exists.ts` what happens where the folder holds a run already. `run.log` has what nobody
 * was there to be told.
 */
import { dirname, isAbsolute, join, relative, resolve, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { type DefinitionRecord, withoutModule } from '../../base/definition.ts'
import { checkGiven, InputError, nearestWords, show, thrownText } from '../../base/errors.ts'
import {
  appendText,
  cannotWrite,
  disk,
  listFolder,
  makeFolder,
  parseObject,
  RECORD_BYTES,
  readText,
  refuseDeep,
  removeWhole,
  syncFile,
  within,
  writeWhole,
} from '../../base/files/files.ts'
import { withTodaysNames } from '../../base/former-names.ts'
import type { ModuleTrust } from '../../base/trust.ts'
import { Watchdog, type Watched } from '../watch/watchdog.ts'
import { listCheckpoints, pruneCheckpoints, removeCheckpoints } from './checkpoint.ts'
import { type FreeFolder, firstFree, type IfExists, TakenError } from './if-exists.ts'
import { isClaim, isTemporary, Ownership, RUN_FILES, RUN_FOLDERS } from './owner.ts'

/** What is written beside a run's files by the run and by loggers that are not told where. */
const LOGS = ['run.log', 'tensorboard', 'log.jsonl', 'metrics.csv']
/** Folders in which runs are looked for, to name one in an error. */
const FOLDERS_MAX = 64
/** What is made when a run has come to its end. */
const LAST_FILES = ['summary.json', 'learning-curve.svg', 'trace.json']

/** @throws InputError if the folder holds anything, but for what a start left that was cut off before there was a run. */
export async function refuseOccupied(folder: string): Promise<void> {
  if (folder === '') throw new InputError('out', 'an empty name', 'a folder')
  const present = await listFolder(folder).catch((cause: InputError) => {
    throw cannotWrite(folder, cause.cause)
  })
  const isRun = present.includes('config.json') && (present.includes('metrics.jsonl') || (await holdsRun(folder)))
  if (isRun) {
    const expected = `a new folder (to go on with it: colonnade resume ${folder})`
    throw new TakenError('out', folder, 'holds a run', expected)
  }
  const others = present.filter((name) => !isClaim(name) && !isTemporary(name))
  const isCutOff =
    others.every((name) => name === 'checkpoints') && (await listCheckpoints(folder)).every((n) => n === 0)
  if (!isCutOff) throw new InputError('out', `${folder}, which is not empty`, 'a new or empty folder')
}

/** Whether a folder holds a run, with its `config.json`. */
export async function holdsRun(folder: string): Promise<boolean> {
  return (await readText(join(folder, 'config.json'), RECORD_BYTES)).includes('"colonnade"')
}

/** Removes what a training and its loggers have written into a folder, and leaves everything else there. */
export async function emptyRun(folder: string): Promise<void> {
  for (const name of [...RUN_FILES, ...RUN_FOLDERS, ...LOGS]) await removeWhole(join(folder, name))
}

/** What a `config.json` says of the training that it began, without modules; what it does not say is undefined. */
export interface RunRecord {
  readonly seed: unknown
  readonly numLanes: unknown
  readonly environment: DefinitionRecord
  readonly policy: DefinitionRecord
  /** Undefined in runs of language models. */
  readonly algorithm: DefinitionRecord
  /** Null where it was left out; undefined in runs without a language model, like the two below. */
  readonly sft: DefinitionRecord | null
  readonly rl: DefinitionRecord | null
  readonly rewardReduction: unknown
}

/** What a `config.json` says of the training, without modules. */
export function runRecordOf(config: Readonly<Record<string, unknown>>): RunRecord {
  const part = (key: string) => {
    const value = config[key]
    return typeof value === 'object' && value !== null ? withoutModule(value as DefinitionRecord) : value
  }
  const { seed, numLanes, rewardReduction } = (config.settings ?? {}) as Record<string, unknown>
  const records = ['environment', 'policy', 'algorithm', 'sft', 'rl'].map((key) => [key, part(key)])
  return { ...(Object.fromEntries(records) as RunRecord), seed, numLanes, rewardReduction }
}

/** A run's folder, of which this process is the owner until `release`. */
export class RunFolder {
  readonly path: string
  readonly #ownership: Ownership

  private constructor(path: string, ownership: Ownership) {
    this.path = path
    this.#ownership = ownership
  }

  /**
   * Takes a folder for a new run: the first of those that may be numbered, or what `ifExists` says where that holds a run. Of several
   * runs that begin at once each gets one of its own.
   * @throws InputError if the folder holds something other than a run, is another's, or cannot be written.
   */
  static claim(folderOf: (number: number) => string, ifExists: IfExists): Promise<FreeFolder<RunFolder>> {
    const isReplaced = ifExists === 'replace'
    return firstFree(folderOf, ifExists, async (path) => {
      if (!isReplaced) await refuseOccupied(path)
      await makeFolder(path).catch((cause) => {
        throw cannotWrite(path, cause)
      })
      const taken = await RunFolder.take(path)
      return taken.unlessFails(async () => {
        if (isReplaced && (await holdsRun(path))) await emptyRun(path)
        await refuseOccupied(path) // Somebody may have been faster.
        await removeWhole(join(path, 'checkpoints'))
        return taken
      })
    })
  }

  /**
   * Takes the folder of a run that is there. A run of this process that is not training gives it up.
   * @throws InputError that says who has it, or that it cannot be written.
   */
  static async take(path: string): Promise<RunFolder> {
    return new RunFolder(path, await Ownership.take(path))
  }

  /** Where something of the run lies. */
  file(...names: readonly string[]): string {
    return join(this.path, ...names)
  }

  /** Somebody else may have it from now on. */
  release(): Promise<void> {
    return this.#ownership.release()
  }

  /** Does something with the folder, and gives it up if that fails. */
  async unlessFails<T>(action: () => Promise<T>): Promise<T> {
    try {
      return await action()
    } catch (error) {
      await this.release()
      throw error
    }
  }

  /**
   * Trains, and gives the folder up at the end. An error that ends the training stands in the log.
   * @throws InputError if the folder was given up before.
   */
  async during<T>(training: () => Promise<T>): Promise<T> {
    const { isBusy, isReleased } = this.#ownership
    if (isBusy || isReleased) {
      const got = isReleased ? 'one that has ended, or that was taken up again since' : 'one that is training'
      throw new InputError(`run ${this.path}`, got, 'a run of resumeRun')
    }
    this.#ownership.isBusy = true
    try {
      return await training()
    } catch (error) {
      this.log(`ended by an error: ${thrownText(error)}`)
      throw error
    } finally {
      await this.release()
    }
  }

  /** Adds a line to `run.log`, for whoever looks in the morning. */
  log(line: string): void {
    try {
      appendText(this.file('run.log'), `${new Date().toISOString()} process ${process.pid}: ${line}\n`)
    } catch {
      // Nobody is left to tell: what it says was told elsewhere, and a full disk must not end the training here.
    }
  }

  /** Says something on standard error and in the log. */
  tell(message: string): void {
    process.stderr.write(`colonnade: warning: ${message}\n`)
    this.log(message)
  }

  /**
   * Watches the threads of a training. A call that is stuck is told on standard error and in the log; where the run is to stop
   * then, or was told to end, the training is given up for that reason, which is `stall`.
   */
  async watch(
    training: Pick<Watched, 'beats' | 'who' | 'calls'> & { giveUp(reason: Error): void },
    { stallSeconds, onStall }: { readonly stallSeconds: number; readonly onStall: string },
    signal: AbortSignal | undefined,
  ): Promise<{ readonly stall: Error | null; close(): void }> {
    const state = { stall: null as Error | null, close: () => {} }
    const giveUp = (message: string): void => {
      if (onStall !== 'stop' && !signal?.aborted) return
      state.stall = new Error(message)
      training.giveUp(state.stall)
    }
    const { beats, who, calls } = training
    const watched = { beats, who, calls, seconds: stallSeconds, log: this.file('run.log'), onStall: giveUp }
    const watchdog = await Watchdog.start(watched, onStall === 'stop')
    const hurry = () => watchdog.hurry()
    // Who waits for a promise alone has nothing that keeps Node from ending.
    const alive = setInterval(() => {}, 2 ** 30)
    signal?.addEventListener('abort', hurry)
    state.close = () => {
      signal?.removeEventListener('abort', hurry)
      clearInterval(alive)
      watchdog.close()
    }
    return state
  }

  /** Writes `config.json`, which makes the folder that of a run. */
  async writeConfig(config: object): Promise<void> {
    await writeWhole(this.file('config.json'), [`${JSON.stringify(config, null, 2)}\n`])
  }

  /** Adds a line to `metrics.jsonl`; NaN, which JSON lacks, is null. */
  note(line: object): void {
    appendText(this.file('metrics.jsonl'), `${JSON.stringify(line)}\n`)
  }

  /** Lets `save` write a checkpoint, and removes all but the newest and the best. */
  async checkpoint(save: () => Promise<unknown>, kept: number, best?: number): Promise<void> {
    await syncFile(this.file('metrics.jsonl')) // A checkpoint's metric lines outlive a power failure with it.
    await save()
    await this.prune(kept, best)
  }

  /** Removes all but the newest checkpoints, and the best. */
  async prune(kept: number, best?: number): Promise<void> {
    await pruneCheckpoints(this.path, kept, best)
  }

  /** Removes all from one of the run's folders but what has this name. */
  async keepOnly(folder: string, name: string): Promise<void> {
    for (const other of await listFolder(await within(this.path, folder)))
      if (other !== name) await removeWhole(this.file(folder, other))
  }

  /** The lines of `metrics.jsonl`. @throws InputError for one that is no JSON object. */
  lines(): Promise<Record<string, unknown>[]> {
    return readMetrics(this.path)
  }

  /**
   * Drops all that came after a checkpoint: younger checkpoints, lines whose number under `key` is higher than `last`, files in
   * the folder `tables` of later updates, and what a run has at its end. Of the lines until then `count` should be there, each
   * with a higher number than the one before; what is damaged goes too. Returns what a user should be told of that.
   * @throws InputError if something cannot be read, before anything is dropped, or cannot be written.
   */
  async dropYounger(at: {
    readonly checkpoint: number
    readonly key: string
    readonly last: number
    readonly count: number
    readonly tables: string
    readonly update: number
  }): Promise<string[]> {
    const path = this.file('metrics.jsonl')
    const texts = await readLines(path)
    const tables = await listFolder(await within(this.path, at.tables)) // All is read before anything is dropped.
    const { kept, damaged } = keptLines(texts, at.key, at.last)
    await writeWhole(path, [kept.map((line) => `${line}\n`).join('')])
    await removeCheckpoints(this.path, (number) => number > at.checkpoint)
    for (const name of tables) {
      if (/^\d+\.arrow$/.test(name) && Number.parseInt(name, 10) > at.update)
        await removeWhole(this.file(at.tables, name))
    }
    for (const name of LAST_FILES) await removeWhole(this.file(name))
    if (damaged.length === 0 && kept.length === at.count) return []
    const lacking = at.count - kept.length
    const parts = [
      damaged.length === 0 ? '' : `${damaged.length} damaged lines left out (the first is line ${damaged[0]})`,
      lacking <= 0 ? '' : `${lacking} lines of ${at.count} are lost`,
    ]
    const warning = `metrics.jsonl: ${parts.filter(Boolean).join('; ')}`
    this.log(warning)
    return [warning]
  }
}

/** How a run is resumed. */
export interface ResumeOptions extends ModuleTrust {
  /** The number of the checkpoint to go on from; the newest where it is not given. What is younger than it goes. */
  readonly from?: number | undefined
  /** Settings to be given anew, as texts of a command line: `{ totalSteps: '2e6' }`. */
  readonly settings?: Readonly<Record<string, string>> | undefined
}

/** What `config.json` says. @throws InputError if there is none, it cannot be read, or it is no object. */
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
    config = JSON.parse(Buffer.from(bytes).toString())
  } catch (cause) {
    throw new InputError('run', `${folder} (${(cause as Error).message})`, expected, { cause })
  }
  refuseDeep(`run ${folder}`, config)
  if (typeof config === 'object' && config !== null && !Array.isArray(config)) return todaysConfig(config)
  throw new InputError('run', `${folder} (it holds ${show(config)})`, expected)
}

/** What may be the id of a model, `owner/name`, and is no folder of runs. */
const MODEL_ID = /^(?!runs\/)\w[\w.-]*(\/\w[\w.-]*)?$/

/** A `config.json` by today's names of settings. */
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

/** As `readConfig`, but null where there is none. @throws InputError where no folder is there either, and its name is no model's. */
export async function peekConfig(folder: string): Promise<Readonly<Record<string, unknown>> | null> {
  checkGiven('folder', folder, 'a text')
  if ((await disk.kind(join(folder, 'config.json'))) !== null) return readConfig(folder)
  if (!MODEL_ID.test(folder) && (await disk.kind(folder)) === null) throw await noRun(folder)
  return null
}

/** What to say of a folder that was named as a run and is none: up to three runs below it or, where it is not there, beside it. */
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

/** The runs in a folder, or else those in its folders; none where nothing can be seen. */
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

/** The lines of a run's `metrics.jsonl`; none where it has no such file. @throws InputError that names a line that is no object. */
export async function readMetrics(folder: string): Promise<Record<string, unknown>[]> {
  const path = join(folder, 'metrics.jsonl')
  return (await readLines(path)).map((text, i) => {
    const line = parseObject(text)
    if (line === null) throw new InputError(`${path}:${i + 1}`, show(text), 'a line with a JSON object')
    return line
  })
}

/** The lines that end in a line break: a last one that was cut off by a crash is not among them. */
async function readLines(path: string): Promise<string[]> {
  const text = await readText(path)
  return text
    .slice(0, text.lastIndexOf('\n') + 1)
    .split('\n')
    .filter(Boolean)
}

/** The lines up to the last number, rising; and the numbers, from 1, of those that are damaged. */
function keptLines(texts: readonly string[], key: string, last: number): { kept: string[]; damaged: number[] } {
  const kept: string[] = []
  const damaged: number[] = []
  let highest = 0
  for (const [i, text] of texts.entries()) {
    const number = parseObject(text)?.[key]
    if (typeof number === 'number' && number > last) continue
    if (Number.isSafeInteger(number) && (number as number) > highest) {
      kept.push(text)
      highest = number as number
    } else damaged.push(i + 1)
  }
  return { kept, damaged }
}

/**
 * A definition's record as it stands in `config.json`. Where module and run lie under the working directory both, as in a
 * project, the module (or that of a part) is named by its way from the run folder, so that the project can be moved; else by its URL.
 */
export function recordIn(folder: string, record: DefinitionRecord): DefinitionRecord {
  return mapModules(record, (module) => {
    if (!module.startsWith('file:')) return module
    const path = fileURLToPath(module)
    const isHere = [path, resolve(folder)].every((place) => {
      const way = relative(process.cwd(), place)
      return !way.startsWith('..') && !isAbsolute(way)
    })
    return isHere ? relative(folder, path).split(sep).join('/') : module
  })
}

/** The record again, with its modules as URLs. @throws InputError for a module that is no text. */
export function recordFrom(folder: string, record: DefinitionRecord): DefinitionRecord {
  const { modules = {} } = record
  if (typeof modules !== 'object' || modules === null || Array.isArray(modules)) {
    throw new InputError(`modules of ${folder}`, show(modules), 'an object with the paths of modules')
  }
  return mapModules(record, (module) => {
    if (typeof module !== 'string') throw new InputError(`module of ${folder}`, show(module), 'the path of a module')
    const isUrl = /^[a-z][a-z0-9+.-]+:/i.test(module) // One letter and a colon would be a drive.
    return isUrl ? module : pathToFileURL(resolve(folder, module)).href
  })
}

/** A record with other names for its module and for those of its parts. */
function mapModules(record: DefinitionRecord, nameOf: (module: string) => string): DefinitionRecord {
  const { module, modules, wrappers } = record
  return {
    ...record,
    ...(wrappers === undefined ? {} : { wrappers: wrappers.map((wrapper) => mapModules(wrapper, nameOf)) }),
    ...(module === undefined ? {} : { module: nameOf(module) }),
    ...(modules === undefined
      ? {}
      : { modules: Object.fromEntries(Object.entries(modules).map(([key, name]) => [key, nameOf(name)])) }),
  }
}
