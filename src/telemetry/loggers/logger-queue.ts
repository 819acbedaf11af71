/**
 * The queue between a training and its loggers, which `find-loggers.ts` lists. Each logger gets every entry, in order, at its own
 * pace; entries that it fails to take are counted and reported.
 */
import type { LogEntry, LoggedEnd, LoggedTraining, Logger, LoggerDefinition } from './logger.ts'

/** Entries that wait for a logger, at most; of more the oldest are lost. */
const MAX_WAITING = 10_000
/** What loggers may take at the end of a training, in ms. */
const CLOSE_MS = 10_000

/** What became of a logger's entries. */
export interface LoggerCounts {
  readonly written: number
  /** Entries that were never written. */
  readonly lost: number
  /** Calls that failed. */
  readonly failures: number
}

/** One logger with what waits for it. */
class Feed {
  readonly id: string
  written = 0
  lost = 0
  failures = 0
  #logger: Logger | undefined
  #isGone = false
  #waiting: LogEntry[] = []
  /** What it is doing; undefined while it rests. */
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

  /** Settles when it has nothing to do. */
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
    this.#fail(error, 'cannot be opened, and logs nothing')
  }

  /** Writes what waits; not while it is at work. */
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
        // What failed is tried again with the next entry, and not at once.
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

  /** Waits for what is under way, writes what is left, and closes. */
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
      this.#fail(error, 'failed as it was closed')
    }
    if (this.lost > 0) {
      const all = this.lost + this.written
      this.#tell(`logger ${this.id} lost ${this.lost} of ${all} entries (the first failure: ${this.#first})`)
    }
  }
}

/** Several loggers as one. */
export class Loggers {
  readonly #feeds: readonly Feed[]
  readonly #tell: (message: string) => void
  #isClosed = false

  /** Opens them; `tell` is given what a user should know of those that fail. */
  constructor(definitions: readonly LoggerDefinition[], training: LoggedTraining, tell: (message: string) => void) {
    this.#tell = tell
    this.#feeds = definitions.map((definition) => new Feed(definition, training, tell))
  }

  /** Hands an entry to each. */
  log(entry: LogEntry): void {
    for (const feed of this.#feeds) feed.log(entry)
  }

  /** What became of the entries, by the loggers' ids. */
  get counts(): Readonly<Record<string, LoggerCounts>> {
    return Object.fromEntries(
      this.#feeds.map(({ id, written, lost, failures }) => [id, { written, lost, failures }] as const),
    )
  }

  /** Where each of them can be looked at. */
  get places(): Readonly<Record<string, string>> {
    return Object.fromEntries(this.#feeds.flatMap(({ id, place }) => (place === undefined ? [] : [[id, place]])))
  }

  /** Settles when what was handed over so far is written, or has failed. */
  async settled(): Promise<void> {
    await Promise.all(this.#feeds.map((feed) => feed.rest()))
  }

  /** Writes what is left and closes each. One that takes longer than `ms` is left behind, and told of. */
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
        if (result === 'late') this.#tell(`logger ${feed.id} did not end in ${ms / 1000} s, and is left behind`)
      }),
    )
    clearTimeout(timer)
  }
}
