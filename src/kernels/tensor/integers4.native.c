/**
 * Products of weights in 4 bits with inputs in 8 bits; the plain twin `integers4.ts` says what is computed, to the bit. Sums of whole
 * numbers are exact, so each processor adds up as it does best.
 */
#include "quantized4.native.h"

/** Rows that share the nibbles once they are halves of bytes no more. */
#define SHARING_ROWS 8

/** `sum`, and in each lane the products of the four bytes of a word of nibbles, 0 … 15, and one of inputs. */
INLINE words dot4(words sum, words nibbles, int32_t inputs) {
#if defined __aarch64__
  const int8x16_t a = vreinterpretq_s8_s32((int32x4_t)nibbles), b = vreinterpretq_s8_s32(vdupq_n_s32(inputs));
#if defined __ARM_FEATURE_DOTPROD
  return (words)vdotq_s32((int32x4_t)sum, a, b);
#else
  const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_s8(vget_high_s8(a), vget_high_s8(b));
  return (words)vpadalq_s16((int32x4_t)sum, vpaddq_s16(low, high));
#endif
#elif defined __AVX512VNNI__
  return (words)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)nibbles, _mm512_set1_epi32(inputs));
#elif defined __AVX512F__
  const __m512i pairs = _mm512_maddubs_epi16((__m512i)nibbles, _mm512_set1_epi32(inputs));
  return sum + (words)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#else
  const __m256i pairs = _mm256_maddubs_epi16((__m256i)nibbles, _mm256_set1_epi32(inputs));
  return sum + (words)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
}

/** Four bytes of inputs. */
INLINE int32_t word_at(const uint8_t *input) {
  int32_t word;
  memcpy(&word, input, sizeof word);
  return word;
}

/** What a block of inputs comes to with 8 for each weight: nibbles are too large by that. */
INLINE int32_t excess(const uint8_t *input) {
  int32_t sum = 0;
  for (int k = 0; k < BLOCK; k++) sum += (int8_t)input[k];
  return 8 * sum;
}

/**
 * `vectors` vectors of columns that lie together, from the one called `first` on, and `rows` rows, constants where it is called, of
 * which `there` are there.
 */
INLINE void integer_tile(const int rows, const int first, const int vectors, int there, struct sums sums,
                         const uint8_t *input, const float *input_scale, const uint8_t *values, int blocks) {
  const size_t group_bytes = (size_t)blocks * BLOCK_BYTES;
  vec c[SHARING_ROWS];
  for (int i = 0; i < rows * vectors; i++) c[i] = splat(0);
  for (int block = 0; block < blocks; block++, values += BLOCK_BYTES) {
    if (first == 0) fetch_behind(values, group_bytes);
    words whole[SHARING_ROWS];
    for (int r = 0; r < rows; r++) {
      const int32_t over = excess(input + ((size_t)least(r, there - 1) * blocks + block) * BLOCK);
      for (int v = 0; v < vectors; v++) whole[r * vectors + v] = (words){0} - over;
    }
    for (int word = 0; word < 4; word++) {
      for (int v = 0; v < vectors; v++) {
        const bits both = load_nibbles(values, first + v, word);
        const words low = (words)(both & 0x0f0f0f0f), high = (words)(both >> 4 & 0x0f0f0f0f);
        for (int r = 0; r < rows; r++) {
          const uint8_t *at = input + ((size_t)least(r, there - 1) * blocks + block) * BLOCK + 4 * word;
          words *sum = &whole[r * vectors + v];
          *sum = dot4(dot4(*sum, low, word_at(at)), high, word_at(at + BLOCK / 2));
        }
      }
    }
    for (int v = 0; v < vectors; v++) {
      const vec scales = load_scales(values, first + v);
      for (int r = 0; r < rows; r++) {
        const vec factor = splat(input_scale[(size_t)least(r, there - 1) * blocks + block]) * scales;
        c[r * vectors + v] += factor * __builtin_convertvector(whole[r * vectors + v], vec);
      }
    }
  }
  for (int r = 0; r < rows && r < there; r++) {
    for (int v = 0; v < vectors; v++) {
      const vec from = sums.from == NULL ? splat(0) : load(sums.from + r * sums.from_row + v * WIDTH);
      store(sums.c + r * sums.c_row + v * WIDTH, from + c[r * vectors + v]);
    }
  }
}

/** All rows of sixteen columns. */
INLINE void integer_columns(struct sums sums, const uint8_t *input, const float *input_scale, const uint8_t *values, int rows,
                            int blocks) {
  while (rows > 0) {
    const int there = least(rows, SHARING_ROWS);
    if (there == 1) integer_tile(1, 0, VECTORS, 1, sums, input, input_scale, values, blocks);
    for (int v = 0; v < VECTORS && there > 1; v++) {
      const struct sums some = {sums.c + v * WIDTH, sums.c_row, sums.from == NULL ? NULL : sums.from + v * WIDTH, sums.from_row};
      if (there <= 4) integer_tile(4, v, 1, there, some, input, input_scale, values, blocks);
      else integer_tile(8, v, 1, there, some, input, input_scale, values, blocks);
    }
    sums.c += there * sums.c_row;
    if (sums.from != NULL) sums.from += there * sums.from_row;
    input += (size_t)there * blocks * BLOCK;
    input_scale += (size_t)there * blocks;
    rows -= there;
  }
}

WORTH(matmulIntegers4, numRows * numColumns * depth, 1024)
void KERNEL(matmulIntegers4)(float *c, uint8_t *input, float *inputScale, uint8_t *values, float *bias, int32_t numRows,
                             int32_t numColumns, int32_t depth, bool accumulate, int32_t biasLength) {
  const int blocks = (depth + BLOCK - 1) / BLOCK;
  for (int j = 0; j < numColumns; j += TOGETHER, values += (size_t)blocks * BLOCK_BYTES) {
    const int columns = least(numColumns - j, TOGETHER);
    struct sums sums = {c + j, numColumns, NULL, 0};
    if (accumulate) sums = (struct sums){c + j, numColumns, c + j, numColumns};
    else if (biasLength > 0) sums.from = bias + j;
    if (columns == TOGETHER) {
      integer_columns(sums, input, inputScale, values, numRows, blocks);
      continue;
    }
    // Columns that fill no group are summed a row at a time, beside those that fill it up.
    for (int row = 0; row < numRows; row++, sums.c += numColumns) {
      float some[TOGETHER] = {0};
      if (sums.from != NULL) memcpy(some, sums.from, columns * sizeof *some);
      sums.from = accumulate ? sums.from + numColumns : sums.from;
      const struct sums alone = {some, TOGETHER, some, TOGETHER};
      integer_columns(alone, input + (size_t)row * blocks * BLOCK, inputScale + (size_t)row * blocks, values, 1, blocks);
      memcpy(sums.c, some, columns * sizeof *some);
    }
  }
}
