/** Functions of single numbers. They have no branches, so that the compiler makes vectors of the loops that call them. */
#ifndef COLONNADE_MATH
#define COLONNADE_MATH

#include "vector.native.h"

INLINE float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
/** A number without fraction as an integer: the nearest one, 0 of NaN. */
INLINE int32_t whole(float x) {
#ifdef __wasm__
  return __builtin_wasm_trunc_saturate_s_i32_f32(x);
#else
  if (x >= 0x1p31f) return INT32_MAX;
  return (int32_t)(x >= -0x1p31f ? x : x == x ? -0x1p31f : 0);
#endif
}
/** As `whole`, of a small number. */
INLINE int32_t whole_small(float x) {
#ifdef __wasm__
  return whole(x);
#else
  return (int32_t)(x == x ? x : 0);
#endif
}
/** At most `high`, at least `low`; NaN stays NaN. */
INLINE float clamp(float x, float low, float high) {
  const float raised = x < low ? low : x;
  return high < raised ? high : raised;
}

/** tanh x. */
INLINE float tanh1(float x) {
  const float size = fabsf(x);
  const float v = size > 7.9f ? 7.9f : size; // NaN stays NaN.
  const float s = v * v;
  float p = madd1(s, 46.26529307466246f, 11877.315846099367f);
  p = madd1(s, madd1(s, p, 518924.58856003074f), 4011967.2638858575f);
  float q = madd1(s, s + 962.919594741476f, 95701.77987539067f);
  q = madd1(s, madd1(s, q, 1856242.906143549f), 4011967.788810167f);
  return copysignf(v * p / q, x);
}

/** (eˣ − 1 − x) / x² of small |x|. */
INLINE float exp_rest_by_square(float x) {
  float p = 1.9875691500e-4f;
  p = madd1(p, x, 1.3981999507e-3f);
  p = madd1(p, x, 8.3334519073e-3f);
  p = madd1(p, x, 4.1665795894e-2f);
  p = madd1(p, x, 1.6666665459e-1f);
  return madd1(p, x, 5.0000001201e-1f);
}
/** eˣ · 2⁻ⁿ, n the whole number next to x / ln 2. */
INLINE float exp_within(float x, float n) {
  const float r = madd1(n, 2.12194440e-4f, madd1(n, -0.693359375f, x));
  return madd1(exp_rest_by_square(r), r * r, r) + 1;
}
/** eˣ. */
INLINE float exp1(float v) {
  const float low = -87.3f;
#ifdef __wasm__
  const float x = 88 < v ? 88 : v; // Below `low` nothing traps, and the end is 0.
#else
  const float x = clamp(v, low, 88);
#endif
  const float n = __builtin_rintf(x * 1.44269504088896341f);
  const float p = exp_within(x, n), power = float_of((uint32_t)(whole_small(n) + 127) << 23);
  return v < low ? 0 : p * power;
}

/** log x of normal x > 0. */
INLINE float log1(float v) {
  const uint32_t bits = bits_of(v);
  const float half = float_of((bits & 0x007fffff) | 0x3f000000);
  const bool small = half < 0.707106781186547524f;
  const float e = (float)((int32_t)(bits >> 23) - 126 - (small ? 1 : 0));
  const float x = (half - 1) + (small ? half : 0);
  const float z = x * x;
  float p = 7.0376836292e-2f;
  p = madd1(p, x, -1.1514610310e-1f);
  p = madd1(p, x, 1.1676998740e-1f);
  p = madd1(p, x, -1.2420140846e-1f);
  p = madd1(p, x, 1.4249322787e-1f);
  p = madd1(p, x, -1.6668057665e-1f);
  p = madd1(p, x, 2.0000714765e-1f);
  p = madd1(p, x, -2.4999993993e-1f);
  p = madd1(p, x, 3.3333331174e-1f);
  p = p * x * z;
  p = madd1(e, -2.12194440e-4f, p);
  p = madd1(z, -0.5f, p);
  return v == v ? madd1(e, 0.693359375f, x + p) : v;
}

/** 1 / (1 + e⁻ˣ). */
INLINE float sigmoid1(float x) { return 1 / (1 + exp1(-x)); }

/** Quarter turns in an angle. */
INLINE float quarter_turns(float x) { return __builtin_rintf(x * 0.636619772367581343f); }
/** x − q · ½π. */
INLINE float within_quarter(float x, float q) {
  const float r = madd1(q, -4.837512969970703125e-4f, madd1(q, -1.5703125f, x));
  return madd1(q, -7.54978995489188216e-8f, r);
}
/** sin r for |r| ≤ ¼π. */
INLINE float sin_quarter(float r) {
  const float z = r * r;
  const float p = madd1(madd1(-1.9515295891e-4f, z, 8.3321608736e-3f), z, -1.6666654611e-1f);
  return madd1(p * z, r, r);
}
/** cos r for |r| ≤ ¼π. */
INLINE float cos_quarter(float r) {
  const float z = r * r;
  const float p = madd1(madd1(2.443315711809948e-5f, z, -1.388731625493765e-3f), z, 4.166664568298827e-2f);
  return madd1(p * z, z, madd1(z, -0.5f, 1));
}
/** sin(r + (q + shift) · ½π) from sin r and cos r. */
INLINE float turn(float sin, float cos, float q, int shift) {
  const uint32_t turns = (uint32_t)whole(q) + (uint32_t)shift;
  return float_of(bits_of((turns & 1) != 0 ? cos : sin) ^ (turns >> 1) << 31);
}

#endif
