/**
 * Weights in 8 bits; the plain twin `quantized.ts` says what is computed. Products with few rows, as in decoding, read the bytes
 * alone: each becomes f32 in a register, and the sums are those of `matmul.native.c`.
 */
#include "words.native.h"

WORTH(dequantizeRows, numRows * width, 1024)
void KERNEL(dequantizeRows)(float *restrict x, uint8_t *restrict values, float *restrict scale, int32_t numRows,
                            int32_t width) {
  for (int row = 0; row < numRows; row++, x += width, values += width) {
    const float factor = scale[row];
    int i = 0;
#ifdef __wasm__
    for (; i + 16 <= width; i += 16) {
      UNROLLED for (size_t half = 0; half < 16; half += 8) {
        const v128_t some = wasm_i16x8_load8x8(values + i + half);
        store(x + i + half, (vec)wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(some)) * splat(factor));
        store(x + i + half + 4, (vec)wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(some)) * splat(factor));
      }
    }
#endif
    for (; i < width; i++) x[i] = (float)(int8_t)values[i] * factor;
  }
}

WORTH(matmulQuantized, numRows * numColumns * depth, 4096)
void KERNEL(matmulQuantized)(float *c, float *a, uint8_t *values, float *scale, float *bias, float *dequantized,
                             float *scratch, int32_t numRows, int32_t numColumns, int32_t depth, bool accumulate,
                             int32_t biasLength) {
  int done = 0;
#ifndef __wasm__
  done = multiply_words(8, c, a, values, scale, bias, numRows, numColumns, depth, accumulate, biasLength);
#endif
  MULTIPLY_RESTORED(done, KERNEL(dequantizeRows)(dequantized, values + (size_t)first * depth, scale + first, columns, depth))
}
