/** RMSprop in f32; the plain twin `rmsprop.ts` has the formulas. */
#include "../vector.native.h"

BEYOND(rmspropStep)
void KERNEL(rmspropStep)(float *restrict weight, float *restrict moment, float *restrict squareMoment,
                         float *restrict gradient, double gradientScale, double learningRate, double alpha,
                         double momentum, double epsilon, double weightDecay, int32_t length) {
  const float scale = (float)gradientScale, keepSquare = (float)alpha, takeSquare = (float)(1 - alpha);
  const float keep = (float)momentum, leastRoot = (float)epsilon, decay = (float)weightDecay;
  const float descent = (float)-learningRate;
  for (int i = 0; i < length; i++) {
    const float g = gradient[i] * scale;
    const float v = madd1(keepSquare, squareMoment[i], takeSquare * (g * g));
    const float m = madd1(keep, moment[i], g / (sqrtf(v) + leastRoot));
    squareMoment[i] = v;
    moment[i] = m;
    weight[i] = madd1(descent, madd1(decay, weight[i], m), weight[i]);
  }
}
