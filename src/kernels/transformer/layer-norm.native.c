/**
 * LayerNorms; the plain twin `layer-norm.ts` says what is computed. A row's sums are in four parts and the last one to three elements,
 * whose order does not depend on the width of vectors; nothing is fused.
 */
#include "../math.native.h"
#include "../tile.native.h"

INLINE float load1(const float *at) { return *at; }
INLINE void store1(float *at, float x) { *at = x; }

APART float mean_of(const float *x, int width) {
  four sum = {0};
  float rest = 0;
  int i = 0;
  KEPT_LOOP for (; i + 4 <= width; i += 4) sum += load4(x + i);
  KEPT_LOOP for (; i < width; i++) rest += x[i];
  return (sum4(sum) + rest) / (float)width;
}

/** 1 / √(mean (x − mean)² + epsilon). */
APART float inverse_of(const float *x, int width, float mean, float epsilon) {
  four squares = {0};
  float rest = 0;
  int i = 0;
  KEPT_LOOP for (; i + 4 <= width; i += 4) squares += (load4(x + i) - mean) * (load4(x + i) - mean);
  KEPT_LOOP for (; i < width; i++) rest += (x[i] - mean) * (x[i] - mean);
  return 1 / sqrtf((sum4(squares) + rest) / (float)width + epsilon);
}

WORTH(layerNormForward, numRows * width, 512)
void KERNEL(layerNormForward)(float *y, float *x, float *weight, float *bias, float epsilon, int32_t numRows, int32_t width) {
  for (int row = 0; row < numRows; row++, x += width, y += width) {
    const float mean = mean_of(x, width), inverse = inverse_of(x, width, mean, epsilon);
    int i = 0;
#define FORWARD(step, load, store)                                                                                     \
  KEPT_LOOP for (; i + step <= width; i += step)                                                                       \
      store(y + i, (load(x + i) - mean) * inverse * load(weight + i) + load(bias + i))
    FORWARD(WIDTH, load, store);
    FORWARD(1, load1, store1);
  }
}

WORTH(layerNormBackward, numRows * width, 512)
void KERNEL(layerNormBackward)(float *dx, float *dWeight, float *dBias, float *dy, float *x, float *weight, float epsilon,
                               int32_t numRows, int32_t width, bool accumulate) {
  for (int row = 0; row < numRows; row++, dx += width, dy += width, x += width) {
    const float mean = mean_of(x, width), inverse = inverse_of(x, width, mean, epsilon);
    four straights = {0}, projections = {0};
    float straight = 0, projected = 0;
    int i = 0;
#define SUMS(step, load, straight, projected)                                                                          \
  KEPT_LOOP for (; i + step <= width; i += step) {                                                                     \
    straight += load(dy + i) * load(weight + i);                                                                       \
    projected += load(dy + i) * load(weight + i) * (load(x + i) - mean);                                               \
  }
    SUMS(4, load4, straights, projections)
    SUMS(1, load1, straight, projected)
    const float common = (sum4(straights) + straight) / (float)width;
    const float along = (sum4(projections) + projected) / (float)width * inverse * inverse;
    i = 0;
#define BACKWARD(type, step, load, store)                                                                              \
  KEPT_LOOP for (; i + step <= width; i += step) {                                                                     \
    const type output = load(dy + i), apart = load(x + i) - mean;                                                      \
    type through = (output * load(weight + i) - common - apart * along) * inverse;                                     \
    if (accumulate) through += load(dx + i);                                                                           \
    store(dx + i, through);                                                                                            \
    store(dWeight + i, load(dWeight + i) + output * apart * inverse);                                                  \
    store(dBias + i, load(dBias + i) + output);                                                                        \
  }
    BACKWARD(vec, WIDTH, load, store)
    BACKWARD(float, 1, load1, store1)
  }
}
