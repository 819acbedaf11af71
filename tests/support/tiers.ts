/**
 * The tiers. `npm test` is the fast one; every other mode of vitest is of the thorough one, which has all (`npm run test:all`).
 * A heavy test, or most rows of a matrix, is of the thorough tier; a thin case of the same stays in the fast one.
 */
import { type TestAPI, test } from 'vitest'

export const isThorough = import.meta.env.MODE !== 'test'

/** A test of the thorough tier alone. */
export const thorough: ReturnType<TestAPI['runIf']> = test.runIf(isThorough)

/** The rows of a matrix: in the fast tier the first ones alone. */
export function rowsOf<const Row>(rows: readonly Row[], fast = 1): readonly Row[] {
  return isThorough ? rows : rows.slice(0, fast)
}

/** The chance of kills and pauses: the same numbers in every run (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
