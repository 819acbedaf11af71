/**
 * A page that follows runs, and its server. It reads run folders, and writes only
 * `notes.json`, and `metrics.index` of ended runs; read-only, nothing. The page contacts only this server and runs only its own scripts.
 */
import { once } from 'node:events'
import { lstat, readFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { checkOptions, InputError, show } from '../../base/errors.ts'
import { disk, listFolder, parseObject, RECORD_BYTES, readText, within } from '../../base/files/files.ts'
import { ownFile } from '../../base/files/own-files.ts'
import { isThisMachine } from '../../base/http/caller.ts'
import {
  HttpDocument,
  listen,
  RequestError,
  type RequestHead,
  type Route,
  type RouteRequest,
} from '../../base/http/server.ts'
import { diagnosisOf } from '../diagnose/diagnose.ts'
import { FLEET_FILE } from '../fleet-record.ts'
import { readMetrics } from '../metrics-lines.ts'
import { annotationOf, writeAnnotation } from './annotation.ts'
import { ArrowPages, listArrowFiles } from './arrow-rows.ts'
import { htmlOf, icon, styles } from './document.ts'
import { parseFilter } from './filter.ts'
import { isPicture, listMoments, type Moment } from './moments.ts'
import { REPLAY, Runs } from './runs.ts'

/** Options of a dashboard server. */
export interface DashboardOptions {
  /** A run, or a folder with runs below it. Default `runs`. */
  readonly folder?: string
  /** Port to listen at; 0: any free port. Default 6060. */
  readonly port?: number
  /** Address to listen at. Default 127.0.0.1, reachable from this machine only. */
  readonly host?: string
  /** Whether the server runs in its own thread, so that a training in this one does not delay it. Default false. */
  readonly ownThread?: boolean
  /**
   * Whether no file is changed: neither notes nor the index of an ended run. Default false. An address that other machines reach is always
   * read-only.
   */
  readonly readOnly?: boolean
  /** Milliseconds between scans of the folders while a page is open. Default 500. */
  readonly pollMs?: number
}

/** A running dashboard. */
export interface Dashboard {
  readonly url: string
  readonly numRuns: number
  close(): Promise<void>
}

/** Milliseconds that an answer waits for a running scan of the folders, to tell all that it finds at once. */
const PATIENCE_MS = 500
/** Maximum bytes of a served picture. */
const REPLAY_BYTES = 2 ** 26
/** Maximum bytes of a written note. */
const NOTES_BYTES = 2 ** 15
/** Significant digits of sent numbers. */
const DIGITS = 7
/** The page's modules, including shared ones. */
const MODULES = [
  ...[
    'main',
    'chart',
    'charts',
    'compare',
    'series',
    'elements',
    'rows',
    'runs-table',
    'notes',
    'marks',
    'histograms',
    'view',
    'tables',
    'run-view',
    'files',
    'fleet',
    'diagnosis',
    'conversations',
    'token-colors',
    'replay',
  ].map((name) => `page/${name}`),
  'filter',
  '../curves',
  '../explained',
  '../fleet-record',
]
const HEADERS = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'content-security-policy': [
    ...["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self'"],
    ...["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"],
  ].join('; '),
}

/**
 * Serves a page with the runs of a folder.
 * @throws InputError for a path that is not a folder, an unknown option, and an address in use.
 */
