/**
 * Weights in bf16; the plain twin `bf16.ts` says what is computed. Products with few rows, as in decoding, read the halves alone:
 * each becomes f32 in a register, and the sums are those of `matmul.native.c`.
 */
#include "words.native.h"

WORTH(widenWeights, length, 1024)
void KERNEL(widenWeights)(float *restrict x, uint16_t *restrict values, int32_t length) {
  uint32_t *const bits = (uint32_t *)x;
  for (int i = 0; i < length; i++) bits[i] = (uint32_t)values[i] << 16;
}

WORTH(matmulBf16, numRows * numColumns * depth, 4096)
void KERNEL(matmulBf16)(float *c, float *a, uint16_t *values, float *bias, float *dequantized, float *scratch,
                        int32_t numRows, int32_t numColumns, int32_t depth, bool accumulate, int32_t biasLength) {
  int done = 0;
#ifndef __wasm__
  done = multiply_words(16, c, a, (const uint8_t *)values, NULL, bias, numRows, numColumns, depth, accumulate, biasLength);
#endif
  MULTIPLY_RESTORED(done, KERNEL(widenWeights)(dequantized, values + (size_t)first * depth, columns * depth))
}
