/** The clipped surrogate of PPO, four rows at a time in f32, its sums in f64; the plain twin `ppo.ts` has the formulas. */
#include "../fours.native.h"

void KERNEL(ppoLoss)(float *dLogprob, float *dEntropy, float *dValue, double *sums, float *evaluatedLogprob, float *entropy,
                     float *evaluatedValue, float *batchLogprob, float *batchValue, float *advantage, float *batchReturn,
                     double advantageMean, double advantageScale, double clipCoef, double clipValue, double entropyCoef,
                     double valueCoef, double weight, int32_t numRows, int32_t from, int32_t sumsFrom) {
  const float mean = (float)advantageMean, scale = (float)advantageScale;
  const float byPolicy = (float)weight, byValue = (float)(weight * valueCoef);
  const vec lowest = splat((float)(1 - clipCoef)), highest = splat((float)(1 + clipCoef));
  const vec clip = splat((float)clipCoef), clipV = splat((float)clipValue);
  const vec byEntropy = splat((float)(-weight * entropyCoef));
  two policyLossSum = {0}, valueLossSum = {0}, entropySum = {0}, klSum = {0};
  ints clipped = {0};
  for (int i = 0; i < numRows; i += 4) {
    // Beyond the last row all inputs are 0; the sums leave those out.
    const int left = numRows - i;
    const ints row = first4(left);
    const vec logRatio = load_part(evaluatedLogprob + i, left) - load_part(batchLogprob + from + i, left);
    const vec ratio = exp4(logRatio);
    const vec drawback = -((load_part(advantage + from + i, left) - mean) * scale);
    const vec surrogate = drawback * ratio, clippedSurrogate = drawback * clamp4(ratio, lowest, highest);
    store_part(dLogprob + i, keep4(surrogate >= clippedSurrogate, byPolicy * surrogate), left);
    store_part(dEntropy + i, byEntropy, left);

    const vec returns = load_part(batchReturn + from + i, left), old = load_part(batchValue + from + i, left);
    const vec value = load_part(evaluatedValue + i, left);
    const vec error = value - returns, change = value - old;
    const vec clippedError = old + clamp4(change, -clipV, clipV) - returns;
    const vec square = error * error, clippedSquare = clippedError * clippedError;
    const ints unclipped = (abs4(change) <= clipV) | (square >= clippedSquare);
    store_part(dValue + i, keep4(unclipped, byValue * error), left);

    policyLossSum = add_pairs(policyLossSum, keep4(row, max4(surrogate, clippedSurrogate)));
    valueLossSum = add_pairs(valueLossSum, keep4(row, select4(unclipped, square, clippedSquare)));
    entropySum = add_pairs(entropySum, load_part(entropy + i, left));
    klSum = add_pairs(klSum, keep4(row, exp_rest4(logRatio, ratio)));
    clipped -= (abs4(ratio - 1) > clip) & row;
  }
  sums += sumsFrom;
  sums[0] += sum2(policyLossSum);
  sums[1] += 0.5 * sum2(valueLossSum);
  sums[2] += sum2(entropySum);
  sums[3] += sum2(klSum);
  sums[4] += clipped[0] + clipped[1] + clipped[2] + clipped[3];
}
