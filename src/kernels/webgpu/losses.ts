/** The losses of rows as shaders; their formulas are in kernels/loss. Only types are imported, so that a page without a device loads one file less. */
import type { PpoSum } from '../loss/ppo.ts'
import type { DeviceLoss } from './rows.ts'

/** `ppoLoss`. `sum` has the places of its sums. */
export const ppoShader = (sum: typeof PpoSum, numbers: DeviceLoss['numbers']): DeviceLoss => ({
  numbers,
  names: ['clipCoef', 'clipValue', 'entropyCoef', 'valueCoef'],
  numSums: sum.length,
  code: `let logRatio = logprob - oldLogprob;
    let ratio = exp(logRatio);
    let surrogate = -advantage * ratio;
    let clippedSurrogate = -advantage * clamp(ratio, 1.0 - clipCoef, 1.0 + clipCoef);
    dLogprob = select(0.0, weight * surrogate, surrogate >= clippedSurrogate);
    dEntropy = -weight * entropyCoef;
    let error = valueOfRow - returned;
    let change = valueOfRow - oldValue;
    let clippedError = oldValue + clamp(change, -clipValue, clipValue) - returned;
    let unclipped = abs(change) <= clipValue || error * error >= clippedError * clippedError;
    dValueOfRow = select(0.0, weight * valueCoef * error, unclipped);
    sums[${sum.policyLoss}] = max(surrogate, clippedSurrogate);
    sums[${sum.valueLoss}] = 0.5 * select(clippedError * clippedError, error * error, unclipped);
    sums[${sum.entropy}] = entropy;
    sums[${sum.approxKl}] = ratio - 1.0 - logRatio;
    sums[${sum.clipped}] = select(0.0, 1.0, abs(ratio - 1.0) > clipCoef);`,
})
