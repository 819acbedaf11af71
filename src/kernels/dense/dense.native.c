/**
 * Dense layers in vectors of the machine; the plain twin `dense.ts` says what each kernel computes.
 *
 * Each sum takes the operations of the SIMD twin in its order. Columns of C that four divides are single sums in rising order
 * of the depth; the last one to three are summed in parts over the depth. In the weights' gradient those have the inputs for
 * lanes, and they and the bias are summed from 0 in chunks of rows.
 */
#include "../math.native.h"
#include "../tile.native.h"

enum { LINEAR, TANH, RELU };

/** Rows whose inputs stay in the second-level cache: a multiple of 6, 8 and 12. */
#define ACTIVE_ROWS 288
/** Rows of a shallow product, which stay in the first-level cache until the activation has gone over them. */
#define SHALLOW_ROWS 24
/** From this many elements on, a weight does not stay in the second-level cache beside the rows: panels of it are copied. */
#define LARGE_WEIGHT 500000
/** Copying panels of it pays from this many rows on. */
#define COPIED_ROWS 64
/** From this many outputs on, rows of their gradients lie so far apart that they displace one another in the first-level cache. */
#define FAR_OUTPUTS 256
/** Copying their rows pays from this many inputs on. */
#define COPIED_INPUTS 8
/** Floats of a line of the cache: with other numbers of outputs such rows fall into different lines. */
#define LINE 16
/** Rows of a chunk of the weights' gradient, as in the SIMD twin: its sums of the bias and of the last columns begin anew. */
#define CHUNK_ROWS 64

static void activate(float *restrict y, int length, int activation) {
  if (activation == TANH) {
    for (int i = 0; i < length; i++) y[i] = tanh1(y[i]);
  } else if (activation == RELU) {
    for (int i = 0; i < length; i++) y[i] = y[i] < 0 ? 0 : y[i];
  }
}

/** From the gradients by an activation's outputs x to those by what went in. */
static void activation_backward(float *restrict dx, const float *restrict x, int length, int activation) {
  if (activation == TANH) {
    for (int i = 0; i < length; i++) dx[i] = dx[i] * (1 - x[i] * x[i]);
  } else if (activation == RELU) {
    for (int i = 0; i < length; i++) dx[i] = x[i] > 0 ? dx[i] : 0;
  }
}

/** Rows of a block of narrow columns. */
#define NARROW_ROWS 6

/** Two columns of C for `rows` rows: of each the sum over even depths and that over odd ones. */
INLINE void pair(const int rows, struct sums sums, const float *a, size_t a_row, const float *b, size_t b_row, int depth) {
  four c[NARROW_ROWS];
  for (int r = 0; r < rows; r++) {
    const float *from = sums.from == NULL ? NULL : sums.from + r * sums.from_row;
    c[r] = from == NULL ? (four){0} : (four){from[0], 0, from[1], 0};
  }
  for (; depth >= 2; depth -= 2, a += 2, b += 2 * b_row) {
    const four both = {b[0], b[b_row], b[1], b[b_row + 1]};
    for (int r = 0; r < rows; r++) c[r] = madd4(splat_pair(a + r * a_row), both, c[r]);
  }
  if (depth > 0) {
    const four both = {b[0], 0, b[1], 0};
    for (int r = 0; r < rows; r++) c[r] = madd4((four){a[r * a_row], 0, a[r * a_row], 0}, both, c[r]);
  }
  for (int r = 0; r < rows; r++) {
    sums.c[r * sums.c_row] = c[r][0] + c[r][1];
    sums.c[r * sums.c_row + 1] = c[r][2] + c[r][3];
  }
}

/** One column of C for `rows` rows: four sums, of every fourth depth each. */
INLINE void single(const int rows, struct sums sums, const float *a, size_t a_row, const float *b, size_t b_row, int depth) {
  four c[NARROW_ROWS];
  for (int r = 0; r < rows; r++) c[r] = (four){sums.from == NULL ? 0 : sums.from[r * sums.from_row]};
  for (; depth >= 4; depth -= 4, a += 4, b += 4 * b_row) {
    const four column = b_row == 1 ? load4(b) : (four){b[0], b[b_row], b[2 * b_row], b[3 * b_row]};
    for (int r = 0; r < rows; r++) c[r] = madd4(load4(a + r * a_row), column, c[r]);
  }
  if (depth > 0) {
    four column = {b[0]};
    for (int k = 1; k < depth; k++) column[k] = b[k * b_row];
    for (int r = 0; r < rows; r++) c[r] = madd4(load_part4(a + r * a_row, depth), column, c[r]);
  }
  for (int r = 0; r < rows; r++) sums.c[r * sums.c_row] = sum4(c[r]);
}

