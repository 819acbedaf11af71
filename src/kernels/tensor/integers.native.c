/**
 * Products of whole numbers; the plain twin `integers.ts` says what is computed, to the bit. Sums of whole numbers are exact, so
 * each processor adds up as it does best.
 */
#include "../tile.native.h"

/** Inputs that share a scale. */
#define BLOCK 32
/** Rows that share the words of weights once they are turned. */
#define SHARING_ROWS 8
/** Bytes that the processor fetches from memory at once. */
#define LINE 64

WORTH(quantizeInputs, numRows * width, 256)
void KERNEL(quantizeInputs)(uint8_t *restrict input, float *restrict inputScale, float *restrict x, int32_t numRows,
                            int32_t width) {
  for (int row = 0; row < numRows; row++) {
    for (int left = width; left > 0; left -= BLOCK, input += BLOCK, inputScale++) {
      const int length = least(left, BLOCK);
      // As whole numbers, sizes rise as they do as floats, then come infinity and what is no number.
      uint32_t largest = 0;
      for (int i = 0; i < length; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        const uint32_t size = bits & 0x7fffffff;
        largest = size > largest ? size : largest;
      }
      float most;
      memcpy(&most, &largest, sizeof most);
      const bool isSmall = most < 0x1p-100f;
      const float inverse = isSmall ? 0 : 127 / most;
      *inputScale = (isSmall ? 0 : most / 127) + most * 0;
      // The lowest byte of such a sum is its whole part.
      for (int i = 0; i < length; i++) {
        const float rounded = x[i] * inverse + 0x1.8p23f;
        uint32_t bits;
        memcpy(&bits, &rounded, sizeof bits);
        input[i] = (uint8_t)bits;
      }
      memset(input + length, 0, BLOCK - length);
      x += length;
    }
  }
}

#ifdef __wasm__

/** `sum`, and in each lane four products of bytes, none of them −128: two products fit into 16 bits. */
INLINE v128_t dot4(v128_t sum, v128_t a, v128_t b) {
  const v128_t products = wasm_i16x8_add(wasm_i16x8_extmul_low_i8x16(a, b), wasm_i16x8_extmul_high_i8x16(a, b));
  return wasm_i32x4_add(sum, wasm_i32x4_extadd_pairwise_i16x8(products));
}

/** Of two vectors the sums of lanes 0 and 2, and of 1 and 3: a, b, a, b. */
INLINE v128_t add_halves(v128_t a, v128_t b) {
  return wasm_i32x4_add(wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), wasm_i32x4_shuffle(a, b, 2, 6, 3, 7));
}

/** The whole sums of a block of `length` weights of four columns, which are `depth` bytes apart. */
INLINE ints block_sums(const uint8_t *weights, size_t depth, const uint8_t *input, int length) {
  v128_t sum[4];
  UNROLLED for (size_t j = 0; j < 4; j++) sum[j] = wasm_i32x4_splat(0);
  int k = 0;
  for (; k + 16 <= length; k += 16) {
    const v128_t inputs = wasm_v128_load(input + k);
    UNROLLED for (size_t j = 0; j < 4; j++) sum[j] = dot4(sum[j], wasm_v128_load(weights + j * depth + k), inputs);
  }
  const v128_t low = add_halves(sum[0], sum[1]), high = add_halves(sum[2], sum[3]);
  ints sums = (ints)wasm_i32x4_add(wasm_i32x4_shuffle(low, high, 0, 1, 4, 5), wasm_i32x4_shuffle(low, high, 2, 3, 6, 7));
  for (; k < length; k++) {
    const int8_t *const at = (const int8_t *)weights + k;
    sums += (ints){at[0], at[depth], at[2 * depth], at[3 * depth]} * (int8_t)input[k];
  }
  return sums;
}

/** All rows of a vector of columns. */
INLINE void integer_vector(struct sums sums, const uint8_t *input, const float *input_scale, const uint8_t *values,
                           const float *scale, int rows, int depth) {
  for (int row = 0; row < rows; row++) {
    vec sum = splat(0);
    for (int k = 0; k < depth; k += BLOCK, input += BLOCK, input_scale++) {
      const ints whole = block_sums(values + k, depth, input, least(depth - k, BLOCK));
      sum += splat(*input_scale) * __builtin_convertvector(whole, vec);
    }
    const vec from = sums.from == NULL ? splat(0) : load(sums.from);
    store(sums.c, from + load(scale) * sum);
    sums.c += sums.c_row;
    if (sums.from != NULL) sums.from += sums.from_row;
  }
}

