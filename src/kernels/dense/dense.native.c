/**
 * Dense layers in vectors of the machine; the plain twin `dense.ts` says what each kernel computes.
 *
 * Each sum takes the same operations in the same order everywhere. Columns of C that four divides are single sums in rising order
 * of the depth; the last one to three are summed in parts over the depth. In the weights' gradient those have the inputs for
 * lanes, and they and the bias are summed from 0 in chunks of rows.
 */
#include "../math.native.h"
#include "../tile.native.h"

enum { LINEAR, TANH, RELU };

#ifdef __wasm__
/** Panels lie on the stack, which WebAssembly has not: its memory is all columns. */
#define HAS_PANELS false
/** Rows whose outputs are in the first-level cache when the activation goes over them. */
#define ACTIVE_ROWS 24
#else
#define HAS_PANELS true
/** Rows whose inputs stay in the second-level cache: a multiple of 6, 8 and 12. */
#define ACTIVE_ROWS 288
#endif

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
/** Rows of a chunk of the weights' gradient: its sums of the bias and of the last columns begin anew. */
#define CHUNK_ROWS 64

static void activate(float *restrict y, int length, int activation) {
  if (activation == TANH) {
    for (int i = 0; i < length; i++) y[i] = tanh1(y[i]);
  } else if (activation == RELU) {
    for (int i = 0; i < length; i++) y[i] = y[i] < 0 ? 0 : y[i];
  }
}

/** Before a loop that is short: in WebAssembly, four vectors at once. */
#ifdef __wasm__
#define FOUR_AT_ONCE _Pragma("clang loop vectorize(enable) unroll_count(4)")
#else
#define FOUR_AT_ONCE
#endif

/** From the gradients by an activation's outputs x to those by what went in. */
static void activation_backward(float *restrict dx, const float *restrict x, int length, int activation) {
  if (activation == TANH) {
    FOUR_AT_ONCE for (int i = 0; i < length; i++) dx[i] = dx[i] * (1 - x[i] * x[i]);
  } else if (activation == RELU) {
    for (int i = 0; i < length; i++) {
      const float gradient = dx[i]; // Read whether it counts or not, so that there is no branch.
      dx[i] = x[i] > 0 ? gradient : 0;
    }
  }
}

/** Rows of a block of narrow columns. */
#define NARROW_ROWS 6

/** Two columns of C for `rows` rows: of each the sum over even depths and that over odd ones. */
INLINE void pair(const size_t rows, struct sums sums, const float *a, size_t a_row, const float *b, size_t b_row, int depth) {
  four c[NARROW_ROWS];
  UNROLLED for (size_t r = 0; r < rows; r++) {
    const float *from = sums.from == NULL ? NULL : sums.from + r * sums.from_row;
    c[r] = from == NULL ? (four){0} : (four){from[0], 0, from[1], 0};
  }
  for (; depth >= 2; depth -= 2, a += 2, b += 2 * b_row) {
    const four both = {b[0], b[b_row], b[1], b[b_row + 1]};
    UNROLLED for (size_t r = 0; r < rows; r++) c[r] = madd4(splat_pair(a + r * a_row), both, c[r]);
  }
  if (depth > 0) {
    const four both = {b[0], 0, b[1], 0};
    UNROLLED for (size_t r = 0; r < rows; r++) c[r] = madd4((four){a[r * a_row], 0, a[r * a_row], 0}, both, c[r]);
  }
  UNROLLED for (size_t r = 0; r < rows; r++) {
    sums.c[r * sums.c_row] = c[r][0] + c[r][1];
    sums.c[r * sums.c_row + 1] = c[r][2] + c[r][3];
  }
}