/** A pair of columns where there are two or three, and a single one, to which `end` belongs, where there are one or three. */
INLINE void narrow_rows(const int rows, struct sums sums, struct sums end, const float *a, size_t a_row, const float *b,
                        size_t b_row, int columns, int depth) {
  if (columns >= 2) pair(rows, sums, a, a_row, b, b_row, depth);
  if (columns != 2) single(rows, end, a, a_row, b + (columns & 2), b_row, depth);
}

/** The last one to three columns of C. */
static void narrow(struct sums sums, const float *a, size_t a_row, const float *b, size_t b_row, int rows, int columns,
                   int depth) {
  const int last = columns & 2;
  for (int left = rows; left > 0;) {
    const int taken = left >= NARROW_ROWS ? NARROW_ROWS : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    const struct sums end = {sums.c + last, sums.c_row, sums.from == NULL ? NULL : sums.from + last, sums.from_row};
    if (taken == NARROW_ROWS) narrow_rows(NARROW_ROWS, sums, end, a, a_row, b, b_row, columns, depth);
    else if (taken == 4) narrow_rows(4, sums, end, a, a_row, b, b_row, columns, depth);
    else if (taken == 2) narrow_rows(2, sums, end, a, a_row, b, b_row, columns, depth);
    else narrow_rows(1, sums, end, a, a_row, b, b_row, columns, depth);
    sums.c += taken * sums.c_row;
    if (sums.from != NULL) sums.from += taken * sums.from_row;
    a += taken * a_row;
    left -= taken;
  }
}

/** Sums from column `from` on. */
static struct sums sums_from(struct sums sums, int from) {
  return (struct sums){sums.c + from, sums.c_row, sums.from == NULL ? NULL : sums.from + from, sums.from_row};
}

WORTH(denseForward, numRows * numInputs * numOutputs, 4096)
void KERNEL(denseForward)(float *y, float *x, float *weight, float *bias, int32_t numRows, int32_t numInputs,
                          int32_t numOutputs, int32_t activation, int32_t yFrom, int32_t xFrom) {
  y += (size_t)yFrom * numOutputs;
  x += (size_t)xFrom * numInputs;
  const int wide = numOutputs & ~3;
  const bool isShallow = numInputs <= SHALLOW_DEPTH;
  const int most = isShallow ? SHALLOW_ROWS : ACTIVE_ROWS;
  for (int left = numRows; left > 0; left -= most) {
    const int rows = least(left, most);
    const struct sums sums = {y, numOutputs, bias, 0};
    if (isShallow) multiply_shallow(sums, x, numInputs, 1, weight, numOutputs, rows, wide, numInputs);
    else if (rows >= COPIED_ROWS && (size_t)numInputs * numOutputs > LARGE_WEIGHT) {
      multiply_panels(sums, x, numInputs, false, weight, numOutputs, false, rows, wide, numInputs);
    } else if (wide > 0) multiply(sums, x, numInputs, weight, numOutputs, rows, wide, numInputs);
    if (wide < numOutputs) {
      narrow(sums_from(sums, wide), x, numInputs, weight + wide, numOutputs, rows, numOutputs - wide, numInputs);
    }
    activate(y, rows * numOutputs, activation);
    y += (size_t)most * numOutputs;
    x += (size_t)most * numInputs;
  }
}

/** Vectors of columns whose sums run side by side. */
#define SUMMED_VECTORS 4

/** Adds the sums of the columns of `x` (depth × width), each from the first row to the last. */
static void add_rows(float *restrict sums, const float *restrict x, int depth, int width) {
  for (int j = 0; j < width; j += SUMMED_VECTORS * WIDTH) {
    lanes some[SUMMED_VECTORS];
    vec sum[SUMMED_VECTORS];
    for (int v = 0; v < SUMMED_VECTORS; v++) {
      const int left = width - j - v * WIDTH;
      some[v] = first_lanes(left < 0 ? 0 : least(left, WIDTH));
      sum[v] = splat(0);
    }
    for (int row = 0; row < depth; row++) {
      const float *at = x + (size_t)row * width + j;
      for (int v = 0; v < SUMMED_VECTORS; v++) sum[v] += load_part(at + v * WIDTH, some[v]);
    }
    for (int v = 0; v < SUMMED_VECTORS; v++) {
      float *at = sums + j + v * WIDTH;
      store_part(at, load_part(at, some[v]) + sum[v], some[v]);
    }
  }
}

/** As `add_rows` for one or two columns: eight sums, of every eighth element each. */
static void add_flat(float *sums, const float *x, int length, int width) {
  four first = {0}, second = {0};
  for (; length >= 8; length -= 8, x += 8) {
    first += load4(x);
    second += load4(x + 4);
  }
  for (; length > 0; length -= 4, x += 4) first += length >= 4 ? load4(x) : load_part4(x, length);
  first += second;
  const float even = first[0] + first[2], odd = first[1] + first[3];
  sums[0] += width == 2 ? even : even + odd;
  if (width == 2) sums[1] += odd;
}