export async function openDashboard(options: DashboardOptions = {}): Promise<Dashboard> {
  checkOptions('openDashboard', options, ['folder', 'port', 'host', 'pollMs', 'ownThread', 'readOnly'])
  if (options.ownThread) return openInThread({ ...options, ownThread: false })
  const { folder = 'runs', port = 6060, host = '127.0.0.1', pollMs = 500 } = options
  if (!(pollMs > 0)) throw new InputError('pollMs', show(pollMs), 'a number above 0')
  if (typeof (options.readOnly ?? false) !== 'boolean')
    throw new InputError('readOnly', show(options.readOnly), 'true or false')
  const isReadOnly = (options.readOnly ?? false) || !isThisMachine(host)
  const runs = await Runs.open(folder, isReadOnly)
  const follower = new Follower(runs, pollMs)
  const pages = new ArrowPages()
  let writing: Promise<unknown> = Promise.resolve()
  const file = (type: string, content: string | Uint8Array) => new HttpDocument(type, content, HEADERS)
  const html = htmlOf(MODULES.map((name) => basename(name)))
  const modules = MODULES.map((name): [string, Route] => [
    `GET /${basename(name)}.js`,
    async () => file('text/javascript', await readFile(ownFile(new URL(`./${name}.js`, import.meta.url)))),
  ])
  const routes: [string, Route][] = [
    ['GET /', Object.assign(() => file('text/html; charset=utf-8', html), { isPage: true })],
    ['GET /icon.svg', () => file('image/svg+xml', icon)],
    ['GET /page.css', () => file('text/css', styles)],
    ...modules,
    [
      'GET /api/runs',
      async ({ query }) => {
        const isTold = follower.numListeners > 0
        if (!isTold) await patiently(follower.look())
        const wanted = query.getAll('run')
        return {
          folder,
          isReadOnly,
          found: runs.found,
          ids: runs.ids,
          runs: runs.shown(wanted.length === 0 ? null : new Set(wanted)),
        }
      },
    ],
    [
      'POST /api/notes',
      Object.assign(
        (request: RouteRequest) => {
          // One after another: the last request of several at once remains.
          const annotated = writing.then(() => annotate(runs, request))
          writing = annotated.catch(() => undefined) // Whoever asked is told.
          return annotated
        },
        { admit: admitWrites(isReadOnly) },
      ),
    ],
    ['GET /api/curves', ({ query }) => curvesOf(runs, query)],
    ['GET /api/diagnosis', ({ query }) => diagnosisOfRun(runs, query)],
    ['GET /api/fleet', ({ query }) => fleetOfRun(runs, query)],
    ['GET /api/files', ({ query }) => filesOf(runs, query)],
    ['GET /api/rows', (request) => rowsOf(runs, pages, request)],
    ['GET /api/conversations', ({ query }) => conversationsOf(runs, pages, query)],
    ['GET /api/histograms', ({ query }) => histogramsOf(runs, pages, query)],
    ['GET /api/moments', ({ query }) => momentsOf(runs, query)],
    ['GET /api/replay', async ({ query }) => file('image/gif', await replayOf(runs, query))],
    ['GET /api/changes', ({ signal }) => ({ events: follower.changes(signal), isNamed: true })],
  ]
  const server = await listen(new Map(routes), { host, port, maxBodyBytes: NOTES_BYTES })
  void follower.look()
  return {
    url: server.url,
    numRuns: runs.found.length,
    async close() {
      follower.close()
      const closed = server.close()
      server.closeConnections()
      await closed
    },
  }
}

/** As `openDashboard`, in a worker that ends with this process. */
async function openInThread(options: DashboardOptions): Promise<Dashboard> {
  const worker = new Worker(ownFile(new URL('./dashboard-worker.js', import.meta.url)), { workerData: options })
  const [answer] = (await once(worker, 'message')) as [{ url: string; numRuns: number } | { error: string }]
  worker.unref()
  if ('url' in answer) {
    const ended = new Promise<void>((resolve) => worker.once('exit', () => resolve()))
    // The training continues without its page.
    worker.on('error', ({ message }) => console.error(`colonnade: the page at ${answer.url} has ended: ${message}`))
    return {
      ...answer,
      async close() {
        worker.ref()
        worker.postMessage('close')
        await Promise.race([ended, once(worker, 'message')])
        await worker.terminate()
      },
    }
  }
  await worker.terminate()
  throw new Error(answer.error)
}

/** A metric over another, for each run of the query: `run` (repeatable), `metric` and `over`. */
async function curvesOf(runs: Runs, query: URLSearchParams): Promise<object> {
  const [metric, over] = [query.get('metric'), query.get('over') ?? 'line']
  if (metric === null) throw new RequestError(400, 'metric: got nothing, expected the name of a metric')
  const curves: [string, object][] = []
  for (const id of query.getAll('run')) {
    const { x, y } = await runs.curve(id, metric, over)
    curves.push([id, { x, y: y.map((value) => Number(value.toPrecision(DIGITS))) }])
  }
  return { curves: Object.fromEntries(curves) }
}

