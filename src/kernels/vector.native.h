/**
 * What the native bodies share: the vectors of the instruction set for which a file is compiled. Build it once a level
 * (`LEVEL`): results do not depend on the level, since a body does the same operations for each element whatever the width of
 * a vector, multiply-adds are asked for by name and nothing else is fused (-ffp-contract=off).
 *
 * Columns begin at any element: loads and stores need no alignment.
 */
#ifndef COLONNADE_VECTOR
#define COLONNADE_VECTOR

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __wasm__
#include <wasm_simd128.h>
#define memcpy __builtin_memcpy
#define memset __builtin_memset
#define fabsf __builtin_fabsf
#define sqrtf __builtin_sqrtf
#define sqrt __builtin_sqrt
#define copysignf __builtin_copysignf
#else
#include <math.h>
#include <string.h>
#endif

#ifdef __wasm__
#elif defined __aarch64__
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

#include "kernels.native.h"

/** Before a loop of a constant number of turns, at most 16: what it indexes stays in registers. */
#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif
/** Before a loop that stays one. */
#ifdef __clang__
#define KEPT_LOOP _Pragma("clang loop unroll(disable)")
#else
#define KEPT_LOOP
#endif
/** Loads stay in the order in which they stand: V8 keeps it, and has too few registers for the order that LLVM prefers. */
#ifdef __wasm__
#define IN_ORDER(x) __asm__ volatile("" : "+r"(x))
#else
#define IN_ORDER(x)
#endif
#define INLINE static inline __attribute__((always_inline))

/** Four floats, for sums in four parts. */
typedef float four __attribute__((vector_size(16), aligned(4)));
typedef double two __attribute__((vector_size(16)));
typedef int32_t ints __attribute__((vector_size(16)));

INLINE four load4(const float *at) { return *(const four *)at; }
/** The first `count` < 4 floats, at least one, the others 0. */
INLINE four load_part4(const float *at, int count) {
  return (four){at[0], count > 1 ? at[1] : 0, count > 2 ? at[2] : 0, 0};
}
/** Two floats, twice. */
INLINE four splat_pair(const float *at) {
  double both;
  memcpy(&both, at, sizeof both);
  return (four)(two){both, both};
}
/** a · b + c, rounded once. */
INLINE four madd4(four a, four b, four c) {
#ifdef __wasm__
#ifdef __wasm_relaxed_simd__
  return (four)__builtin_wasm_relaxed_madd_f32x4(a, b, c);
#else
  return a * b + c;
#endif
#elif defined __aarch64__
  return (four)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return (four)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#endif
}
INLINE float sum4(four v) { return (v[0] + v[2]) + (v[1] + v[3]); }

#if defined __aarch64__ || defined __wasm__

/** Floats of a vector. */
#define WIDTH 4
/** Rows of a register block: 24 sums of two vectors a row, of 32 registers. */
#define TILE_ROWS 6
typedef four vec;
/** How many lanes are there, from the first. */
typedef int lanes;

