/** Philox4x32-10 (`random.ts` has the source) for several rows at a time, one a lane. All of it is integers: the bits are the plain twin's. */
#ifndef COLONNADE_PHILOX
#define COLONNADE_PHILOX

#include "vector.native.h"

typedef uint32_t uints __attribute__((vector_size(16)));
typedef uint64_t longs __attribute__((vector_size(32)));

struct words {
  uints of[4];
};

/** The upper and the lower 32 bits of the products of words. */
struct products {
  uints high, low;
};
INLINE struct products multiply4(uints words, uint32_t multiplier) {
#ifdef __wasm__
  uints multipliers = {multiplier, multiplier, multiplier, multiplier};
  IN_ORDER(multipliers); // Of a constant LLVM makes 64 bits, and multiplies those.
  const v128_t first = wasm_u64x2_extmul_low_u32x4(words, multipliers), last = wasm_u64x2_extmul_high_u32x4(words, multipliers);
  return (struct products){(uints)wasm_i32x4_shuffle(first, last, 1, 3, 5, 7), (uints)wasm_i32x4_shuffle(first, last, 0, 2, 4, 6)};
#elif defined __x86_64__
  const __m128i multipliers = _mm_set1_epi32(multiplier);
  const __m128i even = _mm_mul_epu32((__m128i)words, multipliers);
  const __m128i odd = _mm_mul_epu32(_mm_srli_epi64((__m128i)words, 32), multipliers);
  return (struct products){(uints)_mm_blend_epi32(_mm_srli_epi64(even, 32), odd, 10),
                           (uints)_mm_blend_epi32(even, _mm_slli_epi64(odd, 32), 10)};
#else
  return (struct products){__builtin_convertvector(__builtin_convertvector(words, longs) * multiplier >> 32, uints),
                           words * multiplier};
#endif
}

#define ROUNDS(words, multiply)                                                                                        \
  KEPT_LOOP for (int round = 0; round < 10; round++, key0 += 0x9e3779b9, key1 += 0xbb67ae85) {                          \
    const __typeof__(multiply(c0, 1)) first = multiply(c0, 0xd2511f53), last = multiply(c2, 0xcd9e8d57);                \
    c0 = last.high ^ c1 ^ key0;                                                                                        \
    c1 = last.low;                                                                                                     \
    c2 = first.high ^ c3 ^ key1;                                                                                       \
    c3 = first.low;                                                                                                    \
  }                                                                                                                    \
  return (words){{c0, c1, c2, c3}}

/** Four words of each row, from the counters' four words and the key's two. */
INLINE struct words philox4(struct words counter, uint32_t key0, uint32_t key1) {
  uints c0 = counter.of[0], c1 = counter.of[1], c2 = counter.of[2], c3 = counter.of[3];
  ROUNDS(struct words, multiply4);
}

/** For more rows at a time: as many as make up for how long a product takes. */
#ifdef __AVX512F__
#define MANY 16
#else
#define MANY 8
#endif
typedef uint32_t many __attribute__((vector_size(4 * MANY)));

struct many_words {
  many of[4];
};
struct many_products {
  many high, low;
};

INLINE struct many_products multiply_many(many words, uint32_t multiplier) {
#ifdef __AVX512F__
  const __m512i multipliers = _mm512_set1_epi32(multiplier);
  const __m512i even = _mm512_mul_epu32((__m512i)words, multipliers);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)words, 32), multipliers);
  return (struct many_products){(many)_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd),
                                (many)_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32))};
#elif defined __x86_64__
  const __m256i multipliers = _mm256_set1_epi32(multiplier);
  const __m256i even = _mm256_mul_epu32((__m256i)words, multipliers);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)words, 32), multipliers);
  return (struct many_products){(many)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa),
                                (many)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa)};
#else
  const struct products first = multiply4(__builtin_shufflevector(words, words, 0, 1, 2, 3), multiplier);
  const struct products last = multiply4(__builtin_shufflevector(words, words, 4, 5, 6, 7), multiplier);
  return (struct many_products){__builtin_shufflevector(first.high, last.high, 0, 1, 2, 3, 4, 5, 6, 7),
                                __builtin_shufflevector(first.low, last.low, 0, 1, 2, 3, 4, 5, 6, 7)};
#endif
}

INLINE struct many_words philox_many(struct many_words counter, uint32_t key0, uint32_t key1) {
  many c0 = counter.of[0], c1 = counter.of[1], c2 = counter.of[2], c3 = counter.of[3];
  ROUNDS(struct many_words, multiply_many);
}

#endif