/** One column of C for `rows` rows: four sums, of every fourth depth each. */
INLINE void single(const size_t rows, struct sums sums, const float *a, size_t a_row, const float *b, size_t b_row, int depth) {
  four c[NARROW_ROWS];
  UNROLLED for (size_t r = 0; r < rows; r++) c[r] = (four){sums.from == NULL ? 0 : sums.from[r * sums.from_row]};
  for (; depth >= 4; depth -= 4, a += 4, b += 4 * b_row) {
    const four column = b_row == 1 ? load4(b) : (four){b[0], b[b_row], b[2 * b_row], b[3 * b_row]};
    UNROLLED for (size_t r = 0; r < rows; r++) c[r] = madd4(load4(a + r * a_row), column, c[r]);
  }
  if (depth > 0) {
    const four column = {b[0], depth > 1 ? b[b_row] : 0, depth > 2 ? b[2 * b_row] : 0, 0};
    UNROLLED for (size_t r = 0; r < rows; r++) c[r] = madd4(load_part4(a + r * a_row, depth), column, c[r]);
  }
  UNROLLED for (size_t r = 0; r < rows; r++) sums.c[r * sums.c_row] = sum4(c[r]);
}

/** One or two columns of C for all rows, in blocks of rows. */
#define NARROW(name, block)                                                                                             \
  static void name(float *c, size_t c_row, const float *from, size_t from_row, const float *a, size_t a_row, const float *b, \
                   size_t b_row, int rows, int depth) {                                                                 \
    for (int left = rows; left > 0;) {                                                                                  \
      const int taken = left >= NARROW_ROWS ? NARROW_ROWS : left >= 4 ? 4 : left >= 2 ? 2 : 1;                          \
      const struct sums sums = {c, c_row, from, from_row};                                                              \
      if (taken == NARROW_ROWS) block(NARROW_ROWS, sums, a, a_row, b, b_row, depth);                                    \
      else if (taken == 4) block(4, sums, a, a_row, b, b_row, depth);                                                   \
      else if (taken == 2) block(2, sums, a, a_row, b, b_row, depth);                                                   \
      else block(1, sums, a, a_row, b, b_row, depth);                                                                   \
      c += taken * c_row;                                                                                               \
      if (from != NULL) from += taken * from_row;                                                                       \
      a += taken * a_row;                                                                                               \
      left -= taken;                                                                                                    \
    }                                                                                                                   \
  }
NARROW(pairs, pair)
NARROW(singles, single)

/** Sums from column `from` on. */
INLINE struct sums sums_from(struct sums sums, int from) {
  return (struct sums){sums.c + from, sums.c_row, sums.from == NULL ? NULL : sums.from + from, sums.from_row};
}

/** The last one to three columns of C: a pair where there are two or three, and a single one where there are one or three. */
INLINE void narrow(struct sums sums, const float *a, size_t a_row, const float *b, size_t b_row, int rows, int columns,
                   int depth) {
  const struct sums last = sums_from(sums, columns & 2);
  if (columns >= 2) pairs(sums.c, sums.c_row, sums.from, sums.from_row, a, a_row, b, b_row, rows, depth);
  if (columns != 2) singles(last.c, last.c_row, last.from, last.from_row, a, a_row, b + (columns & 2), b_row, rows, depth);
}

#ifdef __wasm__

/** Columns of C over a depth of one to four: their weights stay in registers, and the rows stream by. */
INLINE void thin(const size_t depth, const size_t vectors, float *c, size_t c_row, const float *from, size_t from_row,
                 const float *a, const float *b, size_t b_row, int rows) {
  vec weights[8];
  UNROLLED for (size_t v = 0; v < vectors; v++) {
    UNROLLED for (size_t k = 0; k < depth; k++) weights[k * vectors + v] = load(b + k * b_row + v * WIDTH);
  }
  for (int r = 0; r < rows; r++) {
    vec sums[4];
    UNROLLED for (size_t v = 0; v < vectors; v++) sums[v] = from == NULL ? splat(0) : load(from + v * WIDTH);
    UNROLLED for (size_t k = 0; k < depth; k++) {
      vec e = splat(a[k]);
      IN_ORDER(e);
      UNROLLED for (size_t v = 0; v < vectors; v++) sums[v] = madd(e, weights[k * vectors + v], sums[v]);
    }
    UNROLLED for (size_t v = 0; v < vectors; v++) store(c + v * WIDTH, sums[v]);
    a += depth;
    c += c_row;
    if (from != NULL) from += from_row;
  }
}

