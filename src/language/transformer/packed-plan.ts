/** The columns in which packed sequences are evaluated and differentiated. */
import { type Columns, column, type Plan } from '../../components/column.ts'
import { forwardPlan, mixtureBackwardPlan } from './forward-plan.ts'
import type { LoraModel } from './lora.ts'
import type { TransformerModel, WeightBits } from './model.ts'
import { VOCABULARY_CHUNK } from './parameters.ts'
import { changedRowsPlan } from './sampling.ts'

/** The columns of one thread for batches of at most `rows` rows, in sequences of at most `context` tokens. */
export function packedPlan(
  model: TransformerModel,
  rows: number,
  context: number,
  lora: LoraModel | null = null,
  weightBits: WeightBits = 32,
) {
  const { width, numHeads, numKeyHeads, headWidth, vocabularySize, logitCap, queryKeyNorm } = model.shape
  const kept = model.recomputesActivations ? 'inputs' : 'all'
  const each = (elements: number) => column('f32', rows, elements)
  return {
    forward: forwardPlan(model, rows, context, kept, lora, weightBits),
    target: column('i32', rows),
    /** Where the candidate set of a row's target begins and ends. */
    candidateBegin: column('i32', rows),
    candidateEnd: column('i32', rows),
    /** The index of the mask of each row's target; -1: none. */
    mask: column('i32', rows),
    changed: changedRowsPlan(rows, Math.min(VOCABULARY_CHUNK, vocabularySize), context),
    wasAbove: column('u8', rows, Math.min(VOCABULARY_CHUNK, vocabularySize)),
    logits: each(Math.min(VOCABULARY_CHUNK, vocabularySize)),
    /** A chunk's logits before penalties and masks, if they have a cap. */
    capped: each(logitCap > 0 ? Math.min(VOCABULARY_CHUNK, vocabularySize) : 0),
    dLogprob: each(1),
    dEntropy: each(1),
    dValue: each(model.hasValueHead ? 1 : 0),
    /** Gradients of the residual stream, of a normed input, and of queries, keys, values and attention outputs. */
    dx: each(width),
    dNormed: each(width),
    dQuery: each(numHeads * headWidth),
    dKey: each(numKeyHeads * headWidth),
    dAttentionValue: each(numKeyHeads * headWidth),
    dAttended: each(numHeads * headWidth),
    /** Gradients of an adapter's low-rank products, and of a frozen model's norms, which are never read. */
    dLow: each(lora?.settings.rank ?? 0),
    frozen: column('f32', lora ? Math.max(width, queryKeyNorm === 'whole' ? numHeads * headWidth : headWidth) : 0),
    /** A vector of ones, to sum a bias's gradient over the rows. */
    ones: each(1),
    ...mixtureBackwardPlan(model.shape, rows),
  } satisfies Plan
}

export type PackedColumns = Columns<ReturnType<typeof packedPlan>>
