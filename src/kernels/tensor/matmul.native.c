/**
 * Matrix products of any size in vectors of the machine; the plain twin `matmul.ts` says what is computed.
 *
 * B is copied in parts of at most 256 × 512 elements into panels as wide as a register block, each of which
 * stays in the first-level cache while the rows run over it. Few rows take B where it lies, and turn a transposed one in registers.
 * A transposed A is laid in rows. An element of C is one f32 sum in rising order of the depth, whatever the block that it falls in.
 */
#include "matmul.native.h"

/** Depth and columns of the part of B in the panels. */
#define DEPTH PANEL_DEPTH
#define COLUMNS 512
/** Rows of A that run over every panel of the part before the next rows: they stay in the second-level cache. */
#define ROWS 96
/** From this many rows on, B is copied. */
#ifdef __wasm__
#define COPIED_ROWS 8
#else
#define COPIED_ROWS 64
#endif
/** Up to this many rows, as many as registers hold the sums of, a transposed B is turned in registers: beyond it a copy pays. */
#if WIDTH == 16
#define TURNED_ROWS 16
#else
#define TURNED_ROWS 8
#endif
/** Floats that the processor fetches from memory at once. */
#define LINE 16

/** A part of B in panels: row after row of PANEL elements each. */
static void pack(float *panels, const float *b, int columns, int depth, size_t row, bool transposed) {
  for (int j = 0; j < columns; j += PANEL, panels += (size_t)PANEL * depth) {
    pack_panel(panels, transposed ? b + j * row : b + j, row, transposed, least(columns - j, PANEL), depth);
  }
}

/**
 * C = from + A · Bᵀ for one vector of columns and `rows` rows, a constant where it is called, of which `there` are there: rows of
 * B as they lie, four of the depth at a time. More rows of B side by side would fall into the same lines of the first-level cache
 * where they are a power of two apart. Meanwhile the rows of B behind them are fetched, in the order of memory: nothing else
 * foresees them, and one row of A alone waits for memory most of the time.
 */
INLINE void turned_tile(const size_t rows, const size_t vectors, int there, struct sums sums, const float *a, const float *b,
                        int depth) {
  vec c[TURNED_ROWS];
  const float *row[TURNED_ROWS];
  const size_t b_row = depth;
  const float *const next = b + vectors * WIDTH * b_row;
  UNROLLED for (size_t r = 0; r < rows; r++) {
    const int at = least(r, there - 1);
    row[r] = a + (size_t)at * depth;
    UNROLLED for (size_t v = 0; v < vectors; v++) {
      c[r * vectors + v] = sums.from == NULL ? splat(0) : load(sums.from + at * sums.from_row + v * WIDTH);
    }
  }
  int k = 0;
  for (; k + 4 <= depth; k += 4) {
    UNROLLED for (size_t v = 0; v < vectors; v++) {
      vec columns[4];
      for (int i = 0; i < 4 * WIDTH; i += LINE) __builtin_prefetch(next + (v * WIDTH) * b_row + WIDTH * k + i);
      load_columns(columns, b + v * WIDTH * b_row + k, b_row);
      UNROLLED for (size_t step = 0; step < 4; step++) {
        UNROLLED for (size_t r = 0; r < rows; r++) {
          c[r * vectors + v] = madd(splat(row[r][k + step]), columns[step], c[r * vectors + v]);
        }
      }
    }
  }
  for (; k < depth; k++) {
    UNROLLED for (size_t v = 0; v < vectors; v++) {
      const vec column = load_column(b + v * WIDTH * b_row + k, b_row);
      UNROLLED for (size_t r = 0; r < rows; r++) c[r * vectors + v] = madd(splat(row[r][k]), column, c[r * vectors + v]);
    }
  }
  UNROLLED for (size_t r = 0; r < rows; r++) {
    if (r >= (size_t)there) continue;
    UNROLLED for (size_t v = 0; v < vectors; v++) store(sums.c + r * sums.c_row + v * WIDTH, c[r * vectors + v]);
  }
}

/** All whole vectors of columns, some at once, for `rows` rows of which `there` are there. */
#define TURNED(rows, vectors)                                                                                           \
  APART void turned_##rows(int there, float *c, size_t c_row, const float *from, size_t from_row, const float *a,       \
                           const float *b, int columns, int depth) {                                                    \
    for (int j = 0; j < columns;) {                                                                                     \
      const struct sums sums = {c + j, c_row, from == NULL ? NULL : from + j, from_row};                                \
      const float *const at = b + (size_t)j * depth;                                                                    \
      const bool together = columns - j >= vectors * WIDTH;                                                             \
      if (together) turned_tile(rows, vectors, there, sums, a, at, depth);                                              \
      else turned_tile(rows, 1, there, sums, a, at, depth);                                                             \
      j += together ? vectors * WIDTH : WIDTH;                                                                          \
    }                                                                                                                   \
  }
