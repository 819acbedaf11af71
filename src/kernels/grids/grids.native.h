/** What games on a grid of 10 × 10 share, in WebAssembly alone. */
#ifndef COLONNADE_GRIDS
#define COLONNADE_GRIDS

#include "../fours.native.h"
#include "../philox.native.h"

#define SIDE 10
#define LAST 9
/** As in random.ts. */
#define STREAM_RESET 0
#define STREAM_STEP 1
/** The upper 24 bits of a word, which are a number in [0, 1). */
#define UPPER(word) ((int)((word) >> 8))

/** A function that is not copied to its calls, which keeps the module small. */
#define SMALL static __attribute__((noinline))

/** Clears an observation of a multiple of 16 bytes. */
INLINE void clear_bytes(uint8_t *at, int count) {
  UNROLLED for (int i = 0; i < count; i += 16) wasm_v128_store(at + i, wasm_i32x4_splat(0));
}

/** The words of the next lane first. */
INLINE uints rotated(uints words) { return __builtin_shufflevector(words, words, 1, 2, 3, 0); }

/** The first of a lane's words in a draw. Once in the module, since it is long. */
SMALL uints first_words(uints draws, uints episodes, uints lanes, uints streams, int32_t key0, int32_t key1) {
  return philox4((struct words){{draws, episodes, lanes, streams}}, key0, key1).of[0];
}

/** The first word of draw `draw[n]` in lanes n to n + 3, of which only those before `to` are there. */
INLINE uints draw4(const uint32_t *lane, const uint32_t *episode, const int32_t *draw, uint32_t stream, int n, int to,
                   int32_t key0, int32_t key1) {
  uints draws = {0}, episodes = {0}, lanes = {0};
  UNROLLED for (int l = 0; l < 4; l++) {
    const int row = n + l < to ? n + l : n;
    draws[l] = draw[row];
    episodes[l] = episode[row];
    lanes[l] = lane[row];
  }
  return first_words(draws, episodes, lanes, (uints){stream, stream, stream, stream}, key0, key1);
}

#endif
