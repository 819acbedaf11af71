/**
 * Reports which thread of a training is stuck, in which call, since when. Clocks increment a beat in shared memory at
 * their marks, and one watching thread per process checks them, so it also reports a caller's thread that never
 * returns. A policy's promise that never settles counts as a stuck call.
 *
 * A run keeps a copy of its state between updates, so that an update with a stuck worker or promise can be abandoned
 * with a checkpoint. A page has another body (`watchdog.page.ts`).
 */
import type { Worker } from 'node:worker_threads'
import { BEAT_WORDS } from '../../base/clock.ts'
import { APPENDING } from '../../base/files/files.ts'

export interface Watched {
  /** Each thread's beat, in order. */
  readonly beats: Int32Array
  /** The lanes of each thread, as text. */
  readonly who: readonly string[]
  /** The calls, as `callsOf` numbers them. */
  readonly calls: readonly string[]
  readonly seconds: number
  readonly log: string
  /** Called for a stuck call, if the caller's thread is alive. */
  onStall(message: string): void
}

/** Seconds for a caller's thread to end a stopping run before the process is killed. */
const GRACE_SECONDS = 10
/** Seconds without progress that a run waits after a request to end. */
const IMPATIENT_SECONDS = 5

let watching: Promise<Worker> | undefined
let lastId = 0
const listeners = new Map<number, (message: string) => void>()

export class Watchdog {
  readonly #id: number
  readonly #worker: Worker

  private constructor(id: number, worker: Worker) {
    this.#id = id
    this.#worker = worker
  }

  /** `mustStop`: kill the process if the caller's thread does not end the run. 0 seconds: never. */
  static async start({ beats, who, calls, seconds, log, onStall }: Watched, mustStop: boolean): Promise<Watchdog> {
    const id = ++lastId
    watching ??= startWorker()
    const worker = await watching
    listeners.set(id, onStall)
    const grace = GRACE_SECONDS * 1000
    worker.postMessage({
      id,
      beats,
      who,
      calls,
      ms: 1000 * (seconds || Number.POSITIVE_INFINITY),
      log,
      mustStop,
      grace,
    })
    return new Watchdog(id, worker)
  }

  /** From now on a stuck call is reported after a few seconds and ends the run. */
  hurry(): void {
    this.#worker.postMessage({ id: this.#id, hurry: 1000 * IMPATIENT_SECONDS })
  }

  close(): void {
    listeners.delete(this.#id)
    this.#worker.postMessage({ id: this.#id, isOver: true })
  }
}

async function startWorker(): Promise<Worker> {
  const { Worker } = await import('node:worker_threads')
  const isInline = process.execArgv.some((flag) => flag.startsWith('--input-type'))
  const workerData = { words: BEAT_WORDS }
  const worker = new Worker(PROGRAM, {
    eval: true,
    workerData,
    name: 'colonnade watchdog',
    ...(isInline && { execArgv: [] }),
  })
  worker.on('message', ({ id, message }: { id: number; message: string }) => listeners.get(id)?.(message))
  worker.unref()
  return worker
}

/** The watching thread's program, as text without imports. A waiting thread rests (−2); marks increment its beat. */
const PROGRAM = `
const { parentPort, workerData } = require('node:worker_threads')
const { appendFileSync, writeSync } = require('node:fs')
const watched = new Map()
parentPort.on('message', ({ id, ...told }) => {
  const one = watched.get(id)
  if (told.isOver) watched.delete(id)
  else if (told.hurry !== undefined) {
    if (one) Object.assign(one, { ms: Math.min(one.ms, told.hurry), mustStop: true, threads: one.who.map(() => ({})) })
  } else watched.set(id, { ...told, threads: told.who.map(() => ({})) })
})
const attempt = (action) => { try { action() } catch {} } // No thread is left to report it.
function tell(one, message) {
  attempt(() => appendFileSync(one.log, new Date().toISOString() + ' process ' + process.pid + ': ' + message + '\\n', { flag: ${APPENDING} }))
  attempt(() => writeSync(2, 'colonnade: warning: ' + message + '\\n'))
}
setInterval(() => {
  const now = performance.now()
  for (const [id, one] of watched) {
    if (one.endsBy !== undefined && now > one.endsBy) {
      tell(one, 'the thread of the caller does not answer either: the process is killed; the newest checkpoint stands')
      process.kill(process.pid, 'SIGKILL')
    }
    one.threads.forEach((thread, i) => {
      const count = Atomics.load(one.beats, i * workerData.words)
      const work = Atomics.load(one.beats, i * workerData.words + 1)
      if (work === -2 || count !== thread.count) Object.assign(thread, { count, since: now, date: new Date(), isTold: false })
      else if (!thread.isTold && now - thread.since >= one.ms) {
        thread.isTold = true
        const message = one.who[i] + ': ' + one.calls[work + 1] + ' has not returned for ' +
          Math.round((now - thread.since) / 100) / 10 + ' s (since ' + thread.date.toISOString() + ')'
        tell(one, message)
        if (one.mustStop) one.endsBy ??= now + one.grace
        parentPort.postMessage({ id, message })
      }
    })
  }
}, 50)
`
