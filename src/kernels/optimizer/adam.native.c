/** Adam in f32; the plain twin `adam.ts` has the formulas. */
#include "../vector.native.h"

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
    const float m = settle(madd1(keep1, moment[i], take1 * g));
    const float v = settle(madd1(keep2, squareMoment[i], take2 * (g * g)));
    const float direction = m * perCorrection1 / (sqrtf(v * perCorrection2) + leastRoot);
    moment[i] = m;
    squareMoment[i] = v;
    weight[i] = madd1(descent, madd1(decay, weight[i], direction), weight[i]);
  }
}

/** In f64, in four interleaved sums. */
BEYOND(globalNorm)
double KERNEL(globalNorm)(float *x, int32_t length) {
  two low = {0}, high = {0};
  for (int i = 0; i < length; i += 4) {
    const four v = length - i >= 4 ? load4(x + i) : load_part4(x + i, length - i);
    const two first = {v[0], v[1]}, last = {v[2], v[3]};
    low += first * first;
    high += last * last;
  }
  low += high;
  return sqrt(low[0] + low[1]);
}
