/**
 * Random numbers for actions, four rows at a time, one a lane: the words and the uniform numbers have the plain twin's
 * bits; normal numbers by Box and Muller in f32.
 */
import { philox4, word0, word1, word2, word3 } from '../philox.simd'
import { cosQuarter, load4, log4, scatter4, sinQuarter, turn } from '../vector.simd'

/** As in random.ts. */
const STREAM_ACTION: i32 = 2

export function drawUniform(
  uniform: usize,
  lane: usize,
  episode: usize,
  step: usize,
  key0: i32,
  key1: i32,
  numRows: i32,
  width: i32,
  from: i32,
): void {
  draw(uniform, lane, episode, step, key0, key1, numRows, width, from, false)
}

export function drawNormal(
  normal: usize,
  lane: usize,
  episode: usize,
  step: usize,
  key0: i32,
  key1: i32,
  numRows: i32,
  width: i32,
  from: i32,
): void {
  draw(normal, lane, episode, step, key0, key1, numRows, width, from, true)
}

function draw(
  into: usize,
  lane: usize,
  episode: usize,
  step: usize,
  key0: i32,
  key1: i32,
  numRows: i32,
  width: i32,
  from: i32,
  normal: bool,
): void {
  const blocks = i32x4.splat((width + 3) >> 2)
  const row = <usize>width << 2
  lane += <usize>from << 2
  episode += <usize>from << 2
  step += <usize>from << 2
  for (let left = numRows; left > 0; left -= 4) {
    const firstBlock = i32x4.mul(load4(step, left), blocks)
    const episode4 = load4(episode, left)
    const lane4 = load4(lane, left)
    for (let k = 0; k < width; k += 4) {
      philox4(i32x4.add(firstBlock, i32x4.splat(k >> 2)), episode4, lane4, i32x4.splat(STREAM_ACTION), key0, key1)
      let c0 = word0
      let c1 = word1
      let c2 = word2
      let c3 = word3
      if (normal) {
        const radius0 = radius(c0)
        const radius2 = radius(c2)
        c0 = f32x4.mul(radius0, circle(c1, 1))
        c1 = f32x4.mul(radius0, circle(c1, 0))
        c2 = f32x4.mul(radius2, circle(c3, 1))
        c3 = f32x4.mul(radius2, circle(c3, 0))
      } else {
        c0 = unit(c0)
        c1 = unit(c1)
        c2 = unit(c2)
        c3 = unit(c3)
      }
      const at = into + (<usize>k << 2)
      scatter4(at, row, c0, left)
      if (width - k > 1) scatter4(at + 4, row, c1, left)
      if (width - k > 2) scatter4(at + 8, row, c2, left)
      if (width - k > 3) scatter4(at + 12, row, c3, left)
    }
    lane += 16
    episode += 16
    step += 16
    into += row << 2
  }
}

/** The upper 24 bits of each word as a number in [0, 1). */
// @ts-ignore: decorator
@inline
function unit(words: v128): v128 {
  return f32x4.mul(f32x4.convert_i32x4_s(i32x4.shr_u(words, 8)), f32x4.splat(5.9604644775390625e-8))
}

/** √(−2 log u), u in (0, 1] from the upper 24 bits. */
// @ts-ignore: decorator
@inline
function radius(words: v128): v128 {
  const counted = f32x4.convert_i32x4_s(i32x4.add(i32x4.shr_u(words, 8), i32x4.splat(1)))
  return f32x4.sqrt(f32x4.mul(f32x4.splat(-2), log4(f32x4.mul(counted, f32x4.splat(5.9604644775390625e-8)))))
}

/** The cosine (shift 1) or sine (shift 0) of a whole turn times the unit number: exact in quarter turns. */
// @ts-ignore: decorator
@inline
function circle(words: v128, shift: i32): v128 {
  const quarters = f32x4.mul(unit(words), f32x4.splat(4))
  const q = f32x4.nearest(quarters)
  const r = f32x4.mul(f32x4.sub(quarters, q), f32x4.splat(1.57079632679489662))
  return turn(sinQuarter(r), cosQuarter(r), q, shift)
}
