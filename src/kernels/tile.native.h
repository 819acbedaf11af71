/**
 * The register block of all matrix products: C = from + A · B, one loop over the depth whose sums stay in registers. Strides are
 * in elements: (row, k) of A is at a + row · a_row + k · a_step, (k, j) of B at b + k · b_row + j. An element of C is one
 * sum in rising order of the depth, whatever the block: a row's result depends on that row alone, and on no level.
 */
#ifndef COLONNADE_TILE
#define COLONNADE_TILE

#include "vector.native.h"

/** C, and what its sums begin with: NULL for zeros; the rows of both are as far apart as their strides say. */
struct sums {
  float *c;
  size_t c_row;
  const float *from;
  size_t from_row;
};

/** Sums that the registers hold, and vectors of one row at most. */
#define TILE_SUMS (2 * TILE_ROWS)
#define ROW_VECTORS 8

/** `rows` and `vectors` are constants where it is called, their product at most TILE_SUMS; `partial`: of the last vector only `last` is there. */
INLINE void tile(const size_t rows, const size_t vectors, const bool partial, lanes last, struct sums sums, const float *a,
                 size_t a_row, size_t a_step, const float *b, size_t b_row, int depth) {
  vec c[TILE_SUMS];
  const size_t end = vectors - 1;
  UNROLLED for (size_t r = 0; r < rows; r++) {
    UNROLLED for (size_t v = 0; v < vectors; v++) {
      if (sums.from == NULL) c[r * vectors + v] = splat(0);
      else {
        const float *at = sums.from + r * sums.from_row + v * WIDTH;
        c[r * vectors + v] = partial && v == end ? load_part(at, last) : load(at);
      }
    }
  }
  for (int k = 0; k < depth; k++) {
    vec row[ROW_VECTORS];
    if (rows > 1) {
      UNROLLED for (size_t v = 0; v < vectors; v++) {
        row[v] = partial && v == end ? load_part(b + v * WIDTH, last) : load(b + v * WIDTH);
        IN_ORDER(row[v]);
      }
    }
    UNROLLED for (size_t r = 0; r < rows; r++) {
      vec e = splat(a[r * a_row]);
      IN_ORDER(e);
      UNROLLED for (size_t v = 0; v < vectors; v++) {
        if (rows == 1) row[v] = partial && v == end ? load_part(b + v * WIDTH, last) : load(b + v * WIDTH);
        c[r * vectors + v] = madd(e, row[v], c[r * vectors + v]);

      }
    }
    a += a_step;
    b += b_row;
  }
  UNROLLED for (size_t r = 0; r < rows; r++) {
    UNROLLED for (size_t v = 0; v < vectors; v++) {
      float *at = sums.c + r * sums.c_row + v * WIDTH;
      if (partial && v == end) store_part(at, c[r * vectors + v], last);
      else store(at, c[r * vectors + v]);
    }
  }
}

/** Not laid into what calls it, and in a file that does not call it, left out. */
#define APART static __attribute__((noinline, unused))
/** Apart, and of this file: the linker of a module keeps one of those that its sources have. */
#ifdef __wasm__
#define ONCE __attribute__((weak, noinline, visibility("hidden")))
#else
#define ONCE APART
#endif

#ifdef __wasm__

/** Each block is a function by itself: within a larger one, V8 runs out of registers. */
#define DEFINE_BLOCK(rows, vectors)                                                                                            \
  ONCE void block_##rows##_##vectors(float *c, size_t c_row, const float *from, size_t from_row, const float *a,       \
                                      size_t a_row, size_t a_step, const float *b, size_t b_row, int depth) {           \
    tile(rows, vectors, false, 0, (struct sums){c, c_row, from, from_row}, a, a_row, a_step, b, b_row, depth);          \
  }                                                                                                                     \
  ONCE void part_##rows##_##vectors(lanes last, float *c, size_t c_row, const float *from, size_t from_row,            \
                                     const float *a, size_t a_row, size_t a_step, const float *b, size_t b_row,         \
                                     int depth) {                                                                       \
    tile(rows, vectors, true, last, (struct sums){c, c_row, from, from_row}, a, a_row, a_step, b, b_row, depth);        \
  }