/** Admits only the server's own page, whose `Origin` the server has checked, and nobody to a read-only server. */
function admitWrites(isReadOnly: boolean) {
  return ({ headers }: RequestHead): void => {
    if (isReadOnly) throw new RequestError(403, 'notes: got a change, expected none: this page is read-only')
    if (headers.origin === undefined) throw new RequestError(403, 'Origin: got none, expected that of this page')
  }
}

/** Writes the note and the tags of a run: `run` in the query, `note` and `tags` in the body. */
async function annotate(runs: Runs, { query, body }: RouteRequest): Promise<object> {
  const folder = folderOf(runs, query)
  return refusing(async () => {
    checkOptions("a run's notes", body, ['note', 'tags'])
    const annotation = annotationOf(body)
    await writeAnnotation(folder, annotation)
    return { annotation }
  })
}

function folderOf(runs: Runs, query: URLSearchParams): string {
  const id = query.get('run')
  const folder = id === null ? undefined : runs.folderOf(id)
  if (folder === undefined) throw new RequestError(404, `run: got ${show(id)}, expected a run of this page`)
  return folder
}

/** The findings about a run, from its files as they are. */
async function diagnosisOfRun(runs: Runs, query: URLSearchParams): Promise<object> {
  const folder = folderOf(runs, query)
  return refusing(async () => {
    const config = parseObject(await readText(join(folder, 'config.json'), RECORD_BYTES))
    if (config === null) throw new InputError('config.json', 'no JSON object', 'the config.json of a run')
    return diagnosisOf(config, await readMetrics(folder))
  })
}

/** The last reported state of a run's fleet, and its age. */
async function fleetOfRun(runs: Runs, query: URLSearchParams): Promise<object> {
  const path = join(folderOf(runs, query), FLEET_FILE)
  return refusing(async () => {
    const fleet = parseObject(await readText(path, RECORD_BYTES))
    if (fleet === null) throw new InputError(FLEET_FILE, 'no JSON object', 'the state of a fleet')
    return { fleet, ageSeconds: Math.max(0, Date.now() - (await lstat(path)).mtimeMs) / 1000 }
  })
}

async function filesOf(runs: Runs, query: URLSearchParams): Promise<object> {
  const folder = folderOf(runs, query)
  return { files: await refusing(() => listArrowFiles(folder)) }
}

/** The path of the Arrow file requested by `run` and `file`. */
async function fileOf(runs: Runs, query: URLSearchParams): Promise<string> {
  const [folder, file] = [folderOf(runs, query), query.get('file')]
  const known = await refusing(() => listArrowFiles(folder))
  if (file !== null && known.some(({ path }) => path === file)) return refusing(() => within(folder, file))
  throw new RequestError(404, `file: got ${show(file)}, expected a file of the run`)
}

function countOf(query: URLSearchParams, name: string, usual: number): number {
  const value = Number(query.get(name) ?? usual)
  if (Number.isSafeInteger(value) && value >= 0) return value
  throw new RequestError(400, `${name}: got ${show(query.get(name))}, expected a whole number ≥ 0`)
}

/** Rows of an Arrow file: `run`, `file`, `from`, `count`, and filters `where` (repeatable) or a query `sql` of its table `rows`. */
async function rowsOf(runs: Runs, pages: ArrowPages, { query, signal }: RouteRequest): Promise<object> {
  const path = await fileOf(runs, query)
  const [from, count] = [countOf(query, 'from', 0), countOf(query, 'count', 50)]
  const sql = query.get('sql')
  if (sql !== null) return refusing(() => pages.sql(path, from, count, sql, signal))
  const filters = query.getAll('where').map((text) => {
    const filter = parseFilter(text)
    if (filter === null) throw new RequestError(400, `filter: got ${show(text)}, expected a filter like reward > 0.5`)
    return filter
  })
  return refusing(() => pages.page(path, from, count, filters))
}

/** A group of conversations: `run`, `file` and its index `from`. */
async function conversationsOf(runs: Runs, pages: ArrowPages, query: URLSearchParams): Promise<object> {
  const path = await fileOf(runs, query)
  const place = countOf(query, 'from', 0)
  return { group: await refusing(() => pages.group(path, place)) }
}

