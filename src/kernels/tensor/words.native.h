/** Products of few rows with weights in 8 or 16 bits, which are read as they lie: in words, each of which is several of a row. */
#ifndef COLONNADE_WORDS
#define COLONNADE_WORDS

#include "matmul.native.h"

#ifndef __wasm__

/** Bytes that the processor fetches from memory at once. */
#define LINE 64

typedef uint32_t words __attribute__((vector_size(4 * WIDTH)));
typedef int32_t wholes __attribute__((vector_size(4 * WIDTH)));

/** Weight `place` of each word, from its lowest on: a byte times the word's scale, or a bf16. */
INLINE vec weights_of(const int bits, vec all, int place, vec scale) {
  if (bits == 16) return (vec)(place == 0 ? (words)all << 16 : (words)all & 0xffff0000);
  const wholes value = (wholes)((words)all << (24 - 8 * place)) >> 24;
  return __builtin_convertvector(value, vec) * scale;
}

/** Weight `k` of a row, as a float, without its scale. */
INLINE float weight_at(const int bits, const uint8_t *row, int k) {
  if (bits == 8) return (float)(int8_t)row[k];
  const uint32_t word = (uint32_t)((const uint16_t *)row)[k] << 16;
  float weight;
  memcpy(&weight, &word, sizeof weight);
  return weight;
}

/**
 * `vectors` vectors of columns and `rows` rows, constants where it is called, of which `there` are there. The words of B are turned
 * as floats are. Meanwhile the columns behind them are fetched, in the order of memory.
 */
INLINE void word_tile(const int bits, const int rows, const int vectors, int there, struct sums sums, const float *a,
                      const uint8_t *values, const float *scale, int depth) {
  const int together = 32 / bits, steps = 4 * together;
  const size_t row_bytes = (size_t)depth * bits / 8;
  const uint8_t *const next = values + vectors * WIDTH * row_bytes;
  vec c[SHARING_ROWS], scales[2];
  const float *row[SHARING_ROWS];
  for (int v = 0; v < vectors; v++) scales[v] = bits == 8 ? load(scale + v * WIDTH) : splat(1);
  for (int r = 0; r < rows; r++) {
    const int at = least(r, there - 1);
    row[r] = a + (size_t)at * depth;
    for (int v = 0; v < vectors; v++) {
      c[r * vectors + v] = sums.from == NULL ? splat(0) : load(sums.from + at * sums.from_row + v * WIDTH);
    }
  }
  int k = 0;
  for (; k + steps <= depth; k += steps) {
    vec all[2][4];
    const size_t byte = (size_t)k * bits / 8;
    for (int i = 0; i < 16 * vectors * WIDTH; i += LINE) __builtin_prefetch(next + vectors * WIDTH * byte + i);
    for (int v = 0; v < vectors; v++) {
      load_columns(all[v], (const float *)(values + v * WIDTH * row_bytes + byte), row_bytes / 4);
    }
    for (int step = 0; step < steps; step++) {
      for (int v = 0; v < vectors; v++) {
        const vec weights = weights_of(bits, all[v][step / together], step % together, scales[v]);
        for (int r = 0; r < rows; r++) c[r * vectors + v] = madd(splat(row[r][k + step]), weights, c[r * vectors + v]);
      }
    }
  }
  for (; k < depth; k++) {
    for (int v = 0; v < vectors; v++) {
      float column[WIDTH];
      for (int j = 0; j < WIDTH; j++) column[j] = weight_at(bits, values + (v * WIDTH + j) * row_bytes, k);
      const vec weights = load(column) * scales[v];
      for (int r = 0; r < rows; r++) c[r * vectors + v] = madd(splat(row[r][k]), weights, c[r * vectors + v]);
    }
  }
  for (int r = 0; r < rows && r < there; r++) {
    for (int v = 0; v < vectors; v++) store(sums.c + r * sums.c_row + v * WIDTH, c[r * vectors + v]);
  }
}

/** The whole vectors of columns of a product with up to SHARING_ROWS rows; how many columns there are in them. */
INLINE int multiply_words(const int bits, float *c, const float *a, const uint8_t *values, const float *scale,
                          const float *bias, int numRows, int numColumns, int depth, bool accumulate, int biasLength) {
  // Rows of B have to begin where words do.
  if (numRows < 1 || numRows > SHARING_ROWS || depth * bits % 32 != 0 || (uintptr_t)values % 4 != 0) return 0;
  struct sums sums = {c, numColumns, NULL, 0};
  if (accumulate) sums = (struct sums){c, numColumns, c, numColumns};
  else if (biasLength > 0) sums.from = bias;
  int j = 0;
  while (numColumns - j >= WIDTH) {
    // One row alone: each addition would wait for the one before.
    const int vectors = numRows == 1 && numColumns - j >= 2 * WIDTH ? 2 : 1;
    if (vectors == 2) word_tile(bits, 1, 2, 1, sums, a, values, scale, depth);
    else if (numRows == 1) word_tile(bits, 1, 1, 1, sums, a, values, scale, depth);
    else if (numRows <= 4) word_tile(bits, 4, 1, numRows, sums, a, values, scale, depth);
    else word_tile(bits, 8, 1, numRows, sums, a, values, scale, depth);
    const int columns = vectors * WIDTH;
    j += columns;
    sums.c += columns;
    if (sums.from != NULL) sums.from += columns;
    if (bits == 8) scale += columns;
    values += (size_t)columns * depth * bits / 8;
  }
  return j;
}

#endif
#endif
