/** A long short-term memory; the plain twin `lstm.ts` says what is computed. */
#include "steps.native.h"

enum { LINEAR };

/** The gates i, f, g and o of a row, tanh s, and the state (h, s) after it, from the inputs' and the state's shares of them. */
static void step(float *restrict gates, float *restrict after, const float *restrict x, const float *restrict product,
                 const float *restrict before, int units) {
  float *const g = gates + 2 * units, *const o = gates + 3 * units, *const tanh = gates + 4 * units;
  for (int k = 0; k < 2 * units; k++) gates[k] = gate(x[k] + product[k]);
  for (int k = 0; k < units; k++) g[k] = tanh1(x[2 * units + k] + product[2 * units + k]);
  for (int k = 0; k < units; k++) o[k] = gate(x[3 * units + k] + product[3 * units + k]);
  for (int k = 0; k < units; k++) after[units + k] = gates[units + k] * before[units + k] + gates[k] * g[k];
  for (int k = 0; k < units; k++) tanh[k] = tanh1(after[units + k]);
  for (int k = 0; k < units; k++) after[k] = o[k] * tanh[k];
}

WORTH(lstmForward, numLanes * length * units * units, 4096)
void KERNEL(lstmForward)(float *after, float *gates, float *x, float *weight, float *bias, float *recorded,
                         float *continues, float *carried, float *scratch, int32_t numLanes, int32_t length,
                         int32_t units, int32_t continuesLength, int32_t carriedLength) {
  const struct states states = {after, recorded, continues, carried, continuesLength, carriedLength, length, 2 * units};
  float *const product = scratch + (size_t)numLanes * units;
  for (int t = 0; t < length; t++) {
    for (int n = 0; n < numLanes; n++) copy(scratch + (size_t)n * units, state_before(&states, n, t), units);
    KERNEL(denseForward)(product, scratch, weight, bias, numLanes, units, 4 * units, LINEAR, 0, 0);
    for (int n = 0; n < numLanes; n++) {
      const size_t row = (size_t)n * length + t;
      step(gates + 5 * row * units, after + 2 * row * units, x + 4 * row * units, product + 4 * (size_t)n * units,
           state_before(&states, n, t), units);
    }
  }
}

/** The gradients by what went into a row's gates, and by the cell before. */
static void step_backward(float *restrict dProduct, float *restrict dCell, const float *restrict dHidden,
                          const float *restrict dAfter, const float *restrict gates, const float *restrict before,
                          int units) {
  for (int k = 0; k < units; k++) {
    const float i = gates[k], f = gates[units + k], g = gates[2 * units + k], o = gates[3 * units + k];
    const float tanh = gates[4 * units + k];
    const float byH = dAfter[k] + dHidden[k];
    const float byS = dAfter[units + k] + dCell[k] + byH * o * tanh_slope(tanh);
    dProduct[k] = settle(byS * g * gate_slope(i));
    dProduct[units + k] = settle(byS * before[units + k] * gate_slope(f));
    dProduct[2 * units + k] = settle(byS * i * tanh_slope(g));
    dProduct[3 * units + k] = settle(byH * tanh * gate_slope(o));
    dCell[k] = settle(byS * f);
  }
}

WORTH(lstmBackward, numLanes * length * units * units, 4096)
void KERNEL(lstmBackward)(float *dX, float *dWeight, float *dBias, float *dAfter, float *after, float *gates,
                          float *weight, float *recorded, float *continues, float *carried, float *scratch,
                          int32_t numLanes, int32_t length, int32_t units, int32_t continuesLength,
                          int32_t carriedLength) {
  const struct states states = {after, recorded, continues, carried, continuesLength, carriedLength, length, 2 * units};
  const size_t numRows = (size_t)numLanes * length;
  float *const hidden = scratch; // numRows × units: what each row began with, the lanes of a step together.
  float *const dProduct = hidden + numRows * units; // numRows × 4 · units.
  float *const dHidden = dProduct + 4 * numRows * units; // numLanes × units, by the h of the row at hand; then by its s.
  float *const dCell = dHidden + (size_t)numLanes * units;
  float *const transposed = dCell + (size_t)numLanes * units;
  set_zero(dHidden, 2 * (size_t)numLanes * units);
  for (int t = length - 1; t >= 0; t--) {
    float *const dStep = dProduct + 4 * (size_t)t * numLanes * units;
    for (int n = 0; n < numLanes; n++) {
      const size_t row = (size_t)n * length + t;
      const float *const before = state_before(&states, n, t);
      float *const dOf = dStep + 4 * (size_t)n * units;
      copy(hidden + ((size_t)t * numLanes + n) * units, before, units);
      step_backward(dOf, dCell + (size_t)n * units, dHidden + (size_t)n * units, dAfter + 2 * row * units,
                    gates + 5 * row * units, before, units);
      copy(dX + 4 * row * units, dOf, 4 * units);
    }
    if (t == 0) break;
    KERNEL(denseBackwardInput)(dHidden, dStep, weight, transposed, dHidden, numLanes, units, 4 * units, false, LINEAR);
    for (int n = 0; n < numLanes; n++) {
      if (goes_on(&states, (size_t)n * length + t)) continue;
      set_zero(dHidden + (size_t)n * units, units);
      set_zero(dCell + (size_t)n * units, units);
    }
  }
  KERNEL(denseBackwardWeights)(dWeight, dBias, dProduct, hidden, numRows, units, 4 * units, 0);
}
