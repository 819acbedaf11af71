/** The runs below a folder, from their files alone, so that a copied folder works too. */
import { lstat, readdir, stat } from 'node:fs/promises'
import { basename, join, relative } from 'node:path'
import { fingerprint } from '../../base/definition.ts'
import { InputError, show } from '../../base/errors.ts'
import { parseObject, RECORD_BYTES, readText } from '../../base/files/files.ts'
import { VERSION } from '../../base/version.ts'
import type { Points } from '../curves.ts'
import { FLEET_FILE } from '../fleet-record.ts'
import { flatKeys, flatParts } from '../loggers/entry.ts'
import { type Annotation, annotationOf, NO_ANNOTATION, NOTES_FILE } from './annotation.ts'
import { MetricsFile } from './metrics-file.ts'
import { isPicture } from './moments.ts'

/** Maximum depth of folders below the shown one. */
const DEPTH = 3
/** Subfolders of a run that are not runs. */
const OWN = ['checkpoints', 'rollouts', 'trajectories', 'model', 'adapter', 'tensorboard', 'node_modules']

/** Files that only a run's folder has besides its config.json. */
const OF_RUNS = ['metrics.jsonl', 'checkpoints']
/** Maximum characters of a shown word. */
const WORD_MAX = 2000

/** Orders names as people count. */
const { compare } = new Intl.Collator('en', { numeric: true })
/** Runs that are read concurrently. */
const AT_ONCE = 4
/** The picture of an episode in a run's folder. */
export const REPLAY = 'replay.gif'
const ENDS = ['complete', 'solved', 'plateau', 'stopped', 'interrupted'] as const

/** A run as sent to the page. */
export interface ShownRun {
  /** Its path relative to the shown folder. */
  readonly id: string
  readonly folder: string
  readonly kind: 'episodes' | 'conversations'
  readonly environment: string
  readonly algorithm: string
  readonly status: 'running' | 'stopped' | (typeof ENDS)[number]
  readonly settings: Readonly<Record<string, unknown>>
  /** Equal for runs that differ only in their seed. */
  readonly group: string
  readonly lines: number
  /** Whether only some of its lines have been read. */
  readonly isSkimmed: boolean
  /** The names of its numbers, and the numbers of its last line. */
  readonly names: readonly string[]
  readonly last: Readonly<Record<string, number>>
  /** When the newest picture of an episode in its folder was made, in milliseconds since 1970; null if there is none. */
  readonly replayTime: number | null
  /** The time of the last report of its fleet's state, in milliseconds since 1970; null without a fleet. */
  readonly fleetTime: number | null
  /** What people wrote of it. */
  readonly annotation: Annotation
  /** Notes about its files for the user. */
  readonly notes: readonly string[]
}

/** A run's folder as a scan finds it. */
interface FoundRun {
  readonly path: string
  /** The names in the folder. */
  readonly names: ReadonlySet<string>
}

/** A small JSON file of a run, read again when it is another file or has another size or time, and as long as it cannot be read. */
class Followed {
  readonly #path: string
  /** The file that was read; empty: there is none. */
  #read = ''
  /** Its object; null without one. */
  value: Readonly<Record<string, unknown>> | null = null
  /** Why it cannot be read; empty if it can, or is not there. */
  note = ''

  constructor(path: string) {
    this.#path = path
  }

