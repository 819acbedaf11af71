/** The runs below a folder, as far as their files tell: nothing else is asked, so a copied folder tells the same. */
import { lstat, readdir, stat } from 'node:fs/promises'
import { basename, join, relative } from 'node:path'
import { fingerprint } from '../../base/definition.ts'
import { InputError, show } from '../../base/errors.ts'
import { parseObject, RECORD_BYTES, readText } from '../../base/files/files.ts'
import { VERSION } from '../../base/version.ts'
import type { Points } from '../curves.ts'
import { flatKeys, flatParts } from '../loggers/entry.ts'
import { MetricsFile } from './metrics-file.ts'

/** Folders below the one that is shown, at most. */
const DEPTH = 3
/** What a run has in its folder that is no run itself. */
const OWN = ['checkpoints', 'rollouts', 'trajectories', 'model', 'adapter', 'tensorboard', 'node_modules']

/** What only a run's folder has beside its config.json. */
const OF_RUNS = ['metrics.jsonl', 'checkpoints']
/** Letters of a word of a run that is shown. */
const WORD_MAX = 2000

/** Runs that are looked at together: while some are read, the lines of others are counted. */
const AT_ONCE = 4
/** The picture of an episode in a run's folder. */
export const REPLAY = 'replay.gif'
/** How a run's summary says that it has ended. */
const ENDS = ['complete', 'solved', 'plateau', 'interrupted'] as const

/** What a page is told of a run. */
export interface ShownRun {
  /** Its way from the folder that is shown. */
  readonly id: string
  /** Its folder, as commands take it. */
  readonly folder: string
  readonly kind: 'episodes' | 'conversations'
  readonly environment: string
  readonly algorithm: string
  readonly status: 'running' | 'stopped' | (typeof ENDS)[number]
  readonly settings: Readonly<Record<string, unknown>>
  /** The same for runs that differ in nothing but their seed. */
  readonly group: string
  readonly lines: number
  /** Whether it is shown by some of its lines, since the others are still to be read. */
  readonly isSkimmed: boolean
  /** The names of its numbers, and those of its last line. */
  readonly names: readonly string[]
  readonly last: Readonly<Record<string, number>>
  /** When the picture of an episode in its folder was made, in milliseconds since 1970; null where there is none. */
  readonly replayTime: number | null
  /** What the user should know of its files. */
  readonly notes: readonly string[]
}

/** A run that is followed. */
class FollowedRun {
  readonly id: string
  readonly folder: string
  readonly #metrics: MetricsFile
  #config: Readonly<Record<string, unknown>> = {}
  #configNote = ''
  #metricsNote = ''
  #summaryNote = ''
  #replayNote = ''
  #configTime = -1
  #status: ShownRun['status'] = 'stopped'
  #replayTime: number | null = null

  constructor(id: string, folder: string) {
    this.id = id
    this.folder = folder
    this.#metrics = new MetricsFile(join(folder, 'metrics.jsonl'))
  }

  /** Reads what is new but metrics; long metrics that nobody has read are skimmed. True if there was anything. */
  async look(signal?: AbortSignal): Promise<boolean> {
    const { mtimeMs } = await lstat(join(this.folder, 'config.json'))
    const isOther = mtimeMs !== this.#configTime
    if (isOther) {
      this.#configTime = mtimeMs
      this.#configNote = ''
      const config = await readText(join(this.folder, 'config.json'), RECORD_BYTES).then(parseObject, whyNot)
      if (config === null) this.#configNote = 'config.json cannot be read (no JSON object)'
      else if (typeof config === 'string') this.#configNote = `config.json cannot be read (${config})`
      else this.#config = config
    }
    const status = await this.#readStatus()
    const isOtherStatus = status !== this.#status
    this.#status = status
    const picture = await lstat(join(this.folder, REPLAY)).catch(() => null) // Most have none.
    this.#replayNote = picture === null || picture.isFile() ? '' : `${REPLAY} cannot be read (no plain file)`
    const replayTime = picture?.isFile() ? picture.mtimeMs : null
    const isOtherReplay = replayTime !== this.#replayTime
    this.#replayTime = replayTime
    const hasMore = await this.#readMetrics(() => this.#metrics.skim(signal))
    return isOther || isOtherStatus || isOtherReplay || hasMore
  }

  /** Reads new metrics. True if there were any. */
  read(signal?: AbortSignal): Promise<boolean> {
    return this.#readMetrics(() => this.#metrics.read(signal))
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

  async #readStatus(): Promise<ShownRun['status']> {
    this.#summaryNote = ''
    const text = await readText(join(this.folder, 'summary.json'), RECORD_BYTES).catch((error: unknown) => {
      this.#summaryNote = `summary.json cannot be read (${whyNot(error)})`
      return ''
    })
    const summary = parseObject(text)
    const { status } = summary ?? {}
    const end = ENDS.find((each) => each === status)
    if (end !== undefined) return end
    const isOwned = (await readdir(this.folder)).some((name) => name.startsWith('.owner-'))
    return isOwned ? 'running' : 'stopped'
  }

  curve(name: string, over: string): Points {
    return this.#metrics.curve(name, over)
  }

  /** What a page is told of it; of one whose files say what nobody can show, that alone. */
  get shown(): ShownRun {
    try {
      return this.#shown
    } catch (error) {
      this.#config = {}
      this.#configNote = `config.json cannot be shown (${whyNot(error)})`
      return this.#shown
    }
  }

