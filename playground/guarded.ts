/** A worker that can be killed: it is when what it runs does not answer in time, and the next question starts another. */

/** Milliseconds in which an environment of one's own has to answer. */
const ANSWER_MS = 8000

export class Guarded<Ask extends object, Told extends { readonly told: string }> {
  readonly #url: URL
  readonly #hear: (told: Told) => void
  readonly #fail: (message: string) => void
  #worker: Worker | undefined
  /** When the oldest question was asked that has no answer; null if there is none. */
  #waitingSince: number | null = null
  /** Whether it runs what somebody wrote in the page. */
  isWatched = false

  constructor(url: URL, hear: (told: Told) => void, fail: (message: string) => void) {
    this.#url = url
    this.#hear = hear
    this.#fail = fail
    setInterval(() => this.#watch(), 250)
  }

  /** Asks. Where `isAnswered`, something has to be told in time. */
  ask(asked: Ask, isAnswered: boolean, moved: Transferable[] = []): void {
    this.#worker ??= this.#start()
    if (isAnswered) this.#waitingSince ??= performance.now()
    this.#worker.postMessage(asked, moved)
  }

  /** Ends the worker, with all that it does. */
  end(): void {
    this.#worker?.terminate()
    this.#worker = undefined
    this.#waitingSince = null
  }

  /** Expects something to be told in time from now on, or nothing more. */
  expect(isExpected: boolean): void {
    this.#waitingSince = isExpected ? performance.now() : null
  }

  #start(): Worker {
    const worker = new Worker(this.#url, { type: 'module' })
    worker.addEventListener('message', ({ data }: MessageEvent<Told>) => {
      if (worker !== this.#worker) return
      this.#waitingSince = null
      this.#hear(data)
    })
    worker.addEventListener('error', (event) => {
      if (worker !== this.#worker) return
      event.preventDefault()
      this.end()
      this.#fail(event.message || 'the worker could not start')
    })
    return worker
  }

  #watch(): void {
    if (!this.isWatched || this.#waitingSince === null) return
    if (performance.now() - this.#waitingSince < ANSWER_MS) return
    this.end()
    this.#fail(
      `Stopped: your environment did not return for ${ANSWER_MS / 1000} seconds. Is there a loop that does not end?`,
    )
  }
}