#define THIN(depth, vectors)                                                                                            \
  APART void thin_##depth(float *c, size_t c_row, const float *from, size_t from_row, const float *a, const float *b,   \
                          size_t b_row, int rows) {                                                                     \
    thin(depth, vectors, c, c_row, from, from_row, a, b, b_row, rows);                                                  \
  }
THIN(1, 4)
THIN(2, 4)
THIN(3, 2)
THIN(4, 2)

/** C = from + A · B where A is contiguous along the depth: of a shallow product, `thin` takes the columns that it can. */
static void multiply_rows(float *c, size_t c_row, const float *from, size_t from_row, const float *a, const float *b,
                          size_t b_row, int rows, int columns, int depth) {
  const int width = depth <= 2 ? 16 : 8;
  for (; depth <= 4 && width <= columns; columns -= width, c += width, b += width) {
    if (depth == 4) thin_4(c, c_row, from, from_row, a, b, b_row, rows);
    else if (depth == 3) thin_3(c, c_row, from, from_row, a, b, b_row, rows);
    else if (depth == 2) thin_2(c, c_row, from, from_row, a, b, b_row, rows);
    else thin_1(c, c_row, from, from_row, a, b, b_row, rows);
    if (from != NULL) from += width;
  }
  multiply_at(c, c_row, from, from_row, a, depth, b, b_row, rows, columns, depth);
}

#endif

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
#ifdef __wasm__
    multiply_rows(y, numOutputs, bias, 0, x, weight, numOutputs, rows, wide, numInputs);
#else
    if (isShallow) multiply_shallow(sums, x, numInputs, 1, weight, numOutputs, rows, wide, numInputs);
    else if (HAS_PANELS && rows >= COPIED_ROWS && (size_t)numInputs * numOutputs > LARGE_WEIGHT) {
      multiply_panels(sums, x, numInputs, false, weight, numOutputs, false, rows, wide, numInputs);
    } else if (wide > 0) multiply(sums, x, numInputs, weight, numOutputs, rows, wide, numInputs);
#endif
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

/** Adds the sums of some vectors of columns, each from the first row to the last; of a partial one only `some` is there. */
INLINE void add_vectors(const size_t vectors, const bool partial, lanes some, float *restrict sums, const float *restrict x,
                        int depth, size_t width) {
  vec sum[SUMMED_VECTORS];
  UNROLLED for (size_t v = 0; v < vectors; v++) sum[v] = splat(0);
  for (int row = 0; row < depth; row++, x += width) {
    UNROLLED for (size_t v = 0; v < vectors; v++) sum[v] += partial ? load_part(x, some) : load(x + v * WIDTH);
  }
  UNROLLED for (size_t v = 0; v < vectors; v++) {
    if (partial) store_part(sums, load_part(sums, some) + sum[v], some);
    else store(sums + v * WIDTH, load(sums + v * WIDTH) + sum[v]);
  }
}

