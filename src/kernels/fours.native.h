/** What bodies share that take four rows or elements at a time, in WebAssembly alone. */
#ifndef COLONNADE_FOURS
#define COLONNADE_FOURS

#include "math.native.h"

typedef double four_doubles __attribute__((vector_size(32)));
typedef int64_t four_longs __attribute__((vector_size(32)));
typedef uint8_t four_bytes __attribute__((vector_size(4)));

/** Of each of the four: the compiler makes vectors of it. */
#define EACH UNROLLED for (int l = 0; l < 4; l++)

INLINE four exp4(four x) {
  EACH x[l] = exp1(x[l]);
  return x;
}
INLINE four log4(four x) {
  EACH x[l] = log1(x[l]);
  return x;
}
/** eˣ − 1 − x, given e = eˣ: for small |x| by exp's polynomial, where the differences would leave nothing but rounding. */
INLINE float exp_rest1(float x, float e) {
  const float p = exp_rest_by_square(x);
  return fabsf(x) < 0.34f ? p * (x * x) : e - 1 - x;
}
INLINE four exp_rest4(four x, four e) {
  EACH x[l] = exp_rest1(x[l], e[l]);
  return x;
}
INLINE four abs4(four x) { return (four)wasm_f32x4_abs((v128_t)x); }
/** The larger and the smaller of two; NaN if one is. */
INLINE four max4(four a, four b) { return (four)wasm_f32x4_max((v128_t)a, (v128_t)b); }
INLINE four min4(four a, four b) { return (four)wasm_f32x4_min((v128_t)a, (v128_t)b); }
/** At most `high`, at least `low`; NaN stays NaN. */
INLINE four clamp4(four x, four low, four high) {
  return (four)wasm_f32x4_pmin(wasm_f32x4_pmax((v128_t)x, (v128_t)low), (v128_t)high);
}
INLINE four select4(ints mask, four a, four b) { return (four)(((ints)a & mask) | ((ints)b & ~mask)); }
/** `x` where the mask is set, else 0. */
INLINE four keep4(ints mask, four x) { return (four)((ints)x & mask); }
INLINE bool all4(ints mask) { return wasm_i32x4_all_true((v128_t)mask); }
/** A mask of the first `left`. */
INLINE ints first4(int left) { return (ints){0, 1, 2, 3} < left; }

/** Four f64 sums as one. */
INLINE double sum_doubles(four_doubles x) { return (x[0] + x[2]) + (x[1] + x[3]); }
INLINE four_doubles doubles4(four x) { return __builtin_convertvector(x, four_doubles); }
/** `x` where the mask is set, else 0. */
INLINE four_doubles keep_doubles(ints mask, four_doubles x) {
  return (four_doubles)((four_longs)x & __builtin_convertvector(mask, four_longs));
}
/** sum + x0 + x2, and sum + x1 + x3, in f64. */
INLINE two add_doubles(two sum, four_doubles x) {
  return sum + __builtin_shufflevector(x, x, 0, 1) + __builtin_shufflevector(x, x, 2, 3);
}
INLINE two add_pairs(two sum, four x) { return add_doubles(sum, doubles4(x)); }
INLINE double sum2(two x) { return x[0] + x[1]; }

/** Where four rows begin, in elements: those beyond the last repeat the first. */
struct places {
  size_t at[4];
};
INLINE struct places rows_at(size_t width, int left) {
  return (struct places){{0, left > 1 ? width : 0, left > 2 ? 2 * width : 0, left > 3 ? 3 * width : 0}};
}
INLINE four gather4(const float *x, struct places rows) {
  return (four){x[rows.at[0]], x[rows.at[1]], x[rows.at[2]], x[rows.at[3]]};
}
INLINE ints gather_ints(const int32_t *x, struct places rows) {
  return (ints){x[rows.at[0]], x[rows.at[1]], x[rows.at[2]], x[rows.at[3]]};
}
/** Stores the first `left`, one a row. */
INLINE void scatter4(float *x, size_t width, four v, int left) {
  EACH if (l < left) x[l * width] = v[l];
}

/** Elements first to first + 3 of a column of `width` that repeats without end. */
INLINE four repeated(const float *x, int width, int first) {
  return (four){x[first % width], x[(first + 1) % width], x[(first + 2) % width], x[(first + 3) % width]};
}

/** Copies, which `memcpy` takes longer to begin than a short row takes. */
INLINE void copy4(float *into, const float *from, int length) {
  int i = 0;
  for (; i + 4 <= length; i += 4) {
    four v = load4(from + i);
    IN_ORDER(v); // Else the compiler calls `memcpy`.
    store(into + i, v);
  }
  if (i < length) store_part(into + i, load_part4(from + i, length - i), length - i);
}

/** Calls a body for each four rows, the last time for those that are left: of whole fours the compiler knows it. */
#define BY_FOURS(body, numRows, ...)                                                                                    \
  int row = 0;                                                                                                          \
  for (; row + 4 <= numRows; row += 4) body(row, 4, __VA_ARGS__);                                                       \
  if (row < numRows) body(row, numRows - row, __VA_ARGS__)

#endif
