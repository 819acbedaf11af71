/** Philox4x32-10 (`random.ts` has the source) for four rows at a time, one a lane. All of it is integers: the bits are the plain twin's. */
#ifndef COLONNADE_PHILOX
#define COLONNADE_PHILOX

#include "vector.native.h"

typedef uint32_t uints __attribute__((vector_size(16)));
typedef uint64_t longs __attribute__((vector_size(32)));

struct words {
  uints of[4];
};

/** The upper 32 bits of the products of words. */
INLINE uints high_words(uints words, uint32_t multiplier) {
#ifdef __wasm__
  uints multipliers = {multiplier, multiplier, multiplier, multiplier};
  IN_ORDER(multipliers); // Of a constant LLVM makes 64 bits, and multiplies those.
  const v128_t low = wasm_u64x2_extmul_low_u32x4(words, multipliers), high = wasm_u64x2_extmul_high_u32x4(words, multipliers);
  return (uints)wasm_i32x4_shuffle(low, high, 1, 3, 5, 7);
#else
  return __builtin_convertvector(__builtin_convertvector(words, longs) * multiplier >> 32, uints);
#endif
}

/** Four words of each row, from the counters' four words and the key's two. */
INLINE struct words philox4(struct words counter, uint32_t key0, uint32_t key1) {
  const uint32_t multiplier0 = 0xd2511f53, multiplier1 = 0xcd9e8d57;
  uints c0 = counter.of[0], c1 = counter.of[1], c2 = counter.of[2], c3 = counter.of[3];
  uints k0 = {key0, key0, key0, key0}, k1 = {key1, key1, key1, key1};
  KEPT_LOOP for (int round = 0; round < 10; round++) {
    const uints high0 = high_words(c0, multiplier0), high1 = high_words(c2, multiplier1);
    c2 *= multiplier1;
    c0 *= multiplier0;
    const uints low0 = c0, low1 = c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9e3779b9;
    k1 += 0xbb67ae85;
  }
  return (struct words){{c0, c1, c2, c3}};
}

#endif
