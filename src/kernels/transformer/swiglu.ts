/**
 * The gated feed-forward layer's activation (Shazeer 2020): y = silu(gate) · up, silu(x) = x / (1 + e⁻ˣ). All are `length`
 * elements.
 */
export function swigluForward(y: Float32Array, gate: Float32Array, up: Float32Array, length: number): void {
  for (let i = 0; i < length; i++) y[i] = (gate[i]! / (1 + Math.exp(-gate[i]!))) * up[i]!
}

/** From dy, the gradient by y: `gate` and `up` become the gradients by them, in place. */
export function swigluBackward(gate: Float32Array, up: Float32Array, dy: Float32Array, length: number): void {
  for (let i = 0; i < length; i++) {
    const x = gate[i]!
    const sigmoid = 1 / (1 + Math.exp(-x))
    const dGate = dy[i]! * up[i]! * sigmoid * (1 + x * (1 - sigmoid))
    up[i] = dy[i]! * x * sigmoid
    gate[i] = dGate
  }
}
