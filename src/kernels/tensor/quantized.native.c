/**
 * Weights in 8 bits; the plain twin `quantized.ts` says what is computed. Products with few rows, as in decoding, read the bytes
 * alone: each becomes f32 in a register, and the sums are those of `matmul.native.c`.
 */
#include "../tile.native.h"

WORTH(dequantizeRows, numRows * width, 1024)
void KERNEL(dequantizeRows)(float *restrict x, uint8_t *restrict values, float *restrict scale, int32_t numRows,
                            int32_t width) {
  for (int row = 0; row < numRows; row++, x += width, values += width) {
    const float factor = scale[row];
    int i = 0;
#ifdef __wasm__
    for (; i + 16 <= width; i += 16) {
      UNROLLED for (size_t half = 0; half < 16; half += 8) {
        const v128_t some = wasm_i16x8_load8x8(values + i + half);
        store(x + i + half, (vec)wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(some)) * splat(factor));
        store(x + i + half + 4, (vec)wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(some)) * splat(factor));
      }
    }
#endif
    for (; i < width; i++) x[i] = (float)(int8_t)values[i] * factor;
  }
}

#ifndef __wasm__

/** Up to this many rows share the bytes that become f32: with more the whole matrix does first. */
#define SHARING_ROWS 8
/** Bytes that the processor fetches from memory at once. */
#define LINE 64

typedef uint32_t words __attribute__((vector_size(4 * WIDTH)));
typedef int32_t wholes __attribute__((vector_size(4 * WIDTH)));

/** The byte of each word that stands `place` bytes from its lowest, times the word's scale. */
INLINE vec weights_of(vec bytes, int place, vec scale) {
  const wholes value = (wholes)((words)bytes << (24 - 8 * place)) >> 24;
  return __builtin_convertvector(value, vec) * scale;
}

/**
 * `vectors` vectors of columns and `rows` rows, constants where it is called, of which `there` are there. Four bytes of a column's
 * depth are one word of B, so that its words are turned as floats are. Meanwhile the columns behind them are fetched, in the order of
 * memory.
 */
INLINE void byte_tile(const int rows, const int vectors, int there, struct sums sums, const float *a, const uint8_t *values,
                      const float *scale, int depth) {
  const uint8_t *const next = values + (size_t)vectors * WIDTH * depth;
  vec c[SHARING_ROWS], scales[2];
  const float *row[SHARING_ROWS];
  for (int v = 0; v < vectors; v++) scales[v] = load(scale + v * WIDTH);
  for (int r = 0; r < rows; r++) {
    const int at = least(r, there - 1);
    row[r] = a + (size_t)at * depth;
    for (int v = 0; v < vectors; v++) {
      c[r * vectors + v] = sums.from == NULL ? splat(0) : load(sums.from + at * sums.from_row + v * WIDTH);
    }
  }
  int k = 0;
  for (; k + 16 <= depth; k += 16) {
    vec bytes[2][4];
    for (int i = 0; i < 16 * vectors * WIDTH; i += LINE) {
      __builtin_prefetch(next + (size_t)vectors * WIDTH * k + i);
    }
    for (int v = 0; v < vectors; v++) {
      load_columns(bytes[v], (const float *)(values + (size_t)v * WIDTH * depth + k), depth / 4);
    }
    for (int step = 0; step < 16; step++) {
      for (int v = 0; v < vectors; v++) {
        const vec weights = weights_of(bytes[v][step / 4], step % 4, scales[v]);
        for (int r = 0; r < rows; r++) c[r * vectors + v] = madd(splat(row[r][k + step]), weights, c[r * vectors + v]);
      }
    }
  }
  for (; k < depth; k++) {
    for (int v = 0; v < vectors; v++) {
      float column[WIDTH];
      for (int j = 0; j < WIDTH; j++) column[j] = (float)(int8_t)values[(size_t)(v * WIDTH + j) * depth + k];
      const vec weights = load(column) * scales[v];
      for (int r = 0; r < rows; r++) c[r * vectors + v] = madd(splat(row[r][k]), weights, c[r * vectors + v]);
    }
  }
  for (int r = 0; r < rows && r < there; r++) {
    for (int v = 0; v < vectors; v++) store(sums.c + r * sums.c_row + v * WIDTH, c[r * vectors + v]);
  }
}

/** A product with up to SHARING_ROWS rows and whole vectors of columns. */
static void multiply_bytes(float *c, const float *a, const uint8_t *values, const float *scale, const float *bias, int numRows,
                           int numColumns, int depth, bool accumulate, int biasLength) {
  struct sums sums = {c, numColumns, NULL, 0};
  if (accumulate) sums = (struct sums){c, numColumns, c, numColumns};
  else if (biasLength > 0) sums.from = bias;
  for (int j = 0; j < numColumns;) {
    // One row alone: each addition would wait for the one before.
    const int vectors = numRows == 1 && numColumns - j >= 2 * WIDTH ? 2 : 1;
    if (vectors == 2) byte_tile(1, 2, 1, sums, a, values, scale, depth);
    else if (numRows == 1) byte_tile(1, 1, 1, sums, a, values, scale, depth);
    else if (numRows <= 4) byte_tile(4, 1, numRows, sums, a, values, scale, depth);
    else byte_tile(8, 1, numRows, sums, a, values, scale, depth);
    const int columns = vectors * WIDTH;
    j += columns;
    sums.c += columns;
    if (sums.from != NULL) sums.from += columns;
    scale += columns;
    values += (size_t)columns * depth;
  }
}

#endif

WORTH(matmulQuantized, numRows * numColumns * depth, 4096)
void KERNEL(matmulQuantized)(float *c, float *a, uint8_t *values, float *scale, float *bias, float *dequantized,
                             float *scratch, int32_t numRows, int32_t numColumns, int32_t depth, bool accumulate,
                             int32_t biasLength) {
#ifndef __wasm__
  // Words of B have to lie as floats do.
  const bool hasWords = depth % 4 == 0 && (uintptr_t)values % 4 == 0;
  if (numRows >= 1 && numRows <= SHARING_ROWS && numColumns % WIDTH == 0 && hasWords) {
    multiply_bytes(c, a, values, scale, bias, numRows, numColumns, depth, accumulate, biasLength);
    return;
  }
#endif
  KERNEL(dequantizeRows)(dequantized, values, scale, numColumns, depth);
  KERNEL(matmul)(c, a, dequantized, bias, scratch, numRows, numColumns, depth, false, true, accumulate, biasLength);
}
