/**
 * Products of weights in 4 bits with inputs in 8 bits; the plain twin `integers4.ts` says what is computed, to the bit. Sums of whole
 * numbers are exact, so each processor adds up as it does best.
 */
#include "quantized4.native.h"

#ifdef __wasm__

/** The whole sums of a block of four columns that lie together, nibbles times inputs: each fits into 16 bits. */
INLINE ints block_sums(const uint8_t *columns, const uint8_t *input) {
  v128_t low = wasm_i16x8_splat(0), high = low;
  UNROLLED for (size_t k = 0; k < 16; k += 4) {
    const v128_t bytes = wasm_v128_load(columns + TOGETHER * k);
    const v128_t first = wasm_v128_and(bytes, wasm_i8x16_splat(15)), second = wasm_u8x16_shr(bytes, 4);
    const v128_t before = wasm_v128_load32_splat(input + k), behind = wasm_v128_load32_splat(input + 16 + k);
    low = wasm_i16x8_add(low, wasm_i16x8_add(wasm_i16x8_extmul_low_i8x16(first, before), wasm_i16x8_extmul_low_i8x16(second, behind)));
    high = wasm_i16x8_add(high, wasm_i16x8_add(wasm_i16x8_extmul_high_i8x16(first, before), wasm_i16x8_extmul_high_i8x16(second, behind)));
  }
  const v128_t a = wasm_i32x4_extadd_pairwise_i16x8(low), b = wasm_i32x4_extadd_pairwise_i16x8(high);
  return (ints)wasm_i32x4_add(wasm_i32x4_shuffle(a, b, 0, 2, 4, 6), wasm_i32x4_shuffle(a, b, 1, 3, 5, 7));
}

/** What a block of inputs comes to with 8 for each weight: nibbles are too large by that. */
INLINE int32_t excess(const uint8_t *input) {
  const v128_t pairs = wasm_i16x8_add(wasm_i16x8_extadd_pairwise_i8x16(wasm_v128_load(input)),
                                      wasm_i16x8_extadd_pairwise_i8x16(wasm_v128_load(input + 16)));
  const ints fours = (ints)wasm_i32x4_extadd_pairwise_i16x8(pairs);
  return 8 * ((fours[0] + fours[2]) + (fours[1] + fours[3]));
}

#else

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

#endif

WORTH(matmulIntegers4, numRows * numColumns * depth, 1024)
void KERNEL(matmulIntegers4)(float *c, uint8_t *input, float *inputScale, uint8_t *values, float *bias, int32_t numRows,
                             int32_t numColumns, int32_t depth, bool accumulate, int32_t biasLength) {
  const int blocks = (depth + BLOCK - 1) / BLOCK;
#ifdef __wasm__
  for (int j = 0; j < numColumns; j += WIDTH) {
    const uint8_t *const group = values + (size_t)(j / TOGETHER) * blocks * BLOCK_BYTES;
    const int lane = j % TOGETHER;
    const lanes some = first_lanes(least(numColumns - j, WIDTH));
    const vec begin = biasLength > 0 ? load_part(bias + j, some) : splat(0);
    for (int row = 0; row < numRows; row++) {
      const uint8_t *inputs = input + (size_t)row * blocks * BLOCK, *block = group;
      const float *const scales = inputScale + (size_t)row * blocks;
      float *const to = c + (size_t)row * numColumns + j;
      vec sum = splat(0);
      for (int i = 0; i < blocks; i++, inputs += BLOCK, block += BLOCK_BYTES) {
        const ints whole = block_sums(block + 4 * lane, inputs) - excess(inputs);
        sum += splat(scales[i]) * load_scales(block, lane / WIDTH) * __builtin_convertvector(whole, vec);
      }
      store_part(to, (accumulate ? load_part(to, some) : begin) + sum, some);
    }
  }
#else
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
#endif
}
