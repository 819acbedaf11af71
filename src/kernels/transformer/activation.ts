/**
 * Activations of feed-forward layers: y = act(gate) · up, or act(up) where there is no gate (an empty array). All are
 * `length` elements. Silu with a gate has a kernel of its own, `swigluForward`.
 */

/** `tanh` and `erf` are the two forms of GELU (Hendrycks and Gimpel 2016). */
type Kind = 'silu' | 'tanh' | 'erf' | 'relu'

const ROOT = Math.sqrt(2 / Math.PI)

export function activationForward(
  y: Float32Array,
  gate: Float32Array,
  up: Float32Array,
  kind: Kind,
  length: number,
): void {
  if (gate.length === 0) for (let i = 0; i < length; i++) y[i] = activate(up[i]!, kind)
  else for (let i = 0; i < length; i++) y[i] = activate(gate[i]!, kind) * up[i]!
}

/** Backpropagates dy, the gradient by y: `gate` and `up` become the gradients by them, in place. */
export function activationBackward(
  gate: Float32Array,
  up: Float32Array,
  dy: Float32Array,
  kind: Kind,
  length: number,
): void {
  if (gate.length === 0) for (let i = 0; i < length; i++) up[i] = dy[i]! * slope(up[i]!, kind)
  else {
    for (let i = 0; i < length; i++) {
      const x = gate[i]!
      gate[i] = dy[i]! * up[i]! * slope(x, kind)
      up[i] = dy[i]! * activate(x, kind)
    }
  }
}

function activate(x: number, kind: Kind): number {
  switch (kind) {
    case 'silu':
      return x / (1 + Math.exp(-x))
    case 'tanh':
      return 0.5 * x * (1 + Math.tanh(ROOT * (x + 0.044715 * x * x * x)))
    case 'erf':
      return 0.5 * x * (1 + erf(x * Math.SQRT1_2))
    case 'relu':
      return x > 0 ? x : 0
  }
}

function slope(x: number, kind: Kind): number {
  switch (kind) {
    case 'silu': {
      const sigmoid = 1 / (1 + Math.exp(-x))
      return sigmoid * (1 + x * (1 - sigmoid))
    }
    case 'tanh': {
      const t = Math.tanh(ROOT * (x + 0.044715 * x * x * x))
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * ROOT * (1 + 3 * 0.044715 * x * x)
    }
    case 'erf':
      return 0.5 * (1 + erf(x * Math.SQRT1_2)) + (x * Math.exp(-0.5 * x * x)) / Math.sqrt(2 * Math.PI)
    case 'relu':
      return x > 0 ? 1 : 0
  }
}

/** The error function, within 1.2e-7 (Abramowitz and Stegun 1964, 7.1.26). */
function erf(x: number): number {
  const t = 1 / (1 + 0.3275911 * Math.abs(x))
  const sum = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
  const upper = 1 - sum * Math.exp(-x * x)
  return x < 0 ? -upper : upper
}

/** Soft cap, in place: x becomes cap · tanh(x / cap). */
export function capElements(x: Float32Array, cap: number, length: number): void {
  for (let i = 0; i < length; i++) x[i] = cap * Math.tanh(x[i]! / cap)
}

/** Backpropagates in place: dx, the gradient by capped x, becomes the gradient by x before the cap. Where dx is 0, x may be anything. */
export function capBackward(dx: Float32Array, x: Float32Array, cap: number, length: number): void {
  for (let i = 0; i < length; i++) if (dx[i] !== 0) dx[i] = dx[i]! * (1 - (x[i]! / cap) ** 2)
}
