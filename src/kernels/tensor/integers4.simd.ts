/** Products of weights in 4 bits with inputs in 8 bits; the plain twin `integers4.ts` says what is computed, to the bit. */
import { load4, store4 } from '../vector.simd'
import { BLOCK_BYTES, NIBBLE_BYTES, TOGETHER, widen } from './quantized4.simd'

/** The whole sums of a block of four columns that lie together, nibbles times inputs: each fits into 16 bits. */
// @ts-ignore: decorator
@inline
function blockSums(columns: usize, input: usize): v128 {
  let low = i16x8.splat(0)
  let high = low
  for (let k: usize = 0; k < 16; k += 4) {
    const bytes = v128.load(columns + (k << 4))
    const first = v128.and(bytes, i8x16.splat(15))
    const second = i8x16.shr_u(bytes, 4)
    const before = v128.load32_splat(input + k)
    const behind = v128.load32_splat(input + k, 16)
    low = i16x8.add(low, i16x8.add(i16x8.extmul_low_i8x16_s(first, before), i16x8.extmul_low_i8x16_s(second, behind)))
    high = i16x8.add(high, i16x8.add(i16x8.extmul_high_i8x16_s(first, before), i16x8.extmul_high_i8x16_s(second, behind)))
  }
  const a = i32x4.extadd_pairwise_i16x8_s(low)
  const b = i32x4.extadd_pairwise_i16x8_s(high)
  return i32x4.add(v128.shuffle<i32>(a, b, 0, 2, 4, 6), v128.shuffle<i32>(a, b, 1, 3, 5, 7))
}

/** The sum of 32 inputs, times 8, in each lane: what the nibbles are too large by. */
// @ts-ignore: decorator
@inline
function excess(input: usize): v128 {
  const pairs = i16x8.add(
    i16x8.extadd_pairwise_i8x16_s(v128.load(input)),
    i16x8.extadd_pairwise_i8x16_s(v128.load(input, 16)),
  )
  const fours = i32x4.extadd_pairwise_i16x8_s(pairs)
  const halves = i32x4.add(fours, v128.shuffle<i32>(fours, fours, 2, 3, 0, 1))
  return i32x4.shl(i32x4.add(halves, v128.shuffle<i32>(halves, halves, 1, 0, 3, 2)), 3)
}

export function matmulIntegers4(
  c: usize,
  input: usize,
  inputScale: usize,
  values: usize,
  bias: usize,
  numRows: i32,
  numColumns: i32,
  depth: i32,
  accumulate: bool,
  biasLength: i32,
): void {
  const numBlocks = (depth + 31) >> 5
  const cRow = <usize>numColumns << 2
  for (let column = 0; column < numColumns; column += TOGETHER) {
    // Four columns, of those that lie together, are summed at once.
    for (let lane = 0; lane < min(TOGETHER, numColumns - column); lane += 4) {
      const count = min(4, numColumns - column - lane)
      const beside = <usize>(column + lane) << 2
      const start = biasLength > 0 ? load4(bias + beside, count) : f32x4.splat(0)
      let to = c + beside
      let inputs = input
      let scales = inputScale
      for (let row = 0; row < numRows; row++, to += cRow) {
        let sum = f32x4.splat(0)
        let block = values
        for (let left = numBlocks; left > 0; left--, block += BLOCK_BYTES, inputs += 32, scales += 4) {
          const whole = i32x4.sub(blockSums(block + (<usize>lane << 2), inputs), excess(inputs))
          const scale = widen(v128.load_ext<u16>(block + NIBBLE_BYTES + (<usize>lane << 1)))
          const factor = f32x4.mul(v128.load32_splat(scales), scale)
          sum = f32x4.add(sum, f32x4.mul(factor, f32x4.convert_i32x4_s(whole)))
        }
        store4(to, f32x4.add(accumulate ? load4(to, count) : start, sum), count)
      }
    }
    values += <usize>numBlocks * BLOCK_BYTES
  }
}
