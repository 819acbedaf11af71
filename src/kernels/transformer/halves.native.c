/** Numbers in bf16, two in a word; the plain twin `halves.ts` says what is computed. */
#include "../vector.native.h"

/** The f32 of a bf16 that is nearest to one, ties to even. NaN stays NaN. */
INLINE uint32_t round_bits(uint32_t x) {
  const uint32_t rounded = (x + 0x7fff + ((x >> 16) & 1)) & 0xffff0000u;
  return (x & 0x7fffffff) > 0x7f800000 ? (x & 0xffff0000u) | 0x400000 : rounded;
}

WORTH(roundToHalves, length, 1024)
void KERNEL(roundToHalves)(float *x, int32_t length) {
  uint32_t *const bits = (uint32_t *)x;
  for (int i = 0; i < length; i++) bits[i] = round_bits(bits[i]);
}

WORTH(placeHalves, numRows * numHeads * headWidth, 1024)
void KERNEL(placeHalves)(uint32_t *restrict out, float *restrict x, int32_t *index, int32_t numRows, int32_t numHeads,
                         int32_t headWidth) {
  const uint32_t *bits = (const uint32_t *)x;
  const int half = headWidth / 2;
  for (int row = 0; row < numRows; row++) {
    uint32_t *to = out + (size_t)index[row] * numHeads * half;
    for (int head = 0; head < numHeads; head++, bits += headWidth, to += half) {
      for (int j = 0; j < half; j++) to[j] = (bits[j] >> 16) | (bits[half + j] & 0xffff0000u);
    }
  }
}
