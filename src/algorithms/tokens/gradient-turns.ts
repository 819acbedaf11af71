/**
 * One gradient to which several threads add. A large model has room for one gradient only. So each thread adds the
 * contribution of its micro-batch to a stage of the backward pass (the head, a layer, the embedding) after all earlier
 * micro-batches have added theirs. The order of sums, and so their bits, is that of one thread, while threads work in
 * different stages.
 */
import { type Clock, Work } from '../../base/clock.ts'
import type { GradientTurns } from '../../language/transformer/stages.ts'

/** How long to wait for a thread before asking whether one has ended, in ms. */
const PATIENCE = 1000

/** The value of a stage after a failure, so that no thread waits for it. */
const FAILED = 0x7fffffff

export class ThreadTurns implements GradientTurns {
  readonly embedding: Float32Array | null
  /** The micro-batch of this thread. */
  part = 0
  /** For each stage the number of micro-batches that have added to it. Shared. */
  readonly #passed: Int32Array
  readonly #clock: Clock
  readonly #check: () => void

  /** `check` throws if another thread has ended, which a waiting thread cannot hear of. */
  constructor(passed: Int32Array, embedding: Float32Array | null, clock: Clock, check: () => void) {
    this.#passed = passed
    this.embedding = embedding
    this.#clock = clock
    this.#check = check
  }

  begin(stage: number): void {
    let passed = Atomics.load(this.#passed, stage)
    if (passed >= this.part) return
    this.#clock.charge(Work.backward)
    while (passed < this.part) {
      if (Atomics.wait(this.#passed, stage, passed, PATIENCE) === 'timed-out') this.#check()
      passed = Atomics.load(this.#passed, stage)
    }
    this.#clock.charge(Work.waiting)
  }

  end(stage: number): void {
    Atomics.compareExchange(this.#passed, stage, this.part, this.part + 1)
    Atomics.notify(this.#passed, stage)
  }

  /** Lets all other threads continue after this thread's error, which ends the work. */
  fail(): void {
    for (let stage = 0; stage < this.#passed.length; stage++) {
      Atomics.store(this.#passed, stage, FAILED)
      Atomics.notify(this.#passed, stage)
    }
  }
}
