/**
 * The queue between a training and its loggers (`find-loggers.ts`). Each logger gets every entry in order, at its own pace; failed
 * entries are counted and reported.
 */
import type { LogEntry, LoggedEnd, LoggedTraining, Logger, LoggerDefinition } from './logger.ts'

/** Maximum entries that wait for a logger; beyond this the oldest are dropped. */
const MAX_WAITING = 10_000
/** Milliseconds that loggers may take at the end of a training. */
const CLOSE_MS = 10_000

/** Statistics of a logger's entries. */
export interface LoggerCounts {
  readonly written: number
  readonly lost: number
  /** Failed calls. */
  readonly failures: number
}

/** One logger with its waiting entries. */
class Feed {
  readonly id: string
  written = 0
  lost = 0
  failures = 0
  #logger: Logger | undefined
  #isGone = false
  #waiting: LogEntry[] = []
  /** The current call; undefined if there is none. */
  #work: Promise<void> | undefined
  #first = ''
  readonly #tell: (message: string) => void

  constructor(definition: LoggerDefinition, training: LoggedTraining, tell: (message: string) => void) {
    this.id = definition.id
    this.#tell = tell
    try {
      const opened = definition.open(training)
      if (opened instanceof Promise) this.#work = opened.then(this.#take, this.#never).then(this.#next)
      else this.#take(opened)
    } catch (error) {
      this.#never(error)
    }
  }

  get place(): string | undefined {
    return this.#logger?.place
  }

  /** Settles when it is idle. */
  async rest(): Promise<void> {
    while (this.#work !== undefined) await this.#work
  }

  log(entry: LogEntry): void {
    if (this.#isGone) {
      this.lost++
      return
    }
    this.#waiting.push(entry)
    if (this.#waiting.length > MAX_WAITING) {
      this.#waiting.shift()
      this.lost++
    }
    if (this.#work === undefined) this.#next()
  }

  #take = (logger: Logger): void => {
    this.#logger = logger
  }

  #never = (error: unknown): void => {
    this.#isGone = true
    this.lost += this.#waiting.length
    this.#waiting = []
    this.#fail(error, 'cannot be opened and logs nothing')
  }

  /** Writes the waiting entries, unless a call is in progress. */
  #next = (): void => {
    const logger = this.#logger
    this.#work = undefined
    if (logger === undefined || this.#waiting.length === 0) return
    const entries = this.#waiting
    this.#waiting = []
    const didFail = (error: unknown): void => {
      if (logger.isRepeatable) this.#waiting = [...entries, ...this.#waiting]
      else this.lost += entries.length
      this.#fail(error, 'failed')
    }
    const didWrite = (): void => {
      this.written += entries.length
    }
    try {
      const writing = logger.write(entries)
      if (writing instanceof Promise) {
        // Failed entries are retried with the next entry, not at once.
        this.#work = writing.then(
          () => {
            didWrite()
            this.#next()
          },
          (error) => {
            didFail(error)
            this.#work = undefined
          },
        )
      } else didWrite()
    } catch (error) {
      didFail(error)
    }
  }

  #fail(error: unknown, what: string): void {
    this.failures++
    const reason = (error as Error)?.message ?? String(error)
    if (this.failures > 1) return
    this.#first = reason
    this.#tell(`logger ${this.id} ${what}: ${reason}; the training goes on`)
  }

  /** Waits for the current call, writes the remaining entries, and closes. */
  async close(end: LoggedEnd): Promise<void> {
    await this.rest()
    if (this.#waiting.length > 0) {
      this.#next()
      await this.rest()
    }
    this.lost += this.#waiting.length
    this.#waiting = []
    this.#isGone = true
    try {
      await this.#logger?.close?.(end)
    } catch (error) {
      this.#fail(error, 'failed on closing')
    }
    if (this.lost > 0) {
      const all = this.lost + this.written
      this.#tell(`logger ${this.id} lost ${this.lost} of ${all} entries (first failure: ${this.#first})`)
    }
  }
}

export class Loggers {
  readonly #feeds: readonly Feed[]
  readonly #tell: (message: string) => void
  #isClosed = false

  /** Opens the loggers. `tell` receives messages about failures for the user. */
  constructor(definitions: readonly LoggerDefinition[], training: LoggedTraining, tell: (message: string) => void) {
    this.#tell = tell
    this.#feeds = definitions.map((definition) => new Feed(definition, training, tell))
  }

  log(entry: LogEntry): void {
    for (const feed of this.#feeds) feed.log(entry)
  }

  /** Statistics of the entries, by logger id. */
  get counts(): Readonly<Record<string, LoggerCounts>> {
    return Object.fromEntries(
      this.#feeds.map(({ id, written, lost, failures }) => [id, { written, lost, failures }] as const),
    )
  }

  /** Where each logger's output can be viewed. */
  get places(): Readonly<Record<string, string>> {
    return Object.fromEntries(this.#feeds.flatMap(({ id, place }) => (place === undefined ? [] : [[id, place]])))
  }

  /** Settles when all entries so far are written or have failed. */
  async settled(): Promise<void> {
    await Promise.all(this.#feeds.map((feed) => feed.rest()))
  }

  /** Writes the remaining entries and closes each logger. A logger that takes longer than `ms` is abandoned and reported. */
  async close(end: LoggedEnd, ms = CLOSE_MS): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<'late'>((resolve) => {
      timer = setTimeout(() => resolve('late'), ms)
    })
    await Promise.all(
      this.#feeds.map(async (feed) => {
        const result = await Promise.race([feed.close(end), late])
        if (result === 'late') this.#tell(`logger ${feed.id} did not close in ${ms / 1000} s and was abandoned`)
      }),
    )
    clearTimeout(timer)
  }
}
