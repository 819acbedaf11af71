/** A product of matrices within a larger one, and products of weights that become f32 some columns at a time. */
#ifndef COLONNADE_MATMUL
#define COLONNADE_MATMUL

#include "../tile.native.h"

/** As `matmul`, where the rows of C are `cRow` apart. */
void KERNEL(matmulWithin)(float *c, size_t cRow, float *a, float *b, float *bias, float *scratch, int numRows, int numColumns,
                          int depth, bool aTransposed, bool bTransposed, bool accumulate, int biasLength);

/** Up to this many rows read weights that are not f32 as they lie. */
#define SHARING_ROWS 8
/** Columns whose weights are f32 at once: few rows find those of the last ones in a cache, and many rows copy so many at once. */
#define COLUMNS_AT_ONCE (numRows <= SHARING_ROWS ? 64 : 512)

/**
 * C = from + A · Bᵀ for the columns from `begin` on, some at a time: `restore` makes `columns` rows of B, from row `first` on, f32
 * in `dequantized`.
 */
#define MULTIPLY_RESTORED(begin, restore)                                                                               \
  for (int first = begin; first < numColumns; first += COLUMNS_AT_ONCE) {                                               \
    const int columns = least(numColumns - first, COLUMNS_AT_ONCE);                                                     \
    restore;                                                                                                            \
    KERNEL(matmulWithin)(c + first, numColumns, a, dequantized, biasLength > 0 ? bias + first : bias, scratch, numRows, \
                         columns, depth, false, true, accumulate, biasLength > 0 ? columns : 0);                        \
  }

#endif