#ifdef __wasm__
TURNED(1, 4)
TURNED(4, 2)
#else
TURNED(1, 1)
TURNED(4, 1)
#endif
TURNED(8, 1)
#if TURNED_ROWS > 8
TURNED(12, 1)
TURNED(16, 1)
#endif

/** C = from + A · Bᵀ for up to TURNED_ROWS rows and whole vectors of columns. */
INLINE void multiply_turned(struct sums sums, const float *a, const float *b, int rows, int columns, int depth) {
#if TURNED_ROWS > 8
  if (rows > 12) turned_16(rows, sums.c, sums.c_row, sums.from, sums.from_row, a, b, columns, depth);
  else if (rows > 8) turned_12(rows, sums.c, sums.c_row, sums.from, sums.from_row, a, b, columns, depth);
  else
#endif
  if (rows > 4) turned_8(rows, sums.c, sums.c_row, sums.from, sums.from_row, a, b, columns, depth);
  else if (rows > 1) turned_4(rows, sums.c, sums.c_row, sums.from, sums.from_row, a, b, columns, depth);
  else turned_1(1, sums.c, sums.c_row, sums.from, sums.from_row, a, b, columns, depth);
}

void KERNEL(matmulWithin)(float *c, size_t cRow, float *a, float *b, float *bias, float *scratch, int numRows, int numColumns,
                          int depth, bool aTransposed, bool bTransposed, bool accumulate, int biasLength) {
  float *const rowsCopy = scratch + DEPTH * COLUMNS;
  const size_t bRow = bTransposed ? depth : numColumns;
  const bool copies = bTransposed || numRows >= COPIED_ROWS;
  int turned = 0;
  if (bTransposed && !aTransposed && numRows > 0 && numRows <= TURNED_ROWS) {
    struct sums sums = {c, cRow, NULL, 0};
    if (accumulate) sums = (struct sums){c, cRow, c, cRow};
    else if (biasLength > 0) sums.from = bias;
    turned = numColumns - numColumns % WIDTH;
    multiply_turned(sums, a, b, numRows, turned, depth);
  }
  for (int j0 = turned; j0 < numColumns; j0 += COLUMNS) {
    const int columns = least(numColumns - j0, COLUMNS);
    for (int k0 = 0; k0 == 0 || k0 < depth; k0 += DEPTH) {
      const int part = least(depth - k0, DEPTH);
      const float *source = b + (bTransposed ? j0 * bRow + k0 : k0 * bRow + j0);
      if (copies) pack(scratch, source, columns, part, bRow, bTransposed);
      for (int i0 = 0; i0 < numRows; i0 += ROWS) {
        const int rows = least(numRows - i0, ROWS);
        const float *rowsOfA = a + (size_t)i0 * depth + k0;
        if (aTransposed) {
          transpose(rowsCopy, part, a + (size_t)k0 * numRows + i0, numRows, part, rows);
          rowsOfA = rowsCopy;
        }
        const size_t aRow = aTransposed ? part : depth;
        const int step = copies ? PANEL : columns;
        for (int j = 0; j < columns; j += step) {
          float *const into = c + i0 * cRow + j0 + j;
          struct sums sums = {into, cRow, NULL, 0};
          if (accumulate || k0 > 0) sums = (struct sums){into, cRow, into, cRow};
          else if (biasLength > 0) sums.from = bias + j0 + j;
          const float *panel = copies ? scratch + (size_t)j * part : source;
          multiply(sums, rowsOfA, aRow, panel, copies ? PANEL : bRow, rows, least(columns - j, step), part);
        }
      }
    }
  }
}

WORTH(matmul, numRows * numColumns * depth, 4096)
void KERNEL(matmul)(float *c, float *a, float *b, float *bias, float *scratch, int32_t numRows, int32_t numColumns,
                    int32_t depth, bool aTransposed, bool bTransposed, bool accumulate, int32_t biasLength) {
  KERNEL(matmulWithin)(c, numColumns, a, b, bias, scratch, numRows, numColumns, depth, aTransposed, bTransposed, accumulate,
                       biasLength);
}
