/** Checking bytes, with the plain twin's bits (`bytes.ts`): what is right is passed over a vector at a time. */
#include "../vector.native.h"

#if defined __wasm__
typedef v128_t block;
#define load_block(at) wasm_v128_load(at)
#define least_bytes(a, b) wasm_u8x16_min(a, b)
#define most_bytes(a, b) wasm_u8x16_max(a, b)
#elif defined __AVX512BW__
typedef __m512i block;
#define load_block(at) _mm512_loadu_si512(at)
#define least_bytes(a, b) _mm512_min_epu8(a, b)
#define most_bytes(a, b) _mm512_max_epu8(a, b)
#elif defined __x86_64__
typedef __m256i block;
#define load_block(at) _mm256_loadu_si256((const __m256i *)(at))
#define least_bytes(a, b) _mm256_min_epu8(a, b)
#define most_bytes(a, b) _mm256_max_epu8(a, b)
#else
typedef uint8x16_t block;
#define load_block(at) vld1q_u8(at)
#define least_bytes(a, b) vminq_u8(a, b)
#define most_bytes(a, b) vmaxq_u8(a, b)
#endif
#define SIZE ((int)sizeof(block))
typedef uint64_t block_longs __attribute__((vector_size(sizeof(block))));

/**
 * Whether a byte of some rows, of at least `SIZE` each, is not within the bounds of its dimension: those are loaded once for all.
 * `fromZero`: all lower bounds are 0, so no byte is below.
 */
INLINE bool has_beyond(const uint8_t *x, const uint8_t *low, const uint8_t *high, int width, const int rows,
                       const bool fromZero) {
  block_longs beyond = {0};
  for (int k = 0; k < width; k += SIZE) {
    const int at = least(k, width - SIZE); // The end of a row, of which some may have been seen.
    block lowest = load_block(x + at), highest = lowest;
    UNROLLED for (int row = 1; row < rows; row++) {
      const block seen = load_block(x + row * width + at);
      if (!fromZero) lowest = least_bytes(lowest, seen);
      highest = most_bytes(highest, seen);
    }
    const block lows = load_block(low + at), highs = load_block(high + at);
    if (!fromZero) beyond |= (block_longs)least_bytes(lowest, lows) ^ (block_longs)lows;
    beyond |= (block_longs)most_bytes(highest, highs) ^ (block_longs)highs;
  }
  uint64_t any = 0;
  UNROLLED for (int l = 0; l < SIZE / 8; l++) any |= beyond[l];
  return any != 0;
}

WORTH(findByteBeyond, width, 64)
WORTH(findByteBeyond, to - from, 16)
int32_t KERNEL(findByteBeyond)(uint8_t *x, uint8_t *low, uint8_t *high, int32_t width, int32_t from, int32_t to) {
  int n = from;
  if (width >= SIZE) {
    if (n + 8 <= to) {
      int zeros = 0;
      while (zeros < width && low[zeros] == 0) zeros++;
      if (zeros == width) {
        while (n + 8 <= to && !has_beyond(x + n * width, low, high, width, 8, true)) n += 8;
      } else {
        while (n + 8 <= to && !has_beyond(x + n * width, low, high, width, 8, false)) n += 8;
      }
    }
    while (n < to && !has_beyond(x + n * width, low, high, width, 1, false)) n++;
  }
  for (int i = n * width; n < to; n++) {
    for (int k = 0; k < width; k++, i++) {
      if (x[i] < low[k] || x[i] > high[k]) return i;
    }
  }
  return -1;
}
