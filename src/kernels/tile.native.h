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

/** `rows` and `vectors` are constants where it is called; `partial`: of the last vector only `last` is there. */
INLINE void tile(const int rows, const int vectors, const bool partial, lanes last, struct sums sums, const float *a,
                 size_t a_row, size_t a_step, const float *b, size_t b_row, int depth) {
  vec c[TILE_ROWS][2];
  const int end = vectors - 1;
  for (int r = 0; r < rows; r++) {
    for (int v = 0; v < vectors; v++) {
      const float *at = sums.from + r * sums.from_row + v * WIDTH;
      if (sums.from == NULL) c[r][v] = splat(0);
      else c[r][v] = partial && v == end ? load_part(at, last) : load(at);
    }
  }
  for (int k = 0; k < depth; k++) {
    vec row[2];
    for (int v = 0; v < vectors; v++) {
      row[v] = partial && v == end ? load_part(b + v * WIDTH, last) : load(b + v * WIDTH);
    }
    for (int r = 0; r < rows; r++) {
      const vec e = splat(a[r * a_row]);
      for (int v = 0; v < vectors; v++) c[r][v] = madd(e, row[v], c[r][v]);
    }
    a += a_step;
    b += b_row;
  }
  for (int r = 0; r < rows; r++) {
    for (int v = 0; v < vectors; v++) {
      float *at = sums.c + r * sums.c_row + v * WIDTH;
      if (partial && v == end) store_part(at, c[r][v], last);
      else store(at, c[r][v]);
    }
  }
}

/** All rows of one or two vectors of columns. */
INLINE void panel(const int vectors, const bool partial, lanes last, struct sums sums, const float *a, size_t a_row,
                  size_t a_step, const float *b, size_t b_row, int rows, int depth) {
  while (rows > 0) {
    const int taken = rows >= TILE_ROWS ? TILE_ROWS : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
    if (taken == TILE_ROWS) tile(TILE_ROWS, vectors, partial, last, sums, a, a_row, a_step, b, b_row, depth);
    else if (taken == 4) tile(4, vectors, partial, last, sums, a, a_row, a_step, b, b_row, depth);
    else if (taken == 2) tile(2, vectors, partial, last, sums, a, a_row, a_step, b, b_row, depth);
    else tile(1, vectors, partial, last, sums, a, a_row, a_step, b, b_row, depth);
    sums.c += taken * sums.c_row;
    if (sums.from != NULL) sums.from += taken * sums.from_row;
    a += taken * a_row;
    rows -= taken;
  }
}

INLINE void product(struct sums sums, const float *a, size_t a_row, size_t a_step, const float *b, size_t b_row, int rows,
                    int columns, int depth) {
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

/** Where each row of A is contiguous, `a_row` from the next. */
static __attribute__((noinline)) void multiply(struct sums sums, const float *a, size_t a_row, const float *b, size_t b_row,
                                               int rows, int columns, int depth) {
  product(sums, a, a_row, 1, b, b_row, rows, columns, depth);
}

/** Where the rows of A stand side by side, and `a_step` is the way from one depth to the next. */
static __attribute__((noinline)) void multiply_beside(struct sums sums, const float *a, size_t a_step, const float *b,
                                                      size_t b_row, int rows, int columns, int depth) {
  product(sums, a, 1, a_step, b, b_row, rows, columns, depth);
}

#endif
