/**
 * Gaussians with a diagonal covariance, four rows at a time, in f32; the plain twin `gaussian.ts` has the formulas. One function
 * gives the logprob to all kernels, from the stored action, so what was sampled and what is evaluated have the same bits.
 */
#include "../fours.native.h"

#define HALF_LOG_TWO_PI 0.918938533204672742f

/** −log p of one element: ½ z² + logStd + ½ log 2π. */
INLINE four surprise(four action, four mean, four logStd) {
  const four z = (action - mean) * exp4(-logStd);
  return madd4(z * 0.5f, z, logStd + HALF_LOG_TWO_PI);
}

void KERNEL(gaussianSample)(float *action, float *logprob, float *mean, float *logStd, float *normal, int32_t numRows,
                            int32_t width, int32_t from) {
  action += (size_t)from * width;
  for (int row = 0; row < numRows; row += 4, action += 4 * width, mean += 4 * width, normal += 4 * width) {
    const int left = numRows - row;
    const struct places rows = rows_at(width, left);
    four sum = {0};
    for (int k = 0; k < width; k++) {
      const four std = splat(logStd[k]), center = gather4(mean + k, rows);
      const four chosen = madd4(exp4(std), gather4(normal + k, rows), center);
      scatter4(action + k, width, chosen, left);
      sum -= surprise(chosen, center, std);
    }
    store_part(logprob + from + row, sum, left);
  }
}

void KERNEL(gaussianMode)(float *action, float *logprob, float *mean, float *logStd, int32_t numRows, int32_t width,
                          int32_t from) {
  action += (size_t)from * width;
  for (int row = 0; row < numRows; row += 4, action += 4 * width, mean += 4 * width) {
    const int left = numRows - row;
    const struct places rows = rows_at(width, left);
    four sum = {0};
    for (int k = 0; k < width; k++) {
      const four center = gather4(mean + k, rows);
      scatter4(action + k, width, center, left);
      sum -= surprise(center, center, splat(logStd[k]));
    }
    store_part(logprob + from + row, sum, left);
  }
}

void KERNEL(gaussianEvaluate)(float *logprob, float *entropy, float *action, float *mean, float *logStd, int32_t numRows,
                              int32_t width, int32_t from) {
  float rowEntropy = 0;
  for (int k = 0; k < width; k++) rowEntropy += 0.5f + HALF_LOG_TWO_PI + logStd[k];
  action += (size_t)from * width;
  for (int row = 0; row < numRows; row += 4, action += 4 * width, mean += 4 * width) {
    const int left = numRows - row;
    const struct places rows = rows_at(width, left);
    four sum = {0};
    for (int k = 0; k < width; k++) sum -= surprise(gather4(action + k, rows), gather4(mean + k, rows), splat(logStd[k]));
    store_part(logprob + row, sum, left);
    store_part(entropy + row, splat(rowEntropy), left);
  }
}

/** The sum for dLogStd goes over the block's rows in four interleaved parts. */
void KERNEL(gaussianBackward)(float *dMean, float *dLogStd, float *dLogprob, float *dEntropy, float *action, float *mean,
                              float *logStd, int32_t numRows, int32_t width, int32_t from) {
  action += (size_t)from * width;
  for (int k = 0; k < width; k++) {
    const four perStd = exp4(splat(-logStd[k]));
    four sum = {0};
    for (int row = 0; row < numRows; row += 4) {
      const int left = numRows - row;
      const struct places rows = rows_at(width, left);
      const size_t at = (size_t)row * width + k;
      const four byLogprob = load_part(dLogprob + row, left); // 0 beyond the last row, as is dEntropy: those add nothing.
      const four z = (gather4(action + at, rows) - gather4(mean + at, rows)) * perStd;
      scatter4(dMean + at, width, byLogprob * z * perStd, left);
      sum += madd4(byLogprob, z * z - 1, load_part(dEntropy + row, left));
    }
    dLogStd[k] += sum4(sum);
  }
}
