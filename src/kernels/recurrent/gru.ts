import { hiddenGradient, hiddenProduct, type StepStarts, sigmoid, stateBefore } from './steps.ts'

/** Elements of workspace that `gruForward` and `gruBackward` need. */
export function gruScratch(numLanes: number, length: number, units: number): number {
  return numLanes * ((4 * length + 1) * units) + (3 * units + 1) * units
}

/**
 * A gated recurrent unit over `length` steps of each lane (Cho et al. 2014, in the form of cuDNN and torch); row
 * n · length + t is step t of lane n:
 *
 *     r = σ(x_r + h U_r + c_r)        z = σ(x_z + h U_z + c_z)
 *     m = h U_n + c_n        n = tanh(x_n + r m)        h' = (1 − z) n + z h
 *
 * `after` (units per row) is h', and `starts` gives h. x (3 · units per row, in the order r, z, n) is the input's
 * contribution to the gates; U (units × 3 · units) and c have the same order. `gates` (4 · units per row) keeps r, z,
 * n, m.
 */
export function gruForward(
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
  const product = new Float32Array(3 * units)
  for (let row = 0; row < numLanes * length; row++) {
    const h = stateBefore(after, starts, row, length, units)
    hiddenProduct(product, h, weight, bias, 3 * units, units)
    for (let j = 0, i = 3 * units * row, g = 4 * units * row; j < units; j++, i++, g++) {
      const r = sigmoid(x[i]! + product[j]!)
      const z = sigmoid(x[i + units]! + product[units + j]!)
      const m = product[2 * units + j]!
      const n = Math.tanh(x[i + 2 * units]! + r * m)
      gates[g] = r
      gates[g + units] = z
      gates[g + 2 * units] = n
      gates[g + 3 * units] = m
      after[row * units + j] = n + z * (h[j]! - n)
    }
  }
}

/**
 * The gradient of `gruForward`, from dAfter and its outputs: writes dX, and adds to dWeight and dBias. `recorded` and
 * `carried` get no gradient, because they come from a rollout or a burn-in.
 */
export function gruBackward(
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
  const dProduct = new Float32Array(3 * units)
  const dState = new Float32Array(units) // By the h' of the row at hand, from the step after it.
  for (let row = numLanes * length - 1; row >= 0; row--) {
    if (row % length === length - 1) dState.fill(0)
    const h = stateBefore(after, starts, row, length, units)
    for (let j = 0, i = 3 * units * row, g = 4 * units * row; j < units; j++, i++, g++) {
      const [r, z, n, m] = [gates[g]!, gates[g + units]!, gates[g + 2 * units]!, gates[g + 3 * units]!]
      const d = dAfter[row * units + j]! + dState[j]!
      const dN = d * (1 - z) * (1 - n * n)
      const dR = dN * m * r * (1 - r)
      const dZ = d * (h[j]! - n) * z * (1 - z)
      dX[i] = dProduct[j] = dR
      dX[i + units] = dProduct[units + j] = dZ
      dX[i + 2 * units] = dN
      dProduct[2 * units + j] = dN * r
      dState[j] = d * z
    }
    hiddenGradient(dWeight, dBias, dState, dProduct, h, weight, 3 * units, units)
    if (continues.length === 0 || continues[row] === 0) dState.fill(0)
  }
}
