/**
 * Products of weights in 8 bits (`quantized.ts`) with inputs in 8 bits: sums of whole numbers, which are exact in any order.
 * All builds round the few operations around them one by one, so that all leave the same bits.
 */

/** Inputs that share a scale; a row's last block may be shorter, and is filled with zeros. */
export const INPUT_BLOCK = 32

/** Adding this to a number of at most ±127 and subtracting it again gives the nearest whole number (ties to even). */
const ROUNDS = 1.5 * 2 ** 23
/** Blocks whose largest input is smaller count as zeros, because the reciprocal of their scale may be too large for f32. */
const SMALLEST = 2 ** -100

/**
 * Rounds each block of a row of x (numRows × width) to the nearest multiples of scale = max |block| / 127: `input` (numRows ×
 * blocks × 32, in two's complement) and `inputScale` (numRows × blocks), where blocks = ⌈width / 32⌉. A block with an input
 * that is not finite has the scale NaN.
 */
export function quantizeInputs(
  input: Uint8Array,
  inputScale: Float32Array,
  x: Float32Array,
  numRows: number,
  width: number,
): void {
  const { fround } = Math
  let block = 0
  for (let row = 0; row < numRows; row++) {
    for (let first = 0; first < width; first += INPUT_BLOCK, block++) {
      const from = row * width + first
      const length = Math.min(INPUT_BLOCK, width - first)
      let largest = 0
      let poison = 0
      for (let k = 0; k < length; k++) {
        const size = Math.abs(x[from + k]!)
        if (size > largest) largest = size
        poison += size * 0
      }
      const isSmall = !(largest >= SMALLEST)
      const inverse = isSmall ? 0 : fround(127 / largest)
      inputScale[block] = (isSmall ? 0 : largest / 127) + poison
      for (let k = 0; k < INPUT_BLOCK; k++) {
        const multiple = k < length ? fround(x[from + k]! * inverse) : 0
        input[block * INPUT_BLOCK + k] = fround(multiple + ROUNDS) - ROUNDS
      }
    }
  }
}

/**
 * C (numRows × numColumns) = from + scale · Σ over blocks of inputScale · (whole sum of values · input), where `values`
 * (numColumns × depth) and `scale` are as `quantizeRows` leaves them, `input` and `inputScale` as `quantizeInputs` does, and
 * `from` is C itself (`accumulate`), else the bias, else 0.
 */
export function matmulIntegers(
  c: Float32Array,
  input: Uint8Array,
  inputScale: Float32Array,
  values: Uint8Array,
  scale: Float32Array,
  bias: Float32Array,
  numRows: number,
  numColumns: number,
  depth: number,
  accumulate: boolean,
): void {
  const { fround } = Math
  const numBlocks = Math.ceil(depth / INPUT_BLOCK)
  for (let row = 0; row < numRows; row++) {
    for (let column = 0; column < numColumns; column++) {
      let sum = 0
      for (let block = 0; block < numBlocks; block++) {
        const inputs = (row * numBlocks + block) * INPUT_BLOCK
        const weights = column * depth + block * INPUT_BLOCK
        const length = Math.min(INPUT_BLOCK, depth - block * INPUT_BLOCK)
        let whole = 0
        for (let k = 0; k < length; k++) whole += signed(values[weights + k]!) * signed(input[inputs + k]!)
        sum = fround(sum + fround(inputScale[row * numBlocks + block]! * whole))
      }
      const place = row * numColumns + column
      const from = accumulate ? c[place]! : bias.length > 0 ? bias[column]! : 0
      c[place] = from + fround(scale[column]! * sum)
    }
  }
}

/** A byte in two's complement. */
const signed = (byte: number): number => (byte << 24) >> 24