#define CALL_BLOCK(block_rows, block_vectors)                                                                                 \
  if (rows == block_rows && vectors == block_vectors) {                                                                 \
    if (partial) part_##block_rows##_##block_vectors(last, s.c, s.c_row, s.from, s.from_row, a, a_row, a_step, b, b_row, depth); \
    else block_##block_rows##_##block_vectors(s.c, s.c_row, s.from, s.from_row, a, a_row, a_step, b, b_row, depth);     \
  }
#define BLOCKS(F) F(6, 2) F(4, 2) F(2, 2) F(1, 2) F(6, 1) F(4, 1) F(2, 1) F(1, 1) F(1, 4) F(1, 8)
BLOCKS(DEFINE_BLOCK)
/** Six rows that stand side by side. */
ONCE void block_beside(float *c, size_t c_row, const float *from, size_t from_row, const float *a, size_t a_step,
                        const float *b, size_t b_row, int depth) {
  tile(6, 2, false, 0, (struct sums){c, c_row, from, from_row}, a, 1, a_step, b, b_row, depth);
}

INLINE void block(const size_t rows, const size_t vectors, const bool partial, lanes last, struct sums s, const float *a,
                  size_t a_row, size_t a_step, const float *b, size_t b_row, int depth) {
  if (rows == 6 && vectors == 2 && !partial && __builtin_constant_p(a_row) && a_row == 1) {
    block_beside(s.c, s.c_row, s.from, s.from_row, a, a_step, b, b_row, depth);
    return;
  }
  BLOCKS(CALL_BLOCK)
}

/** Whether a block of rows takes all columns before the next, as where C lies in a cache; else columns take all rows. */
#define ROWS_FIRST true
/** Up to this many rows are taken one by one. */
#define SINGLE_ROWS 3
/** Structures that are handed over by value lie on the stack, which there is not. */
#define SHALLOW INLINE

#else
#define block tile
#define ROWS_FIRST false
#define SINGLE_ROWS 1
#define SHALLOW APART
#endif

/** From this depth on, C of the next block is fetched while a block is summed. */
#define FETCHED_DEPTH 128

/** All rows of one or two vectors of columns. */
INLINE void panel(const int vectors, const bool partial, lanes last, struct sums sums, const float *a, size_t a_row,
                  size_t a_step, const float *b, size_t b_row, int rows, int depth) {
  while (rows > 0) {
    const int taken = rows >= TILE_ROWS ? TILE_ROWS : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
    if (sums.from == sums.c && depth >= FETCHED_DEPTH && rows > taken) {
      for (int r = taken; r < least(rows, taken + TILE_ROWS); r++) {
        for (int v = 0; v < vectors; v++) __builtin_prefetch(sums.c + r * sums.c_row + v * WIDTH, 1);
      }
    }
    if (taken == TILE_ROWS) block(TILE_ROWS, vectors, partial, last, sums, a, a_row, a_step, b, b_row, depth);
    else if (taken == 4) block(4, vectors, partial, last, sums, a, a_row, a_step, b, b_row, depth);
    else if (taken == 2) block(2, vectors, partial, last, sums, a, a_row, a_step, b, b_row, depth);
    else block(1, vectors, partial, last, sums, a, a_row, a_step, b, b_row, depth);
    sums.c += taken * sums.c_row;
    if (sums.from != NULL) sums.from += taken * sums.from_row;
    a += taken * a_row;
    rows -= taken;
  }
}

