/** Weights in 8 bits; the plain twin `quantized.ts` says what is computed. */
#include "../math.native.h"

WORTH(dequantizeRows, numRows * width, 1024)
void KERNEL(dequantizeRows)(float *restrict x, uint8_t *restrict values, float *restrict scale, int32_t numRows,
                            int32_t width) {
  for (int row = 0; row < numRows; row++, x += width, values += width) {
    for (int i = 0; i < width; i++) x[i] = (float)(int8_t)values[i] * scale[row];
  }
}
