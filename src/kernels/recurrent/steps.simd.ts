/** What the SIMD bodies of the recurrent cells share. */
import { load4, store4, tanhInPlace } from '../vector.simd'

/** Where the state (`bytes` long) lies that step t of lane n begins with; the plain twin `steps.ts` says which it is. */
// @ts-ignore: decorator
@inline
export function stateBefore(
  after: usize,
  recorded: usize,
  continues: usize,
  carried: usize,
  continuesLength: i32,
  carriedLength: i32,
  n: i32,
  t: i32,
  length: i32,
  bytes: usize,
): usize {
  const row = <usize>(n * length + t)
  if (!goesOn(continues, continuesLength, row) || (t == 0 && carriedLength == 0)) return recorded + row * bytes
  return t == 0 ? carried + <usize>n * bytes : after + (row - 1) * bytes
}

/** Whether a row takes its state from the one before. */
// @ts-ignore: decorator
@inline
export function goesOn(continues: usize, continuesLength: i32, row: usize): bool {
  return continuesLength > 0 && load<f32>(continues + (row << 2)) != 0
}

/** y = x + product, over `length` elements. */
// @ts-ignore: decorator
@inline
export function addInto(y: usize, x: usize, product: usize, length: i32): void {
  for (; length > 0; length -= 4, y += 16, x += 16, product += 16) {
    store4(y, f32x4.add(load4(x, length), load4(product, length)), length)
  }
}

/** y = σ(y) in place: ½ + ½ tanh(½ y). `one` is as in `tanhInPlace`. */
export function sigmoidInPlace(at: usize, length: i32, one: f32): void {
  const half = f32x4.splat(one * 0.5)
  for (let left = length, y = at; left > 0; left -= 4, y += 16) store4(y, f32x4.mul(load4(y, left), half), left)
  tanhInPlace(at, length, one)
  for (let left = length, y = at; left > 0; left -= 4, y += 16) {
    store4(y, f32x4.add(f32x4.mul(load4(y, left), half), half), left)
  }
}

/** a (1 − a) of a sigmoid's value. */
// @ts-ignore: decorator
@inline
export function sigmoidSlope(a: v128): v128 {
  return f32x4.sub(a, f32x4.mul(a, a))
}

/** 1 − a² of a hyperbolic tangent's value. */
// @ts-ignore: decorator
@inline
export function tanhSlope(a: v128): v128 {
  return f32x4.sub(f32x4.splat(1), f32x4.mul(a, a))
}
