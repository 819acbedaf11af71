/** What games on a grid of 10 × 10 share. */
#ifndef COLONNADE_GRIDS
#define COLONNADE_GRIDS

#include "../philox.native.h"

#define SIDE 10
#define LAST 9
/** As in random.ts. */
#define STREAM_RESET 0
#define STREAM_STEP 1
/** The upper 24 bits of a word, which are a number in [0, 1). */
#define UPPER(word) ((uint32_t)(word) >> 8)
/** Whether a word's number is below 1 / 2, and below 1 / 3 in f64. */
#define IN_HALF(word) ((uint32_t)(word) < 0x80000000)
#define IN_THIRD(word) (UPPER(word) < 5592406)

/** A function that is not copied to its calls, which keeps the module small. */
#define SMALL static __attribute__((noinline))

/** Bytes that are stored at once, anywhere. */
#ifdef __wasm__
typedef uint8_t bytes __attribute__((vector_size(16), aligned(1)));
#else
typedef uint8_t bytes __attribute__((vector_size(64), aligned(1)));
#endif
typedef uint8_t sixteen __attribute__((vector_size(16), aligned(1)));

/** A number of the state, which may come from a stranger's checkpoint: what is outside of a game's own range would be a place outside of its columns. */
INLINE int within(int lowest, int value, int highest) {
  return value < lowest ? lowest : value > highest ? highest : value;
}

/** Clears an observation of `count` bytes, a constant of at least 64. */
INLINE void clear_bytes(uint8_t *at, const int count) {
  const int size = sizeof(bytes);
  UNROLLED for (int i = 0; i + size <= count; i += size) *(bytes *)(at + i) = (bytes){0};
  if (count % size > 0) *(bytes *)(at + count - size) = (bytes){0};
}

/** Eight bytes as one number, the first the lowest. */
INLINE uint64_t load8(const uint8_t *at) {
  uint64_t eight;
  memcpy(&eight, at, sizeof eight);
  return eight;
}
INLINE void store8(uint8_t *at, uint64_t eight) { memcpy(at, &eight, sizeof eight); }
/** The same byte eight times. */
#define EIGHT(byte) ((byte) * 0x0101010101010101ull)
/** 1 in each byte that is at least `least`; all are below 128. */
INLINE uint64_t at_least8(uint64_t eight, int least) { return (eight + EIGHT(128 - least)) >> 7 & EIGHT(1); }
/** All bits of the bytes that are 1, and none of those that are 0. */
INLINE uint64_t masks8(uint64_t flags) { return flags * 255; }

/** The probability of a sticky action, as a bound of a word's upper bits. */
INLINE uint32_t bound_of(double probability) { return (uint32_t)__builtin_ceil(probability * 0x1p24); }

/** The words of the next lane first. */
INLINE many rotated(many words) {
#if MANY == 16
  return __builtin_shufflevector(words, words, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0);
#else
  return __builtin_shufflevector(words, words, 1, 2, 3, 4, 5, 6, 7, 0);
#endif
}
INLINE struct many_words rotated_words(struct many_words words) {
  return (struct many_words){{rotated(words.of[0]), rotated(words.of[1]), rotated(words.of[2]), rotated(words.of[3])}};
}
INLINE many all_same(uint32_t word) { return (many){0} + word; }

/** The words of draw `steps · draw[n]` in lanes n to n + MANY − 1, of which only those before `to` are there. */
INLINE struct many_words draw_many(const uint32_t *lane, const uint32_t *episode, const int32_t *draw, uint32_t steps,
                                   int n, int to, uint32_t key0, uint32_t key1) {
  many draws = {0}, episodes = {0}, lanes = {0};
  if (n + MANY <= to) {
    memcpy(&draws, draw + n, sizeof draws);
    memcpy(&episodes, episode + n, sizeof episodes);
    memcpy(&lanes, lane + n, sizeof lanes);
  } else {
    UNROLLED for (int l = 0; l < MANY; l++) {
      const int row = n + l < to ? n + l : n;
      draws[l] = draw[row];
      episodes[l] = episode[row];
      lanes[l] = lane[row];
    }
  }
  return philox_many((struct many_words){{draws * steps, episodes, lanes, all_same(STREAM_STEP)}}, key0, key1);
}

/** The words of a reset's first draw in the lanes of rows[i … i + MANY), of which only those before `count` are there. */
INLINE struct many_words draw_resets(const uint32_t *lane, const uint32_t *episode, const uint32_t *rows, int i, int count,
                                     uint32_t key0, uint32_t key1) {
  many episodes = {0}, lanes = {0};
  UNROLLED for (int l = 0; l < MANY; l++) {
    const size_t row = rows[i + l < count ? i + l : i];
    episodes[l] = episode[row];
    lanes[l] = lane[row];
  }
  return philox_many((struct many_words){{(many){0}, episodes, lanes, all_same(STREAM_RESET)}}, key0, key1);
}

/** Draws `draw` and `draw + 1` of one lane: word w of the first is `of[w][0]`, of the second `of[w][1]`. */
INLINE struct words next_draws(uint32_t lane, uint32_t episode, uint32_t draw, uint32_t stream, uint32_t key0,
                               uint32_t key1) {
  const uints draws = {draw, draw + 1, draw, draw}, episodes = {episode, episode, episode, episode};
  const uints lanes = {lane, lane, lane, lane}, streams = {stream, stream, stream, stream};
  return philox4((struct words){{draws, episodes, lanes, streams}}, key0, key1);
}

#endif
