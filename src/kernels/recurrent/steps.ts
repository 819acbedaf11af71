/** The common part of the plain bodies of recurrent cells. */

/**
 * The initial state of each step: the state of the previous step if the row's `continues` is not 0 (before the first
 * step: `carried`, one state per lane), otherwise the row of `recorded`. If `continues` is empty, no row continues; if
 * `carried` is empty, no first step of a lane continues.
 */
export interface StepStarts {
  readonly recorded: Float32Array
  readonly continues: Float32Array
  readonly carried: Float32Array
}

/** The initial state of row n · length + t: `width` elements. */
export function stateBefore(
  after: Float32Array,
  { recorded, continues, carried }: StepStarts,
  row: number,
  length: number,
  width: number,
): Float32Array {
  const isFirst = row % length === 0
  if (continues.length === 0 || continues[row] === 0 || (isFirst && carried.length === 0)) {
    return recorded.subarray(row * width, (row + 1) * width)
  }
  const lane = row / length
  return isFirst ? carried.subarray(lane * width, (lane + 1) * width) : after.subarray((row - 1) * width, row * width)
}

/** product (width) = h · U + c, U being units × width. */
export function hiddenProduct(
  product: Float32Array,
  h: Float32Array,
  weight: Float32Array,
  bias: Float32Array,
  width: number,
  units: number,
): void {
  for (let j = 0; j < width; j++) {
    let sum = bias[j]!
    for (let k = 0; k < units; k++) sum += h[k]! * weight[k * width + j]!
    product[j] = sum
  }
}

/** Adds what d(h · U + c) gives U, c and h. */
export function hiddenGradient(
  dWeight: Float32Array,
  dBias: Float32Array,
  dH: Float32Array,
  dProduct: Float32Array,
  h: Float32Array,
  weight: Float32Array,
  width: number,
  units: number,
): void {
  for (let j = 0; j < width; j++) dBias[j] = dBias[j]! + dProduct[j]!
  for (let k = 0; k < units; k++) {
    let sum = dH[k]!
    for (let j = 0; j < width; j++) {
      sum += dProduct[j]! * weight[k * width + j]!
      dWeight[k * width + j] = dWeight[k * width + j]! + h[k]! * dProduct[j]!
    }
    dH[k] = sum
  }
}

export function sigmoid(x: number): number {
  return 1 / (1 + Math.exp(-x))
}
