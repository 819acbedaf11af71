/**
 * Convolutions in vectors of the machine; the plain twin `convolution.ts` says what each kernel computes.
 *
 * Patches of one row of an image overlap: the next begins `channels` elements after the one before, and of each the taps of one row of the
 * filters are contiguous. So they are read where they lie, in a copy of one image with zeros around it. Every sum takes the same
 * operations in the same order at each level: outputs over the patch in rising order from the bias, the zeros of the border too; gradients
 * of weights over the pixels of one image from 0.
 */
#include "../tile.native.h"

/** Rows of a tile of one vector of columns, and of two: all sums stay in registers. */
#define ROWS_OF_ONE 12
#define ROWS_OF_TWO TILE_ROWS
/** How many of `left` rows a tile takes: tiles of about as many each. In WebAssembly one vector is rare, and has few functions. */
#ifdef __wasm__
#define TAKEN(left, vectors, tiles) ((vectors) == 2 ? ((left) + (tiles) - 1) / (tiles) : (left) >= 4 ? 4 : 1)
#else
#define TAKEN(left, vectors, tiles) (((left) + (tiles) - 1) / (tiles))
#endif

/**
 * C = from + A · B, or with `adds` C += A · B: as `tile`, over a depth of `stretches` times `depth`. A goes on by a_step within a stretch,
 * and by a_jump from one to the next; B by b_row always.
 */
INLINE void patch_tile(const size_t rows, const size_t vectors, const bool partial, lanes last, float *c, size_t c_row,
                       const float *from, bool adds, const float *a, size_t a_row, size_t a_step, size_t a_jump,
                       const float *b, size_t b_row, int stretches, int depth) {
  vec sums[TILE_SUMS];
  const size_t end = vectors - 1;
  UNROLLED for (size_t v = 0; v < vectors; v++) {
    const vec first = from == NULL ? splat(0) : partial && v == end ? load_part(from + v * WIDTH, last) : load(from + v * WIDTH);
    UNROLLED for (size_t r = 0; r < rows; r++) sums[r * vectors + v] = first;
  }
  for (; stretches > 0; stretches--, a += a_jump) {
    const float *at = a;
    for (int k = 0; k < depth; k++, at += a_step, b += b_row) {
      vec row[2];
      UNROLLED for (size_t v = 0; v < vectors; v++) {
        row[v] = partial && v == end ? load_part(b + v * WIDTH, last) : load(b + v * WIDTH);
        IN_ORDER(row[v]);
      }
      UNROLLED for (size_t r = 0; r < rows; r++) {
        vec e = splat(at[r * a_row]);
        IN_ORDER(e);
        UNROLLED for (size_t v = 0; v < vectors; v++) sums[r * vectors + v] = madd(e, row[v], sums[r * vectors + v]);
      }
    }
  }
  UNROLLED for (size_t r = 0; r < rows; r++) {
    UNROLLED for (size_t v = 0; v < vectors; v++) {
      float *const to = c + r * c_row + v * WIDTH;
      vec sum = sums[r * vectors + v];
      if (partial && v == end) {
        if (adds) sum += load_part(to, last);
        store_part(to, sum, last);
      } else {
        if (adds) sum += load(to);
        store(to, sum);
      }
    }
  }
}

#define PARAMETERS                                                                                                      \
  float *c, size_t c_row, const float *from, bool adds, const float *a, size_t a_row, size_t a_step, size_t a_jump,     \
      const float *b, size_t b_row, int stretches, int depth
#define ARGUMENTS c, c_row, from, adds, a, a_row, a_step, a_jump, b, b_row, stretches, depth
/** Rows of A are pixels, or with a_row of 1 taps that lie side by side. */
#define DEFINE_PATCH(rows, vectors)                                                                                     \
  APART void patch_##rows##_##vectors(PARAMETERS) { patch_tile(rows, vectors, false, first_lanes(0), ARGUMENTS); }      \
  APART void edge_##rows##_##vectors(lanes last, PARAMETERS) { patch_tile(rows, vectors, true, last, ARGUMENTS); }
#define CALL_PATCH(rows, vectors)                                                                                       \
  case rows * 2 + vectors - 1:                                                                                          \
    if (partial) edge_##rows##_##vectors(last, ARGUMENTS);                                                              \
    else patch_##rows##_##vectors(ARGUMENTS);                                                                           \
    break;
#define PATCHES(F) F(1, 1) F(4, 1) F(1, 2) F(2, 2) F(3, 2) F(4, 2) F(5, 2) F(6, 2)
#define OF_ONE(F) F(2, 1) F(3, 1) F(5, 1) F(6, 1) F(7, 1) F(8, 1) F(9, 1) F(10, 1) F(11, 1) F(12, 1)
#ifdef __wasm__
#define MORE_PATCHES(F)
#elif TILE_ROWS < 8
#define MORE_PATCHES(F) OF_ONE(F)
#else
#define MORE_PATCHES(F) OF_ONE(F) F(7, 2) F(8, 2)
#endif
PATCHES(DEFINE_PATCH)
MORE_PATCHES(DEFINE_PATCH)

