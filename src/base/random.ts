/**
 * Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2,
 * 3", SC 2011). There is no state: every number is a function of (seed, stream, lane, episode, draw), so it does not
 * depend on the number or order of lanes, or on the thread.
 */
import { InputError, show } from './errors.ts'

/** The purpose of a draw. Two purposes never share numbers. */
export const Stream = {
  /** An episode's starting state: draw counts blocks of four within one reset. */
  reset: 0,
  /** Randomness of an environment's step: draw is `k * step + i` for the i-th of k blocks of four that a step needs. */
  step: 1,
  /** The sampling of an action: draw counts blocks of four over the steps of the episode. */
  action: 2,
  /** The order of rows in a minibatch: episode is the update, lane the epoch. */
  shuffle: 3,
  /** Initial weights: lane is the cohort. */
  initialize: 4,
  /** Dropout in an adapter: lane is the sequence, episode the position, draw counts blocks over all projections. */
  dropout: 5,
  /** Rows of a replay: episode is the gradient step. */
  replay: 6,
  /** Randomness of a wrapper's step: draw as in `step`. */
  wrapper: 7,
  /** Settings of a search: lane is the trial, episode the key, draw counts blocks of four. */
  search: 8,
  /** The next level of a lane: draw 0 of an environment, draw 1 of a system, whose episode counts its draws. */
  level: 9,
} as const

const MULTIPLIER_0 = 0xd2511f53
const MULTIPLIER_1 = 0xcd9e8d57
const WEYL_0 = 0x9e3779b9
const WEYL_1 = 0xbb67ae85

/** The upper 32 bits of the product of two unsigned 32-bit numbers; every intermediate is below 2^32. */
function multiplyHigh(a: number, b: number): number {
  const aLow = a & 0xffff
  const aHigh = a >>> 16
  const bLow = b & 0xffff
  const bHigh = b >>> 16
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16)
  const other = aLow * bHigh + (middle & 0xffff)
  return (aHigh * bHigh + (middle >>> 16) + (other >>> 16)) >>> 0
}

/** Ten rounds of Philox4x32: `words` (4) from a counter of four words and a key of two. */
export function philox4x32(
  words: Uint32Array,
  counter0: number,
  counter1: number,
  counter2: number,
  counter3: number,
  key0: number,
  key1: number,
): void {
  let c0 = counter0 | 0
  let c1 = counter1 | 0
  let c2 = counter2 | 0
  let c3 = counter3 | 0
  let k0 = key0 | 0
  let k1 = key1 | 0
  for (let round = 0; round < 10; round++) {
    const high0 = multiplyHigh(c0, MULTIPLIER_0)
    const high1 = multiplyHigh(c2, MULTIPLIER_1)
    const low0 = Math.imul(c0, MULTIPLIER_0)
    const low1 = Math.imul(c2, MULTIPLIER_1)
    c0 = high1 ^ c1 ^ k0
    c1 = low1
    c2 = high0 ^ c3 ^ k1
    c3 = low0
    k0 = (k0 + WEYL_0) | 0
    k1 = (k1 + WEYL_1) | 0
  }
  words[0] = c0
  words[1] = c1
  words[2] = c2
  words[3] = c3
}

/** The upper 24 bits of a word as a number in [0, 1): exact in f32. */
export function unitFromWord(word: number): number {
  return (word >>> 8) * 5.9604644775390625e-8
}

/**
 * A seed and room for one draw of four words. It keeps no state between draws. Each thread makes its own.
 *
 * @example
 * random.draw(Stream.reset, lane, episode, 0)
 * const x = random.uniform(0, -0.05, 0.05)
 */
export class Random {
  readonly seed: number
  /** The seed as the two key words of Philox. */
  readonly key0: number
  readonly key1: number
  readonly words = new Uint32Array(4)

  constructor(seed: number) {
    this.seed = checkSeed(seed)
    this.key0 = seed >>> 0
    this.key1 = Math.floor(seed / 2 ** 32) >>> 0
  }

  /** Fills `words` with the four words of one draw. All arguments are unsigned 32-bit numbers. */
  draw(stream: number, lane: number, episode: number, draw: number): void {
    philox4x32(this.words, draw, episode, lane, stream, this.key0, this.key1)
  }

  /** Word `index` (0–3) of the last draw, uniform in [low, high). */
  uniform(index: number, low = 0, high = 1): number {
    return low + (high - low) * unitFromWord(this.words[index]!)
  }

  /** One (`part`) of two standard normals from words `index` and `index + 1` (Box and Muller 1958). */
  normal(index: number, part: 0 | 1): number {
    return boxMuller(this.words[index]!, this.words[index + 1]!, part)
  }
}

/** One of the two standard normals that two words give (Box and Muller 1958). */
export function boxMuller(radiusWord: number, angleWord: number, part: number): number {
  const radius = Math.sqrt(-2 * Math.log(((radiusWord >>> 8) + 1) * 5.9604644775390625e-8))
  const angle = 2 * Math.PI * unitFromWord(angleWord)
  return part === 0 ? radius * Math.cos(angle) : radius * Math.sin(angle)
}

/** Throws unless `seed` is a whole number in [0, 2^53). */
export function checkSeed(seed: number): number {
  if (!Number.isSafeInteger(seed) || seed < 0) {
    throw new InputError('seed', show(seed), 'a whole number from 0 to 9007199254740991')
  }
  return seed
}
