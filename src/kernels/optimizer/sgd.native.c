/** Stochastic gradient descent in f32; the plain twin `sgd.ts` has the formulas. */
#include "../vector.native.h"

BEYOND(sgdStep)
void KERNEL(sgdStep)(float *restrict weight, float *restrict moment, float *restrict gradient, double gradientScale,
                     double learningRate, double momentum, double weightDecay, int32_t length) {
  const float scale = (float)gradientScale, keep = (float)momentum, decay = (float)weightDecay;
  const float descent = (float)-learningRate;
  for (int i = 0; i < length; i++) {
    const float m = madd1(keep, moment[i], gradient[i] * scale);
    moment[i] = m;
    weight[i] = madd1(descent, madd1(decay, weight[i], m), weight[i]);
  }
}