/** Adds the sums of the columns of `x` (depth × width). */
static void add_rows(float *sums, const float *x, int depth, int width) {
  int j = 0;
  for (; j + SUMMED_VECTORS * WIDTH <= width; j += SUMMED_VECTORS * WIDTH) {
    add_vectors(SUMMED_VECTORS, false, first_lanes(0), sums + j, x + j, depth, width);
  }
  for (; j + WIDTH <= width; j += WIDTH) add_vectors(1, false, first_lanes(0), sums + j, x + j, depth, width);
  if (j < width) add_vectors(1, true, first_lanes(width - j), sums + j, x + j, depth, width);
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

/** Vectors of inputs whose sums run side by side. */
#define OUTER_VECTORS 4

/** Adds xᵀ · dy for some vectors of inputs and one to three columns of dy: each a sum from the first row to the last. */
INLINE void outer(const size_t vectors, const size_t columns, const bool partial, lanes last, int count, float *dWeight, const float *dy, const float *x, int depth, size_t inputs,
                  size_t outputs) {
  vec sums[OUTER_VECTORS * 3];
  UNROLLED for (size_t i = 0; i < vectors * columns; i++) sums[i] = splat(0);
  for (int row = 0; row < depth; row++, x += inputs, dy += outputs) {
    UNROLLED for (size_t v = 0; v < vectors; v++) {
      const vec given = partial ? load_part(x + v * WIDTH, last) : load(x + v * WIDTH);
      UNROLLED for (size_t j = 0; j < columns; j++) sums[v * columns + j] = madd(given, splat(dy[j]), sums[v * columns + j]);
    }
  }
  UNROLLED for (size_t v = 0; v < vectors; v++) {
    UNROLLED for (size_t i = 0; i < WIDTH; i++) {
      if (partial && i >= (size_t)count) continue;
      UNROLLED for (size_t j = 0; j < columns; j++) dWeight[(v * WIDTH + i) * outputs + j] += sums[v * columns + j][i];
    }
  }
}

INLINE void outer_columns(const int columns, float *dWeight, const float *dy, const float *x, int depth, int inputs, int outputs) {
  int left = inputs;
  for (; left >= OUTER_VECTORS * WIDTH; left -= OUTER_VECTORS * WIDTH, x += OUTER_VECTORS * WIDTH, dWeight += OUTER_VECTORS * WIDTH * outputs)
    outer(OUTER_VECTORS, columns, false, first_lanes(0), 0, dWeight, dy, x, depth, inputs, outputs);
  for (; left >= WIDTH; left -= WIDTH, x += WIDTH, dWeight += WIDTH * outputs) outer(1, columns, false, first_lanes(0), 0, dWeight, dy, x, depth, inputs, outputs);
  if (left > 0) outer(1, columns, true, first_lanes(left), left, dWeight, dy, x, depth, inputs, outputs);
}

static void add_narrow(float *dWeight, const float *dy, const float *x, int depth, int inputs, int outputs, int columns) {
  if (columns == 3) outer_columns(3, dWeight, dy, x, depth, inputs, outputs);
  else if (columns == 2) outer_columns(2, dWeight, dy, x, depth, inputs, outputs);
  else outer_columns(1, dWeight, dy, x, depth, inputs, outputs);
}

WORTH(denseBackwardWeights, numInputs * numOutputs, 33)
WORTH(denseBackwardWeights, numRows * numOutputs, 64)
WORTH(denseBackwardWeights, numRows * numInputs * numOutputs, 4096)
void KERNEL(denseBackwardWeights)(float *dWeight, float *dBias, float *dy, float *x, int32_t numRows, int32_t numInputs,
                                  int32_t numOutputs, int32_t xFrom) {
  const int wide = numOutputs & ~3;
  const int chunkRows = wide == 0 ? numRows : CHUNK_ROWS;
  const bool isDisplacing = numOutputs >= FAR_OUTPUTS && numOutputs % LINE == 0;
  const bool far = HAS_PANELS && numRows > CHUNK_ROWS && numInputs >= COPIED_INPUTS && isDisplacing;
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
  const bool isShallow = !HAS_PANELS || numOutputs <= SHALLOW_DEPTH;
  // Columns of the transposed weight that are made for all rows. Panels of the others are made as they are needed.
  const int from = isShallow ? 0 : wide, made = numInputs - from;
  transpose(workspace, made, weight + (size_t)from * numOutputs, numOutputs, made, numOutputs);
  const int most = isShallow ? SHALLOW_ROWS : ACTIVE_ROWS;
  for (int left = numRows; left > 0; left -= most) {
    const int rows = least(left, most);
    const struct sums sums = {dx, numInputs, accumulate ? dx : NULL, numInputs};
#ifdef __wasm__
    multiply_rows(sums.c, numInputs, sums.from, numInputs, dy, workspace, made, rows, wide, numOutputs);
#else
    if (isShallow) multiply_shallow(sums, dy, numOutputs, 1, workspace, made, rows, wide, numOutputs);
    else multiply_panels(sums, dy, numOutputs, false, weight, numOutputs, true, rows, wide, numOutputs);
#endif
    if (last > 0) narrow(sums_from(sums, wide), dy, numOutputs, workspace + wide - from, made, rows, last, numOutputs);
    activation_backward(dx, x, rows * numInputs, activation);
    dx += (size_t)most * numInputs;
    dy += (size_t)most * numOutputs;
    x += (size_t)most * numInputs;
  }
}