/** Histograms of a file of a run: `run` and `file`. */
async function histogramsOf(runs: Runs, pages: ArrowPages, query: URLSearchParams): Promise<object> {
  const path = await fileOf(runs, query)
  return { histograms: await refusing(() => pages.histograms(path)) }
}

/** What was made at updates of the runs `run` (repeatable), over `over`; and those of them that have a picture of their newest checkpoint. */
async function momentsOf(runs: Runs, query: URLSearchParams): Promise<object> {
  const found: [string, Moment[]][] = []
  const newest: string[] = []
  for (const id of query.getAll('run')) {
    const folder = folderOf(runs, new URLSearchParams({ run: id }))
    const axis = await runs.curve(id, query.get('over') ?? 'line', 'update')
    found.push([id, await refusing(() => listMoments(folder, axis))])
    if ((await listFolder(folder)).includes(REPLAY)) newest.push(id)
  }
  return { moments: Object.fromEntries(found), newest }
}

/** Reads a file; if it cannot be read, the request is refused. */
async function refusing<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read()
  } catch (error) {
    throw new RequestError(400, (error as Error).message)
  }
}

async function replayOf(runs: Runs, query: URLSearchParams): Promise<Uint8Array> {
  const [folder, name] = [folderOf(runs, query), query.get('file') ?? REPLAY]
  if (!isPicture(name)) throw new RequestError(404, `file: got ${show(name)}, expected a picture of the run`)
  return disk.read(await refusing(() => within(folder, name)), REPLAY_BYTES).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw new RequestError(400, `${name}: got ${error.message}, expected a picture`)
    throw new RequestError(404, `run: got ${show(query.get('run'))}, expected a run with a ${name}`)
  })
}

const patiently = (scan: Promise<void> | undefined) =>
  Promise.race([scan, wait(PATIENCE_MS, undefined, { ref: false })])

/** Scans the folders while there are listeners, and notifies them. */
class Follower {
  readonly #runs: Runs
  readonly #pollMs: number
  readonly #listeners = new Set<(changed: string | null) => void>()
  #timer: NodeJS.Timeout | undefined
  #look: Promise<void> | undefined
  readonly #closing = new AbortController()

  constructor(runs: Runs, pollMs: number) {
    this.#runs = runs
    this.#pollMs = pollMs
  }

  /** Scans once, or waits for the running scan. A folder that cannot be read may return. */
  look(): Promise<void> {
    const tell = (id: string): void => {
      for (const listener of this.#listeners) listener(id)
    }
    this.#look ??= this.#runs
      .read(tell, this.#closing.signal)
      .catch(() => undefined)
      .finally(() => {
        this.#look = undefined
      })
    return this.#look
  }

  get numListeners(): number {
    return this.#listeners.size
  }

  /** Yields changes until the listener disconnects or the server closes. */
  async *changes(signal: AbortSignal): AsyncGenerator<object> {
    const pending = new Set<string>()
    let wake = (): void => {}
    const listener = (changed: string | null): void => {
      if (changed !== null) pending.add(changed)
      wake()
    }
    this.#listeners.add(listener)
    signal.addEventListener('abort', () => wake())
    this.#schedule()
    try {
      await patiently(this.#look)
      pending.clear()
      yield { type: 'changed', runs: [] }
      while (!signal.aborted && !this.#closing.signal.aborted) {
        if (pending.size === 0) {
          await new Promise<void>((resolve) => {
            wake = resolve
          })
          continue
        }
        await patiently(this.#look)
        const runs = [...pending]
        pending.clear()
        yield { type: 'changed', runs }
      }
    } finally {
      this.#listeners.delete(listener)
    }
  }

  #schedule(): void {
    if (this.#timer !== undefined || this.#closing.signal.aborted) return
    this.#timer = setTimeout(async () => {
      await this.look()
      this.#timer = undefined
      if (this.#listeners.size > 0) this.#schedule()
    }, this.#pollMs)
  }

  close(): void {
    this.#closing.abort()
    clearTimeout(this.#timer)
    for (const listener of this.#listeners) listener(null)
  }
}
