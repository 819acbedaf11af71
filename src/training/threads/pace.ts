/**
 * How many threads a kind of work pays, found while it runs: each number of threads is tried for a while, and the fastest is kept until the
 * next trial. The results do not depend on it. Neighbors of the kept number are tried again ever more rarely, so that trials cost little.
 */

/** A trial has at least so many runs and milliseconds. */
const TRIAL_RUNS = 3
const TRIAL_MS = 40
/** Runs before the first trial, while code is compiled. */
const FIRST_RUNS = 2
/** A trial ends as soon as it has taken this many times as long as as many runs of the best. */
const HOPELESS = 2
/** More threads have to be faster by this factor; fewer are taken unless they are slower by it. */
const FASTER = 0.97
/** Milliseconds between two trials: at first, and at most; and at least this many times what the last trial has lost. */
const [HOLD_MS, HOLD_MS_MAX, LOST] = [400, 60_000, 50]

export class Pace {
  /** Numbers of threads that can be tried, ascending: 1, 2, 4 … count. */
  readonly #choices: readonly number[]
  #best: number
  #tried: number
  /** The trial's runs and milliseconds. */
  #runs = 0
  #milliseconds = 0
  /** Milliseconds of a run with each choice, when last tried. */
  readonly #means: Float64Array
  #warming: number
  #hold = HOLD_MS
  /** Milliseconds until the next trial. */
  #left = 0
  /** Choices still to be tried. */
  #queue: number[]

  /** `isFixed`: always all threads. */
  constructor(count: number, isFixed = false) {
    const powers = Array.from({ length: Math.ceil(Math.log2(count)) }, (_, i) => 2 ** i)
    this.#choices = isFixed || count === 1 ? [count] : [...powers, count]
    this.#best = this.#choices.length - 1
    this.#tried = this.#best
    this.#means = new Float64Array(this.#choices.length).fill(Number.POSITIVE_INFINITY)
    this.#warming = FIRST_RUNS
    this.#queue = this.#choices.map((_, i) => i).reverse()
    this.#queue.shift()
  }

  /** Threads for the next run. */
  get threads(): number {
    return this.#choices[this.#tried]!
  }

  /** Reports how long the run took. */
  took(milliseconds: number): void {
    if (this.#choices.length === 1) return
    if (this.#warming > 0) {
      this.#warming--
      return
    }
    if (this.#left > 0) {
      this.#left -= milliseconds
      if (this.#left <= 0) this.#beginTrials()
      return
    }
    this.#runs++
    this.#milliseconds += milliseconds
    const expected = this.#runs * this.#means[this.#best]!
    const isLong = this.#runs >= TRIAL_RUNS && this.#milliseconds >= TRIAL_MS
    const isHopeless = this.#tried !== this.#best && this.#milliseconds > HOPELESS * (expected + TRIAL_MS / 2)
    if (isLong || isHopeless) this.#endTrial(expected)
  }

  /** Tries the kept number anew, then those beside it. */
  #beginTrials(): void {
    this.#queue = [this.#best - 1, this.#best + 1].filter((i) => i >= 0 && i < this.#choices.length)
    this.#tried = this.#best
    this.#runs = 0
    this.#milliseconds = 0
  }

  #endTrial(expected: number): void {
    const mean = this.#milliseconds / this.#runs
    this.#means[this.#tried] = mean
    const bound = this.#means[this.#best]! * (this.#tried < this.#best ? 1 / FASTER : FASTER)
    const isBetter = this.#tried !== this.#best && mean < bound
    const lost = this.#tried === this.#best ? 0 : Math.max(0, this.#milliseconds - expected)
    if (isBetter) {
      this.#best = this.#tried
      this.#hold = HOLD_MS
    }
    this.#runs = 0
    this.#milliseconds = 0
    const next = this.#queue.shift()
    this.#tried = next ?? this.#best
    if (next !== undefined) return
    this.#hold = Math.min(HOLD_MS_MAX, Math.max(2 * this.#hold, LOST * lost))
    this.#left = this.#hold
  }
}