INLINE lanes first_lanes(int count) { return count; }
INLINE vec load(const float *at) { return load4(at); }
/** The lanes that are there, the others 0: what is not there is not read. */
INLINE vec load_part(const float *at, lanes some) {
  return some >= WIDTH ? load4(at) : some > 0 ? load_part4(at, some) : (vec){0};
}
INLINE void store(float *at, vec v) { *(vec *)at = v; }
INLINE void store_part(float *at, vec v, lanes some) {
  if (some >= WIDTH) store(at, v);
  else {
    if (some > 0) at[0] = v[0];
    if (some > 1) at[1] = v[1];
    if (some > 2) at[2] = v[2];
  }
}
INLINE vec splat(float x) { return (vec){x, x, x, x}; }
/** a · b + c, rounded once. */
INLINE vec madd(vec a, vec b, vec c) { return madd4(a, b, c); }
/** The four of row 0. */
INLINE vec load_fours(const float *at, size_t row) { return load4(at); }
/** a0 b0 a1 b1, and a2 b2 a3 b3. */
INLINE vec mix_low(vec a, vec b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
INLINE vec mix_high(vec a, vec b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
/** a0 a1 b0 b1, and a2 a3 b2 b3. */
INLINE vec join_low(vec a, vec b) { return __builtin_shufflevector(a, b, 0, 1, 4, 5); }
INLINE vec join_high(vec a, vec b) { return __builtin_shufflevector(a, b, 2, 3, 6, 7); }

#elif defined __AVX512F__

/** Floats of a vector. */
#define WIDTH 16
/** Rows of a register block: 16 sums of two vectors a row, of 32 registers. */
#define TILE_ROWS 8
typedef __m512 vec;
/** Which lanes are there. */
typedef __mmask16 lanes;

INLINE lanes first_lanes(int count) { return (lanes)((1u << count) - 1); }
INLINE vec load(const float *at) { return _mm512_loadu_ps(at); }
/** The lanes that are there, the others 0: what is not there is not read. */
INLINE vec load_part(const float *at, lanes some) { return _mm512_maskz_loadu_ps(some, at); }
INLINE void store(float *at, vec v) { _mm512_storeu_ps(at, v); }
INLINE void store_part(float *at, vec v, lanes some) { _mm512_mask_storeu_ps(at, some, v); }
INLINE vec splat(float x) { return _mm512_set1_ps(x); }
/** a · b + c, rounded once. */
INLINE vec madd(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
/** Fours of rows 0, 4, 8 and 12, side by side. */
INLINE vec load_fours(const float *at, size_t row) {
  vec v = _mm512_castps128_ps512(_mm_loadu_ps(at));
  v = _mm512_insertf32x4(v, _mm_loadu_ps(at + 4 * row), 1);
  v = _mm512_insertf32x4(v, _mm_loadu_ps(at + 8 * row), 2);
  return _mm512_insertf32x4(v, _mm_loadu_ps(at + 12 * row), 3);
}
/** Of each four of a and of b: a0 b0 a1 b1, and a2 b2 a3 b3. */
INLINE vec mix_low(vec a, vec b) { return _mm512_unpacklo_ps(a, b); }
INLINE vec mix_high(vec a, vec b) { return _mm512_unpackhi_ps(a, b); }
/** Of each four of a and of b: a0 a1 b0 b1, and a2 a3 b2 b3. */
INLINE vec join_low(vec a, vec b) { return (vec)_mm512_unpacklo_pd((__m512d)a, (__m512d)b); }
INLINE vec join_high(vec a, vec b) { return (vec)_mm512_unpackhi_pd((__m512d)a, (__m512d)b); }

#else

/** Floats of a vector. */
#define WIDTH 8
/** Rows of a register block: 12 sums of two vectors a row, of 16 registers. */
#define TILE_ROWS 6
typedef __m256 vec;
/** Which lanes are there. */
typedef __m256i lanes;

INLINE lanes first_lanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE vec load(const float *at) { return _mm256_loadu_ps(at); }
/** The lanes that are there, the others 0: what is not there is not read. */
INLINE vec load_part(const float *at, lanes some) { return _mm256_maskload_ps(at, some); }
INLINE void store(float *at, vec v) { _mm256_storeu_ps(at, v); }
INLINE void store_part(float *at, vec v, lanes some) { _mm256_maskstore_ps(at, some, v); }
INLINE vec splat(float x) { return _mm256_set1_ps(x); }
/** a · b + c, rounded once. */
INLINE vec madd(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
/** Fours of rows 0 and 4, side by side. */
INLINE vec load_fours(const float *at, size_t row) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(at)), _mm_loadu_ps(at + 4 * row), 1);
}
/** Of each four of a and of b: a0 b0 a1 b1, and a2 b2 a3 b3. */
INLINE vec mix_low(vec a, vec b) { return _mm256_unpacklo_ps(a, b); }
INLINE vec mix_high(vec a, vec b) { return _mm256_unpackhi_ps(a, b); }
/** Of each four of a and of b: a0 a1 b0 b1, and a2 a3 b2 b3. */
INLINE vec join_low(vec a, vec b) { return (vec)_mm256_unpacklo_pd((__m256d)a, (__m256d)b); }
INLINE vec join_high(vec a, vec b) { return (vec)_mm256_unpackhi_pd((__m256d)a, (__m256d)b); }

#endif

/** a · b + c of single numbers. */
INLINE float madd1(float a, float b, float c) {
#ifdef __wasm__
#pragma clang fp contract(on)
  return a * b + c;
#else
  return __builtin_fmaf(a, b, c);
#endif
}
/** Numbers nearer to 0 than this are 0: as denormal numbers they would cost a hundred cycles each. NaN stays NaN. */
INLINE float settle(float x) { return fabsf(x) < 1e-30f ? 0 : x; }
INLINE int least(int a, int b) { return a < b ? a : b; }

#endif
