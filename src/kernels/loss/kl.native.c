/** Estimates of KL, four rows at a time, summed in f64; the plain twin `kl.ts` has the formulas. */
#include "../fours.native.h"

void KERNEL(klEstimates)(double *estimates, float *logprob, float *oldLogprob, int32_t numRows) {
  two k1 = {0}, k2 = {0}, k3 = {0};
  for (int i = 0; i < numRows; i += 4) {
    const int left = numRows - i;
    const four logRatio = load_part(logprob + i, left) - load_part(oldLogprob + i, left);
    k1 = add_pairs(k1, logRatio);
    k2 = add_pairs(k2, logRatio * logRatio);
    k3 = add_pairs(k3, keep4(first4(left), exp_rest4(logRatio, exp4(logRatio))));
  }
  estimates[0] = -sum2(k1) / numRows;
  estimates[1] = 0.5 * sum2(k2) / numRows;
  estimates[2] = sum2(k3) / numRows;
}
