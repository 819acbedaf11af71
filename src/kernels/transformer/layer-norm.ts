/**
 * LayerNorm (Ba et al. 2016) of each row of x (numRows × width):
 *
 *     y = (x − mean) · r · weight + bias        r = 1 / √(mean (x − mean)² + epsilon)
 *
 * Sums are in f64 and rounded once, so a row's result depends only on that row.
 */

export function layerNormForward(
  y: Float32Array,
  x: Float32Array,
  weight: Float32Array,
  bias: Float32Array,
  epsilon: number,
  numRows: number,
  width: number,
): void {
  for (let row = 0; row < numRows; row++) {
    const at = row * width
    const mean = meanOf(x, at, width)
    const inverse = inverseOf(x, at, width, mean, epsilon)
    for (let k = 0; k < width; k++) y[at + k] = (x[at + k]! - mean) * inverse * weight[k]! + bias[k]!
  }
}

/**
 * dx from dy, added to dx with `accumulate`; dx may be dy. Adds the gradients of weight and bias.
 *
 *     dx = r (g − mean g − n · mean(g n))        g = dy · weight        n = (x − mean) · r
 */
export function layerNormBackward(
  dx: Float32Array,
  dWeight: Float32Array,
  dBias: Float32Array,
  dy: Float32Array,
  x: Float32Array,
  weight: Float32Array,
  epsilon: number,
  numRows: number,
  width: number,
  accumulate: boolean,
): void {
  for (let row = 0; row < numRows; row++) {
    const at = row * width
    const mean = meanOf(x, at, width)
    const inverse = inverseOf(x, at, width, mean, epsilon)
    let straight = 0
    let projected = 0
    for (let k = 0; k < width; k++) {
      const gradient = dy[at + k]! * weight[k]!
      straight += gradient
      projected += gradient * (x[at + k]! - mean) * inverse
    }
    straight /= width
    projected /= width
    for (let k = 0; k < width; k++) {
      const output = dy[at + k]!
      const normal = (x[at + k]! - mean) * inverse
      const into = accumulate ? dx[at + k]! : 0
      dx[at + k] = into + inverse * (output * weight[k]! - straight - normal * projected)
      dWeight[k] = dWeight[k]! + output * normal
      dBias[k] = dBias[k]! + output
    }
  }
}

function meanOf(x: Float32Array, at: number, width: number): number {
  let sum = 0
  for (let k = 0; k < width; k++) sum += x[at + k]!
  return sum / width
}

function inverseOf(x: Float32Array, at: number, width: number, mean: number, epsilon: number): number {
  let squares = 0
  for (let k = 0; k < width; k++) squares += (x[at + k]! - mean) ** 2
  return 1 / Math.sqrt(squares / width + epsilon)
}
