/** Discounted returns to go in f32; the plain twin `returns.ts` has the formulas. */
#include "../vector.native.h"

void KERNEL(discountedReturns)(float *restrict rolloutReturn, float *restrict carry, float *restrict reward,
                               float *restrict nextValue, uint8_t *restrict terminated, uint8_t *restrict truncated,
                               uint8_t *restrict valid, double gamma, int32_t numSteps, int32_t numLanes) {
  const float discount = (float)gamma;
  for (int n = 0; n < numLanes; n++) carry[n] = __builtin_nanf(""); // No later row yet.
  for (int t = numSteps - 1; t >= 0; t--) {
    const size_t row = (size_t)t * numLanes;
    for (int n = 0; n < numLanes; n++) {
      const size_t i = row + n;
      const float later = carry[n], next = nextValue[i];
      const bool cut = (truncated[i] != 0) | (later != later);
      const float rest = cut ? next : later;
      const float now = madd1(discount, terminated[i] != 0 ? 0 : rest, reward[i]);
      carry[n] = valid[i] != 0 ? now : later;
      rolloutReturn[i] = valid[i] != 0 ? now : 0;
    }
  }
}
