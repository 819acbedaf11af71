/** The gated feed-forward layer's activation; the plain twin `swiglu.ts` says what is computed. */
#include "../math.native.h"

WORTH(swigluForward, length, 256)
void KERNEL(swigluForward)(float *restrict y, float *restrict gate, float *restrict up, int32_t length) {
  for (int i = 0; i < length; i++) y[i] = gate[i] * sigmoid1(gate[i]) * up[i];
}

WORTH(swigluBackward, length, 256)
void KERNEL(swigluBackward)(float *restrict gate, float *restrict up, float *restrict dy, int32_t length) {
  for (int i = 0; i < length; i++) {
    const float x = gate[i], sigmoid = sigmoid1(x);
    const float gradient = dy[i] * sigmoid;
    const float slope = 1 + x * (1 - sigmoid);
    gate[i] = gradient * up[i] * slope;
    up[i] = gradient * x;
  }
}
