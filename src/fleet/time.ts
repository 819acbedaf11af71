/**
 * Where time comes from. What waits asks for it, so that the same program runs in the machine's time and in a virtual one, in
 * which hours pass in seconds and every schedule can be made again.
 */
import { InputError, show } from '../base/errors.ts'

/** The time that something waits in. */
export interface Time {
  /** Seconds since a beginning of its own; never less than before. */
  now(): number
  /** Settles after so many seconds, or at once when the signal is aborted; never fails. */
  sleep(seconds: number, signal?: AbortSignal): Promise<void>
}

/** The longest that a timer of the runtime takes, in milliseconds; longer ones would end at once. */
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
  /** Who slept first wakes first, of those that wake at the same time. */
  readonly order: number
  readonly wake: () => void
}

/**
 * Time that stands still while anybody works, and goes on to the next who wakes when all wait. What runs in it may wait for
 * nothing else: not for the machine's timers, files or connections.
 */
export class VirtualTime implements Time {
  #now = 0
  #slept = 0
  /** A heap: the first to wake is the first. */
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
   * Runs `main`, and lets time go on until it is done.
   * @throws Error where all wait, but none of them for time: then it would never end.
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
      if (next === undefined) throw new Error(`all wait at ${this.#now} s, and none of them for time`)
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

/** Settles when everything has run that can run now. */
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