#else

/** Words of four bytes, as many as a vector has floats. */
typedef int32_t words __attribute__((vector_size(4 * WIDTH)));

/** `sum`, and in each lane the products of the four bytes of a word of weights and one of inputs, none of which is −128. */
INLINE words dot4(words sum, words weights, int32_t inputs) {
#if defined __aarch64__
  const int8x16_t a = vreinterpretq_s8_s32((int32x4_t)weights), b = vreinterpretq_s8_s32(vdupq_n_s32(inputs));
#if defined __ARM_FEATURE_DOTPROD
  return (words)vdotq_s32((int32x4_t)sum, a, b);
#else
  const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_s8(vget_high_s8(a), vget_high_s8(b));
  return (words)vpadalq_s16((int32x4_t)sum, vpaddq_s16(low, high));
#endif
#elif defined __AVX512F__
  // What is multiplied has no sign on one side: that of a weight goes over to its input.
  const __m512i a = (__m512i)weights, b = _mm512_set1_epi32(inputs);
  const __m512i size = _mm512_abs_epi8(a);
  const __m512i turned = _mm512_mask_sub_epi8(b, _mm512_movepi8_mask(a), _mm512_setzero_si512(), b);
#if defined __AVX512VNNI__
  return (words)_mm512_dpbusd_epi32((__m512i)sum, size, turned);
#else
  return sum + (words)_mm512_madd_epi16(_mm512_maddubs_epi16(size, turned), _mm512_set1_epi16(1));
#endif
#else
  const __m256i a = (__m256i)weights, turned = _mm256_sign_epi8(_mm256_set1_epi32(inputs), a);
  return sum + (words)_mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(a), turned), _mm256_set1_epi16(1));
#endif
}

/** Four bytes of inputs. */
INLINE int32_t word_at(const uint8_t *input) {
  int32_t word;
  memcpy(&word, input, sizeof word);
  return word;
}

/**
 * `vectors` vectors of columns and `rows` rows, constants where it is called, of which `there` are there. Meanwhile the columns
 * behind them are fetched, in the order of memory.
 */
INLINE void integer_tile(const int rows, const int vectors, int there, struct sums sums, const uint8_t *input,
                         const float *input_scale, const uint8_t *values, const float *scale, int depth) {
  const int blocks = (depth + BLOCK - 1) / BLOCK;
  const uint8_t *const next = values + (size_t)vectors * WIDTH * depth;
  vec c[SHARING_ROWS];
  for (int i = 0; i < rows * vectors; i++) c[i] = splat(0);
  for (int block = 0; block < blocks; block++) {
    const int from = block * BLOCK, length = least(BLOCK, depth - from);
    words whole[SHARING_ROWS];
    for (int i = 0; i < rows * vectors; i++) whole[i] = (words){0};
    int k = 0;
    for (; k + 16 <= length; k += 16) {
      for (int i = 0; i < 16 * vectors * WIDTH; i += LINE) {
        __builtin_prefetch(next + (size_t)vectors * WIDTH * (from + k) + i);
      }
      for (int v = 0; v < vectors; v++) {
        vec weights[4];
        load_columns(weights, (const float *)(values + (size_t)v * WIDTH * depth + from + k), depth / 4);
        for (int word = 0; word < 4; word++) {
          for (int r = 0; r < rows; r++) {
            const uint8_t *at = input + ((size_t)least(r, there - 1) * blocks + block) * BLOCK;
            whole[r * vectors + v] = dot4(whole[r * vectors + v], (words)weights[word], word_at(at + k + 4 * word));
          }
        }
      }
    }
    for (; k < length; k += 4) {
      for (int v = 0; v < vectors; v++) {
        int32_t column[WIDTH];
        words weights;
        for (int j = 0; j < WIDTH; j++) column[j] = word_at(values + (size_t)(v * WIDTH + j) * depth + from + k);
        memcpy(&weights, column, sizeof weights);
        for (int r = 0; r < rows; r++) {
          const uint8_t *at = input + ((size_t)least(r, there - 1) * blocks + block) * BLOCK;
          whole[r * vectors + v] = dot4(whole[r * vectors + v], weights, word_at(at + k));
        }
      }
    }
    for (int r = 0; r < rows; r++) {
      const vec factor = splat(input_scale[(size_t)least(r, there - 1) * blocks + block]);
      for (int v = 0; v < vectors; v++) {
        c[r * vectors + v] += factor * __builtin_convertvector(whole[r * vectors + v], vec);
      }
    }
  }
  for (int r = 0; r < rows && r < there; r++) {
    for (int v = 0; v < vectors; v++) {
      const vec from = sums.from == NULL ? splat(0) : load(sums.from + r * sums.from_row + v * WIDTH);
      store(sums.c + r * sums.c_row + v * WIDTH, from + load(scale + v * WIDTH) * c[r * vectors + v]);
    }
  }
}

