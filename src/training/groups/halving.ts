/**
 * Successive halving (Jamieson and Talwalkar 2016; asynchronous: Li et al. 2020): every setting trains to a part of its
 * length, a rung, and only the best of a rung continue to the next.
 */
import { InputError, show } from '../../base/errors.ts'

/** How settings are stopped early. */
export interface HalvingOptions {
  /** At each rung one in this many settings continues; default 0: all train to their end. */
  readonly halving?: number
  /** Rungs, the last at the end: each has `halving` times the length of the one before. Default 3. */
  readonly rungs?: number
}

/** The rungs as parts of a whole training, ascending; the last is 1. @throws InputError for wrong options. */
export function rungsOf({ halving = 0, rungs = 3 }: HalvingOptions): readonly number[] {
  const isFactor = Number.isSafeInteger(halving) && (halving === 0 || halving >= 2)
  if (!isFactor) throw new InputError('halving', show(halving), 'a whole number ≥ 2, or 0 for none')
  if (!Number.isSafeInteger(rungs) || rungs < 2) throw new InputError('rungs', show(rungs), 'a whole number ≥ 2')
  return halving === 0 ? [1] : Array.from({ length: rungs }, (_, i) => halving ** (i + 1 - rungs))
}

/**
 * The settings that continue from a rung: the best of those that have reached it, one in `halving`; at least one when
 * no further setting will reach it. `ranked`: their numbers, the best first; `reached`: the number of rungs that each has done.
 */
export function goingOn(
  ranked: readonly number[],
  reached: ReadonlyMap<number, number>,
  rung: number,
  halving: number,
  isLast: boolean,
): number[] {
  const there = ranked.filter((setting) => reached.get(setting)! > rung)
  const count = Math.max(Math.floor(there.length / halving), isLast ? 1 : 0)
  return there.slice(0, count).filter((setting) => reached.get(setting) === rung + 1)
}