INLINE void product(struct sums sums, const float *a, size_t a_row, size_t a_step, const float *b, size_t b_row, int rows,
                    int columns, int depth) {
  // In one row alone each addition would wait for the one before: more of its sums run side by side.
  while (rows <= SINGLE_ROWS && columns >= 4 * WIDTH) {
    const int taken = columns >= ROW_VECTORS * WIDTH ? ROW_VECTORS * WIDTH : 4 * WIDTH;
    for (int r = 0; r < rows; r++) {
      const struct sums row = {sums.c + r * sums.c_row, 0, sums.from == NULL ? NULL : sums.from + r * sums.from_row, 0};
      const float *const of = a + r * a_row;
      if (taken == ROW_VECTORS * WIDTH) block(1, ROW_VECTORS, false, first_lanes(0), row, of, a_row, a_step, b, b_row, depth);
      else block(1, 4, false, first_lanes(0), row, of, a_row, a_step, b, b_row, depth);
    }
    sums.c += taken;
    if (sums.from != NULL) sums.from += taken;
    b += taken;
    columns -= taken;
  }
  while (columns > 0) {
    const int taken = least(columns, 2 * WIDTH);
    const int over = taken % WIDTH;
    const lanes last = first_lanes(over);
    if (taken == 2 * WIDTH) panel(2, false, last, sums, a, a_row, a_step, b, b_row, rows, depth);
    else if (taken > WIDTH) panel(2, true, last, sums, a, a_row, a_step, b, b_row, rows, depth);
    else if (taken == WIDTH) panel(1, false, last, sums, a, a_row, a_step, b, b_row, rows, depth);
    else panel(1, true, last, sums, a, a_row, a_step, b, b_row, rows, depth);
    sums.c += taken;
    if (sums.from != NULL) sums.from += taken;
    b += taken;
    columns -= taken;
  }
}

/** Products of at most this depth take less time than the way to C and back. */
#define SHALLOW_DEPTH 16

/** A block of rows after the other, all columns of each: for a shallow product, so that it runs through C in the order of memory. */
SHALLOW void multiply_shallow(struct sums sums, const float *a, size_t a_row, size_t a_step, const float *b, size_t b_row,
                            int rows, int columns, int depth) {
  for (int left = rows; left > 0; left -= TILE_ROWS) {
    product(sums, a, a_row, a_step, b, b_row, least(left, TILE_ROWS), columns, depth);
    sums.c += TILE_ROWS * sums.c_row;
    if (sums.from != NULL) sums.from += TILE_ROWS * sums.from_row;
    a += TILE_ROWS * a_row;
  }
}

ONCE void multiply_at(float *c, size_t c_row, const float *from, size_t from_row, const float *a, size_t a_row,
                       const float *b, size_t b_row, int rows, int columns, int depth) {
  const struct sums sums = {c, c_row, from, from_row};
  if (ROWS_FIRST) multiply_shallow(sums, a, a_row, 1, b, b_row, rows, columns, depth);
  else product(sums, a, a_row, 1, b, b_row, rows, columns, depth);
}

/** Where each row of A is contiguous, `a_row` from the next. */
INLINE void multiply(struct sums sums, const float *a, size_t a_row, const float *b, size_t b_row, int rows, int columns,
                     int depth) {
  multiply_at(sums.c, sums.c_row, sums.from, sums.from_row, a, a_row, b, b_row, rows, columns, depth);
}

ONCE void multiply_beside_at(float *c, size_t c_row, const float *from, size_t from_row, const float *a, size_t a_step,
                              const float *b, size_t b_row, int rows, int columns, int depth) {
  const struct sums sums = {c, c_row, from, from_row};
  if (ROWS_FIRST) multiply_shallow(sums, a, 1, a_step, b, b_row, rows, columns, depth);
  else product(sums, a, 1, a_step, b, b_row, rows, columns, depth);
}

/** Where the rows of A stand side by side, and `a_step` is the way from one depth to the next. */
INLINE void multiply_beside(struct sums sums, const float *a, size_t a_step, const float *b, size_t b_row, int rows,
                            int columns, int depth) {
  multiply_beside_at(sums.c, sums.c_row, sums.from, sums.from_row, a, a_step, b, b_row, rows, columns, depth);
}

/** Four columns of WIDTH rows, which begin at `at`: element r of columns[k] is at[r · row + k]. */
INLINE void load_columns(vec columns[4], const float *at, size_t row) {
  const vec a = load_fours(at, row), b = load_fours(at + row, row);
  const vec c = load_fours(at + 2 * row, row), d = load_fours(at + 3 * row, row);
  const vec ab = mix_low(a, b), cd = mix_low(c, d), ef = mix_high(a, b), gh = mix_high(c, d);
  columns[0] = join_low(ab, cd);
  columns[1] = join_high(ab, cd);
  columns[2] = join_low(ef, gh);
  columns[3] = join_high(ef, gh);
}

/** One column of WIDTH rows. */
INLINE vec load_column(const float *at, size_t row) {
  vec v = splat(0);
  UNROLLED for (size_t r = 0; r < WIDTH; r++) v[r] = at[r * row];
  return v;
}

