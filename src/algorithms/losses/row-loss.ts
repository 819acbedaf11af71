/** Losses over the rows of a rollout as expressions, for custom algorithms. */
import type { Settings, SettingValues } from '../../base/settings.ts'
import type { LossOfRows } from '../on-policy/on-policy.ts'
import { type LossColumns, type LossResult, LossRun, PROGRAM_ROWS, traceLoss } from './loss-program.ts'

/** Columns that a loss over rows may read: the current policy's evaluation and recorded values. */
const rowColumns = ['logprob', 'entropy', 'value', 'oldLogprob', 'oldValue', 'advantage', 'return'] as const

/** Columns of rows by name. `advantage` is normalized to mean 0 and deviation 1 if `normalizeAdvantage` is set. */
export type RowLossColumns = LossColumns<(typeof rowColumns)[number]>

/**
 * Defines a loss over rows as arithmetic, for `defineOnPolicyAlgorithm`; its derivatives by `logprob`, `entropy` and `value` are computed
 * automatically. The function is called once and returns the loss of a row and each declared metric. The loss is minimized as the mean
 * over the rows of a minibatch.
 * @throws InputError, when the algorithm is bound, for an unknown column and for results that are not the metrics.
 * @example
 * loss: rowLoss(({ logprob, oldLogprob, advantage }, { clipCoef }) => {
 *   const ratio = logprob.minus(oldLogprob).exp()
 *   const policyLoss = ratio.times(advantage).min(ratio.clip(1 - clipCoef, 1 + clipCoef).times(advantage)).negative()
 *   return { loss: policyLoss, policyLoss }
 * })
 */
export function rowLoss<S extends Settings>(
  loss: (columns: RowLossColumns, settings: SettingValues<S>) => LossResult,
): LossOfRows<S> {
  return (parameters, _, { id, metrics }) => {
    const differentiable = ['logprob', 'entropy', 'value'] as const
    const shape = { columns: rowColumns, differentiable, results: metrics, hasSequences: false }
    const run = new LossRun(traceLoss(id, (columns) => loss(columns, parameters), shape))
    return {
      ofRows({ dLogprob, dEntropy, dValue }, sums, evaluated, recorded, minibatch, numRows, from, sumsFrom) {
        const { advantageMean, advantageScale, weight } = minibatch
        for (let first = 0; first < numRows; first += PROGRAM_ROWS) {
          const count = Math.min(PROGRAM_ROWS, numRows - first)
          load(run.column('logprob', count), evaluated.logprob, first, count)
          load(run.column('entropy', count), evaluated.entropy, first, count)
          load(run.column('value', count), evaluated.value, first, count)
          load(run.column('oldLogprob', count), recorded.logprob, from + first, count)
          load(run.column('oldValue', count), recorded.value, from + first, count)
          load(run.column('return', count), recorded.return, from + first, count)
          const advantage = run.column('advantage', count)
          if (advantage !== undefined) {
            for (let i = 0; i < count; i++) {
              advantage[i] = (recorded.advantage[from + first + i]! - advantageMean) * advantageScale
            }
          }
          run.run(count)
          store(dLogprob, run.result('dLogprob')!, weight, first, count)
          store(dEntropy, run.result('dEntropy')!, weight, first, count)
          store(dValue, run.result('dValue')!, weight, first, count)
          for (let m = 0; m < metrics.length; m++) {
            sums[sumsFrom + m] = sums[sumsFrom + m]! + run.sum(metrics[m]!, count)!
          }
        }
      },
    }
  }
}

function load(register: Float64Array | undefined, column: Float32Array, from: number, count: number): void {
  if (register === undefined) return
  for (let i = 0; i < count; i++) register[i] = column[from + i]!
}

function store(column: Float32Array, result: Float64Array, weight: number, from: number, count: number): void {
  for (let i = 0; i < count; i++) column[from + i] = weight * result[i]!
}
