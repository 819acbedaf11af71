/**
 * Running moments of observations, for policies that normalize them to mean 0 and deviation 1
 * (`PolicyModel.normalizedInputs`). They are updated after training on a rollout, so that training uses the moments by
 * which the actions were chosen.
 */
import { type Columns, column, type Plan, saved } from '../../components/column.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { PolicyModel } from '../../policies/policy.ts'

/** Added to the variance, as in Gymnasium and Stable-Baselines3. */
const EPSILON = 1e-8

/** The moments of a set of weights; empty if its policy does not normalize. */
export function inputMomentsPlan({ normalizedInputs: width = 0 }: PolicyModel): Plan {
  if (width === 0) return {}
  return {
    mean: saved(column('f64', width)),
    squares: saved(column('f64', width)),
    count: saved(column('f64', 1)),
  }
}

type Moments = Readonly<Record<'mean' | 'squares' | 'count', Float64Array>>

/** Adds a rollout's valid rows to the moments, and writes the policy's normalization at the end of its weights. */
export function growMoments(
  columns: Columns<Plan>,
  weights: Float32Array,
  { observation, valid }: { readonly observation: Float32Array; readonly valid: Uint8Array },
  kernels: Kernels,
): void {
  const { mean, squares, count } = columns as unknown as Moments
  const width = mean.length
  const center = weights.subarray(weights.length - 2 * width, weights.length - width)
  const deviation = weights.subarray(weights.length - width)
  kernels.updateRunning(mean, squares, count, observation, valid, valid.length, width)
  kernels.readRunning(center, deviation, mean, squares, count, EPSILON, width)
}
