/**
 * Matrix products of any size in vectors of the machine; the plain twin `matmul.ts` says what is computed.
 *
 * As the SIMD twin: B is copied in parts of at most 256 × 512 elements into panels as wide as a register block, each of which
 * stays in the first-level cache while the rows run over it. Few rows take B where it lies, and turn a transposed one in registers.
 * A transposed A is laid in rows. An element of C is one f32 sum in rising order of the depth, whatever the block that it falls in.
 */
#include "../tile.native.h"

/** Depth and columns of the part of B in the panels. */
#define DEPTH PANEL_DEPTH
#define COLUMNS 512
/** Rows of A that run over every panel of the part before the next rows: they stay in the second-level cache. */
#define ROWS 96
/** From this many rows on, B is copied. */
#define COPIED_ROWS 64
/** Up to this many rows, as many as registers hold the sums of, a transposed B is turned in registers: beyond it a copy pays. */
#define TURNED_ROWS (WIDTH == 16 ? 16 : 8)
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
INLINE void turned_tile(const int rows, int there, struct sums sums, const float *a, size_t a_row, const float *b,
                        size_t b_row, int depth) {
  vec c[TURNED_ROWS];
  const float *row[TURNED_ROWS];
  const float *const next = b + WIDTH * b_row;
  for (int r = 0; r < rows; r++) {
    const int at = least(r, there - 1);
    row[r] = a + at * a_row;
    c[r] = sums.from == NULL ? splat(0) : load(sums.from + at * sums.from_row);
  }
  int k = 0;
  for (; k + 4 <= depth; k += 4) {
    vec columns[4];
    for (int i = 0; i < 4 * WIDTH; i += LINE) __builtin_prefetch(next + WIDTH * k + i);
    load_columns(columns, b + k, b_row);
    for (int step = 0; step < 4; step++) {
      for (int r = 0; r < rows; r++) c[r] = madd(splat(row[r][k + step]), columns[step], c[r]);
    }
  }
  for (; k < depth; k++) {
    float column[WIDTH];
    for (int j = 0; j < WIDTH; j++) column[j] = b[j * b_row + k];
    for (int r = 0; r < rows; r++) c[r] = madd(splat(row[r][k]), load(column), c[r]);
  }
  for (int r = 0; r < rows; r++) {
    if (r < there) store(sums.c + r * sums.c_row, c[r]);
  }
}

/** C = from + A · Bᵀ for up to TURNED_ROWS rows and whole vectors of columns. */
static void multiply_turned(struct sums sums, const float *a, const float *b, int rows, int columns, int depth) {
  for (int j = 0; j < columns; j += WIDTH, b += (size_t)WIDTH * depth) {
    if (TURNED_ROWS > 8 && rows > 12) turned_tile(16, rows, sums, a, depth, b, depth, depth);
    else if (TURNED_ROWS > 8 && rows > 8) turned_tile(12, rows, sums, a, depth, b, depth, depth);
    else if (rows > 4) turned_tile(8, rows, sums, a, depth, b, depth, depth);
    else if (rows > 1) turned_tile(4, rows, sums, a, depth, b, depth, depth);
    else turned_tile(1, 1, sums, a, depth, b, depth, depth);
    sums.c += WIDTH;
    if (sums.from != NULL) sums.from += WIDTH;
  }
}

WORTH(matmul, numRows * numColumns * depth, 4096)
void KERNEL(matmul)(float *c, float *a, float *b, float *bias, float *scratch, int32_t numRows, int32_t numColumns,
                    int32_t depth, bool aTransposed, bool bTransposed, bool accumulate, int32_t biasLength) {
  float *const rowsCopy = scratch + DEPTH * COLUMNS;
  const size_t bRow = bTransposed ? depth : numColumns;
  const bool copies = bTransposed || numRows >= COPIED_ROWS;
  int turned = 0;
  if (bTransposed && !aTransposed && numRows > 0 && numRows <= TURNED_ROWS) {
    struct sums sums = {c, numColumns, NULL, 0};
    if (accumulate) sums = (struct sums){c, numColumns, c, numColumns};
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
          float *const into = c + (size_t)i0 * numColumns + j0 + j;
          struct sums sums = {into, numColumns, NULL, 0};
          if (accumulate || k0 > 0) sums = (struct sums){into, numColumns, into, numColumns};
          else if (biasLength > 0) sums.from = bias + j0 + j;
          const float *panel = copies ? scratch + (size_t)j * part : source;
          multiply(sums, rowsOfA, aRow, panel, copies ? PANEL : bRow, rows, least(columns - j, step), part);
        }
      }
    }
  }
}
