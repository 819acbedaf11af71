/** Futures of a training service: a slow request returns an id at once, with which the client asks for the result. */
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { InputError, show } from '../../base/errors.ts'
import { RequestError } from '../../base/http/server.ts'

/** The result of a future. */
export type FutureAnswer = Readonly<Record<string, unknown>>

/** Number of results to keep for clients that ask again. */
const KEPT = 4096
/** Maximum numbers in results that their clients have asked for. The oldest are dropped, and the last is kept. */
const KEPT_NUMBERS = 2 ** 24
/** Milliseconds that a request waits for a result. The SDK waits 45 s. */
const WAIT_MS = 20_000

interface Future {
  readonly answer: Promise<FutureAnswer>
  readonly cancel: AbortController
  isDone: boolean
}

/** How many numbers and texts a value has. */
function sizeOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1
  if (Array.isArray(value) && typeof value[0] === 'number') return value.length
  return Object.values(value).reduce<number>((sum, each) => sum + sizeOf(each), 1)
}

export class TinkerFutures {
  readonly #futures = new Map<string, Future>()
  /** The sizes of results that were asked for, oldest first. */
  readonly #taken = new Map<string, number>()

  /** Starts work and returns the id of its result. An error becomes a result too. */
  add(work: (signal: AbortSignal) => Promise<FutureAnswer>): string {
    const id = randomUUID()
    const cancel = new AbortController()
    const answer = work(cancel.signal).catch(failed)
    const future: Future = { answer, cancel, isDone: false }
    void answer.then(() => {
      future.isDone = true
    })
    this.#futures.set(id, future)
    for (const [oldest, { isDone }] of this.#futures) {
      if (this.#futures.size <= KEPT) break
      if (isDone) this.#drop(oldest)
    }
    return id
  }

  /** Waits for a result. @throws RequestError 408 if it is not ready, 404 for an unknown id. */
  async retrieve(id: unknown, signal: AbortSignal): Promise<FutureAnswer> {
    const future = typeof id === 'string' ? this.#futures.get(id) : undefined
    if (future === undefined) throw new RequestError(404, `request_id: got ${show(id)}, expected one of this service`)
    const timer = new AbortController()
    const late = sleep(WAIT_MS, null, { ref: false, signal: AbortSignal.any([timer.signal, signal]) }).catch(() => null)
    const answer = await Promise.race([future.answer, late])
    timer.abort()
    if (answer !== null) {
      this.#take(id as string, answer)
      return answer
    }
    throw new RequestError(408, 'the result is not ready: ask again')
  }

  #take(id: string, answer: FutureAnswer): void {
    if (this.#futures.has(id) && !this.#taken.has(id)) this.#taken.set(id, sizeOf(answer))
    let sum = [...this.#taken.values()].reduce((total, size) => total + size, 0)
    for (const [oldest, size] of this.#taken) {
      if (sum <= KEPT_NUMBERS || oldest === id) break
      sum -= size
      this.#drop(oldest)
    }
  }

  #drop(id: string): void {
    this.#futures.delete(id)
    this.#taken.delete(id)
  }

  /** Stops all work if possible. */
  close(): void {
    for (const { cancel } of this.#futures.values()) cancel.abort()
  }

  /** Stops the work if possible. */
  cancel(id: unknown): void {
    if (typeof id === 'string') this.#futures.get(id)?.cancel.abort()
  }
}

/** An error in the protocol's form. Unexpected errors are printed here. */
function failed(error: unknown): FutureAnswer {
  if (error instanceof InputError) return { error: error.message, category: 'user' }
  if (error instanceof RequestError) {
    return { error: error.message, category: error.status < 500 ? 'user' : 'server' }
  }
  console.error(`colonnade: ${(error instanceof Error && error.stack) || show(error)}`)
  return { error: 'an internal error, which the server has printed', category: 'server' }
}
