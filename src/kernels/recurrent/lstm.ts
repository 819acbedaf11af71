import { hiddenGradient, hiddenProduct, type StepStarts, sigmoid, stateBefore } from './steps.ts'

/** Elements of workspace that `lstmForward` and `lstmBackward` need. */
export function lstmScratch(numLanes: number, length: number, units: number): number {
  return numLanes * ((5 * length + 2) * units) + (4 * units + 1) * units
}

/**
 * A long short-term memory over `length` steps of each lane (Hochreiter, Schmidhuber 1997, with the forget gate of Gers et
 * al. 2000, as torch has it):
 *
 *     i, f, o = σ(x + h U + c)   each with its own        g = tanh(x_g + h U_g + c_g)
 *     s' = f s + i g        h' = o tanh(s')
 *
 * As `gruForward`, with states of 2 · units: h, then s. `after` is h' and s'; x, U and c have the order i, f, g, o;
 * `gates` (5 · units per row) keeps i, f, g, o and tanh s'.
 */
export function lstmForward(
  after: Float32Array,
  gates: Float32Array,
  x: Float32Array,
  weight: Float32Array,
  bias: Float32Array,
  starts: StepStarts,
  _scratch: Float32Array,
  numLanes: number,
  length: number,
  units: number,
): void {
  const product = new Float32Array(4 * units)
  for (let row = 0; row < numLanes * length; row++) {
    const before = stateBefore(after, starts, row, length, 2 * units)
    hiddenProduct(product, before, weight, bias, 4 * units, units)
    for (let j = 0, at = 4 * units * row, to = 5 * units * row; j < units; j++, at++, to++) {
      const i = sigmoid(x[at]! + product[j]!)
      const f = sigmoid(x[at + units]! + product[units + j]!)
      const g = Math.tanh(x[at + 2 * units]! + product[2 * units + j]!)
      const o = sigmoid(x[at + 3 * units]! + product[3 * units + j]!)
      const s = f * before[units + j]! + i * g
      const tanh = Math.tanh(s)
      gates[to] = i
      gates[to + units] = f
      gates[to + 2 * units] = g
      gates[to + 3 * units] = o
      gates[to + 4 * units] = tanh
      after[2 * units * row + j] = o * tanh
      after[2 * units * row + units + j] = s
    }
  }
}

/** The gradient of `lstmForward`, as `gruBackward` is that of `gruForward`. */
export function lstmBackward(
  dX: Float32Array,
  dWeight: Float32Array,
  dBias: Float32Array,
  dAfter: Float32Array,
  after: Float32Array,
  gates: Float32Array,
  weight: Float32Array,
  starts: StepStarts,
  _scratch: Float32Array,
  numLanes: number,
  length: number,
  units: number,
): void {
  const { continues } = starts
  const dState = new Float32Array(2 * units) // By the h' and s' of the row at hand, from the step after it.
  for (let row = numLanes * length - 1; row >= 0; row--) {
    if (row % length === length - 1) dState.fill(0)
    const before = stateBefore(after, starts, row, length, 2 * units)
    for (let j = 0, at = 4 * units * row, from = 5 * units * row; j < units; j++, at++, from++) {
      const [i, f, g] = [gates[from]!, gates[from + units]!, gates[from + 2 * units]!]
      const [o, tanh] = [gates[from + 3 * units]!, gates[from + 4 * units]!]
      const dH = dAfter[2 * units * row + j]! + dState[j]!
      const dS = dAfter[2 * units * row + units + j]! + dState[units + j]! + dH * o * (1 - tanh * tanh)
      dX[at] = dS * g * i * (1 - i)
      dX[at + units] = dS * before[units + j]! * f * (1 - f)
      dX[at + 2 * units] = dS * i * (1 - g * g)
      dX[at + 3 * units] = dH * tanh * o * (1 - o)
      dState[j] = 0
      dState[units + j] = dS * f
    }
    const dProduct = dX.subarray(4 * units * row, 4 * units * (row + 1))
    hiddenGradient(dWeight, dBias, dState, dProduct, before, weight, 4 * units, units)
    if (continues.length === 0 || continues[row] === 0) dState.fill(0)
  }
}