  get #shown(): ShownRun {
    const { colonnade, settings, ...parts } = this.#config as Record<string, Record<string, unknown> | null>
    const part = (name: string) => (parts[name] ?? {}) as { id?: unknown; parameters?: Record<string, unknown> }
    const { loss } = part('rl').parameters ?? {}
    const flat = { ...flatKeys(settings ?? {}), ...flatParts(parts) }
    const { seed: _, ...others } = flat
    const version = wordOf(colonnade)
    const isNewer = typeof colonnade === 'string' && version.localeCompare(VERSION, 'en', { numeric: true }) > 0
    const { damaged, lines, isCut, isSkimmed, names, last } = this.#metrics
    return {
      ...{ id: this.id, folder: this.folder, replayTime: this.#replayTime },
      kind: Object.hasOwn(this.#config, 'sft') ? 'conversations' : 'episodes',
      environment: wordOf(part('environment').id ?? 'unknown'),
      algorithm: wordOf(part('algorithm').id ?? loss ?? 'sft'),
      status: this.#status,
      settings: Object.fromEntries(Object.entries(flat).map(([key, value]) => [key, shortened(value)])),
      group: fingerprint(others),
      ...{ lines, isSkimmed, names, last },
      notes: [
        this.#configNote,
        this.#metricsNote,
        this.#summaryNote,
        this.#replayNote,
        isCut ? `metrics.jsonl has more than the ${names.length} figures that are shown` : '',
        damaged === 0 ? '' : `metrics.jsonl: ${damaged} damaged lines are left out`,
        isNewer ? `written by version ${version}; this page is of ${VERSION}` : '',
      ].filter(Boolean),
    }
  }
}

/** The runs below a folder, or the one that the folder is. */
export class Runs {
  readonly folder: string
  #runs = new Map<string, FollowedRun>()

  private constructor(folder: string) {
    this.folder = folder
  }

  /** @throws InputError for what is no folder. */
  static async open(folder: string): Promise<Runs> {
    const isFolder = await stat(folder).then(
      (found) => found.isDirectory(),
      () => false,
    )
    if (!isFolder) throw new InputError(folder, 'no such folder', 'a folder with runs, like runs')
    return new Runs(folder)
  }

  /** How many runs there are; none of them is read. */
  async count(): Promise<number> {
    return (await findRuns(this.folder, DEPTH)).length
  }

  /**
   * Looks for runs and at what is new in them: at all of them in short first, then at their metrics in full. Calls `tell` with the id of
   * each run that has changed or is gone, twice where metrics were skimmed first.
   */
  async read(tell: (id: string) => void = () => {}, signal?: AbortSignal): Promise<void> {
    const found = new Map((await findRuns(this.folder, DEPTH)).map((path) => [this.#idOf(path), path]))
    for (const id of [...this.#runs.keys()].filter((id) => !found.has(id))) {
      this.#runs.delete(id)
      tell(id)
    }
    const runs = [...found]
      .sort(([a], [b]) => a.localeCompare(b, 'en', { numeric: true }))
      .map(([id, path]) => this.#runs.get(id) ?? new FollowedRun(id, path))
    const there: FollowedRun[] = []
    // One that went away while it was looked at is null: the next look will not find it.
    const looks: Promise<boolean | null>[] = []
    for (const [i, run] of runs.entries()) {
      while (looks.length < Math.min(runs.length, i + AT_ONCE))
        looks.push(runs[looks.length]!.look(signal).catch(() => null))
      const hasMore = await looks[i]!
      if (signal?.aborted) return
      if (hasMore === null) continue
      if (!this.#runs.has(run.id) || hasMore) tell(run.id)
      this.#runs.set(run.id, run)
      there.push(run)
    }
    for (const run of there) if (await run.read(signal)) tell(run.id)
  }

  #idOf(path: string): string {
    return relative(this.folder, path) || basename(path)
  }

  get shown(): ShownRun[] {
    return [...this.#runs.values()].map((run) => run.shown)
  }

  /** The folder of a run; undefined for one that is not there. */
  folderOf(id: string): string | undefined {
    return this.#runs.get(id)?.folder
  }

  /** A figure of a run over another one; empty for a run that is not there. */
  curve(id: string, name: string, over: string): Points {
    return this.#runs.get(id)?.curve(name, over) ?? { x: [], y: [] }
  }
}

/** A word of a run's config.json, as it is shown. */
function wordOf(value: unknown): string {
  return typeof value === 'string' ? shortened(value) : show(value)
}

const shortened = <T>(value: T): T | string =>
  typeof value === 'string' && value.length > WORD_MAX ? `${value.slice(0, WORD_MAX)}…` : value

/** Why a file cannot be read, without its path. */
function whyNot(error: unknown): string {
  return error instanceof InputError ? error.got : (error as Error).message
}

/** The folders with a run at or below this one; those too whose config.json cannot be read, where there is more of a run. */
async function findRuns(folder: string, depth: number): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => [])
  const names = entries.map(({ name }) => name)
  if (names.includes('config.json')) {
    const text = await readText(join(folder, 'config.json'), RECORD_BYTES).catch(() => null)
    const isRun = text === null ? OF_RUNS.some((name) => names.includes(name)) : text.includes('"colonnade"')
    if (isRun) return [folder]
  }
  if (depth === 0) return []
  const folders = entries.filter(
    (entry) => entry.isDirectory() && !OWN.includes(entry.name) && !entry.name.startsWith('.'),
  )
  return (await Promise.all(folders.map(({ name }) => findRuns(join(folder, name), depth - 1)))).flat()
}
