/** Functions of elements and pairs; the plain twin `elements.ts` says what is computed. */
#include "../fours.native.h"

/**
 * eˣ over all of f32: as `exp1`, but times 2ⁿ in two steps, so that what is too large becomes infinite and what is small loses digits
 * before it becomes 0. NaN stays NaN.
 */
INLINE float exp_all(float v) {
  const float x = clamp(v, -104, 89), n = __builtin_rintf(x * 1.44269504088896341f);
  const int power = whole_small(n), half = power >> 1;
  return exp_within(x, n) * float_of((uint32_t)(half + 127) << 23) * float_of((uint32_t)(power - half + 127) << 23);
}

/** log x over all of f32: −∞ at 0, NaN below; what is too small for a normal number is scaled by 2²⁴ first. */
INLINE float log_all(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float log = log1(tiny ? x * 16777216 : x) - (tiny ? 16.635532333438686f : 0);
  const float low = x == 0 ? -__builtin_inff() : __builtin_nanf(""), high = x == __builtin_inff() ? x : log;
  return x <= 0 ? low : high;
}

/** max(x, 0) + log(1 + e) with e = exp(−|x|); the logarithm of the rounded 1 + e is made good by e / ((1 + e) − 1) (Kahan). */
INLINE float softplus(float x) {
  const float e = exp_all(-fabsf(x)), u = 1 + e, rest = u - 1, log = log1(u) * (e / rest);
  return __builtin_elementwise_maximum(x, 0.0f) + (rest == 0 ? e : log);
}

/** erf as a ratio of two polynomials, odd of degree 13 over even of degree 8, on |x| ≤ 4 (the coefficients of Eigen's `erf`). */
INLINE float erf1(float v) {
  const float x = clamp(v, -4, 4), s = x * x;
  float p = -2.72614225801306e-10f;
  p = madd1(p, s, 2.77068142495902e-8f);
  p = madd1(p, s, -2.10102402082508e-6f);
  p = madd1(p, s, -5.69250639462346e-5f);
  p = madd1(p, s, -7.34990630326855e-4f);
  p = madd1(p, s, -2.954599808540250e-3f);
  p = madd1(p, s, -1.60960333262415e-2f);
  float q = -1.45660718464996e-5f;
  q = madd1(q, s, -2.13374055278905e-4f);
  q = madd1(q, s, -1.68282697438203e-3f);
  q = madd1(q, s, -7.37332916720468e-3f);
  q = madd1(q, s, -1.42647390514189e-2f);
  return x * p / q;
}

/** As in the plain twin's `ElementMap`. */
enum { TANH, EXP, LOG, SOFTPLUS };

void KERNEL(mapElements)(float *restrict y, float *restrict x, int32_t map, int32_t length) {
#define MAPPED(function) for (int i = 0; i < length; i++) y[i] = function(x[i])
  if (map == TANH) MAPPED(tanh1);
  else if (map == EXP) MAPPED(exp_all);
  else if (map == LOG) MAPPED(log_all);
  else if (map == SOFTPLUS) MAPPED(softplus);
  else MAPPED(erf1);
}

void KERNEL(combineRows)(float *out, float *a, float *b, int32_t combination, int32_t numRows, int32_t width, int32_t aRow,
                         int32_t aStep, int32_t bRow, int32_t bStep) {
  for (int row = 0; row < numRows; row++, a += aRow, b += bRow, out += width) {
    four first = splat(*a), second = splat(*b);
    for (int k = 0; k < width; k += 4) {
      const int left = width - k;
      if (aStep != 0) first = load_part(a + k, left);
      if (bStep != 0) second = load_part(b + k, left);
      store_part(out + k, combination == 0 ? max4(first, second) : min4(first, second), left);
    }
  }
}

INLINE ints compare(four a, four b, int comparison) {
  if (comparison == 0) return a == b;
  if (comparison == 1) return a != b;
  if (comparison == 2) return a > b;
  if (comparison == 3) return a >= b;
  if (comparison == 4) return a < b;
  return a <= b;
}

void KERNEL(compareRows)(uint8_t *out, float *a, float *b, int32_t comparison, int32_t numRows, int32_t width, int32_t aRow,
                         int32_t aStep, int32_t bRow, int32_t bStep) {
  for (int row = 0; row < numRows; row++, a += aRow, b += bRow, out += width) {
    four first = splat(*a), second = splat(*b);
    for (int k = 0; k < width; k += 4) {
      const int left = width - k;
      if (aStep != 0) first = load_part(a + k, left);
      if (bStep != 0) second = load_part(b + k, left);
      const ints truth = compare(first, second, comparison);
      const four_bytes bytes = __builtin_convertvector(truth & 1, four_bytes);
      if (left >= 4) memcpy(out + k, &bytes, sizeof bytes);
      else EACH if (l < left) out[k + l] = bytes[l];
    }
  }
}

void KERNEL(selectElements)(float *restrict out, uint8_t *restrict flag, float *restrict a, float *restrict b, int32_t length) {
  for (int i = 0; i < length; i++) {
    const float yes = a[i], no = b[i];
    out[i] = flag[i] != 0 ? yes : no;
  }
}

void KERNEL(flagsToFloats)(float *restrict out, uint8_t *restrict flag, int32_t length) {
  for (int i = 0; i < length; i++) out[i] = flag[i] != 0 ? 1 : 0;
}
