/**
 * Root-mean-square norms; the plain twin `norm.ts` says what is computed. A row's squares are summed in four parts, of
 * several rows side by side, since each addition waits for the one before.
 */
#include "../math.native.h"

/** Rows whose sums run side by side. */
#define SUMMED_ROWS 8

/** Some rows, a constant where it is called. */
INLINE void normalize(const size_t rows, float *y, float *inverseRms, const float *x, const float *weight, float epsilon,
                      int width) {
  four squares[SUMMED_ROWS];
  UNROLLED for (size_t r = 0; r < rows; r++) squares[r] = (four){0};
  for (int i = 0; i < width; i += 4) {
    UNROLLED for (size_t r = 0; r < rows; r++) {
      const float *const at = x + r * width + i;
      const four v = width - i >= 4 ? load4(at) : load_part4(at, width - i);
      squares[r] = madd4(v, v, squares[r]);
    }
  }
  UNROLLED for (size_t r = 0; r < rows; r++) {
    const float inverse = 1 / sqrtf(sum4(squares[r]) / (float)width + epsilon);
    inverseRms[r] = inverse;
    for (int i = 0; i < width; i += WIDTH) {
      const lanes some = first_lanes(least(width - i, WIDTH));
      const vec v = load_part(x + r * width + i, some) * splat(inverse);
      store_part(y + r * width + i, v * load_part(weight + i, some), some);
    }
  }
}

WORTH(rmsNormForward, numRows * width, 512)
void KERNEL(rmsNormForward)(float *y, float *inverseRms, float *x, float *weight, float epsilon, int32_t numRows,
                            int32_t width) {
  int row = 0;
  for (; row + SUMMED_ROWS <= numRows; row += SUMMED_ROWS) {
    normalize(SUMMED_ROWS, y + (size_t)row * width, inverseRms + row, x + (size_t)row * width, weight, epsilon, width);
  }
  for (; row < numRows; row++) {
    normalize(1, y + (size_t)row * width, inverseRms + row, x + (size_t)row * width, weight, epsilon, width);
  }
}

WORTH(rmsNormBackward, numRows * width, 512)
void KERNEL(rmsNormBackward)(float *dx, float *dWeight, float *dy, float *x, float *weight, float *inverseRms,
                             int32_t numRows, int32_t width, bool accumulate) {
  for (int row = 0; row < numRows; row++, dx += width, dy += width, x += width) {
    four projected = {0};
    int i = 0;
    for (; i + 4 <= width; i += 4) projected = madd4(load4(dy + i) * load4(weight + i), load4(x + i), projected);
    if (i < width) {
      const four product = load_part4(dy + i, width - i) * load_part4(weight + i, width - i);
      projected = madd4(product, load_part4(x + i, width - i), projected);
    }
    const float inverse = inverseRms[row];
    const vec scale = splat(inverse), common = splat(sum4(projected) / (float)width * inverse * inverse);
    for (i = 0; i < width; i += WIDTH) {
      const lanes some = first_lanes(least(width - i, WIDTH));
      const vec output = load_part(dy + i, some), input = load_part(x + i, some);
      const vec into = accumulate ? load_part(dx + i, some) : splat(0);
      const vec straight = output * load_part(weight + i, some) - input * common;
      store_part(dx + i, madd(scale, straight, into), some);
      store_part(dWeight + i, madd(output * input, scale, load_part(dWeight + i, some)), some);
    }
  }
}
