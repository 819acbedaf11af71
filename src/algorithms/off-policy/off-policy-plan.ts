/** The columns of replay algorithms. */
import { spaceType, spaceWidth } from '../../base/space.ts'
import { column, type Plan, saved } from '../../components/column.ts'
import { observationColumn, observationOf } from '../../components/rollout.ts'
import { BLOCK_ROWS } from '../../policies/policy.ts'
import type { LearnerShape } from '../algorithm.ts'
import { type OptimizerSettings, optimizerPlan } from '../optimizers/optimizer.ts'
import { slotsPlan } from '../slots.ts'
import { type ReplayShape, replayPlan } from './replay.ts'

/** Of a block: few rows let threads share a minibatch. */
const REPLAYED_ROWS = BLOCK_ROWS / 4

export function offPolicyPlan(
  values: OptimizerSettings & Pick<ReplayShape, 'replayRows' | 'numSteps' | 'nStep'> & { readonly batchSize: number },
  numSums: number,
  scratchWidth: number,
  numStages: number,
  shape: LearnerShape,
) {
  const { model, observationSpace, actionSpace, actionMaskWidth, threads } = shape
  const { batchSize } = values
  const seen = observationOf(observationSpace)
  const blockRows = Math.min(REPLAYED_ROWS, batchSize)
  const threadPlan = () => ({
    observation: observationColumn(blockRows, seen),
    action: column(spaceType(actionSpace), blockRows, spaceWidth(actionSpace)),
    actionMask: column('u8', blockRows, actionMaskWidth),
    memory: column('f32', 0),
    continues: column('u8', 0),
    nextObservation: observationColumn(blockRows, seen),
    nextActionMask: column('u8', blockRows, actionMaskWidth),
    return: column('f32', blockRows),
    discount: column('f32', blockRows),
    next: column('u32', blockRows),
    isFinal: column('u8', blockRows),
    weight: column('f32', blockRows),
    nextValue: column('f32', blockRows),
    error: column('f32', blockRows),
    scratch: column('f32', blockRows, scratchWidth),
    words: column('u32', 4),
    target: model.workspace(),
  })
  return {
    optimizer: optimizerPlan(values, model.numParameters, numStages),
    replay: replayPlan({ ...values, ...shape }),
    target: saved(column('f32', model.numParameters)),
    ...slotsPlan(model.numParameters, Math.ceil(batchSize / blockRows), numSums),
    /** Rows of a minibatch, their importance weights, and their absolute errors. */
    drawn: column('u32', batchSize),
    weight: column('f32', batchSize),
    error: column('f32', batchSize),
    words: column('u32', 4),
    gradientSteps: saved(column('f64', 1)),
    threads: Object.fromEntries(Array.from({ length: threads }, (_, i) => [`thread${i}`, threadPlan()])),
  } satisfies Plan
}
