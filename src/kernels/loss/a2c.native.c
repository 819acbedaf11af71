/** The loss of advantage actor-critic, four rows at a time in f32, its sums in f64; the plain twin `a2c.ts` has the formulas. */
#include "../fours.native.h"

void KERNEL(a2cLoss)(float *dLogprob, float *dEntropy, float *dValue, double *sums, float *evaluatedLogprob, float *entropy,
                     float *evaluatedValue, float *advantage, float *batchReturn, double advantageMean,
                     double advantageScale, double entropyCoef, double valueCoef, double weight, int32_t numRows,
                     int32_t from, int32_t sumsFrom) {
  const float mean = (float)advantageMean, scale = (float)advantageScale;
  const float byPolicy = (float)weight, byValue = (float)(weight * valueCoef);
  const vec byEntropy = splat((float)(-weight * entropyCoef));
  two policyLossSum = {0}, valueLossSum = {0}, entropySum = {0};
  for (int i = 0; i < numRows; i += 4) {
    // Beyond the last row all inputs are 0; the sums leave those out.
    const int left = numRows - i;
    const ints row = first4(left);
    const vec drawback = -((load_part(advantage + from + i, left) - mean) * scale);
    const vec error = load_part(evaluatedValue + i, left) - load_part(batchReturn + from + i, left);
    store_part(dLogprob + i, byPolicy * drawback, left);
    store_part(dEntropy + i, byEntropy, left);
    store_part(dValue + i, byValue * error, left);
    policyLossSum = add_pairs(policyLossSum, keep4(row, drawback * load_part(evaluatedLogprob + i, left)));
    valueLossSum = add_pairs(valueLossSum, keep4(row, error * error));
    entropySum = add_pairs(entropySum, load_part(entropy + i, left));
  }
  sums += sumsFrom;
  sums[0] += sum2(policyLossSum);
  sums[1] += 0.5 * sum2(valueLossSum);
  sums[2] += sum2(entropySum);
}
