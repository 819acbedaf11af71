/** Weights in 8 bits, sixteen at a time; the plain twin `quantized.ts` says what is computed. */
import { matmul } from './matmul.simd'

export function dequantizeRows(x: usize, values: usize, scale: usize, numRows: i32, width: i32): void {
  for (; numRows > 0; numRows--, scale += 4) {
    const factor = v128.load32_splat(scale)
    let left = width
    for (; left >= 16; left -= 16, values += 16, x += 64) {
      const low = v128.load_ext<i8>(values)
      const high = v128.load_ext<i8>(values, 8)
      v128.store(x, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(low)), factor))
      v128.store(x, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(low)), factor), 16)
      v128.store(x, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(high)), factor), 32)
      v128.store(x, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(high)), factor), 48)
    }
    for (; left > 0; left--, values++, x += 4) store<f32>(x, <f32>load<i8>(values) * f32x4.extract_lane(factor, 0))
  }
}

export function matmulQuantized(
  c: usize,
  a: usize,
  values: usize,
  scale: usize,
  bias: usize,
  dequantized: usize,
  scratch: usize,
  numRows: i32,
  numColumns: i32,
  depth: i32,
  accumulate: bool,
  biasLength: i32,
): void {
  dequantizeRows(dequantized, values, scale, numColumns, depth)
  matmul(c, a, dequantized, bias, scratch, numRows, numColumns, depth, false, true, accumulate, biasLength)
}
