/**
 * Dense layers, row-major: y = activation(x · W + b), x (numRows × numInputs), W (numInputs × numOutputs), b (numOutputs).
 * `xFrom` and `yFrom` are the first rows read and written, so that a block of a long column needs no view. Each output
 * is summed in f64 over the inputs in ascending order, then rounded once, so a row's result depends only on that row.
 */
export const Activation = { linear: 0, tanh: 1, relu: 2 } as const

/** y (numRows × numOutputs) from x. */
export function denseForward(
  y: Float32Array,
  x: Float32Array,
  weight: Float32Array,
  bias: Float32Array,
  numRows: number,
  numInputs: number,
  numOutputs: number,
  activation: number,
  yFrom: number,
  xFrom: number,
): void {
  const fours = numOutputs - (numOutputs % 4)
  for (let row = 0; row < numRows; row++) {
    const xRow = (xFrom + row) * numInputs
    const yRow = (yFrom + row) * numOutputs
    let j = 0
    for (; j < fours; j += 4) {
      let sum0 = bias[j]!
      let sum1 = bias[j + 1]!
      let sum2 = bias[j + 2]!
      let sum3 = bias[j + 3]!
      for (let k = 0, w = j; k < numInputs; k++, w += numOutputs) {
        const input = x[xRow + k]!
        sum0 += input * weight[w]!
        sum1 += input * weight[w + 1]!
        sum2 += input * weight[w + 2]!
        sum3 += input * weight[w + 3]!
      }
      y[yRow + j] = activate(sum0, activation)
      y[yRow + j + 1] = activate(sum1, activation)
      y[yRow + j + 2] = activate(sum2, activation)
      y[yRow + j + 3] = activate(sum3, activation)
    }
    for (; j < numOutputs; j++) {
      let sum = bias[j]!
      for (let k = 0; k < numInputs; k++) sum += x[xRow + k]! * weight[k * numOutputs + j]!
      y[yRow + j] = activate(sum, activation)
    }
  }
}

function activate(sum: number, activation: number): number {
  if (activation === Activation.tanh) return Math.tanh(sum)
  return activation === Activation.relu ? Math.max(0, sum) : sum
}

/** Adds xᵀ · dy to dWeight and the column sums of dy to dBias. */
export function denseBackwardWeights(
  dWeight: Float32Array,
  dBias: Float32Array,
  dy: Float32Array,
  x: Float32Array,
  numRows: number,
  numInputs: number,
  numOutputs: number,
  xFrom: number,
): void {
  const fours = numOutputs - (numOutputs % 4)
  for (let k = 0; k < numInputs; k++) {
    let j = 0
    for (; j < fours; j += 4) {
      let sum0 = 0
      let sum1 = 0
      let sum2 = 0
      let sum3 = 0
      for (let row = 0, i = xFrom * numInputs + k, d = j; row < numRows; row++, i += numInputs, d += numOutputs) {
        const input = x[i]!
        sum0 += input * dy[d]!
        sum1 += input * dy[d + 1]!
        sum2 += input * dy[d + 2]!
        sum3 += input * dy[d + 3]!
      }
      const w = k * numOutputs + j
      dWeight[w] = dWeight[w]! + sum0
      dWeight[w + 1] = dWeight[w + 1]! + sum1
      dWeight[w + 2] = dWeight[w + 2]! + sum2
      dWeight[w + 3] = dWeight[w + 3]! + sum3
    }
    for (; j < numOutputs; j++) {
      let sum = 0
      for (let row = 0; row < numRows; row++) sum += x[(xFrom + row) * numInputs + k]! * dy[row * numOutputs + j]!
      dWeight[k * numOutputs + j] = dWeight[k * numOutputs + j]! + sum
    }
  }
  for (let j = 0; j < numOutputs; j++) {
    let sum = 0
    for (let row = 0; row < numRows; row++) sum += dy[row * numOutputs + j]!
    dBias[j] = dBias[j]! + sum
  }
}

/**
 * dx = dy · Wᵀ (numRows × numInputs); with `accumulate` it is added to dx. If x is the output of an activation, dx is
 * then multiplied by its derivative at x, which gives the gradient by the sums of the layer below. `workspace`
 * ((numOutputs + 1) × numInputs) is for bodies that need Wᵀ in rows, and a row of zeros.
 */
export function denseBackwardInput(
  dx: Float32Array,
  dy: Float32Array,
  weight: Float32Array,
  _workspace: Float32Array,
  x: Float32Array,
  numRows: number,
  numInputs: number,
  numOutputs: number,
  accumulate: boolean,
  activation: number,
): void {
  const fours = numInputs - (numInputs % 4)
  for (let row = 0; row < numRows; row++) {
    const d = row * numOutputs
    const xRow = row * numInputs
    let k = 0
    for (; k < fours; k += 4) {
      let sum0 = accumulate ? dx[xRow + k]! : 0
      let sum1 = accumulate ? dx[xRow + k + 1]! : 0
      let sum2 = accumulate ? dx[xRow + k + 2]! : 0
      let sum3 = accumulate ? dx[xRow + k + 3]! : 0
      for (let j = 0, w = k * numOutputs; j < numOutputs; j++, w++) {
        const output = dy[d + j]!
        sum0 += output * weight[w]!
        sum1 += output * weight[w + numOutputs]!
        sum2 += output * weight[w + 2 * numOutputs]!
        sum3 += output * weight[w + 3 * numOutputs]!
      }
      dx[xRow + k] = derive(sum0, x[xRow + k]!, activation)
      dx[xRow + k + 1] = derive(sum1, x[xRow + k + 1]!, activation)
      dx[xRow + k + 2] = derive(sum2, x[xRow + k + 2]!, activation)
      dx[xRow + k + 3] = derive(sum3, x[xRow + k + 3]!, activation)
    }
    for (; k < numInputs; k++) {
      let sum = accumulate ? dx[xRow + k]! : 0
      for (let j = 0; j < numOutputs; j++) sum += dy[d + j]! * weight[k * numOutputs + j]!
      dx[xRow + k] = derive(sum, x[xRow + k]!, activation)
    }
  }
}

/** Turns the gradient by an activation's output y into the gradient by its input. */
function derive(dy: number, y: number, activation: number): number {
  if (activation === Activation.tanh) return dy * (1 - y * y)
  return activation === Activation.relu && !(y > 0) ? 0 : dy
}
