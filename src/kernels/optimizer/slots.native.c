/** Sums of slots in the plain twin's order, and so with its bits. */
#include "../vector.native.h"

#define SUM_SLOTS(name, type)                                                                                           \
  INLINE void name(type *slots, int numSlots, size_t length, int from, int to) {                                        \
    for (int stride = 1; stride < numSlots; stride <<= 1) {                                                             \
      for (int slot = 0; slot + stride < numSlots; slot += 2 * stride) {                                                \
        type *restrict into = slots + slot * length, *restrict added = into + stride * length;                          \
        for (int i = from; i < to; i++) into[i] += added[i];                                                            \
      }                                                                                                                 \
    }                                                                                                                   \
  }
SUM_SLOTS(sum_floats, float)
SUM_SLOTS(sum_doubles, double)

BEYOND(sumSlots)
void KERNEL(sumSlots)(float *slots, int32_t slotsElementBytes, int32_t numSlots, int32_t length, int32_t from, int32_t to) {
  if (slotsElementBytes == 8) sum_doubles((double *)slots, numSlots, length, from, to);
  else sum_floats(slots, numSlots, length, from, to);
}

void KERNEL(clear)(float *x, int32_t length) {
  memset(x, 0, length * sizeof *x);
}
