/** Running normalization, four dimensions or elements at a time; the plain twin `running.ts` has the formulas. */
#include "../fours.native.h"

/** Up to four elements of a row from the `at`th on: floats, or bytes. */
INLINE four elements(const float *x, int isByte, size_t at, int left) {
  if (!isByte) return load_part(x + at, left);
  const uint8_t *bytes = (const uint8_t *)x + at;
  return (four){bytes[0], left > 1 ? bytes[1] : 0, left > 2 ? bytes[2] : 0, left > 3 ? bytes[3] : 0};
}

/** With the plain twin's bits: each dimension sums its rows in the same order, in f64. */
void KERNEL(updateRunning)(double *mean, double *squares, double *count, float *x, int32_t xElementBytes, uint8_t *valid,
                           int32_t numRows, int32_t width) {
  const int isByte = xElementBytes == 1;
  int added = 0;
  for (int row = 0; row < numRows; row++) added += valid[row] != 0;
  if (added == 0) return;
  const double before = *count, sum = before + added, share = added / sum;
  for (int k = 0; k < width; k += 4) {
    const int left = width - k;
    four_doubles batch = {0}, apart = {0};
    size_t at = k;
    for (int row = 0; row < numRows; row++, at += width) {
      if (valid[row] != 0) batch += doubles4(elements(x, isByte, at, left));
    }
    batch /= (double)added;
    at = k;
    for (int row = 0; row < numRows; row++, at += width) {
      const four_doubles from = doubles4(elements(x, isByte, at, left)) - batch;
      if (valid[row] != 0) apart += from * from;
    }
    EACH {
      if (l >= left) continue;
      const double moved = batch[l] - mean[k + l];
      mean[k + l] += moved * share;
      squares[k + l] += apart[l] + moved * moved * (before * share);
    }
  }
  *count = sum;
}

INLINE void normalize4(float *y, const float *x, four center, four deviation, float clip, int left) {
  if (left > 0) store_part(y, clamp4((load_part(x, left) - center) / deviation, splat(-clip), splat(clip)), left);
}

void KERNEL(normalizeRows)(float *y, float *x, float *center, float *deviation, double clip, int32_t numRows, int32_t width,
                           int32_t from) {
  const float most = (float)clip;
  x += (size_t)from * width;
  if (width <= 4) {
    // Twelve elements are whole rows of any of these widths.
    const four center0 = repeated(center, width, 0), center1 = repeated(center, width, 4);
    const four center2 = repeated(center, width, 8), deviation0 = repeated(deviation, width, 0);
    const four deviation1 = repeated(deviation, width, 4), deviation2 = repeated(deviation, width, 8);
    int left = numRows * width;
    for (; left >= 12; left -= 12, x += 12, y += 12) {
      normalize4(y, x, center0, deviation0, most, 4);
      normalize4(y + 4, x + 4, center1, deviation1, most, 4);
      normalize4(y + 8, x + 8, center2, deviation2, most, 4);
    }
    normalize4(y, x, center0, deviation0, most, left);
    normalize4(y + 4, x + 4, center1, deviation1, most, left - 4);
    normalize4(y + 8, x + 8, center2, deviation2, most, left - 8);
    return;
  }
  for (int row = 0; row < numRows; row++, x += width, y += width) {
    for (int k = 0; k < width; k += 4) {
      const int left = width - k;
      normalize4(y + k, x + k, load_part(center + k, left), load_part(deviation + k, left), most, left);
    }
  }
}
