/** Adam in f32; the plain twin `adam.ts` has the formulas, and `adam.simd.ts` the same operations, in this order. */
#include "../vector.native.h"

/** Moments nearer to 0 than this are 0: as denormal numbers they would cost a hundred cycles each. NaN stays NaN. */
INLINE float settle(float moment) { return fabsf(moment) < 1e-30f ? 0 : moment; }

WORTH(adamStep, length, 256)
void KERNEL(adamStep)(float *restrict weight, float *restrict moment, float *restrict squareMoment, float *restrict gradient,
                      double gradientScale, double learningRate, double beta1, double beta2, double epsilon,
                      double weightDecay, double correction1, double correction2, int32_t length) {
  const float scale = (float)gradientScale, keep1 = (float)beta1, keep2 = (float)beta2;
  const float take1 = (float)(1 - beta1), take2 = (float)(1 - beta2);
  const float perCorrection1 = (float)(1 / correction1), perCorrection2 = (float)(1 / correction2);
  const float leastRoot = (float)epsilon, decay = (float)weightDecay, descent = (float)-learningRate;
  for (int i = 0; i < length; i++) {
    const float g = gradient[i] * scale;
    const float m = settle(__builtin_fmaf(keep1, moment[i], take1 * g));
    const float v = settle(__builtin_fmaf(keep2, squareMoment[i], take2 * (g * g)));
    const float direction = m * perCorrection1 / (sqrtf(v * perCorrection2) + leastRoot);
    moment[i] = m;
    squareMoment[i] = v;
    weight[i] = __builtin_fmaf(descent, __builtin_fmaf(decay, weight[i], direction), weight[i]);
  }
}
