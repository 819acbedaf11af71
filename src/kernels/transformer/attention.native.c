/**
 * Causal attention; the plain twin `attention.ts` says what is computed. A score is summed in four
 * parts over the head's width, a row's exponentials in four parts over the keys, what is attended to from the first key on.
 */
#include "../math.native.h"
#include "../tile.native.h"

/** Below every score, and no infinity. */
#define LOWEST -1e30f
/** Keys whose scores are made side by side. */
#define KEYS 8
/** Largest numbers that are looked for side by side. */
#ifdef __wasm__
#define LARGEST 4
#else
#define LARGEST 16
#endif

INLINE void dots_of(const size_t keys, float *scores, const float *q, const float *k, size_t key_row, int width, float scale) {
  four sums[KEYS];
  UNROLLED for (size_t j = 0; j < keys; j++) sums[j] = (four){0};
  int i = 0;
  for (; i + 4 <= width; i += 4) {
    UNROLLED for (size_t j = 0; j < keys; j++) sums[j] = madd4(load4(q + i), load4(k + j * key_row + i), sums[j]);
  }
  if (i < width) {
    const four last = load_part4(q + i, width - i);
    UNROLLED for (size_t j = 0; j < keys; j++) sums[j] = madd4(last, load_part4(k + j * key_row + i, width - i), sums[j]);
  }
  UNROLLED for (size_t j = 0; j < keys; j++) scores[j] = sum4(sums[j]) * scale;
}

static float dot(const float *a, const float *b, int width) {
  four sums = {0};
  for (int i = 0; i < width; i += 4) {
    if (width - i >= 4) sums = madd4(load4(a + i), load4(b + i), sums);
    else sums = madd4(load_part4(a + i, width - i), load_part4(b + i, width - i), sums);
  }
  return sum4(sums);
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
  float high[LARGEST];
  UNROLLED for (size_t l = 0; l < LARGEST; l++) high[l] = LOWEST;
  int i = 0;
  for (; i + LARGEST <= length; i += LARGEST) {
    UNROLLED for (size_t l = 0; l < LARGEST; l++) high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
  }
  for (; i < length; i++) high[0] = x[i] > high[0] ? x[i] : high[0];
  UNROLLED for (size_t l = 1; l < LARGEST; l++) high[0] = high[l] > high[0] ? high[l] : high[0];
  return high[0];
}

/** Vectors of a row that stay in registers. */
#define OUTER_VECTORS 4

/** rows[j] += weights[j] · x in some vectors of columns; of a partial one only `some` is there. */
INLINE void add_outer_vectors(const size_t vectors, const bool partial, lanes some, float *rows, size_t row,
                              const float *weights, const float *x, int count) {
  vec part[OUTER_VECTORS];
  UNROLLED for (size_t v = 0; v < vectors; v++) part[v] = partial ? load_part(x, some) : load(x + v * WIDTH);
  for (int j = 0; j < count; j++, rows += row) {
    const vec weight = splat(weights[j]);
    UNROLLED for (size_t v = 0; v < vectors; v++) {
      float *const at = rows + v * WIDTH;
      if (partial) store_part(at, madd(weight, part[v], load_part(at, some)), some);
      else store(at, madd(weight, part[v], load(at)));
    }
  }
}

/** rows[j] += weights[j] · x. */
static void add_outer(float *rows, size_t row, const float *weights, const float *x, int count, int width) {
  const int all = OUTER_VECTORS * WIDTH;
  int i = 0;
  for (; i + all <= width; i += all) {
    add_outer_vectors(OUTER_VECTORS, false, first_lanes(0), rows + i, row, weights, x + i, count);
  }
  for (; i + WIDTH <= width; i += WIDTH) add_outer_vectors(1, false, first_lanes(0), rows + i, row, weights, x + i, count);
  if (i < width) add_outer_vectors(1, true, first_lanes(width - i), rows + i, row, weights, x + i, count);
}

