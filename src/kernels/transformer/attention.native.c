/**
 * Causal attention; the plain twin `attention.ts` says what is computed. The sums are those of the SIMD twin: a score in four
 * parts over the head's width, a row's exponentials in four parts over the keys, what is attended to from the first key on.
 */
#include "../math.native.h"
#include "../tile.native.h"

/** Below every score, and no infinity. */
#define LOWEST -1e30f
/** Keys whose scores are made side by side. */
#define KEYS 8

INLINE void dots_of(const int keys, float *scores, const float *q, const float *k, size_t key_row, int width, float scale) {
  four sums[KEYS];
  for (int j = 0; j < keys; j++) sums[j] = (four){0};
  int i = 0;
  for (; i + 4 <= width; i += 4) {
    for (int j = 0; j < keys; j++) sums[j] = madd4(load4(q + i), load4(k + j * key_row + i), sums[j]);
  }
  if (i < width) {
    const four last = load_part4(q + i, width - i);
    for (int j = 0; j < keys; j++) sums[j] = madd4(last, load_part4(k + j * key_row + i, width - i), sums[j]);
  }
  for (int j = 0; j < keys; j++) scores[j] = sum4(sums[j]) * scale;
}

/** scores[j] = scale · (q · keys[j]); up to the next multiple of four they are LOWEST. */
static void dots(float *scores, const float *q, const float *keys, size_t key_row, int count, int width, float scale) {
  int j = 0;
  for (; j + KEYS <= count; j += KEYS) dots_of(KEYS, scores + j, q, keys + j * key_row, key_row, width, scale);
  for (; j < count; j++) dots_of(1, scores + j, q, keys + j * key_row, key_row, width, scale);
  for (; j % 4 != 0; j++) scores[j] = LOWEST;
}

/** The largest of some numbers, a multiple of four of them. */
static float largest(const float *x, int length) {
  float high[16];
  for (int l = 0; l < 16; l++) high[l] = LOWEST;
  int i = 0;
  for (; i + 16 <= length; i += 16) {
    for (int l = 0; l < 16; l++) high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
  }
  for (; i < length; i++) high[0] = x[i] > high[0] ? x[i] : high[0];
  for (int l = 1; l < 16; l++) high[0] = high[l] > high[0] ? high[l] : high[0];
  return high[0];
}

/** rows[j] += weights[j] · x. */
static void add_outer(float *rows, size_t row, const float *weights, const float *x, int count, int width) {
  for (int i = 0; i < width; i += WIDTH) {
    const lanes some = first_lanes(least(width - i, WIDTH));
    const vec part = load_part(x + i, some);
    for (int j = 0; j < count; j++) {
      float *const at = rows + j * row + i;
      store_part(at, madd(splat(weights[j]), part, load_part(at, some)), some);
    }
  }
}

WORTH(attentionForward, numRows * numHeads * headWidth, 128)
void KERNEL(attentionForward)(float *out, float *logSum, float *q, float *k, float *v, float *scores, int32_t *first,
                              int32_t *position, int32_t numRows, int32_t numHeads, int32_t numKeyHeads, int32_t headWidth) {
  const size_t keyRow = (size_t)numKeyHeads * headWidth;
  const float scale = 1 / sqrtf((float)headWidth);
  for (int row = 0; row < numRows; row++) {
    const int count = position[row] + 1, padded = (count + 3) & ~3;
    for (int head = 0; head < numHeads; head++, q += headWidth, out += headWidth, logSum++) {
      const size_t keys = first[row] * keyRow + (size_t)(head * numKeyHeads / numHeads) * headWidth;
      dots(scores, q, k + keys, keyRow, count, headWidth, scale);
      const float max = largest(scores, padded);
      for (int j = 0; j < padded; j++) scores[j] = exp1(scores[j] - max);
      four sums = {0};
      for (int j = 0; j < padded; j += 4) sums += load4(scores + j);
      const float sum = sum4(sums);
      *logSum = max + log1(sum);
      multiply((struct sums){out, headWidth, NULL, 0}, scores, count, v + keys, keyRow, 1, headWidth, count);
      for (int i = 0; i < headWidth; i++) out[i] *= 1 / sum;
    }
  }
}

WORTH(attentionBackward, numRows * numHeads * headWidth, 128)
void KERNEL(attentionBackward)(float *dq, float *dk, float *dv, float *dOut, float *attended, float *query, float *key,
                               float *value, float *logSum, float *scores, int32_t *first, int32_t *position,
                               int32_t numRows, int32_t numHeads, int32_t numKeyHeads, int32_t headWidth) {
  const size_t keyRow = (size_t)numKeyHeads * headWidth;
  const float scale = 1 / sqrtf((float)headWidth);
  for (int row = 0; row < numRows; row++) {
    const int count = position[row] + 1, padded = (count + 3) & ~3;
    float *const dScores = scores + padded;
    for (int head = 0; head < numHeads; head++) {
      const size_t keys = first[row] * keyRow + (size_t)(head * numKeyHeads / numHeads) * headWidth;
      float shared;
      dots(scores, query, key + keys, keyRow, count, headWidth, scale);
      dots(dScores, dOut, value + keys, keyRow, count, headWidth, 1);
      dots_of(1, &shared, dOut, attended, 0, headWidth, 1);
      for (int j = 0; j < padded; j++) {
        const float p = exp1(scores[j] - *logSum);
        scores[j] = p;
        dScores[j] = p * (dScores[j] - shared) * scale;
      }
      multiply((struct sums){dq, headWidth, NULL, 0}, dScores, count, key + keys, keyRow, 1, headWidth, count);
      add_outer(dk + keys, keyRow, dScores, query, count, headWidth);
      add_outer(dv + keys, keyRow, scores, dOut, count, headWidth);
      dq += headWidth, dOut += headWidth, attended += headWidth, query += headWidth, logSum++;
    }
  }
}
