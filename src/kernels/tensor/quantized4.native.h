/** How weights in 4 bits lie, as the plain twin `quantized4.ts` says. */
#ifndef COLONNADE_QUANTIZED4
#define COLONNADE_QUANTIZED4

#include "matmul.native.h"

/** Neighbors of a row that share a scale. */
#define BLOCK 32
/** Rows that lie together, bytes of their nibbles in a block, and with the scales behind them. */
#define TOGETHER 16
#define NIBBLE_BYTES (16 * TOGETHER)
#define BLOCK_BYTES (18 * TOGETHER)
/** Vectors of rows that lie together. */
#define VECTORS (TOGETHER / WIDTH)
/** Bytes that the processor fetches from memory at once. */
#define LINE 64

/** Whole numbers of four bytes, as many as a vector has floats. */
typedef int32_t words __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t bits __attribute__((vector_size(4 * WIDTH)));
typedef uint16_t halves __attribute__((vector_size(2 * WIDTH)));

/** Four bytes of each of WIDTH rows; `word`: which of the four of a row in a block. */
INLINE bits load_nibbles(const uint8_t *block, int vector, int word) {
  bits some;
  memcpy(&some, block + (word * TOGETHER + vector * WIDTH) * 4, sizeof some);
  return some;
}

/** The scales of WIDTH rows: an f16's exponent and fraction, moved to those of an f32, are 2^112 times too small. */
INLINE vec load_scales(const uint8_t *block, int vector) {
  halves some;
  memcpy(&some, block + NIBBLE_BYTES + vector * sizeof some, sizeof some);
  const bits wide = __builtin_convertvector(some, bits);
  const bits moved = (wide & 0x8000) << 16 | (wide & 0x7fff) << 13;
  return (vec)moved * splat(0x1p112f);
}

/** The scale of one row. */
INLINE float load_scale(const uint8_t *block, int lane) {
  uint16_t half;
  memcpy(&half, block + NIBBLE_BYTES + lane * sizeof half, sizeof half);
  const uint32_t moved = (uint32_t)(half & 0x8000) << 16 | (uint32_t)(half & 0x7fff) << 13;
  float scale;
  memcpy(&scale, &moved, sizeof scale);
  return scale * 0x1p112f;
}

/** What lies a group of rows behind a block, in the order of memory. */
INLINE void fetch_behind(const uint8_t *block, size_t group_bytes) {
  for (int i = 0; i < BLOCK_BYTES; i += LINE) __builtin_prefetch(block + group_bytes + i);
}

#endif