/** One head of a row: its keys and values lie `key_row` apart. */
INLINE void attend(float *out, float *log_sum, const float *q, const float *k, const float *v, float *scores, size_t key_row,
                   int count, int width, float scale) {
  const int padded = (count + 3) & ~3;
  dots(scores, q, k, key_row, count, width, scale);
  const float max = largest(scores, padded);
  for (int j = 0; j < padded; j++) scores[j] = exp1(scores[j] - max);
  four sums = {0};
  for (int j = 0; j < padded; j += 4) sums += load4(scores + j);
  const float sum = sum4(sums);
  *log_sum = max + log1(sum);
  multiply((struct sums){out, width, NULL, 0}, scores, count, v, key_row, 1, width, count);
  for (int i = 0; i < width; i++) out[i] *= 1 / sum;
}

/** Words that may lie where floats do. */
typedef uint32_t aliased __attribute__((may_alias));

/** Numbers of one head in f32: words `row_words` apart become rows of `width`. */
static void widen(float *restrict to, const uint32_t *restrict from, size_t row_words, int count, int width) {
  const int half = width / 2;
  for (int row = 0; row < count; row++, from += row_words, to += width) {
    aliased *const bits = (aliased *)to;
    for (int j = 0; j < half; j++) bits[j] = from[j] << 16;
    for (int j = 0; j < half; j++) bits[half + j] = from[j] & 0xffff0000u;
  }
}

WORTH(attentionOfHalves, numRows * numHeads * headWidth, 128)
void KERNEL(attentionOfHalves)(float *out, float *logSum, float *q, uint32_t *k, uint32_t *v, float *scores, float *work,
                               int32_t workLength, int32_t *first, int32_t *position, int32_t numRows, int32_t numHeads,
                               int32_t numKeyHeads, int32_t headWidth) {
  const size_t rowWords = (size_t)numKeyHeads * headWidth / 2, qRow = (size_t)numHeads * headWidth;
  const float scale = 1 / sqrtf((float)headWidth);
  float *const values = work + workLength / 2;
  int head = 0;
  for (int keyHead = 0; keyHead < numKeyHeads; keyHead++) {
    const int begin = head;
    // Rows of one sequence follow one another: each widens only what the last has not.
    int widened = 0;
    for (int row = 0; row < numRows; row++) {
      const int count = position[row] + 1;
      if (row > 0 && first[row] != first[row - 1]) widened = 0;
      if (widened < count) {
        const size_t from = (size_t)(first[row] + widened) * rowWords + (size_t)keyHead * (headWidth / 2);
        const size_t to = (size_t)widened * headWidth;
        widen(work + to, k + from, rowWords, count - widened, headWidth);
        widen(values + to, v + from, rowWords, count - widened, headWidth);
        widened = count;
      }
      for (head = begin; head < numHeads && head * numKeyHeads / numHeads == keyHead; head++) {
        const size_t at = row * qRow + (size_t)head * headWidth;
        attend(out + at, logSum + (size_t)row * numHeads + head, q + at, work, values, scores, headWidth, count, headWidth, scale);
      }
    }
  }
}

WORTH(attentionForward, numRows * numHeads * headWidth, 128)
void KERNEL(attentionForward)(float *out, float *logSum, float *q, float *k, float *v, float *scores, int32_t *first,
                              int32_t *position, int32_t numRows, int32_t numHeads, int32_t numKeyHeads, int32_t headWidth) {
  const size_t keyRow = (size_t)numKeyHeads * headWidth;
  const float scale = 1 / sqrtf((float)headWidth);
  for (int row = 0; row < numRows; row++) {
    for (int head = 0; head < numHeads; head++, q += headWidth, out += headWidth, logSum++) {
      const size_t keys = first[row] * keyRow + (size_t)(head * numKeyHeads / numHeads) * headWidth;
      attend(out, logSum, q, k + keys, v + keys, scores, keyRow, position[row] + 1, headWidth, scale);
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
      dots(scores, query, key + keys, keyRow, count, headWidth, scale);
      dots(dScores, dOut, value + keys, keyRow, count, headWidth, 1);
      const float shared = dot(dOut, attended, headWidth);
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
