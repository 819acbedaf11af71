/** What moves, gathers and sums; the plain twin `layout.ts` says what is computed. */
#include "../fours.native.h"

/** Rows whose sum is kept in registers before it is added to what came before: rounding grows with their number only. */
#define CHUNK_ROWS 64
/** Neighbors that are summed in f32 before they are added in f64. */
#define CHUNK_LENGTH 256

void KERNEL(transposeMatrices)(float *restrict out, float *restrict x, int32_t count, int32_t height, int32_t width) {
  const size_t matrix = (size_t)height * width;
  for (; count > 0; count--, x += matrix, out += matrix) {
    int i = 0;
    for (; i + 4 <= height; i += 4) {
      const float *at = x + (size_t)i * width;
      float *to = out + i;
      int j = 0;
      for (; j + 4 <= width; j += 4, at += 4, to += 4 * height) {
        const vec r0 = load(at), r1 = load(at + width), r2 = load(at + 2 * width), r3 = load(at + 3 * width);
        const vec low01 = mix_low(r0, r1), low23 = mix_low(r2, r3), high01 = mix_high(r0, r1), high23 = mix_high(r2, r3);
        store(to, join_low(low01, low23));
        store(to + height, join_high(low01, low23));
        store(to + 2 * height, join_low(high01, high23));
        store(to + 3 * height, join_high(high01, high23));
      }
      for (; j < width; j++, at++, to += height) store(to, (vec){at[0], at[width], at[2 * width], at[3 * width]});
    }
    for (; i < height; i++) {
      KEPT_LOOP for (int j = 0; j < width; j++) out[(size_t)j * height + i] = x[(size_t)i * width + j];
    }
  }
}

void KERNEL(copyRows)(float *out, int32_t outElementBytes, float *x, int32_t numRows, int32_t width, int32_t outRow,
                      int32_t xRow, int32_t outFrom, int32_t xFrom) {
  if (outElementBytes == 1) {
    for (int row = 0; row < numRows; row++) {
      memcpy((uint8_t *)out + outFrom + (size_t)row * outRow, (uint8_t *)x + xFrom + (size_t)row * xRow, width);
    }
    return;
  }
  out += outFrom;
  x += xFrom;
  for (int row = 0; row < numRows; row++) copy4(out + (size_t)row * outRow, x + (size_t)row * xRow, width);
}

