/** Weights in 4 bits; the plain twin `quantized4.ts` says what is computed, and how the bytes lie. */
import { store4 } from '../vector.simd'
import { matmul } from './matmul.simd'

/** Rows that lie together, bytes of their nibbles in a block, and with the scales behind them. */
export const TOGETHER: i32 = 16
export const NIBBLE_BYTES: usize = 256
export const BLOCK_BYTES: usize = 288
/** What an f16's exponent and fraction, moved to those of an f32, are multiplied with: 2^112. */
const REBASE: f32 = reinterpret<f32>(0x77800000)

/** The f32 of four f16, each the lower half of a word. */
// @ts-ignore: decorator
@inline
export function widen(halves: v128): v128 {
  const sign = i32x4.shl(v128.and(halves, i32x4.splat(0x8000)), 16)
  const size = i32x4.shl(v128.and(halves, i32x4.splat(0x7fff)), 13)
  return f32x4.mul(v128.or(sign, size), f32x4.splat(REBASE))
}

/** Stores sixteen nibbles, each the lower half of a byte, times a scale once 8 is taken away; where fewer are left, those. */
// @ts-ignore: decorator
@inline
function storeWeights(x: usize, nibbles: v128, scale: v128, left: i32): void {
  const wholes = i8x16.sub(nibbles, i8x16.splat(8))
  const first = i16x8.extend_low_i8x16_s(wholes)
  const second = i16x8.extend_high_i8x16_s(wholes)
  if (left > 0) store4(x, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(first)), scale), left)
  if (left > 4) store4(x + 16, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(first)), scale), left - 4)
  if (left > 8) store4(x + 32, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(second)), scale), left - 8)
  if (left > 12) store4(x + 48, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(second)), scale), left - 12)
}

export function dequantizeRows4(x: usize, values: usize, numRows: i32, width: i32): void {
  const groupBytes = <usize>((width + 31) >> 5) * BLOCK_BYTES
  for (let row = 0; row < numRows; row++) {
    const lane = <usize>(row % TOGETHER)
    let block = values + <usize>(row / TOGETHER) * groupBytes
    for (let left = width; left > 0; left -= 32, block += BLOCK_BYTES) {
      const scale = widen(i32x4.splat(<i32>load<u16>(block + NIBBLE_BYTES + (lane << 1))))
      const word = block + (lane << 2)
      let bytes = v128.load32_zero(word)
      bytes = v128.load32_lane(word, bytes, 1, 64)
      bytes = v128.load32_lane(word, bytes, 2, 128)
      bytes = v128.load32_lane(word, bytes, 3, 192)
      storeWeights(x, v128.and(bytes, i8x16.splat(15)), scale, left)
      storeWeights(x + 64, i8x16.shr_u(bytes, 4), scale, left - 16)
      x += <usize>min(left, 32) << 2
    }
  }
}

export function matmulQuantized4(
  c: usize,
  a: usize,
  values: usize,
  bias: usize,
  dequantized: usize,
  scratch: usize,
  numRows: i32,
  numColumns: i32,
  depth: i32,
  accumulate: bool,
  biasLength: i32,
): void {
  dequantizeRows4(dequantized, values, numColumns, depth)
  matmul(c, a, dequantized, bias, scratch, numRows, numColumns, depth, false, true, accumulate, biasLength)
}
