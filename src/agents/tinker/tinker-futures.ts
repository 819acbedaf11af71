/** Futures of a training service: heavy requests are answered by a name at once, by which clients then ask for the result. */
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { InputError, show } from '../../base/errors.ts'
import { RequestError } from '../../base/http/server.ts'

/** What a future comes to. */
export type FutureAnswer = Readonly<Record<string, unknown>>

/** Results that are kept for clients that ask again. */
const KEPT = 4096
/** Milliseconds that a request for a result may wait; the client of the protocol waits for 45 s. */
const WAIT_MS = 20_000

interface Future {
  readonly answer: Promise<FutureAnswer>
  readonly cancel: AbortController
  isDone: boolean
}

export class TinkerFutures {
  readonly #futures = new Map<string, Future>()

  /** Names the result of this work. Its failure is an answer too. */
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

  /** The result, if it comes in time. @throws RequestError 408 where it is not there yet, 404 where nothing is known of it. */
  async retrieve(id: unknown, signal: AbortSignal): Promise<FutureAnswer> {
    const future = typeof id === 'string' ? this.#futures.get(id) : undefined
    if (future === undefined) throw new RequestError(404, `request_id: got ${show(id)}, expected one of this service`)
    const timer = new AbortController()
    const late = sleep(WAIT_MS, null, { ref: false, signal: AbortSignal.any([timer.signal, signal]) }).catch(() => null)
    const answer = await Promise.race([future.answer, late])
    timer.abort()
    if (answer !== null) return answer
    throw new RequestError(408, 'the result is not there yet: ask again')
  }

  /** Stops the work, where it can be. */
  cancel(id: unknown): void {
    if (typeof id === 'string') this.#futures.get(id)?.cancel.abort()
  }
}

/** A failure as the protocol says it: what the user can change, or what the terminal tells. */
function failed(error: unknown): FutureAnswer {
  if (error instanceof InputError || (error instanceof RequestError && error.status < 500)) {
    return { error: error.message, category: 'user' }
  }
  console.error(`colonnade: ${(error instanceof Error && error.stack) || show(error)}`)
  return { error: 'an error of the server, which its terminal tells', category: 'server' }
}
