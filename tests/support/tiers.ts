/**
 * The tiers. `npm test` is the fast tier; every other mode of vitest is the thorough one, which has all tests (`npm run
 * test:all`). Heavy tests, and most rows of a matrix, are in the thorough tier; the fast one has a small case of each.
 */
import { type TestAPI, test } from 'vitest'

export const isThorough = import.meta.env.MODE !== 'test'

/** A test of the thorough tier only. */
export const thorough: ReturnType<TestAPI['runIf']> = test.runIf(isThorough)

/** The rows of a matrix; in the fast tier only the first. */
export function rowsOf<const Row>(rows: readonly Row[], fast = 1): readonly Row[] {
  return isThorough ? rows : rows.slice(0, fast)
}

/** Random numbers for kills and pauses: the same in every run (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
