/**
 * What the SIMD bodies that draw random numbers share: Philox4x32-10 (`random.ts` has the source) for four rows at a time,
 * one a lane. It is all integers, so the words have the plain twin's bits.
 */

/** As in random.ts: the multipliers and the key's increments. */
const MULTIPLIER_0: i32 = 0xd2511f53
const MULTIPLIER_1: i32 = 0xcd9e8d57
const WEYL_0: i32 = 0x9e3779b9
const WEYL_1: i32 = 0xbb67ae85

/** The four words of the last call, each of four rows. A body returns one value only, and these do not touch the columns. */
export let word0: v128 = i32x4.splat(0)
export let word1: v128 = i32x4.splat(0)
export let word2: v128 = i32x4.splat(0)
export let word3: v128 = i32x4.splat(0)

/** Sets the four words, from the counters' four words and the key's two. */
// @ts-ignore: decorator
@inline
export function philox4(c0: v128, c1: v128, c2: v128, c3: v128, key0: i32, key1: i32): void {
  const multiplier0 = i32x4.splat(MULTIPLIER_0)
  const multiplier1 = i32x4.splat(MULTIPLIER_1)
  const weyl0 = i32x4.splat(WEYL_0)
  const weyl1 = i32x4.splat(WEYL_1)
  let k0 = i32x4.splat(key0)
  let k1 = i32x4.splat(key1)
  let round = 10
  do {
    const high0 = highWords(c0, multiplier0)
    const high1 = highWords(c2, multiplier1)
    const low0 = i32x4.mul(c0, multiplier0)
    const low1 = i32x4.mul(c2, multiplier1)
    c0 = v128.xor(v128.xor(high1, c1), k0)
    c1 = low1
    c2 = v128.xor(v128.xor(high0, c3), k1)
    c3 = low0
    k0 = i32x4.add(k0, weyl0)
    k1 = i32x4.add(k1, weyl1)
  } while (--round > 0)
  word0 = c0
  word1 = c1
  word2 = c2
  word3 = c3
}

/** The upper 32 bits of the 64-bit products of unsigned words. */
// @ts-ignore: decorator
@inline
function highWords(a: v128, b: v128): v128 {
  return v128.shuffle<i32>(i64x2.extmul_low_i32x4_u(a, b), i64x2.extmul_high_i32x4_u(a, b), 1, 3, 5, 7)
}
