/** Rotary position embedding; the plain twin `rope.ts` says what is computed. */
#include "../math.native.h"

WORTH(rope, numRows * numHeads * headWidth, 512)
void KERNEL(rope)(float *x, float *cosine, float *sine, int32_t *position, int32_t numRows, int32_t numHeads,
                  int32_t headWidth, bool inverse) {
  const int half = headWidth >> 1;
  const float sign = inverse ? -1 : 1;
  for (int row = 0; row < numRows; row++) {
    const float *const cos = cosine + (size_t)position[row] * half, *const sin = sine + (size_t)position[row] * half;
    for (int head = 0; head < numHeads; head++, x += 2 * half) {
      for (int i = 0; i < half; i += WIDTH) {
        const lanes some = first_lanes(least(half - i, WIDTH));
        const vec c = load_part(cos + i, some), s = load_part(sin + i, some) * splat(sign);
        const vec first = load_part(x + i, some), second = load_part(x + half + i, some);
        store_part(x + i, first * c - second * s, some);
        store_part(x + half + i, second * c + first * s, some);
      }
    }
  }
}
