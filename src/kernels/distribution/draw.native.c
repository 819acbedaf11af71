/** Random numbers for actions: the words and the uniform numbers have the plain twin's bits; normal numbers by Box and Muller in f32. */
#include "../fours.native.h"
#include "../philox.native.h"

/** As in random.ts. */
#define STREAM_ACTION 2

/** The upper 24 bits of each word as a number in [0, 1). */
INLINE four unit(uints words) { return __builtin_convertvector((ints)(words >> 8), four) * 0x1p-24f; }
/** √(−2 log u), u in (0, 1] from the upper 24 bits. */
INLINE four radius(uints words) {
  four square = -2 * log4(__builtin_convertvector((ints)(words >> 8) + 1, four) * 0x1p-24f);
  EACH square[l] = sqrtf(square[l]);
  return square;
}
/** The cosine (shift 1) or sine (shift 0) of a whole turn times the unit number: exact in quarter turns. */
INLINE four circle(uints words, int shift) {
  four quarters = unit(words) * 4;
  EACH {
    const float q = __builtin_rintf(quarters[l]), r = (quarters[l] - q) * 1.57079632679489662f;
    quarters[l] = turn(sin_quarter(r), cos_quarter(r), q, shift);
  }
  return quarters;
}

INLINE void draw(float *into, const uint32_t *lane, const uint32_t *episode, const int32_t *step, int32_t key0, int32_t key1,
                 int numRows, int width, int from, bool isNormal) {
  for (int row = 0; row < numRows; row += 4, into += 4 * width) {
    const int left = numRows - row;
    const struct places rows = rows_at(1, left);
    const size_t at = from + row;
    const uints steps = (uints)gather_ints(step + at, rows) * (uint32_t)((width + 3) >> 2);
    const uints episodes = (uints)gather_ints((const int32_t *)episode + at, rows);
    const uints lanes = (uints)gather_ints((const int32_t *)lane + at, rows);
    for (int k = 0; k < width; k += 4) {
      const uints stream = {STREAM_ACTION, STREAM_ACTION, STREAM_ACTION, STREAM_ACTION};
      const struct words words = philox4((struct words){{steps + (uint32_t)(k >> 2), episodes, lanes, stream}}, key0, key1);
      four drawn[4];
      UNROLLED for (int i = 0; i < 4; i++) {
        const uints first = words.of[i & 2], second = words.of[i | 1];
        drawn[i] = isNormal ? radius(first) * circle(second, (i & 1) == 0) : unit(words.of[i]);
      }
      UNROLLED for (int i = 0; i < 4; i++) {
        if (i < width - k) scatter4(into + k + i, width, drawn[i], left);
      }
    }
  }
}

void KERNEL(drawUniform)(float *uniform, uint32_t *lane, uint32_t *episode, int32_t *step, int32_t key0, int32_t key1,
                         int32_t numRows, int32_t width, int32_t from) {
  draw(uniform, lane, episode, step, key0, key1, numRows, width, from, false);
}

void KERNEL(drawNormal)(float *normal, uint32_t *lane, uint32_t *episode, int32_t *step, int32_t key0, int32_t key1,
                        int32_t numRows, int32_t width, int32_t from) {
  draw(normal, lane, episode, step, key0, key1, numRows, width, from, true);
}
