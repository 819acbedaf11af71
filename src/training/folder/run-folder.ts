/**
 * A run's folder, for all kinds of run: takes it as its owner, writes its metrics lines and log, and on resuming drops
 * what is younger than the checkpoint.
 *
 * `owner.ts` decides who may write, and `if-exists.ts` what happens if the folder has a run. `run.log` keeps messages
 * for unattended runs.
 */
import type { DefinitionRecord } from '../../base/definition.ts'
import { InputError, show, thrownText } from '../../base/errors.ts'
import {
  appendText,
  cannotWrite,
  listFolder,
  makeFolder,
  parseObject,
  removeWhole,
  syncFile,
  within,
  writeWhole,
} from '../../base/files/files.ts'
import { fileURLToPath, isAbsolute, join, pathToFileURL, relative, resolve, sep } from '../../base/files/path.ts'
import { processNumber, tell } from '../../base/host.ts'
import type { ModuleTrust } from '../../base/trust.ts'
import { readLines, readMetrics } from '../../telemetry/metrics-lines.ts'
import { Watchdog, type Watched } from '../watch/watchdog.ts'
import { listCheckpoints, pruneCheckpoints, removeCheckpoints } from './checkpoint.ts'
import { type FreeFolder, firstFree, type Requested, TakenError } from './free-folder.ts'
import type { IfExists } from './if-exists.ts'
import { keepMetricsIndex } from './metrics-index.ts'
import { isClaim, isTemporary, Ownership } from './owner.ts'
import { emptyRun, holdsRun } from './run-record.ts'

/** Files that a run writes at its end. */
const LAST_FILES = ['summary.json', 'learning-curve.svg', 'trace.json']

/** @throws InputError if the folder has files, other than remains of an interrupted start. */
export async function refuseOccupied(folder: string): Promise<void> {
  if (folder === '') throw new InputError('out', 'an empty name', 'a folder')
  const present = await listFolder(folder).catch((cause: InputError) => {
    throw cannotWrite(folder, cause.cause)
  })
  const isRun = present.includes('config.json') && (present.includes('metrics.jsonl') || (await holdsRun(folder)))
  if (isRun) {
    const expected = `a new folder (to continue it: colonnade resume ${folder})`
    throw new TakenError('out', folder, 'holds a run', expected)
  }
  const others = present.filter((name) => !isClaim(name) && !isTemporary(name))
  const isCutOff =
    others.every((name) => name === 'checkpoints') && (await listCheckpoints(folder)).every((n) => n === 0)
  if (!isCutOff) throw new InputError('out', `${folder}, which is not empty`, 'a new or empty folder')
}

/** A run's folder, owned by this process until `release`. */
export class RunFolder {
  readonly path: string
  /** Whether its `metrics.index` could not be written, which is told once. */
  #lacksIndex = false
  readonly #ownership: Ownership

  private constructor(path: string, ownership: Ownership) {
    this.path = path
    this.#ownership = ownership
  }

  /** Claims a folder for a new run, as `ifExists` says if it is requested. @throws InputError for other files or owners. */
  static claim(requested: Requested, ifExists: IfExists): Promise<FreeFolder<RunFolder>> {
    const isReplaced = typeof requested === 'string' && ifExists === 'replace'
    return firstFree(requested, ifExists, async (path) => {
      if (!isReplaced) await refuseOccupied(path)
      await makeFolder(path).catch((cause) => {
        throw cannotWrite(path, cause)
      })
      const taken = await RunFolder.take(path)
      return taken.unlessFails(async () => {
        if (isReplaced && (await holdsRun(path))) await emptyRun(path)
        await refuseOccupied(path) // Another process may have been faster.
        await removeWhole(join(path, 'checkpoints'))
        return taken
      })
    })
  }

  /** Takes an existing run's folder, also from an idle run of this process. @throws InputError that names the owner. */
  static async take(path: string): Promise<RunFolder> {
    return new RunFolder(path, await Ownership.take(path))
  }

  /** The path of a file of the run. */
  file(...names: readonly string[]): string {
    return join(this.path, ...names)
  }

  /** Lets others take the folder. */
  release(): Promise<void> {
    return this.#ownership.release()
  }

  /** Runs an action, and releases the folder if it fails. */
  async unlessFails<T>(action: () => Promise<T>): Promise<T> {
    try {
      return await action()
    } catch (error) {
      await this.release()
      throw error
    }
  }

