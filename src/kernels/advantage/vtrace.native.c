/** V-trace in f32; the plain twin `vtrace.ts` has the formulas. */
#include "../math.native.h"

void KERNEL(vtrace)(float *restrict advantage, float *restrict rolloutReturn, float *restrict carry, float *restrict logprob,
                    float *restrict rolloutLogprob, float *restrict reward, float *restrict value,
                    float *restrict nextValue, uint8_t *restrict terminated, uint8_t *restrict truncated,
                    uint8_t *restrict valid, double gamma, double lambda, double rhoMax, double cMax, int32_t numSteps,
                    int32_t numLanes) {
  const float discount = (float)gamma, mixed = (float)(gamma * lambda), rhoHighest = (float)rhoMax, cHighest = (float)cMax;
  memset(carry, 0, numLanes * sizeof *carry);
  for (int t = numSteps - 1; t >= 0; t--) {
    const size_t row = (size_t)t * numLanes;
    for (int n = 0; n < numLanes; n++) {
      const size_t i = row + n;
      const float next = nextValue[i], carried = carry[n];
      const bool counts = valid[i] != 0, over = (terminated[i] | truncated[i]) != 0;
      const float bootstrap = terminated[i] != 0 ? 0 : next, later = over ? 0 : carried;
      const float ratio = exp1(logprob[i] - rolloutLogprob[i]);
      const float rho = rhoHighest < ratio ? rhoHighest : ratio, c = mixed * (cHighest < ratio ? cHighest : ratio);
      const float delta = rho * (madd1(discount, bootstrap, reward[i]) - value[i]);
      const float gain = rho * (madd1(discount, bootstrap + later, reward[i]) - value[i]);
      const float now = madd1(c, later, delta);
      carry[n] = counts ? now : carried;
      advantage[i] = counts ? gain : 0;
      rolloutReturn[i] = (counts ? now : 0) + value[i];
    }
  }
}