/** Inputs of a layer whose gradients to the last one to three outputs are summed together. */
#define NARROW_INPUTS 256

/** Adds xᵀ · dy for one to three columns of dy: dyᵀ · x, a sum from the first row to the last, and that transposed. */
static void add_narrow(float *dWeight, const float *dy, const float *x, int depth, int inputs, int outputs, int columns) {
  float sums[3 * NARROW_INPUTS];
  for (int k = 0; k < inputs; k += NARROW_INPUTS) {
    const int width = least(inputs - k, NARROW_INPUTS);
    memset(sums, 0, sizeof sums);
    for (int row = 0; row < depth; row += CHUNK_ROWS) {
      const float *rows = x + (size_t)row * inputs + k;
      const int rowsThere = least(depth - row, CHUNK_ROWS);
      multiply_beside((struct sums){sums, width, sums, width}, dy + (size_t)row * outputs, outputs, rows, inputs, columns,
                      width, rowsThere);
    }
    for (int j = 0; j < columns; j++) {
      for (int i = 0; i < width; i++) dWeight[(size_t)(k + i) * outputs + j] += sums[j * width + i];
    }
  }
}

WORTH(denseBackwardWeights, numInputs * numOutputs, 33)
WORTH(denseBackwardWeights, numRows * numOutputs, 64)
WORTH(denseBackwardWeights, numRows * numInputs * numOutputs, 4096)
void KERNEL(denseBackwardWeights)(float *dWeight, float *dBias, float *dy, float *x, int32_t numRows, int32_t numInputs,
                                  int32_t numOutputs, int32_t xFrom) {
  const int wide = numOutputs & ~3;
  const int chunkRows = wide == 0 ? numRows : CHUNK_ROWS;
  const bool isDisplacing = numOutputs >= FAR_OUTPUTS && numOutputs % LINE == 0;
  const bool far = numRows > CHUNK_ROWS && numInputs >= COPIED_INPUTS && isDisplacing;
  const struct sums sums = {dWeight, numOutputs, dWeight, numOutputs};
  x += (size_t)xFrom * numInputs;
  const bool isShallow = numRows <= SHALLOW_DEPTH;
  if (isShallow) multiply_shallow(sums, x, 1, numInputs, dy, numOutputs, numInputs, wide, numRows);
  if (far) multiply_panels(sums, x, numInputs, true, dy, numOutputs, false, numInputs, wide, numRows);
  for (int left = numRows; left > 0; left -= chunkRows) {
    const int depth = least(left, chunkRows);
    if (wide > 0 && !far && !isShallow) multiply_beside(sums, x, numInputs, dy, numOutputs, numInputs, wide, depth);
    if (wide < numOutputs) {
      add_narrow(dWeight + wide, dy + wide, x, depth, numInputs, numOutputs, numOutputs - wide);
    }
    if (numOutputs <= 2) add_flat(dBias, dy, depth * numOutputs, numOutputs);
    else add_rows(dBias, dy, depth, numOutputs);
    dy += (size_t)chunkRows * numOutputs;
    x += (size_t)chunkRows * numInputs;
  }
}

WORTH(denseBackwardInput, numRows * numInputs * numOutputs, 4096)
void KERNEL(denseBackwardInput)(float *dx, float *dy, float *weight, float *workspace, float *x, int32_t numRows,
                                int32_t numInputs, int32_t numOutputs, bool accumulate, int32_t activation) {
  const int wide = numInputs & ~3, last = numInputs - wide;
  const bool isShallow = numOutputs <= SHALLOW_DEPTH;
  // Columns of the transposed weight that are made for all rows. Panels of the others are made as they are needed.
  const int from = isShallow ? 0 : wide, made = numInputs - from;
  transpose(workspace, made, weight + (size_t)from * numOutputs, numOutputs, made, numOutputs);
  const int most = isShallow ? SHALLOW_ROWS : ACTIVE_ROWS;
  for (int left = numRows; left > 0; left -= most) {
    const int rows = least(left, most);
    const struct sums sums = {dx, numInputs, accumulate ? dx : NULL, numInputs};
    if (isShallow) multiply_shallow(sums, dy, numOutputs, 1, workspace, made, rows, wide, numOutputs);
    else multiply_panels(sums, dy, numOutputs, false, weight, numOutputs, true, rows, wide, numOutputs);
    if (last > 0) narrow(sums_from(sums, wide), dy, numOutputs, workspace + wide - from, made, rows, last, numOutputs);
    activation_backward(dx, x, rows * numInputs, activation);
    dx += (size_t)most * numInputs;
    dy += (size_t)most * numOutputs;
    x += (size_t)most * numInputs;
  }
}
