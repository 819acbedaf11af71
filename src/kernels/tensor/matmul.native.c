/**
 * Matrix products of any size in vectors of the machine; the plain twin `matmul.ts` says what is computed.
 *
 * As the SIMD twin: B is copied in parts of at most 256 × 512 elements into panels as wide as a register block, each of which
 * stays in the first-level cache while the rows run over it. Few rows take B where it lies. A transposed A is laid in rows.
 * An element of C is one f32 sum in rising order of the depth, whatever the block that it falls in.
 */
#include "../tile.native.h"

/** Depth and columns of the part of B in the panels, and columns of a panel. */
#define DEPTH 256
#define COLUMNS 512
#define PANEL (2 * WIDTH)
/** Rows of A that run over every panel of the part before the next rows: they stay in the second-level cache. */
#define ROWS 96
/** From this many rows on, B is copied. */
#define COPIED_ROWS 64

/** A part of B in panels: row after row of PANEL elements each. */
static void pack(float *panels, const float *b, int columns, int depth, size_t row, bool transposed) {
  for (int j = 0; j < columns; j += PANEL, panels += (size_t)PANEL * depth) {
    const int width = least(columns - j, PANEL);
    if (transposed) transpose(panels, PANEL, b + j * row, row, width, depth);
    else {
      for (int k = 0; k < depth; k++) memcpy(panels + k * PANEL, b + k * row + j, width * sizeof *b);
    }
  }
}

WORTH(matmul, numRows * numColumns * depth, 4096)
void KERNEL(matmul)(float *c, float *a, float *b, float *bias, float *scratch, int32_t numRows, int32_t numColumns,
                    int32_t depth, bool aTransposed, bool bTransposed, bool accumulate, int32_t biasLength) {
  float *const rowsCopy = scratch + DEPTH * COLUMNS;
  const size_t bRow = bTransposed ? depth : numColumns;
  const bool copies = bTransposed || numRows >= COPIED_ROWS;
  for (int j0 = 0; j0 < numColumns; j0 += COLUMNS) {
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
