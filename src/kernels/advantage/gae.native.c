/** Generalized advantage estimation; the plain twin `gae.ts` has the formulas. */
#include "../math.native.h"

WORTH(gae, numLanes, 32)
void KERNEL(gae)(float *restrict advantage, float *restrict rolloutReturn, float *restrict carry, float *restrict reward,
                 float *restrict value, float *restrict nextValue, uint8_t *restrict terminated,
                 uint8_t *restrict truncated, uint8_t *restrict valid, double gamma, double lambda, int32_t numSteps,
                 int32_t numLanes) {
  const float discount = (float)gamma, mixed = (float)(gamma * lambda);
  memset(carry, 0, numLanes * sizeof *carry);
  for (int t = numSteps - 1; t >= 0; t--) {
    const size_t row = (size_t)t * numLanes;
    for (int n = 0; n < numLanes; n++) {
      const size_t i = row + n;
      const float next = nextValue[i], carried = carry[n];
      const bool counts = valid[i] != 0, over = (terminated[i] | truncated[i]) != 0;
      const float bootstrap = terminated[i] != 0 ? 0 : next;
      const float delta = madd1(discount, bootstrap, reward[i]) - value[i];
      const float now = madd1(mixed, over ? 0 : carried, delta);
      const float counted = counts ? now : 0;
      carry[n] = counts ? now : carried;
      advantage[i] = counted;
      rolloutReturn[i] = counted + value[i];
    }
  }
}
