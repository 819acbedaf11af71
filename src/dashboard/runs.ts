/** The runs below a folder, as far as their files tell: nothing else is asked, so a copied folder tells the same. */
import { readdir, stat } from 'node:fs/promises'
import { basename, join, relative } from 'node:path'
import type { Points } from '../curves.ts'
import { fingerprint } from '../definition.ts'
import { InputError } from '../errors.ts'
import { parseObject, readText } from '../files.ts'
import { flatKeys, flatParts } from '../loggers/entry.ts'
import { VERSION } from '../version.ts'
import { MetricsFile } from './metrics-file.ts'

/** Folders below the one that is shown, at most. */
const DEPTH = 3
/** What a run has in its folder that is no run itself. */
const OWN = ['checkpoints', 'rollouts', 'trajectories', 'model', 'adapter', 'tensorboard', 'node_modules']

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
    const { mtimeMs } = await stat(join(this.folder, 'config.json'))
    const isOther = mtimeMs !== this.#configTime
    if (isOther) {
      this.#configTime = mtimeMs
      this.#configNote = ''
      const config = parseObject(await readText(join(this.folder, 'config.json')))
      if (config === null) this.#configNote = 'config.json cannot be read'
      else this.#config = config
    }
    const status = await this.#readStatus()
    const isOtherStatus = status !== this.#status
    this.#status = status
    const replayTime = await stat(join(this.folder, REPLAY)).then(
      (found) => found.mtimeMs,
      () => null, // Most have none.
    )
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
      this.#metricsNote = `metrics.jsonl cannot be read (${(error as Error).message})`
      return false
    }
  }

  async #readStatus(): Promise<ShownRun['status']> {
    this.#summaryNote = ''
    const text = await readText(join(this.folder, 'summary.json')).catch((error: Error) => {
      this.#summaryNote = `summary.json cannot be read (${error.message})`
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

  get shown(): ShownRun {
    const { colonnade, settings, ...parts } = this.#config as Record<string, Record<string, unknown> | null>
    const part = (name: string) => (parts[name] ?? {}) as { id?: unknown; parameters?: Record<string, unknown> }
    const { loss } = part('rl').parameters ?? {}
    const flat = { ...flatKeys(settings ?? {}), ...flatParts(parts) }
    const { seed: _, ...others } = flat
    const version = String(colonnade)
    const isNewer = version.localeCompare(VERSION, 'en', { numeric: true }) > 0
    const { damaged, lines, isSkimmed, names, last } = this.#metrics
    return {
      ...{ id: this.id, folder: this.folder, replayTime: this.#replayTime },
      kind: Object.hasOwn(this.#config, 'sft') ? 'conversations' : 'episodes',
      environment: String(part('environment').id ?? 'unknown'),
      algorithm: String(part('algorithm').id ?? loss ?? 'sft'),
      status: this.#status,
      settings: flat,
      group: fingerprint(others),
      ...{ lines, isSkimmed, names, last },
      notes: [
        this.#configNote,
        this.#metricsNote,
        this.#summaryNote,
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
    if (!isFolder) throw new InputError('folder', folder, 'a folder with runs, like runs')
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

/** The folders with a run at or below this one. */
async function findRuns(folder: string, depth: number): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => [])
  const isRun = entries.some((entry) => entry.isFile() && entry.name === 'config.json') && (await isConfig(folder))
  if (isRun) return [folder]
  if (depth === 0) return []
  const folders = entries.filter(
    (entry) => entry.isDirectory() && !OWN.includes(entry.name) && !entry.name.startsWith('.'),
  )
  return (await Promise.all(folders.map(({ name }) => findRuns(join(folder, name), depth - 1)))).flat()
}

async function isConfig(folder: string): Promise<boolean> {
  return (await readText(join(folder, 'config.json')).catch(() => '')).includes('"colonnade"')
}