/** The sum of neighbors: of each chunk in sixteen f32 sums, and of those in f64. */
static double sum_row(const float *x, int length) {
  double sum = 0;
  for (; length > 0; length -= CHUNK_LENGTH) {
    four sums[4] = {{0}, {0}, {0}, {0}};
    int left = least(length, CHUNK_LENGTH);
    for (; left >= 16; left -= 16, x += 16) {
      UNROLLED for (int v = 0; v < 4; v++) sums[v] += load(x + 4 * v);
    }
    for (; left > 0; left -= 4, x += 4) sums[0] += load_part(x, left);
    sum += sum4((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
  return sum;
}

/** Adds the sums of the columns of x (depth × width) to `sums`. */
static void add_columns(float *sums, const float *x, int depth, int width) {
  int j = 0;
  for (; j + 16 <= width; j += 16) {
    four sum[4] = {{0}, {0}, {0}, {0}};
    for (int i = 0; i < depth; i++) {
      UNROLLED for (int v = 0; v < 4; v++) sum[v] += load(x + (size_t)i * width + j + 4 * v);
    }
    UNROLLED for (int v = 0; v < 4; v++) store(sums + j + 4 * v, load(sums + j + 4 * v) + sum[v]);
  }
  for (; j < width; j += 4) {
    four sum = {0};
    for (int i = 0; i < depth; i++) sum += load_part(x + (size_t)i * width + j, width - j);
    store_part(sums + j, load_part(sums + j, width - j) + sum, width - j);
  }
}

void KERNEL(sumMiddle)(float *out, float *x, int32_t count, int32_t depth, int32_t width) {
  for (; count > 0; count--, out += width) {
    if (width == 1) {
      *out = (float)sum_row(x, depth);
      x += depth;
      continue;
    }
    memset(out, 0, width * sizeof *out);
    for (int left = depth; left > 0; left -= CHUNK_ROWS) {
      const int rows = least(left, CHUNK_ROWS);
      add_columns(out, x, rows, width);
      x += (size_t)rows * width;
    }
  }
}

/** into += x. */
INLINE void add_row(float *into, const float *x, int width) {
  for (int i = 0; i < width; i += 4) {
    store_part(into + i, load_part(into + i, width - i) + load_part(x + i, width - i), width - i);
  }
}

void KERNEL(addToSegments)(float *sums, float *x, int32_t *segment, int32_t numRows, int32_t width, int32_t numSegments) {
  for (int row = 0; row < numRows; row++, x += width) {
    if (segment[row] >= 0 && segment[row] < numSegments) add_row(sums + (size_t)segment[row] * width, x, width);
  }
}

/** Some pixels of an image, or none beyond its border, to their place in a patch; or those of the patch are added to them. */
INLINE void move_pixels(bool folds, float *patch, float *pixels, bool isThere, int length) {
  if (folds) {
    if (isThere) add_row(pixels, patch, length);
  } else if (isThere) copy4(patch, pixels, length);
  else {
    for (int i = 0; i < length; i += 4) store_part(patch + i, splat(0), length - i);
  }
}

INLINE void move_patches(bool folds, float *patches, float *x, int count, int height, int width, int channels, int outHeight,
                         int outWidth, int filterHeight, int filterWidth, int strideHeight, int strideWidth,
                         int dilationHeight, int dilationWidth, int padTop, int padLeft) {
  const int run = filterWidth * channels;
  for (; count > 0; count--, x += (size_t)height * width * channels) {
    for (int y = 0; y < outHeight; y++) {
      for (int column = 0; column < outWidth; column++) {
        const int left = column * strideWidth - padLeft;
        // A row of the filter that lies on the image lies in one piece.
        const bool isWhole = dilationWidth == 1 && left >= 0 && left + filterWidth <= width;
        for (int r = 0; r < filterHeight; r++, patches += run) {
          const int row = y * strideHeight - padTop + r * dilationHeight;
          const bool isRow = row >= 0 && row < height;
          float *const pixels = x + ((ptrdiff_t)row * width + left) * channels;
          if (isWhole || !isRow) {
            move_pixels(folds, patches, pixels, isRow, run);
            continue;
          }
          for (int c = 0; c < filterWidth; c++) {
            const int at = left + c * dilationWidth;
            const bool isThere = at >= 0 && at < width;
            move_pixels(folds, patches + c * channels, pixels + c * dilationWidth * channels, isThere, channels);
          }
        }
      }
    }
  }
}

void KERNEL(unfoldPatches)(float *patches, float *x, int32_t count, int32_t height, int32_t width, int32_t channels,
                           int32_t outHeight, int32_t outWidth, int32_t filterHeight, int32_t filterWidth,
                           int32_t strideHeight, int32_t strideWidth, int32_t dilationHeight, int32_t dilationWidth,
                           int32_t padTop, int32_t padLeft) {
  move_patches(false, patches, x, count, height, width, channels, outHeight, outWidth, filterHeight, filterWidth,
               strideHeight, strideWidth, dilationHeight, dilationWidth, padTop, padLeft);
}

void KERNEL(foldPatches)(float *x, float *patches, int32_t count, int32_t height, int32_t width, int32_t channels,
                         int32_t outHeight, int32_t outWidth, int32_t filterHeight, int32_t filterWidth,
                         int32_t strideHeight, int32_t strideWidth, int32_t dilationHeight, int32_t dilationWidth,
                         int32_t padTop, int32_t padLeft) {
  move_patches(true, patches, x, count, height, width, channels, outHeight, outWidth, filterHeight, filterWidth,
               strideHeight, strideWidth, dilationHeight, dilationWidth, padTop, padLeft);
}

/** into += a · b, element by element. */
INLINE void add_products(float *into, const float *a, const float *b, int length) {
  for (int i = 0; i < length; i += 4) {
    const int left = length - i;
    store_part(into + i, madd(load_part(a + i, left), load_part(b + i, left), load_part(into + i, left)), left);
  }
}

/** As `add_products` of `addDepthwise`, where each element of the pixel meets `multiplier` elements of the others. */
static void add_spread(float *y, float *pixel, float *tap, int into, int channels, int multiplier) {
  for (int i = 0; i < channels; i++, pixel++) {
    for (int k = 0; k < multiplier; k++, y++, tap++) {
      if (into == 0) *y += *pixel * *tap;
      else if (into == 1) *pixel += *y * *tap;
      else *tap += *pixel * *y;
    }
  }
}

void KERNEL(addDepthwise)(float *y, float *x, float *weight, int32_t into, int32_t multiplier, int32_t count, int32_t height,
                          int32_t width, int32_t channels, int32_t outHeight, int32_t outWidth, int32_t filterHeight,
                          int32_t filterWidth, int32_t strideHeight, int32_t strideWidth, int32_t dilationHeight,
                          int32_t dilationWidth, int32_t padTop, int32_t padLeft) {
  const int outChannels = channels * multiplier;
  for (; count > 0; count--, x += (size_t)height * width * channels) {
    for (int row = 0; row < outHeight; row++) {
      for (int column = 0; column < outWidth; column++, y += outChannels) {
        for (int r = 0; r < filterHeight; r++) {
          const int fromRow = row * strideHeight - padTop + r * dilationHeight;
          if (fromRow < 0 || fromRow >= height) continue;
          for (int c = 0; c < filterWidth; c++) {
            const int fromColumn = column * strideWidth - padLeft + c * dilationWidth;
            if (fromColumn < 0 || fromColumn >= width) continue;
            float *const pixel = x + ((size_t)fromRow * width + fromColumn) * channels;
            float *const tap = weight + ((size_t)r * filterWidth + c) * outChannels;
            if (multiplier != 1) add_spread(y, pixel, tap, into, channels, multiplier);
            else if (into == 0) add_products(y, pixel, tap, channels);
            else if (into == 1) add_products(pixel, y, tap, channels);
            else add_products(tap, pixel, y, channels);
          }
        }
      }
    }
  }
}
