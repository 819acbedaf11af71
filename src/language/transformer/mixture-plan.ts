/** The columns of mixtures of experts. Empty in models without. */
import { column, type Plan } from '../../components/column.ts'
import type { Experts, TransformerShape } from './config.ts'

const NO_EXPERTS: Experts = { count: 0, chosen: 0, width: 0, normalized: false, sharedWidth: 0, layers: [] }

/** Elements of the widest feed-forward layer that takes every row: that of a layer without experts, or the shared expert. */
export function denseWidth({ experts, feedForwardWidth }: TransformerShape): number {
  if (experts === null) return feedForwardWidth
  return Math.max(experts.layers.every((isMixed) => isMixed) ? 0 : feedForwardWidth, experts.sharedWidth)
}

/** Elements of the widest feed-forward layer. */
export function widestFed(shape: TransformerShape): number {
  return Math.max(denseWidth(shape), shape.experts?.width ?? 0)
}

/** The outputs of a layer for its backward pass. Empty without experts. */
export function mixtureLayerPlan({ experts }: TransformerShape, rows: number) {
  const { count, chosen, width, sharedWidth } = experts ?? NO_EXPERTS
  return {
    /** The router's logits, then its probabilities: rows × experts. */
    probability: column('f32', rows, count),
    /** Each row's experts, in rising order, and their shares. */
    chosen: column('i32', rows, chosen),
    share: column('f32', rows, chosen),
    sharedShare: column('f32', rows, sharedWidth > 0 ? 1 : 0),
    /** The rows of the first expert, then those of the next. */
    expertGate: column('f32', rows * chosen, width),
    expertUp: column('f32', rows * chosen, width),
  } satisfies Plan
}

/** Columns that the layers write one after another. */
export function mixturePlan({ experts, width }: TransformerShape, rows: number) {
  const { count, chosen, sharedWidth } = experts ?? NO_EXPERTS
  return {
    /** Places of `chosen` by expert, and their rows. */
    place: column('u32', rows * chosen),
    placeRow: column('u32', rows * chosen),
    expertBegin: column('i32', experts === null ? 0 : count + 1),
    /** 0, 1, 2 …: places and rows of the shared expert. */
    each: column('u32', sharedWidth > 0 ? rows : 0),
    expertInput: column('f32', rows, experts === null ? 0 : width),
    expertOutput: column('f32', rows, experts === null ? 0 : width),
  } satisfies Plan
}

/** Columns of the backward pass. */
export function mixtureBackwardPlan(shape: TransformerShape, rows: number) {
  const { chosen, sharedWidth } = shape.experts ?? NO_EXPERTS
  return {
    dInner: column('f32', rows, shape.experts === null ? 0 : widestFed(shape)),
    dShare: column('f32', rows, chosen),
    dSharedShare: column('f32', rows, sharedWidth > 0 ? 1 : 0),
  } satisfies Plan
}
