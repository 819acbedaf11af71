/** Choosing, ordering, gathering and checking rows, with the plain twin's bits (`rows.ts`). Checks pass over what is right several elements at once. */
#include "../fours.native.h"

int32_t KERNEL(listValid)(uint32_t *rows, uint8_t *valid, int32_t numRows) {
  int count = 0, row = 0;
  for (; row + 16 <= numRows; row += 16) {
    const v128_t flags = wasm_v128_load(valid + row);
    if (wasm_i8x16_all_true(flags)) {
      UNROLLED for (int l = 0; l < 16; l++) rows[count + l] = row + l;
      count += 16;
      continue;
    }
    uint32_t bits = wasm_i8x16_bitmask(wasm_i8x16_ne(flags, wasm_i8x16_splat(0)));
    for (; bits != 0; bits &= bits - 1) rows[count++] = row + __builtin_ctz(bits);
  }
  for (; row < numRows; row++) {
    if (valid[row] != 0) rows[count++] = row;
  }
  return count;
}

/** As in random.ts. */
#define STREAM_SHUFFLE 3

/** Swaps row i with one of rows 0 to i: in f64 as the plain twin does, for the same rounding. */
INLINE void swap(uint32_t *rows, int i, uint32_t word) {
  const int j = (int)((double)word * (i + 1) / 4294967296.0);
  const uint32_t swapped = rows[i];
  rows[i] = rows[j];
  rows[j] = swapped;
}

void KERNEL(shuffleRows)(uint32_t *rows, int32_t count, uint32_t update, uint32_t epoch, uint32_t key0, uint32_t key1) {
  uint32_t block = 0;
  for (int i = count - 1; i > 0; i -= 4, block++) {
    uint32_t c0 = block, c1 = update, c2 = epoch, c3 = STREAM_SHUFFLE, k0 = key0, k1 = key1;
    KEPT_LOOP for (int round = 0; round < 10; round++) {
      const uint64_t product0 = (uint64_t)c0 * 0xd2511f53, product1 = (uint64_t)c2 * 0xcd9e8d57;
      c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
      c1 = (uint32_t)product1;
      c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
      c3 = (uint32_t)product0;
      k0 += 0x9e3779b9;
      k1 += 0xbb67ae85;
    }
    swap(rows, i, c0);
    if (i > 1) swap(rows, i - 1, c1);
    if (i > 2) swap(rows, i - 2, c2);
    if (i > 3) swap(rows, i - 3, c3);
  }
}

void KERNEL(gatherRows)(float *gathered, int32_t gatheredElementBytes, float *source, uint32_t *rows, int32_t first,
                        int32_t count, int32_t width) {
  rows += first;
  if (gatheredElementBytes == 1) {
    for (int i = 0; i < count; i++) {
      memcpy((uint8_t *)gathered + (size_t)i * width, (uint8_t *)source + (size_t)rows[i] * width, width);
    }
  } else if (width == 1) {
    for (int i = 0; i < count; i++) gathered[i] = source[rows[i]];
  } else if (width == 4) {
    for (int i = 0; i < count; i++) store(gathered + 4 * i, load(source + 4 * (size_t)rows[i]));
  } else {
    for (int i = 0; i < count; i++) copy4(gathered + (size_t)i * width, source + (size_t)rows[i] * width, width);
  }
}

void KERNEL(widenBytes)(float *widened, uint8_t *x, int32_t from, int32_t length) {
  x += from;
  int i = 0;
  for (; i + 16 <= length; i += 16) {
    const v128_t bytes = wasm_v128_load(x + i);
    const v128_t low = wasm_u16x8_extend_low_u8x16(bytes), high = wasm_u16x8_extend_high_u8x16(bytes);
    wasm_v128_store(widened + i, wasm_f32x4_convert_u32x4(wasm_u32x4_extend_low_u16x8(low)));
    wasm_v128_store(widened + i + 4, wasm_f32x4_convert_u32x4(wasm_u32x4_extend_high_u16x8(low)));
    wasm_v128_store(widened + i + 8, wasm_f32x4_convert_u32x4(wasm_u32x4_extend_low_u16x8(high)));
    wasm_v128_store(widened + i + 12, wasm_f32x4_convert_u32x4(wasm_u32x4_extend_high_u16x8(high)));
  }
  for (; i < length; i++) widened[i] = x[i];
}

void KERNEL(placeRows)(float *into, float *from, int32_t *rows, int32_t count, int32_t width) {
  for (int i = 0; i < count; i++) copy4(into + (size_t)rows[i] * width, from + (size_t)i * width, width);
}

int32_t KERNEL(findNonFinite)(float *x, int32_t from, int32_t to) {
  int i = from;
  for (; i + 32 <= to; i += 32) {
    // x − x has no bit set where x is finite, and is NaN elsewhere.
    ints rest = {0};
    UNROLLED for (int l = 0; l < 32; l += 4) rest |= (ints)(load(x + i + l) - load(x + i + l));
    if (wasm_v128_any_true((v128_t)rest)) break;
  }
  for (; i < to; i++) {
    if (x[i] - x[i] != 0) return i;
  }
  return -1;
}

