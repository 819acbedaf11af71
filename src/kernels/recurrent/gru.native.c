/** A gated recurrent unit; the plain twin `gru.ts` says what is computed. */
#include "steps.native.h"

enum { LINEAR };

/** The gates r, z, n and m of a row, and the state after it, from the inputs' and the state's shares of them. */
static void step(float *restrict gates, float *restrict after, const float *restrict x, const float *restrict product,
                 const float *restrict h, int units) {
  for (int i = 0; i < units; i++) {
    const float r = gate(x[i] + product[i]), z = gate(x[units + i] + product[units + i]);
    const float m = product[2 * units + i];
    const float n = tanh1(x[2 * units + i] + r * m);
    gates[i] = r;
    gates[units + i] = z;
    gates[2 * units + i] = n;
    gates[3 * units + i] = m;
    after[i] = n + z * (h[i] - n);
  }
}

WORTH(gruForward, numLanes * length * units * units, 4096)
void KERNEL(gruForward)(float *after, float *gates, float *x, float *weight, float *bias, float *recorded,
                        float *continues, float *carried, float *scratch, int32_t numLanes, int32_t length,
                        int32_t units, int32_t continuesLength, int32_t carriedLength) {
  const struct states states = {after, recorded, continues, carried, continuesLength, carriedLength, length, units};
  float *const product = scratch + (size_t)numLanes * units;
  for (int t = 0; t < length; t++) {
    for (int n = 0; n < numLanes; n++) copy(scratch + (size_t)n * units, state_before(&states, n, t), units);
    KERNEL(denseForward)(product, scratch, weight, bias, numLanes, units, 3 * units, LINEAR, 0, 0);
    for (int n = 0; n < numLanes; n++) {
      const size_t row = (size_t)n * length + t;
      step(gates + 4 * row * units, after + row * units, x + 3 * row * units, product + 3 * (size_t)n * units,
           scratch + (size_t)n * units, units);
    }
  }
}

/** The gradients by what went into a row's gates, in two places, and by its state before, of which one part. */
static void step_backward(float *restrict dX, float *restrict dProduct, float *restrict dState, const float *restrict dAfter,
                          const float *restrict gates, const float *restrict h, int units) {
  for (int i = 0; i < units; i++) {
    const float r = gates[i], z = gates[units + i], n = gates[2 * units + i], m = gates[3 * units + i];
    const float d = dAfter[i] + dState[i];
    const float dN = settle(d * (1 - z) * tanh_slope(n));
    const float dR = settle(dN * m * gate_slope(r));
    const float dZ = settle(d * (h[i] - n) * gate_slope(z));
    dX[i] = dProduct[i] = dR;
    dX[units + i] = dProduct[units + i] = dZ;
    dX[2 * units + i] = dN;
    dProduct[2 * units + i] = settle(dN * r);
    dState[i] = settle(d * z);
  }
}

WORTH(gruBackward, numLanes * length * units * units, 4096)
void KERNEL(gruBackward)(float *dX, float *dWeight, float *dBias, float *dAfter, float *after, float *gates,
                         float *weight, float *recorded, float *continues, float *carried, float *scratch,
                         int32_t numLanes, int32_t length, int32_t units, int32_t continuesLength,
                         int32_t carriedLength) {
  const struct states states = {after, recorded, continues, carried, continuesLength, carriedLength, length, units};
  const size_t numRows = (size_t)numLanes * length;
  float *const hidden = scratch; // numRows × units: what each row began with, the lanes of a step together.
  float *const dProduct = hidden + numRows * units; // numRows × 3 · units.
  float *const dState = dProduct + 3 * numRows * units; // numLanes × units.
  float *const transposed = dState + (size_t)numLanes * units;
  set_zero(dState, (size_t)numLanes * units);
  for (int t = length - 1; t >= 0; t--) {
    float *const dStep = dProduct + 3 * (size_t)t * numLanes * units;
    for (int n = 0; n < numLanes; n++) {
      const size_t row = (size_t)n * length + t;
      float *const h = hidden + ((size_t)t * numLanes + n) * units;
      copy(h, state_before(&states, n, t), units);
      step_backward(dX + 3 * row * units, dStep + 3 * (size_t)n * units, dState + (size_t)n * units, dAfter + row * units,
                    gates + 4 * row * units, h, units);
    }
    if (t == 0) break;
    KERNEL(denseBackwardInput)(dState, dStep, weight, transposed, dState, numLanes, units, 3 * units, true, LINEAR);
    for (int n = 0; n < numLanes; n++) {
      if (!goes_on(&states, (size_t)n * length + t)) set_zero(dState + (size_t)n * units, units);
    }
  }
  KERNEL(denseBackwardWeights)(dWeight, dBias, dProduct, hidden, numRows, units, 3 * units, 0);
}