  /** Reads it if it has changed. Returns whether it has. @throws Error for one that is there no more. */
  async look(isThere: boolean): Promise<boolean> {
    const { ino, size, mtimeMs } = isThere ? await lstat(this.#path) : { ino: 0, size: 0, mtimeMs: 0 }
    const found = isThere ? `${ino} ${size} ${mtimeMs}` : ''
    if (found === this.#read) return false
    const before = this.note
    this.note = ''
    this.value = null
    try {
      if (isThere) this.value = parseObject(await readText(this.#path, RECORD_BYTES))
      if (isThere && this.value === null) this.note = 'no JSON object'
      this.#read = found
    } catch (error) {
      this.note = whyNot(error)
      this.#read = 'unreadable'
      return this.note !== before
    }
    return true
  }
}

class FollowedRun {
  readonly id: string
  readonly folder: string
  readonly #metrics: MetricsFile
  readonly #configFile: Followed
  readonly #summary: Followed
  readonly #notes: Followed
  #config: Readonly<Record<string, unknown>> = {}
  #configNote = ''
  #metricsNote = ''
  #annotation = NO_ANNOTATION
  #annotationNote = ''
  #replayNote = ''
  #described: {
    readonly config: object
    readonly told: Pick<ShownRun, 'kind' | 'environment' | 'algorithm' | 'settings' | 'group'>
    readonly note: string
  } | null = null
  #status: ShownRun['status'] = 'stopped'
  /** Whether a process claims its folder, also one that ended without removing its claim. */
  #isOwned = false
  /** Whether an index of it was written, or could not be. */
  #isIndexed = false
  #replayTime: number | null = null
  #fleetTime: number | null = null

  constructor(id: string, folder: string) {
    this.id = id
    this.folder = folder
    this.#metrics = new MetricsFile(join(folder, 'metrics.jsonl'))
    this.#configFile = new Followed(join(folder, 'config.json'))
    this.#summary = new Followed(join(folder, 'summary.json'))
    this.#notes = new Followed(join(folder, NOTES_FILE))
  }

  /** Reads changes except metrics, of a folder with these names; skims long unread metrics. Returns whether there were any. */
  async look(names: ReadonlySet<string>, signal?: AbortSignal): Promise<boolean> {
    const timeOf = async (name: string) => (names.has(name) ? await lstat(join(this.folder, name)) : null)
    const isOther = await this.#configFile.look(true)
    if (isOther) {
      const { value, note } = this.#configFile
      this.#config = value ?? this.#config
      this.#configNote = note && `config.json cannot be read (${note})`
      void this.shown // Describes the run now, while other files are read, rather than when the page asks for all.
    }
    const isOtherNote = await this.#notes.look(names.has(NOTES_FILE))
    if (isOtherNote) this.#takeNotes()
    await this.#summary.look(names.has('summary.json'))
    this.#isOwned = [...names].some((name) => name.startsWith('.owner-'))
    const status = this.#statusNow()
    const isOtherStatus = status !== this.#status
    this.#status = status
    const fleetTime = (await timeOf(FLEET_FILE))?.mtimeMs ?? null
    const isOtherFleet = fleetTime !== this.#fleetTime
    this.#fleetTime = fleetTime
    this.#replayNote = ''
    let replayTime: number | null = null
    for (const name of [...names].filter(isPicture)) {
      const picture = (await timeOf(name))!
      if (picture.isFile()) replayTime = Math.max(replayTime ?? 0, picture.mtimeMs)
      else this.#replayNote = `${name} cannot be read (not a plain file)`
    }
    const isOtherReplay = replayTime !== this.#replayTime
    this.#replayTime = replayTime
    const hasMore = await this.#readMetrics(() => this.#metrics.skim(signal))
    return isOther || isOtherNote || isOtherStatus || isOtherReplay || isOtherFleet || hasMore
  }

  /** Reads new metrics. Returns whether there were any. */
  read(signal?: AbortSignal): Promise<boolean> {
    return this.#readMetrics(() => this.#metrics.read(signal))
  }

  /**
   * Keeps an index of what has been read of an ended run, so that the next server need not read it: once, since lines may go on to come
   * from elsewhere. A run that somebody owns keeps its own.
   */
  async keepIndex(): Promise<void> {
    if (this.#isIndexed || this.#isOwned) return
    this.#isIndexed = true
    await this.#metrics.keepIndex(true).catch(() => {}) // The lines are read instead.
  }

  async #readMetrics(read: () => Promise<boolean>): Promise<boolean> {
    try {
      const hasMore = await read()
      this.#metricsNote = ''
      return hasMore
    } catch (error) {
      this.#metricsNote = `metrics.jsonl cannot be read (${whyNot(error)})`
      return false
    }
  }

  #takeNotes(): void {
    this.#annotation = NO_ANNOTATION
    this.#annotationNote = this.#notes.note && `${NOTES_FILE} cannot be read (${this.#notes.note})`
    if (this.#notes.value === null) return
    try {
      this.#annotation = annotationOf(this.#notes.value)
    } catch (error) {
      this.#annotationNote = `${NOTES_FILE} cannot be read (${(error as Error).message})`
    }
  }

  #statusNow(): ShownRun['status'] {
    const end = ENDS.find((each) => each === this.#summary.value?.status)
    return end ?? (this.#isOwned ? 'running' : 'stopped')
  }

  curve(name: string, over: string): Promise<Points> {
    return this.#metrics.curve(name, over)
  }

  /** The run for the page; if its files contain values that cannot be shown, only the error. */
  get shown(): ShownRun {
    try {
      return this.#shown
    } catch (error) {
      this.#config = {}
      this.#configNote = `config.json cannot be shown (${whyNot(error)})`
      return this.#shown
    }
  }

  /** What config.json says of the run; kept, since it hardly changes. */
  get #description() {
    if (this.#described?.config === this.#config) return this.#described
    const { colonnade, settings, ...parts } = this.#config as Record<string, Record<string, unknown> | null>
    const part = (name: string) => (parts[name] ?? {}) as { id?: unknown; parameters?: Record<string, unknown> }
    const { loss } = part('rl').parameters ?? {}
    const flat = { ...flatKeys(settings ?? {}), ...flatParts(parts) }
    const { seed: _, ...others } = flat
    const version = wordOf(colonnade)
    const isNewer = typeof colonnade === 'string' && compare(version, VERSION) > 0
    this.#described = {
      config: this.#config,
      told: {
        kind: Object.hasOwn(this.#config, 'sft') ? 'conversations' : 'episodes',
        environment: wordOf(part('environment').id ?? 'unknown'),
        algorithm: wordOf(part('algorithm').id ?? loss ?? 'sft'),
        settings: Object.fromEntries(Object.entries(flat).map(([key, value]) => [key, shortened(value)])),
        group: fingerprint(others),
      },
      note: isNewer ? `written by version ${version}; this page has version ${VERSION}` : '',
    }
    return this.#described
  }

  get #shown(): ShownRun {
    const { told, note } = this.#description
    const { damaged, lines, isCut, isSkimmed, names, last } = this.#metrics
    return {
      ...{ id: this.id, folder: this.folder, replayTime: this.#replayTime, fleetTime: this.#fleetTime },
      ...told,
      status: this.#status,
      ...{ lines, isSkimmed, names, last, annotation: this.#annotation },
      notes: [
        this.#configNote,
        this.#metricsNote,
        this.#summary.note && `summary.json cannot be read (${this.#summary.note})`,
        this.#annotationNote,
        this.#replayNote,
        isCut ? `metrics.jsonl has more than the ${names.length} metrics that are shown` : '',
        damaged === 0 ? '' : `metrics.jsonl: ${damaged} damaged lines were skipped`,
        note,
      ].filter(Boolean),
    }
  }
}

/** The runs below a folder, or the run in the folder itself. */
export class Runs {
  readonly folder: string
  #runs = new Map<string, FollowedRun>()
  /** All runs by their ids, in order, as found last. */
  #found: ReadonlyMap<string, FoundRun> = new Map()

  readonly #isReadOnly: boolean

  private constructor(folder: string, isReadOnly: boolean) {
    this.folder = folder
    this.#isReadOnly = isReadOnly
  }

  /** `isReadOnly`: no index is written of long runs without one. @throws InputError for a path that is not a folder. */
  static async open(folder: string, isReadOnly = false): Promise<Runs> {
    const isFolder = await stat(folder).then(
      (found) => found.isDirectory(),
      () => false,
    )
    if (!isFolder) throw new InputError(folder, 'no such folder', 'a folder with runs, like runs')
    const runs = new Runs(folder, isReadOnly)
    await runs.#find()
    return runs
  }

  /** Finds the runs without reading them. */
  async #find(): Promise<void> {
    const known = new Set([...this.#found.values()].map(({ path }) => path))
    const found = (await findRuns(this.folder, DEPTH, known)).map((run): [string, FoundRun] => [
      this.#idOf(run.path),
      run,
    ])
    this.#found = new Map(found.sort(([a], [b]) => compare(a, b)))
  }

  /** The ids of all runs in the folder, also of those that have not been read. */
  get found(): string[] {
    return [...this.#found.keys()]
  }

  /**
   * Finds runs and reads their changes: first a quick look at all, then their metrics. Calls `tell` with the id of each changed or
   * removed run, twice if metrics were skimmed first.
   */
  async read(tell: (id: string) => void = () => {}, signal?: AbortSignal): Promise<void> {
    await this.#find()
    for (const id of [...this.#runs.keys()].filter((id) => !this.#found.has(id))) {
      this.#runs.delete(id)
      tell(id)
    }
    const runs = [...this.#found].map(([id, { path, names }]) => ({
      run: this.#runs.get(id) ?? new FollowedRun(id, path),
      names,
    }))
    const there: FollowedRun[] = []
    // A run that disappears during its look becomes null; the next scan will not find it.
    const looks: Promise<boolean | null>[] = []
    for (const [i, { run }] of runs.entries()) {
      while (looks.length < Math.min(runs.length, i + AT_ONCE)) {
        const next = runs[looks.length]!
        looks.push(next.run.look(next.names, signal).catch(() => null))
      }
      const hasMore = await looks[i]!
      if (signal?.aborted) return
      if (hasMore === null) continue
      if (!this.#runs.has(run.id) || hasMore) tell(run.id)
      this.#runs.set(run.id, run)
      there.push(run)
    }
    for (const run of there) {
      if (await run.read(signal)) tell(run.id)
      if (signal?.aborted) return
      if (!this.#isReadOnly) await run.keepIndex()
    }
  }

  #idOf(path: string): string {
    return relative(this.folder, path) || basename(path)
  }

  get ids(): string[] {
    return [...this.#runs.keys()]
  }

  /** The runs with these ids; null: all. */
  shown(ids: ReadonlySet<string> | null = null): ShownRun[] {
    return [...this.#runs.values()].filter(({ id }) => ids === null || ids.has(id)).map((run) => run.shown)
  }

  /** The folder of a run; undefined for an unknown run. */
  folderOf(id: string): string | undefined {
    return this.#runs.get(id)?.folder
  }

  /** A metric of a run over another; empty for an unknown run. */
  async curve(id: string, name: string, over: string): Promise<Points> {
    return (await this.#runs.get(id)?.curve(name, over)) ?? { x: [], y: [] }
  }
}

/** Formats a word of a run's config.json. */
function wordOf(value: unknown): string {
  return typeof value === 'string' ? shortened(value) : show(value)
}

const shortened = <T>(value: T): T | string =>
  typeof value === 'string' && value.length > WORD_MAX ? `${value.slice(0, WORD_MAX)}…` : value

/** Why a file cannot be read, without its path. */
function whyNot(error: unknown): string {
  return error instanceof InputError ? error.got : (error as Error).message
}

/**
 * The runs at or below this folder, including those with an unreadable config.json and other files of a run. Those whose paths are known
 * and that still have such files are not read again.
 */
async function findRuns(folder: string, depth: number, known: ReadonlySet<string>): Promise<FoundRun[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => [])
  const names = new Set(entries.map(({ name }) => name))
  if (names.has('config.json')) {
    const hasOther = OF_RUNS.some((name) => names.has(name))
    const readConfig = () => readText(join(folder, 'config.json'), RECORD_BYTES).catch(() => null)
    if ((hasOther && known.has(folder)) || ((await readConfig())?.includes('"colonnade"') ?? hasOther))
      return [{ path: folder, names }]
  }
  if (depth === 0) return []
  const folders = entries.filter(
    (entry) => entry.isDirectory() && !OWN.includes(entry.name) && !entry.name.startsWith('.'),
  )
  return (await Promise.all(folders.map(({ name }) => findRuns(join(folder, name), depth - 1, known)))).flat()
}
