/**
 * Dense layers in vectors of the machine; the plain twin `dense.ts` says what each kernel computes.
 *
 * Where a layer has one or two outputs, a vector of outputs would be empty but for those. Its forward pass sums 16 products at
 * a time over the inputs; its weights' gradient has the inputs for lanes. Both take the same operations for every row.
 */
#include "../tile.native.h"

enum { LINEAR, TANH, RELU };

/** Rows whose inputs stay in the second-level cache and whose outputs stay in the first: a multiple of 6 and of 8. */
#define ACTIVE_ROWS 96
/** Rows whose inputs and gradients stay in the cache while the weights' gradient is summed. */
#define CHUNK_ROWS 128
/** Outputs of a layer that is narrow. */
#define NARROW 2
/** Inputs of a narrow layer of two outputs whose weights are laid apart. */
#define NARROW_INPUTS 1024

/** tanh in place, by the rational function of `vector.simd.ts`. */
static void tanh_in_place(float *restrict x, int length) {
  for (int i = 0; i < length; i++) {
    const float size = fabsf(x[i]);
    const float v = size > 7.9f ? 7.9f : size; // NaN stays NaN.
    const float s = v * v;
    float p = __builtin_fmaf(s, 46.26529307466246f, 11877.315846099367f);
    p = __builtin_fmaf(s, __builtin_fmaf(s, p, 518924.58856003074f), 4011967.2638858575f);
    float q = __builtin_fmaf(s, s + 962.919594741476f, 95701.77987539067f);
    q = __builtin_fmaf(s, __builtin_fmaf(s, q, 1856242.906143549f), 4011967.788810167f);
    x[i] = copysignf(v * p / q, x[i]);
  }
}

