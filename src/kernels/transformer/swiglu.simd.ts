/** The gated feed-forward layer's activation, four elements at a time; the plain twin `swiglu.ts` says what is computed. */
import { exp4, load4, store4 } from '../vector.simd'

export function swigluForward(y: usize, gate: usize, up: usize, length: i32): void {
  for (; length > 0; length -= 4, y += 16, gate += 16, up += 16) {
    const x = load4(gate, length)
    store4(y, f32x4.mul(f32x4.mul(x, sigmoid4(x)), load4(up, length)), length)
  }
}

export function swigluBackward(gate: usize, up: usize, dy: usize, length: i32): void {
  const one = f32x4.splat(1)
  for (; length > 0; length -= 4, gate += 16, up += 16, dy += 16) {
    const x = load4(gate, length)
    const sigmoid = sigmoid4(x)
    const gradient = f32x4.mul(load4(dy, length), sigmoid)
    const slope = f32x4.add(one, f32x4.mul(x, f32x4.sub(one, sigmoid)))
    const dGate = f32x4.mul(f32x4.mul(gradient, load4(up, length)), slope)
    store4(up, f32x4.mul(gradient, x), length)
    store4(gate, dGate, length)
  }
}

/** 1 / (1 + e⁻ˣ). */
// @ts-ignore: decorator
@inline
function sigmoid4(x: v128): v128 {
  const one = f32x4.splat(1)
  return f32x4.div(one, f32x4.add(one, exp4(f32x4.neg(x))))
}
