/**
 * Weights in 4 bits; the plain twin `quantized4.ts` says what is computed. Products with few rows, as in decoding, read the bytes
 * alone: each half becomes f32 in a register, and the sums are those of `matmul.native.c`.
 */
#include "quantized4.native.h"

#ifdef __wasm__

/** Sixteen nibbles, each the lower half of a byte, times the scale once 8 is taken away; of the last ones, where fewer are left, those. */
INLINE void store_weights(float *x, v128_t nibbles, float scale, int left) {
  const v128_t wholes = wasm_i8x16_sub(nibbles, wasm_i8x16_splat(8));
  const v128_t first = wasm_i16x8_extend_low_i8x16(wholes), last = wasm_i16x8_extend_high_i8x16(wholes);
  const v128_t of[4] = {wasm_i32x4_extend_low_i16x8(first), wasm_i32x4_extend_high_i16x8(first),
                        wasm_i32x4_extend_low_i16x8(last), wasm_i32x4_extend_high_i16x8(last)};
  UNROLLED for (size_t v = 0; v < 4; v++) {
    const vec weights = (vec)wasm_f32x4_convert_i32x4(of[v]) * splat(scale);
    if (left >= 16) store(x + 4 * v, weights);
    else store_part(x + 4 * v, weights, left - 4 * (int)v);
  }
}

#else

/** The nibbles of each word at `place`, of eight, as numbers from −8 to 7 times the word's scale; 8 is a sign, once turned over. */
INLINE vec weights_of(bits turned, int place, vec scale) {
  return __builtin_convertvector((words)(turned << (28 - 4 * place)) >> 28, vec) * scale;
}

/** Where column `step` of a block stands in a word: lower halves first, then upper ones. */
INLINE int place_of(int step) { return 2 * (step % 4) + (step >= 16); }

#endif

WORTH(dequantizeRows4, numRows * width, 1024)
void KERNEL(dequantizeRows4)(float *restrict x, uint8_t *restrict values, int32_t numRows, int32_t width) {
#ifdef __wasm__
  const size_t group_bytes = (size_t)((width + BLOCK - 1) / BLOCK) * BLOCK_BYTES;
  for (int row = 0; row < numRows; row++, x += width) {
    const int lane = row % TOGETHER;
    const uint8_t *block = values + row / TOGETHER * group_bytes;
    for (int k = 0; k < width; k += BLOCK, block += BLOCK_BYTES) {
      const float scale = load_scale(block, lane);
      const int32_t *const word = (const int32_t *)block + lane;
      const v128_t bytes = wasm_i32x4_make(word[0], word[TOGETHER], word[2 * TOGETHER], word[3 * TOGETHER]);
      store_weights(x + k, wasm_v128_and(bytes, wasm_i8x16_splat(15)), scale, width - k);
      store_weights(x + k + BLOCK / 2, wasm_u8x16_shr(bytes, 4), scale, width - k - BLOCK / 2);
    }
  }
#else
  for (int row = 0; row < numRows; row += TOGETHER) {
    for (int k = 0; k < width; k += BLOCK, values += BLOCK_BYTES) {
      float columns[BLOCK * TOGETHER] __attribute__((aligned(64)));
      for (int v = 0; v < VECTORS; v++) {
        const vec scale = load_scales(values, v);
        for (int step = 0; step < BLOCK; step++) {
          const bits turned = load_nibbles(values, v, step / 4 % 4) ^ 0x88888888;
          store(columns + step * TOGETHER + v * WIDTH, weights_of(turned, place_of(step), scale));
        }
      }
      transpose(x + (size_t)row * width + k, width, columns, TOGETHER, least(BLOCK, width - k), least(TOGETHER, numRows - row));
    }
  }
#endif
}

#ifndef __wasm__

/**
 * `vectors` vectors of columns, from the one called `first` on of those that lie together, and `rows` rows, constants where it is
 * called, of which `there` are there.
 */
