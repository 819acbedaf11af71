/**
 * Sources of time. Waits use a `Time`, so that a program runs in real time or in reproducible virtual time, in which hours pass in seconds.
 */
import { InputError, show } from '../base/errors.ts'

/** A source of time. */
export interface Time {
  /** Seconds since an arbitrary start; never decreases. */
  now(): number
  /** Settles after `seconds`, or at once when the signal aborts; never rejects. */
  sleep(seconds: number, signal?: AbortSignal): Promise<void>
}

/** The longest delay of a runtime timer, in milliseconds; longer ones would end at once. */
const TIMER_MAX = 2 ** 31 - 1

/** The machine's time. */
export const realTime: Time = {
  now: () => performance.now() / 1000,
  sleep: (seconds, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted) return resolve()
      const timer = setTimeout(done, Math.min(TIMER_MAX, 1000 * checkedSeconds(seconds)))
      signal?.addEventListener('abort', done)
      function done() {
        clearTimeout(timer)
        signal?.removeEventListener('abort', done)
        resolve()
      }
    }),
}

interface Sleeper {
  readonly at: number
  /** Breaks ties: of sleepers with the same wake-up time, the earlier one wakes first. */
  readonly order: number
  readonly wake: () => void
}

/**
 * Virtual time: it stands still while code runs, and advances to the next wake-up when all code waits. Code in it must not wait for
 * anything else, such as runtime timers, files or connections.
 */
export class VirtualTime implements Time {
  #now = 0
  #slept = 0
  /** A heap; the next to wake is first. */
  readonly #sleepers: Sleeper[] = []
  readonly #gone = new Set<Sleeper>()

  now(): number {
    return this.#now
  }

  sleep(seconds: number, signal?: AbortSignal): Promise<void> {
    const at = this.#now + checkedSeconds(seconds)
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve()
      const sleeper = { at, order: this.#slept++, wake }
      const leave = () => {
        this.#gone.add(sleeper)
        wake()
      }
      signal?.addEventListener('abort', leave)
      push(this.#sleepers, sleeper)
      function wake() {
        signal?.removeEventListener('abort', leave)
        resolve()
      }
    })
  }

  /**
   * Runs `main` and advances time until it is done.
   * @throws Error if all code waits, but none of it for time, so that it would never end.
   */
  async run<T>(main: () => Promise<T>): Promise<T> {
    let isDone = false
    const result = main().finally(() => {
      isDone = true
    })
    result.catch(() => {}) // It is thrown below.
    for (;;) {
      await allWait()
      if (isDone) return result
      const next = this.#next()
      if (next === undefined) throw new Error(`all tasks wait at ${this.#now} s, but none waits for a time`)
      this.#now = next.at
      next.wake()
    }
  }

  #next(): Sleeper | undefined {
    for (;;) {
      const next = pop(this.#sleepers)
      if (next === undefined || !this.#gone.delete(next)) return next
    }
  }
}

/** Settles when all code that can run now has run. */
function allWait(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

function checkedSeconds(seconds: number): number {
  if (seconds >= 0 && seconds < Number.POSITIVE_INFINITY) return seconds
  throw new InputError('seconds to sleep', show(seconds), 'a number ≥ 0')
}

function isBefore(a: Sleeper, b: Sleeper): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order)
}

function push(heap: Sleeper[], sleeper: Sleeper): void {
  let i = heap.length
  heap.push(sleeper)
  while (i > 0) {
    const parent = (i - 1) >> 1
    if (isBefore(heap[parent]!, sleeper)) break
    heap[i] = heap[parent]!
    i = parent
  }
  heap[i] = sleeper
}

function pop(heap: Sleeper[]): Sleeper | undefined {
  const first = heap[0]
  const last = heap.pop()
  if (heap.length === 0 || last === undefined) return first
  let i = 0
  for (;;) {
    let child = 2 * i + 1
    if (child >= heap.length) break
    if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child++
    if (isBefore(last, heap[child]!)) break
    heap[i] = heap[child]!
    i = child
  }
  heap[i] = last
  return first
}