/** `rows` × `columns` of C, in tiles of about as many rows each. */
INLINE void patches(float *c, size_t c_row, const float *from, bool adds, const float *a, size_t a_row, size_t a_step,
                    size_t a_jump, const float *b, size_t b_row, int rows, int columns, int stretches, int depth) {
  const float *const first = a;
  for (; columns > 0; columns -= 2 * WIDTH, b += 2 * WIDTH) {
    const int vectors = columns > WIDTH ? 2 : 1, most = vectors == 2 ? ROWS_OF_TWO : ROWS_OF_ONE;
    const bool partial = columns < vectors * WIDTH;
    const lanes last = first_lanes(partial ? columns - (vectors - 1) * WIDTH : 0);
    float *const top = c;
    a = first;
    for (int left = rows, tiles = (rows + most - 1) / most; left > 0; tiles--) {
      const int taken = TAKEN(left, vectors, tiles);
      switch (taken * 2 + vectors - 1) {
        PATCHES(CALL_PATCH)
        MORE_PATCHES(CALL_PATCH)
      }
      c += taken * c_row;
      a += taken * a_row;
      left -= taken;
    }
    c = top + 2 * WIDTH;
    if (from != NULL) from += 2 * WIDTH;
  }
}

/** An image into the middle of one with a border, whose zeros stay: `before` pixels at the top and on the left. */
INLINE void frame(float *into, size_t into_row, const float *image, size_t row, int height, int before, size_t pixel) {
  into += before * (into_row + pixel);
  for (int i = 0; i < height; i++, into += into_row, image += row) memcpy(into, image, row * sizeof *into);
}

WORTH(convolutionForward, numRows * height * width * channels * filters, 4096)
void KERNEL(convolutionForward)(float *y, float *x, float *weight, float *bias, float *workspace, int32_t height,
                                int32_t width, int32_t channels, int32_t filters, int32_t kernelSize, int32_t numRows,
                                int32_t xFrom) {
  const size_t row = (size_t)width * channels, size = height * row, outs = (size_t)width * filters;
  const size_t framed = (size_t)(width + kernelSize - 1) * channels;
  memset(workspace, 0, (height + kernelSize - 1) * framed * sizeof *workspace);
  x += xFrom * size;
  for (; numRows > 0; numRows--, x += size) {
    frame(workspace, framed, x, row, height, (kernelSize - 1) >> 1, channels);
    for (int i = 0; i < height; i++, y += outs) {
      patches(y, filters, bias, false, workspace + i * framed, channels, 1, framed, weight, filters, width, filters,
              kernelSize, kernelSize * channels);
      for (size_t k = 0; k < outs; k++) y[k] = y[k] < 0 ? 0 : y[k];
    }
  }
}

/** Adds the sums of the columns of x (depth × width), each from 0. */
static void add_columns(float *sums, const float *x, int depth, int width) {
  for (int j = 0; j < width; j += WIDTH) {
    const bool partial = width - j < WIDTH;
    const lanes some = first_lanes(partial ? width - j : 0);
    vec sum = splat(0);
    for (int k = 0; k < depth; k++) {
      const float *const at = x + (size_t)k * width + j;
      sum += partial ? load_part(at, some) : load(at);
    }
    if (partial) store_part(sums + j, load_part(sums + j, some) + sum, some);
    else store(sums + j, load(sums + j) + sum);
  }
}

WORTH(convolutionBackwardWeights, numRows * height * width * channels * filters, 4096)
void KERNEL(convolutionBackwardWeights)(float *dWeight, float *dBias, float *dy, float *x, float *workspace,
                                        int32_t height, int32_t width, int32_t channels, int32_t filters,
                                        int32_t kernelSize, int32_t numRows, int32_t xFrom) {
  const size_t row = (size_t)width * channels, size = height * row;
  const size_t framed = (size_t)(width + kernelSize - 1) * channels, taps = (size_t)kernelSize * channels;
  memset(workspace, 0, (height + kernelSize - 1) * framed * sizeof *workspace);
  x += xFrom * size;
  for (; numRows > 0; numRows--, x += size, dy += (size_t)height * width * filters) {
    frame(workspace, framed, x, row, height, (kernelSize - 1) >> 1, channels);
    for (int i = 0; i < kernelSize; i++) {
      patches(dWeight + i * taps * filters, filters, NULL, true, workspace + i * framed, 1, channels, framed, dy, filters,
              taps, filters, height, width);
    }
    add_columns(dBias, dy, height * width, filters);
  }
}

WORTH(convolutionBackwardInput, numRows * height * width * channels * filters, 4096)
void KERNEL(convolutionBackwardInput)(float *dx, float *dy, float *weight, float *workspace, float *x, int32_t height,
                                      int32_t width, int32_t channels, int32_t filters, int32_t kernelSize,
                                      int32_t numRows) {
  // A convolution of dy by the filters turned around, from filters to channels.
  const size_t row = (size_t)width * filters, ins = (size_t)width * channels;
  const size_t framed = (size_t)(width + kernelSize - 1) * filters, taps = (size_t)kernelSize * kernelSize;
  float *const turned = workspace + (height + kernelSize - 1) * framed;
  memset(workspace, 0, (height + kernelSize - 1) * framed * sizeof *workspace);
  for (size_t tap = 0; tap < taps; tap++) {
    transpose(turned + (taps - 1 - tap) * channels * filters, channels, weight + tap * channels * filters, filters, channels,
              filters);
  }
  for (; numRows > 0; numRows--, dy += height * row) {
    frame(workspace, framed, dy, row, height, kernelSize >> 1, filters);
    for (int i = 0; i < height; i++, dx += ins, x += ins) {
      patches(dx, channels, NULL, false, workspace + i * framed, filters, 1, framed, turned, channels, width, channels,
              kernelSize, kernelSize * filters);
      for (size_t k = 0; k < ins; k++) {
        const float gradient = dx[k]; // Read whether it counts or not, so that there is no branch.
        dx[k] = x[k] > 0 ? gradient : 0;
      }
    }
  }
}
