/**
 * Work in numbered parts that threads share. Thread 0 runs the work; other threads help with parts that no thread has begun. A part's result does not
 * depend on the thread that does it, so the number of threads can change at any time.
 */

/** Numbers that thread 0 can tell the others for a run. */
const TOLD = 8

/** One thread's side of the work. Every thread registers the same works in the same order. */
export interface PartedWork {
  /**
   * Prepares this thread for a run with thread 0's numbers. It only reads these numbers and shared columns that stay the same during a
   * training: in a late thread the run may be over.
   */
  open(told: Float64Array): void
  /** Does a part. Returns a promise only if the training has one thread. */
  part(i: number): void | Promise<void>
}

/** Thread 0's handle of a work. */
export interface SharedWork {
  /** The numbers for `open`, to be written before `run`. */
  readonly told: Float64Array
  /** Does parts 0 … numParts − 1. They are done when it returns, or when its promise resolves. */
  run(numParts: number): void | Promise<void>
}

export type ShareWork = (work: PartedWork) => SharedWork

export function toldNumbers(): Float64Array {
  return new Float64Array(TOLD)
}

/** Shares nothing: the thread does all parts. */
export const alone: ShareWork = (work) => {
  const told = toldNumbers()
  return {
    told,
    run(numParts) {
      work.open(told)
      return doParts(work, 0, numParts)
    },
  }
}

/** Does parts `from` to `end` in this thread. */
export function doParts(work: PartedWork, from: number, end: number): void | Promise<void> {
  for (let i = from; i < end; i++) {
    const pending = work.part(i)
    if (pending !== undefined) return pending.then(() => doParts(work, i + 1, end))
  }
}
