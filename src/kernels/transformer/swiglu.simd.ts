/** The gated feed-forward layer's activation, four elements at a time; the plain twin `swiglu.ts` says what is computed. */
import { exp4, load4, store4 } from '../vector.simd'

export function swigluForward(y: usize, gate: usize, up: usize, length: i32): void {
  for (; length >= 4; length -= 4, y += 16, gate += 16, up += 16) forward4(y, gate, up, 4)
  if (length > 0) forward4(y, gate, up, length)
}

export function swigluBackward(gate: usize, up: usize, dy: usize, length: i32): void {
  for (; length >= 4; length -= 4, gate += 16, up += 16, dy += 16) backward4(gate, up, dy, 4)
  if (length > 0) backward4(gate, up, dy, length)
}

// @ts-ignore: decorator
@inline
function forward4(y: usize, gate: usize, up: usize, left: i32): void {
  const x = load4(gate, left)
  store4(y, f32x4.mul(f32x4.mul(x, sigmoid4(x)), load4(up, left)), left)
}

// @ts-ignore: decorator
@inline
function backward4(gate: usize, up: usize, dy: usize, left: i32): void {
  const one = f32x4.splat(1)
  const x = load4(gate, left)
  const sigmoid = sigmoid4(x)
  const gradient = f32x4.mul(load4(dy, left), sigmoid)
  const slope = f32x4.add(one, f32x4.mul(x, f32x4.sub(one, sigmoid)))
  const dGate = f32x4.mul(f32x4.mul(gradient, load4(up, left)), slope)
  store4(up, f32x4.mul(gradient, x), left)
  store4(gate, dGate, left)
}

/** 1 / (1 + e⁻ˣ). */
// @ts-ignore: decorator
@inline
function sigmoid4(x: v128): v128 {
  const one = f32x4.splat(1)
  return f32x4.div(one, f32x4.add(one, exp4(f32x4.neg(x))))
}