static void activate(float *restrict y, int length, int activation) {
  if (activation == TANH) tanh_in_place(y, length);
  else if (activation == RELU) {
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

/** Σ x · w over the inputs, in 16 sums. */
INLINE float dot(const float *x, const float *w, int length) {
  vec sums[16 / WIDTH];
  for (int v = 0; v < 16 / WIDTH; v++) sums[v] = splat(0);
  int i = 0;
  for (; i + 16 <= length; i += 16) {
    for (int v = 0; v < 16 / WIDTH; v++) {
      sums[v] = madd(load(x + i + v * WIDTH), load(w + i + v * WIDTH), sums[v]);
    }
  }
  if (i < length) {
    for (int v = 0; v < 16 / WIDTH; v++) {
      const int left = length - i - v * WIDTH;
      const lanes some = first_lanes(left < 0 ? 0 : least(left, WIDTH));
      sums[v] = madd(load_part(x + i + v * WIDTH, some), load_part(w + i + v * WIDTH, some), sums[v]);
    }
  }
  float all[16];
  for (int v = 0; v < 16 / WIDTH; v++) store(all + v * WIDTH, sums[v]);
  return sum16(all);
}

/** One or two outputs. */
static void forward_narrow(float *y, const float *x, const float *weight, const float *bias, int rows, int inputs,
                           int outputs) {
  float apart[NARROW * NARROW_INPUTS];
  if (outputs == 2) {
    for (int k = 0; k < inputs; k++) {
      apart[k] = weight[2 * k];
      apart[NARROW_INPUTS + k] = weight[2 * k + 1];
    }
    for (int row = 0; row < rows; row++, x += inputs) {
      y[2 * row] = bias[0] + dot(x, apart, inputs);
      y[2 * row + 1] = bias[1] + dot(x, apart + NARROW_INPUTS, inputs);
    }
  } else {
    for (int row = 0; row < rows; row++, x += inputs) y[row] = bias[0] + dot(x, weight, inputs);
  }
}

void KERNEL(denseForward)(float *y, float *x, float *weight, float *bias, int32_t numRows, int32_t numInputs,
                          int32_t numOutputs, int32_t activation, int32_t yFrom, int32_t xFrom) {
  y += (size_t)yFrom * numOutputs;
  x += (size_t)xFrom * numInputs;
  const bool narrow = numOutputs <= NARROW && numInputs > 4 && numInputs <= NARROW_INPUTS;
  for (int left = numRows; left > 0; left -= ACTIVE_ROWS) {
    const int rows = least(left, ACTIVE_ROWS);
    if (narrow) forward_narrow(y, x, weight, bias, rows, numInputs, numOutputs);
    else {
      const struct sums sums = {y, numOutputs, bias, 0};
      multiply(sums, x, numInputs, weight, numOutputs, rows, numOutputs, numInputs);
    }
    activate(y, rows * numOutputs, activation);
    y += (size_t)ACTIVE_ROWS * numOutputs;
    x += (size_t)ACTIVE_ROWS * numInputs;
  }
}

/** Adds the sums of the columns of `x` (depth × width): four sums a column, of every fourth row each. */
static void add_rows(float *restrict sums, const float *restrict x, int depth, int width) {
  for (int left = width; left > 0; left -= WIDTH, sums += WIDTH, x += WIDTH) {
    const lanes some = first_lanes(least(left, WIDTH));
    vec part[4];
    for (int i = 0; i < 4; i++) part[i] = splat(0);
    int row = 0;
    for (; row + 4 <= depth; row += 4) {
      for (int i = 0; i < 4; i++) part[i] += load_part(x + (size_t)(row + i) * width, some);
    }
    for (int i = 0; row + i < depth; i++) part[i] += load_part(x + (size_t)(row + i) * width, some);
    store_part(sums, load_part(sums, some) + ((part[0] + part[2]) + (part[1] + part[3])), some);
  }
}

/** Inputs of a narrow layer whose gradients are summed together. */
#define NARROW_LANES 256

/** Adds xᵀ · dy for one or two outputs: dyᵀ · x, and that transposed. */
static void backward_narrow(float *dWeight, const float *dy, const float *x, int depth, int inputs, int outputs) {
  float sums[NARROW * NARROW_LANES];
  for (int k = 0; k < inputs; k += NARROW_LANES) {
    const int width = least(inputs - k, NARROW_LANES);
    for (int j = 0; j < outputs; j++) {
      for (int i = 0; i < width; i++) sums[j * width + i] = dWeight[(size_t)(k + i) * outputs + j];
    }
    multiply_beside((struct sums){sums, width, sums, width}, dy, outputs, x + k, inputs, outputs, width, depth);
    for (int j = 0; j < outputs; j++) {
      for (int i = 0; i < width; i++) dWeight[(size_t)(k + i) * outputs + j] = sums[j * width + i];
    }
  }
}

void KERNEL(denseBackwardWeights)(float *dWeight, float *dBias, float *dy, float *x, int32_t numRows, int32_t numInputs,
                                  int32_t numOutputs, int32_t xFrom) {
  x += (size_t)xFrom * numInputs;
  for (int left = numRows; left > 0; left -= CHUNK_ROWS) {
    const int depth = least(left, CHUNK_ROWS);
    if (numOutputs <= NARROW) backward_narrow(dWeight, dy, x, depth, numInputs, numOutputs);
    else {
      const struct sums sums = {dWeight, numOutputs, dWeight, numOutputs};
      multiply_beside(sums, x, numInputs, dy, numOutputs, numInputs, numOutputs, depth);
    }
    add_rows(dBias, dy, depth, numOutputs);
    dy += (size_t)CHUNK_ROWS * numOutputs;
    x += (size_t)CHUNK_ROWS * numInputs;
  }
}

void KERNEL(denseBackwardInput)(float *dx, float *dy, float *weight, float *workspace, float *x, int32_t numRows,
                                int32_t numInputs, int32_t numOutputs, bool accumulate, int32_t activation) {
  transpose(workspace, numInputs, weight, numOutputs, numInputs, numOutputs);
  for (int left = numRows; left > 0; left -= ACTIVE_ROWS) {
    const int rows = least(left, ACTIVE_ROWS);
    const struct sums sums = {dx, numInputs, accumulate ? dx : NULL, numInputs};
    multiply(sums, dy, numOutputs, workspace, numInputs, rows, numInputs, numOutputs);
    activation_backward(dx, x, rows * numInputs, activation);
    dx += (size_t)ACTIVE_ROWS * numInputs;
    dy += (size_t)ACTIVE_ROWS * numOutputs;
    x += (size_t)ACTIVE_ROWS * numInputs;
  }
}
