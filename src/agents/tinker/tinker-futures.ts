/** Futures of a training service: a slow request returns an id at once, with which the client asks for the result. */
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { InputError, show } from '../../base/errors.ts'
import { RequestError } from '../../base/http/server.ts'

/** The result of a future. */
export type FutureAnswer = Readonly<Record<string, unknown>>

/** Number of results to keep for clients that ask again. */
const KEPT = 4096
/** Milliseconds that a request waits for a result. The SDK waits 45 s. */
const WAIT_MS = 20_000

interface Future {
  readonly answer: Promise<FutureAnswer>
  readonly cancel: AbortController
  isDone: boolean
}

export class TinkerFutures {
  readonly #futures = new Map<string, Future>()

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
      if (isDone) this.#futures.delete(oldest)
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
    if (answer !== null) return answer
    throw new RequestError(408, 'the result is not ready: ask again')
  }

  /** Stops the work if possible. */
  cancel(id: unknown): void {
    if (typeof id === 'string') this.#futures.get(id)?.cancel.abort()
  }
}

/** An error in the protocol's form. Errors of the server are printed here. */
function failed(error: unknown): FutureAnswer {
  if (error instanceof InputError || (error instanceof RequestError && error.status < 500)) {
    return { error: error.message, category: 'user' }
  }
  console.error(`colonnade: ${(error instanceof Error && error.stack) || show(error)}`)
  return { error: 'an internal error, which the server has printed', category: 'server' }
}