  /** Trains, logs an error, and releases the folder. @throws InputError if it was released before. */
  async during<T>(training: () => Promise<T>): Promise<T> {
    const { isBusy, isReleased } = this.#ownership
    if (isBusy || isReleased) {
      const got = isReleased ? 'a run that has ended, or was resumed since' : 'a run that is training'
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

  log(line: string): void {
    try {
      appendText(this.file('run.log'), `${new Date().toISOString()} process ${processNumber}: ${line}\n`)
    } catch {
      // The message was already shown, and a full disk must not end the training here.
    }
  }

  /** Writes a message to standard error and the log. */
  tell(message: string): void {
    tell(`warning: ${message}`)
    this.log(message)
  }

  /** Reports stuck calls. If the run has to stop, or was asked to, abandons the training with the error `stall`. */
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
    // A pending promise alone does not keep Node alive.
    const alive = setInterval(() => {}, 2 ** 30)
    signal?.addEventListener('abort', hurry)
    state.close = () => {
      signal?.removeEventListener('abort', hurry)
      clearInterval(alive)
      watchdog.close()
    }
    return state
  }

  /** Writes `config.json`, which marks the folder as a run's. */
  async writeConfig(config: object): Promise<void> {
    await writeWhole(this.file('config.json'), [`${JSON.stringify(config, null, 2)}\n`])
  }

  /** Adds a line to `metrics.jsonl`. NaN becomes null, since JSON lacks it. */
  note(line: object): void {
    appendText(this.file('metrics.jsonl'), `${JSON.stringify(line)}\n`)
  }

  /** Lets `save` write a checkpoint, and removes all but the newest and the best. */
  async checkpoint(save: () => Promise<unknown>, kept: number, best?: number): Promise<void> {
    await syncFile(this.file('metrics.jsonl')) // A checkpoint's metrics lines must survive a power failure with it.
    await save()
    await this.prune(kept, best)
    await keepMetricsIndex(this).catch(({ message }: Error) => {
      if (!this.#lacksIndex) this.tell(`${message}; the dashboard reads metrics.jsonl instead`)
      this.#lacksIndex = true
    })
  }

  /** Removes all but the newest checkpoints and the best. */
  async prune(kept: number, best?: number): Promise<void> {
    await pruneCheckpoints(this.path, kept, best)
  }

  /** Removes everything except this name from one of the run's folders. */
  async keepOnly(folder: string, name: string): Promise<void> {
    for (const other of await listFolder(await within(this.path, folder)))
      if (other !== name) await removeWhole(this.file(folder, other))
  }

  /** The lines of `metrics.jsonl`. @throws InputError for one that is not a JSON object. */
  lines(): Promise<Record<string, unknown>[]> {
    return readMetrics(this.path)
  }

  /**
   * Drops everything after a checkpoint: younger checkpoints, lines whose number under `key` is above `last`, files in
   * the folder `tables` of later updates, and files of a run's end. Until then there should be `count` lines with
   * ascending numbers; damaged ones are dropped too. Returns warnings for the user.
   * @throws InputError if something cannot be read (before anything is dropped) or written.
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
    const tables = await listFolder(await within(this.path, at.tables)) // Everything is read before anything is dropped.
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
      lacking <= 0 ? '' : `${lacking} lines of ${at.count} are missing`,
    ]
    const warning = `metrics.jsonl: ${parts.filter(Boolean).join('; ')}`
    this.log(warning)
    return [warning]
  }
}

/** How to resume a run. */
export interface ResumeOptions extends ModuleTrust {
  /** The number of the checkpoint to continue from; default the newest. Younger ones are removed. */
  readonly from?: number | undefined
  /** Changed settings, as texts of a command line: `{ totalSteps: '2e6' }`. */
  readonly settings?: Readonly<Record<string, string>> | undefined
}

/** The lines up to the last number, ascending; and the numbers (from 1) of damaged lines. */
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
 * A definition's record for `config.json`. If module and run are both under the working directory, as in a project, the
 * module (and a part's) is named by its path relative to the run folder, so that the project can be moved; otherwise by
 * its URL.
 */
export function recordIn(folder: string, record: DefinitionRecord): DefinitionRecord {
  return mapModules(record, (module) => {
    if (!module.startsWith('file:')) return module
    const path = fileURLToPath(module)
    const isHere = [path, resolve(folder)].every((place) => {
      const way = relative(resolve(), place)
      return !way.startsWith('..') && !isAbsolute(way)
    })
    return isHere ? relative(folder, path).split(sep).join('/') : module
  })
}

/** The record with its modules as URLs. @throws InputError for a module that is not a text. */
export function recordFrom(folder: string, record: DefinitionRecord): DefinitionRecord {
  const { modules = {} } = record
  if (typeof modules !== 'object' || modules === null || Array.isArray(modules)) {
    throw new InputError(`modules of ${folder}`, show(modules), 'an object with the paths of modules')
  }
  return mapModules(record, (module) => {
    if (typeof module !== 'string') throw new InputError(`module of ${folder}`, show(module), 'the path of a module')
    const isUrl = /^[a-z][a-z0-9+.-]+:/i.test(module) // A single letter before the colon is a drive.
    return isUrl ? module : pathToFileURL(resolve(folder, module)).href
  })
}

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