#endif

/** Columns that fill no vector, or whose bytes do not lie as words do. */
INLINE void integer_columns(struct sums sums, const uint8_t *input, const float *input_scale, const uint8_t *values,
                           const float *scale, int rows, int columns, int depth) {
  const int blocks = (depth + BLOCK - 1) / BLOCK;
  for (int r = 0; r < rows; r++, input += blocks * BLOCK, input_scale += blocks) {
    for (int j = 0; j < columns; j++) {
      const uint8_t *weights = values + (size_t)j * depth;
      float sum = 0;
      for (int block = 0; block < blocks; block++) {
        int32_t whole = 0;
        for (int k = block * BLOCK; k < least((block + 1) * BLOCK, depth); k++) {
          whole += (int8_t)weights[k] * (int8_t)input[k];
        }
        sum += input_scale[block] * (float)whole;
      }
      sums.c[r * sums.c_row + j] = (sums.from == NULL ? 0 : sums.from[r * sums.from_row + j]) + scale[j] * sum;
    }
  }
}

WORTH(matmulIntegers, numRows * numColumns * depth, 1024)
void KERNEL(matmulIntegers)(float *c, uint8_t *input, float *inputScale, uint8_t *values, float *scale, float *bias,
                            int32_t numRows, int32_t numColumns, int32_t depth, bool accumulate, int32_t biasLength) {
#ifndef __wasm__
  const int blocks = (depth + BLOCK - 1) / BLOCK;
  const bool hasWords = depth % 4 == 0 && (uintptr_t)values % 4 == 0;
#endif
  struct sums sums = {c, numColumns, NULL, 0};
  if (accumulate) sums = (struct sums){c, numColumns, c, numColumns};
  else if (biasLength > 0) sums.from = bias;
  for (int j = 0; j < numColumns;) {
#ifdef __wasm__
    const int columns = numColumns - j < WIDTH ? numColumns - j : WIDTH;
    if (columns == WIDTH) integer_vector(sums, input, inputScale, values, scale, numRows, depth);
    else integer_columns(sums, input, inputScale, values, scale, numRows, columns, depth);
#else
    const int vectors = !hasWords || numColumns - j < WIDTH ? 0 : numRows == 1 && numColumns - j >= 2 * WIDTH ? 2 : 1;
    const int columns = vectors == 0 ? numColumns - j : vectors * WIDTH;
    if (vectors == 0) integer_columns(sums, input, inputScale, values, scale, numRows, columns, depth);
    else if (vectors == 2) integer_tile(1, 2, 1, sums, input, inputScale, values, scale, depth);
    else {
      struct sums rest = sums;
      for (int row = 0; row < numRows; row += SHARING_ROWS) {
        const int there = least(numRows - row, SHARING_ROWS);
        const uint8_t *some = input + (size_t)row * blocks * BLOCK;
        const float *factors = inputScale + (size_t)row * blocks;
        if (there == 1) integer_tile(1, 1, 1, rest, some, factors, values, scale, depth);
        else if (there <= 4) integer_tile(4, 1, there, rest, some, factors, values, scale, depth);
        else integer_tile(8, 1, there, rest, some, factors, values, scale, depth);
        rest.c += SHARING_ROWS * rest.c_row;
        if (rest.from != NULL) rest.from += SHARING_ROWS * rest.from_row;
      }
    }
#endif
    j += columns;
    sums.c += columns;
    if (sums.from != NULL) sums.from += columns;
    scale += columns;
    values += (size_t)columns * depth;
  }
}