/** into (width × height) = from (height × width), transposed; the rows of each are as far apart as is said. */
ONCE void transpose(float *restrict into, size_t into_row, const float *restrict from, size_t from_row, int height,
                     int width) {
  int i = 0;
  for (; i + WIDTH <= height; i += WIDTH) {
    const float *at = from + i * from_row;
    float *to = into + i;
    int j = 0;
    for (; j + 4 <= width; j += 4, at += 4, to += 4 * into_row) {
      vec columns[4];
      load_columns(columns, at, from_row);
      for (int k = 0; k < 4; k++) store(to + k * into_row, columns[k]);
    }
    for (; j < width; j++, at++, to += into_row) {
      for (int r = 0; r < WIDTH; r++) to[r] = at[r * from_row];
    }
  }
  for (; i + 4 <= height; i += 4) {
    const float *at = from + i * from_row;
    float *to = into + i;
    int j = 0;
    for (; j + 4 <= width; j += 4, at += 4, to += 4 * into_row) {
      const four a = *(const four *)at, b = *(const four *)(at + from_row);
      const four c = *(const four *)(at + 2 * from_row), d = *(const four *)(at + 3 * from_row);
      const four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
      const four ef = __builtin_shufflevector(a, b, 2, 6, 3, 7), gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
      *(four *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
      *(four *)(to + into_row) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
      *(four *)(to + 2 * into_row) = __builtin_shufflevector(ef, gh, 0, 1, 4, 5);
      *(four *)(to + 3 * into_row) = __builtin_shufflevector(ef, gh, 2, 3, 6, 7);
    }
    for (; j < width; j++, at++, to += into_row) {
      for (int r = 0; r < 4; r++) to[r] = at[r * from_row];
    }
  }
  for (; i < height; i++) {
    for (int j = 0; j < width; j++) into[j * into_row + i] = from[i * from_row + j];
  }
}

/** Columns of a panel: as wide as a register block. */
#define PANEL (2 * WIDTH)
/** Depth of a panel, which stays in the first-level cache while rows run over it. */
#define PANEL_DEPTH 256

/** Columns of B, at most PANEL, as a panel: row after row of PANEL elements each. `transposed`: rows of Bᵀ instead. */
ONCE void pack_panel(float *restrict panel, const float *restrict b, size_t b_row, bool transposed, int columns, int depth) {
  if (transposed) transpose(panel, PANEL, b, b_row, columns, depth);
  else if (columns == PANEL) {
    for (int k = 0; k < depth; k++, panel += PANEL, b += b_row) {
      const vec first = load(b), second = load(b + WIDTH);
      store(panel, first);
      store(panel + WIDTH, second);
    }
  } else {
    for (int k = 0; k < depth; k++) memcpy(panel + k * PANEL, b + k * b_row, columns * sizeof *b);
  }
}

/**
 * C = from + A · B by panels of B, each of which is copied just before all rows run over it: for a B that is large, whose rows lie
 * far apart, or with `transposed` for a `b` that is Bᵀ. Rows of A are `a_row` apart, or with `beside` depths are, and rows side by side.
 */
INLINE void multiply_panels(struct sums sums, const float *a, size_t a_row, const bool beside, const float *b, size_t b_row,
                            const bool transposed, int rows, int columns, int depth) {
  float panel[PANEL * PANEL_DEPTH] __attribute__((aligned(64)));
  for (int k = 0; k == 0 || k < depth; k += PANEL_DEPTH) {
    const int part = least(depth - k, PANEL_DEPTH);
    const float *const left = a + k * (beside ? a_row : 1);
    for (int j = 0; j < columns; j += PANEL) {
      const int width = least(columns - j, PANEL);
      pack_panel(panel, transposed ? b + j * b_row + k : b + k * b_row + j, b_row, transposed, width, part);
      struct sums some = {sums.c + j, sums.c_row, sums.c + j, sums.c_row};
      if (k == 0) some = (struct sums){sums.c + j, sums.c_row, sums.from == NULL ? NULL : sums.from + j, sums.from_row};
      if (beside) multiply_beside(some, left, a_row, panel, PANEL, rows, width, part);
      else multiply(some, left, a_row, panel, PANEL, rows, width, part);
    }
  }
}

#endif