INLINE void nibble_tile(const int rows, const int first, const int vectors, int there, struct sums sums, const float *a,
                        const uint8_t *values, int depth) {
  const size_t group_bytes = (size_t)((depth + BLOCK - 1) / BLOCK) * BLOCK_BYTES;
  vec c[SHARING_ROWS];
  const float *row[SHARING_ROWS];
  for (int r = 0; r < rows; r++) {
    const int at = least(r, there - 1);
    row[r] = a + (size_t)at * depth;
    for (int v = 0; v < vectors; v++) {
      c[r * vectors + v] = sums.from == NULL ? splat(0) : load(sums.from + at * sums.from_row + v * WIDTH);
    }
  }
  for (int k = 0; k < depth; k += BLOCK, values += BLOCK_BYTES) {
    const int groups = (vectors + VECTORS - 1) / VECTORS;
    for (int g = 0; g < groups && first == 0; g++) fetch_behind(values + g * group_bytes, groups * group_bytes);
    vec scales[2 * VECTORS];
    for (int v = 0; v < vectors; v++) scales[v] = load_scales(values + v / VECTORS * group_bytes, first + v % VECTORS);
    const int length = least(BLOCK, depth - k);
    for (int step = 0; step < length; step++) {
      for (int v = 0; v < vectors; v++) {
        const uint8_t *group = values + v / VECTORS * group_bytes;
        const bits turned = load_nibbles(group, first + v % VECTORS, step / 4 % 4) ^ 0x88888888;
        const vec weights = weights_of(turned, place_of(step), scales[v]);
        for (int r = 0; r < rows; r++) c[r * vectors + v] = madd(splat(row[r][k + step]), weights, c[r * vectors + v]);
      }
    }
  }
  for (int r = 0; r < rows && r < there; r++) {
    for (int v = 0; v < vectors; v++) store(sums.c + r * sums.c_row + v * WIDTH, c[r * vectors + v]);
  }
}

/** The whole groups of columns of a product with up to SHARING_ROWS rows; how many columns there are in them. */
static int multiply_nibbles(float *c, const float *a, const uint8_t *values, const float *bias, int numRows, int numColumns,
                             int depth, bool accumulate, int biasLength) {
  if (numRows < 1 || numRows > SHARING_ROWS) return 0;
  struct sums sums = {c, numColumns, NULL, 0};
  if (accumulate) sums = (struct sums){c, numColumns, c, numColumns};
  else if (biasLength > 0) sums.from = bias;
  const size_t group_bytes = (size_t)((depth + BLOCK - 1) / BLOCK) * BLOCK_BYTES;
  int j = 0;
  while (numColumns - j >= TOGETHER) {
    // One row alone: each addition would wait for the one before.
    const int groups = numRows == 1 && numColumns - j >= 2 * TOGETHER ? 2 : 1;
    if (groups == 2) nibble_tile(1, 0, 2 * VECTORS, 1, sums, a, values, depth);
    else if (numRows == 1) nibble_tile(1, 0, VECTORS, 1, sums, a, values, depth);
    for (int v = 0; v < VECTORS && numRows > 1; v++) {
      const struct sums some = {sums.c + v * WIDTH, sums.c_row, sums.from == NULL ? NULL : sums.from + v * WIDTH, sums.from_row};
      if (numRows <= 4) nibble_tile(4, v, 1, numRows, some, a, values, depth);
      else nibble_tile(8, v, 1, numRows, some, a, values, depth);
    }
    j += groups * TOGETHER;
    sums.c += groups * TOGETHER;
    if (sums.from != NULL) sums.from += groups * TOGETHER;
    values += groups * group_bytes;
  }
  return j;
}

#endif

WORTH(matmulQuantized4, numRows * numColumns * depth, 4096)
void KERNEL(matmulQuantized4)(float *c, float *a, uint8_t *values, float *bias, float *dequantized, float *scratch,
                              int32_t numRows, int32_t numColumns, int32_t depth, bool accumulate, int32_t biasLength) {
  const size_t group_bytes = (size_t)((depth + BLOCK - 1) / BLOCK) * BLOCK_BYTES;
  int done = 0;
#ifndef __wasm__
  done = multiply_nibbles(c, a, values, bias, numRows, numColumns, depth, accumulate, biasLength);
#endif
  MULTIPLY_RESTORED(done, KERNEL(dequantizeRows4)(dequantized, values + first / TOGETHER * group_bytes, columns, depth))
}
