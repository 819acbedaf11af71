/** Rows drawn by priority, with the plain twin's bits: exp and log are fdlibm's (Sun Microsystems 1993), as V8 has them. */
#include "../philox.native.h"

/** As in random.ts. */
#define STREAM_REPLAY 6

INLINE uint64_t bits_of_double(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
INLINE double double_of(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/** log x of normal x ≥ 0. */
INLINE double log_of(double x) {
  if (!(x > 0)) return x == 0 ? -__builtin_inf() : __builtin_nan("");
  if (x == __builtin_inf()) return x;
  const uint64_t bits = bits_of_double(x);
  const int32_t high = (int32_t)(bits >> 32) & 0xfffff, up = (high + 0x95f64) & 0x100000;
  const double k = (int32_t)(bits >> 52) - 1023 + (up >> 20);
  const double f = double_of((uint64_t)(high | (up ^ 0x3ff00000)) << 32 | (bits & 0xffffffff)) - 1;
  const double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
  if ((0xfffff & (2 + high)) < 3) {
    if (f == 0) return k == 0 ? 0 : k * ln2_high + k * ln2_low;
    const double r = f * f * (0.5 - 0.33333333333333333 * f);
    return k == 0 ? f - r : k * ln2_high - ((r - k * ln2_low) - f);
  }
  const double s = f / (2.0 + f), z = s * s, w = z * z;
  const double even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double odd = z * (6.666666666666735130e-01 +
                          w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double r = odd + even;
  if (((high - 0x6147a) | (0x6b851 - high)) > 0) {
    const double half = 0.5 * f * f;
    return k == 0 ? f - (half - s * (half + r)) : k * ln2_high - ((half - (s * (half + r) + k * ln2_low)) - f);
  }
  return k == 0 ? f - s * (f - r) : k * ln2_high - ((s * (f - r) - k * ln2_low) - f);
}

/** eˣ. */
INLINE double exp_of(double x) {
  if (x != x) return x;
  if (x > 7.09782712893383973096e+02) return __builtin_inf();
  if (x < -7.45133219101941108420e+02) return 0;
  const uint32_t size = (uint32_t)(bits_of_double(x) >> 32) & 0x7fffffff;
  double high = 0, low = 0;
  int32_t k = 0;
  if (size > 0x3fd62e42) {
    if (size < 0x3ff0a2b2) {
      if (x == 1.0) return 2.718281828459045;
      k = x < 0 ? -1 : 1;
    } else k = (int32_t)(1.44269504088896338700 * x + (x < 0 ? -0.5 : 0.5));
    high = x - k * 6.93147180369123816490e-01;
    low = k * 1.90821492927058770002e-10;
    x = high - low;
  } else if (size < 0x3e300000) return 1 + x;
  const double t = x * x;
  const double c =
      x - t * (1.66666666666666019037e-01 +
               t * (-2.77777777770155933842e-03 +
                    t * (6.61375632143793436117e-05 + t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08))));
  if (k == 0) return 1 - ((x * c) / (c - 2.0) - x);
  const double y = 1 - ((low - (x * c) / (2.0 - c)) - high);
  if (k == 1024) return y * 2.0 * 0x1p1023;
  if (k >= -1021) return y * double_of((uint64_t)(k + 1023) << 52);
  return y * double_of((uint64_t)(k + 2023) << 52) * 0x1p-1000;
}

WORTH(prioritiesOfErrors, count, 16)
double KERNEL(prioritiesOfErrors)(float *error, double exponent, double highest, int32_t count) {
  for (int i = 0; i < count; i++) {
    error[i] = (float)exp_of(exponent * log_of(error[i] + 1e-6));
    if (error[i] > highest || error[i] != error[i]) highest = error[i]; // NaN stays.
  }
  return highest;
}

WORTH(setPriorities, count, 16)
int32_t KERNEL(setPriorities)(double *tree, int32_t treeLength, uint32_t *rows, float *priority, int32_t count) {
  const uint32_t leaves = (uint32_t)treeLength / 2;
  int32_t added = 0;
  for (int i = 0; i < count; i++) {
    double *const leaf = tree + leaves + rows[i];
    added += (priority[i] > 0) - (*leaf > 0);
    *leaf = priority[i];
  }
  // A level after another, so that the sums of a level need not wait for one another; all of a level that has fewer.
  uint32_t level = leaves / 2, shift = 1;
  if (count == 0) return 0;
  for (; level > (uint32_t)count; level /= 2, shift++) {
    for (int i = 0; i < count; i++) {
      const uint32_t node = (leaves + rows[i]) >> shift;
      tree[node] = tree[2 * node] + tree[2 * node + 1];
    }
  }
  for (uint32_t node = 2 * level - 1; node >= 1 && level >= 1; node--) tree[node] = tree[2 * node] + tree[2 * node + 1];
  return added;
}

WORTH(drawByPriority, count, 16)
void KERNEL(drawByPriority)(uint32_t *rows, float *weight, double *tree, int32_t treeLength, double numRows,
                            double correction, int32_t count, int32_t step, int32_t key0, int32_t key1) {
  const uint32_t leaves = (uint32_t)treeLength / 2;
  const double sum = tree[1];
  for (int first = 0; first < count; first += 16) {
    const uint32_t counter = (uint32_t)first / 4, now = (uint32_t)step;
    const uints counters = {counter, counter + 1, counter + 2, counter + 3}, steps = {now, now, now, now};
    const uints stream = {STREAM_REPLAY, STREAM_REPLAY, STREAM_REPLAY, STREAM_REPLAY};
    const struct words words = philox4((struct words){{counters, steps, (uints){0}, stream}}, key0, key1);
    UNROLLED for (int i = 0; i < 16; i++) {
      if (first + i < count) rows[first + i] = words.of[i & 3][i >> 2];
    }
  }
  // Eight go down together, since each waits for memory at each level.
  for (int first = 0; first < count; first += 8) {
    double left[8];
    uint32_t node[8];
    UNROLLED for (int l = 0; l < 8; l++) {
      const int i = first + l < count ? first + l : count - 1;
      left[l] = (i + (double)(rows[i] >> 8) * 0x1p-24) / count * sum;
      node[l] = 1;
    }
    KEPT_LOOP for (uint32_t width = leaves; width > 1; width /= 2) {
      UNROLLED for (int l = 0; l < 8; l++) {
        const double *const pair = tree + 2 * node[l];
        // Where rounding has left too much, it still ends at a row of a priority above 0.
        const bool stays = ((left[l] < pair[0]) & (pair[0] > 0)) | (pair[1] == 0);
        left[l] -= double_of(bits_of_double(pair[0]) & -(uint64_t)!stays); // A branch here is foretold wrong half the time.
        node[l] = 2 * node[l] + !stays;
      }
    }
    UNROLLED for (int l = 0; l < 8; l++) {
      if (first + l < count) rows[first + l] = node[l] - leaves;
    }
  }
  float largest = 0;
  for (int i = 0; i < count; i++) {
    weight[i] = correction == 0 ? 1 : (float)exp_of(-correction * log_of(numRows * tree[leaves + rows[i]] / sum));
    if (weight[i] > largest || weight[i] != weight[i]) largest = weight[i];
  }
  for (int i = 0; i < count; i++) weight[i] = (float)((double)weight[i] / (double)largest);
}