/** All ones in the elements of x that are within the bounds; NaN is not. */
INLINE ints within(const float *x, four low, four high) { return (load(x) >= low) & (load(x) <= high); }

int32_t KERNEL(findBeyond)(float *x, float *low, float *high, int32_t width, int32_t from, int32_t to) {
  int i = from * width;
  const int end = to * width;
  if (width <= 4) {
    // Twelve elements are whole rows of any of these widths.
    const four low0 = repeated(low, width, 0), low1 = repeated(low, width, 4), low2 = repeated(low, width, 8);
    const four high0 = repeated(high, width, 0), high1 = repeated(high, width, 4), high2 = repeated(high, width, 8);
    for (; i + 12 <= end; i += 12) {
      if (!all4(within(x + i, low0, high0) & within(x + i + 4, low1, high1) & within(x + i + 8, low2, high2))) break;
    }
  } else {
    for (; i < end; i += width) {
      const int last = width - 4; // The last four elements of a row, of which some may have been seen.
      ints all = within(x + i + last, load(low + last), load(high + last));
      for (int k = 0; k < last; k += 4) all &= within(x + i + k, load(low + k), load(high + k));
      if (!all4(all)) break;
    }
  }
  for (int k = 0; i < end; i++) {
    if (!(x[i] >= low[k] && x[i] <= high[k])) return i;
    k = k + 1 == width ? 0 : k + 1;
  }
  return -1;
}

int32_t KERNEL(findMiswritten)(float *reward, uint8_t *terminated, uint8_t *truncated, float rewardMax, int32_t from,
                               int32_t to) {
  int n = from;
  for (; n + 16 <= to; n += 16) {
    ints small = {-1, -1, -1, -1};
    UNROLLED for (int l = 0; l < 16; l += 4) small &= abs4(load(reward + n + l)) <= rewardMax;
    const v128_t flags = wasm_v128_load(terminated + n) | wasm_v128_load(truncated + n);
    if (!all4(small) || wasm_v128_any_true(flags & wasm_i8x16_splat(0xfe))) break;
  }
  for (; n < to; n++) {
    if (!(fabsf(reward[n]) <= rewardMax) || (terminated[n] | truncated[n]) > 1) return n;
  }
  return -1;
}

int32_t KERNEL(findOutside)(int32_t *x, int32_t *sizes, int32_t width, int32_t from, int32_t to) {
  int n = from;
  if (width == 1) {
    for (; n + 16 <= to; n += 16) {
      // Unsigned, so below 0 is above too.
      v128_t outside = wasm_i32x4_splat(0);
      UNROLLED for (int l = 0; l < 16; l += 4) outside |= wasm_u32x4_ge(wasm_v128_load(x + n + l), wasm_i32x4_splat(*sizes));
      if (wasm_v128_any_true(outside)) break;
    }
  }
  for (int i = n * width; n < to; n++) {
    for (int k = 0; k < width; k++, i++) {
      if ((uint32_t)x[i] >= (uint32_t)sizes[k]) return i;
    }
  }
  return -1;
}

INLINE size_t total(const int32_t *sizes, int width) {
  size_t sum = 0;
  for (int k = 0; k < width; k++) sum += sizes[k];
  return sum;
}

int32_t KERNEL(findIllegal)(int32_t *x, uint8_t *mask, uint8_t *phase, int32_t ready, int32_t *sizes, int32_t width,
                            int32_t from, int32_t to) {
  const size_t maskWidth = total(sizes, width);
  for (int n = from; n < to; n++) {
    if (phase[n] != ready) continue;
    const uint8_t *at = mask + n * maskWidth;
    for (int k = 0; k < width; at += sizes[k++]) {
      if (at[x[n * width + k]] == 0) return n * width + k;
    }
  }
  return -1;
}

int32_t KERNEL(findStuck)(uint8_t *mask, uint8_t *phase, int32_t ready, int32_t *sizes, int32_t width, int32_t from,
                          int32_t to) {
  const size_t maskWidth = total(sizes, width);
  for (int n = from; n < to; n++) {
    if (phase[n] != ready) continue;
    const uint8_t *at = mask + n * maskWidth;
    for (int k = 0; k < width; k++) {
      bool legal = false;
      KEPT_LOOP for (const uint8_t *end = at + sizes[k]; at < end; at++) legal |= *at != 0;
      if (!legal) return n;
    }
  }
  return -1;
}

/** NaN stays NaN. */
INLINE float clip(float x, float low, float high) {
  return __builtin_elementwise_minimum(__builtin_elementwise_maximum(x, low), high);
}

void KERNEL(clipRows)(float *restrict clipped, float *restrict x, float *restrict low, float *restrict high, int32_t width,
                      int32_t from, int32_t to) {
  if (width == 1) {
    for (int n = from; n < to; n++) clipped[n] = clip(x[n], *low, *high);
    return;
  }
  const int end = to * width;
  for (int i = from * width, k = 0; i < end; i++) {
    clipped[i] = clip(x[i], low[k], high[k]);
    k = k + 1 == width ? 0 : k + 1;
  }
}
