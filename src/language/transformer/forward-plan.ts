/** The columns that a transformer's forward pass writes: for all layers if gradients follow, otherwise for one. */
import { column, type Plan } from '../../components/column.ts'
import { attentionScratch, INPUT_BLOCK, MATMUL_SCRATCH, RESTORED_COLUMNS } from '../../kernels/bind.ts'
import type { Experts, TransformerShape } from './config.ts'
import { type LoraModel, MAGNITUDE } from './lora.ts'
import type { TransformerModel, WeightBits } from './model.ts'
import { VOCABULARY_CHUNK } from './parameters.ts'

export function layerPlan({ shape }: TransformerModel, rows: number) {
  const { width, numHeads, numKeyHeads, headWidth, queryKeyNorm, normsAfter, gated } = shape
  const each = (elements: number) => column('f32', rows, elements)
  const normed = queryKeyNorm ? 1 : 0
  const after = normsAfter ? 1 : 0
  return {
    /** The layer's input: rows × width. */
    x: each(width),
    inputInverseRms: each(1),
    /** Queries and keys before their norm. Empty for models without one. */
    rawQuery: each(normed * numHeads * headWidth),
    rawKey: each(normed * numKeyHeads * headWidth),
    queryInverseRms: each(normed * numHeads),
    keyInverseRms: each(normed * numKeyHeads),
    /** Queries and keys after RoPE, and values. */
    query: each(numHeads * headWidth),
    key: each(numKeyHeads * headWidth),
    value: each(numKeyHeads * headWidth),
    attended: each(numHeads * headWidth),
    logSum: each(numHeads),
    /** Outputs of attention and feed-forward layers, before the norms after them. Empty without such norms. */
    rawAttended: each(after * width),
    attendedInverseRms: each(after),
    rawFed: each(after * width),
    fedInverseRms: each(after),
    /** The residual stream between attention and feed-forward. */
    middle: each(width),
    middleInverseRms: each(1),
    /** Empty without a gate. */
    gate: each(gated ? denseWidth(shape) : 0),
    up: each(denseWidth(shape)),
    ...mixtureLayerPlan(shape, rows),
  } satisfies Plan
}

function hasBranch({ normsAfter, residualScale, outputBias, feedForwardBias, experts }: TransformerShape): boolean {
  return experts !== null || normsAfter || residualScale !== 1 || outputBias || feedForwardBias
}

/** Which activations a pass keeps: of one layer at a time, of all layers, or of one and the inputs of all. */
export type Kept = 'one' | 'all' | 'inputs'

/** The columns of a forward pass of `rows` rows. */
export function forwardPlan(
  model: TransformerModel,
  rows: number,
  context: number,
  kept: Kept,
  lora: LoraModel | null,
  weightBits: WeightBits,
) {
  const { shape, hasValueHead, quantizesActivations } = model
  const { width, numHeads, numKeyHeads, headWidth, rotaryWidth } = shape
  const feedForwardWidth = widestFed(shape)
  const each = (elements: number) => column('f32', rows, elements)
  const widest = Math.max(width, numHeads * headWidth, feedForwardWidth)
  const hasMagnitude = lora?.settings.magnitude === true
  const magnitudes = (lora?.parameters ?? []).reduce(
    (sum, { name, shape }) => sum + (name.endsWith(MAGNITUDE) ? shape[0]! : 0),
    0,
  )
  const numLayers = kept === 'all' ? shape.numLayers : 1
  const numInputs = kept === 'inputs' ? shape.numLayers - 1 : 0
  const inputBlocks = weightBits < 16 && quantizesActivations ? Math.ceil(widest / INPUT_BLOCK) : 0
  return {
    layers: Object.fromEntries(Array.from({ length: numLayers }, (_, index) => [index, layerPlan(model, rows)])),
    /** Inputs of the layers from the second on, if only the inputs are kept: rows × width. */
    inputs: Object.fromEntries(Array.from({ length: numInputs }, (_, index) => [index + 1, each(width)])),
    /** The residual stream after the last layer, its norm's factor, and the input of the output head. */
    top: each(width),
    topInverseRms: each(1),
    hidden: each(width),
    /** A layer's normed input, and its feed-forward activation. */
    normed: each(width),
    activated: each(feedForwardWidth),
    /** Output of attention or a feed-forward layer, if experts are added up, or a bias, a norm, a scale or magnitudes follow. */
    branch: each(hasBranch(shape) || hasMagnitude ? width : 0),
    ...mixturePlan(shape, rows),
    /** Choices and probabilities of the routers, summed over layers, at each sequence's first row; only to balance them in training. */
    load: each(model.routerLoss > 0 && kept !== 'one' ? (shape.experts?.count ?? 0) : 0),
    routed: each(model.routerLoss > 0 && kept !== 'one' ? (shape.experts?.count ?? 0) : 0),
    /** The loss that balances them. */
    balance: column('f64', 1),
    /** A norm's weights plus the offset. Empty without one. */
    shifted: column('f32', shape.normOffset === 0 ? 0 : Math.max(width, Math.max(numHeads, numKeyHeads) * headWidth)),
    /** Cosine and sine of each position's angles: context × rotaryWidth / 2, or context zeros without RoPE. */
    cosine: column('f32', context, rotaryWidth / 2 || 1),
    sine: column('f32', context, rotaryWidth / 2 || 1),
    /** The same for layers with a window, if they differ. */
    windowCosine: column('f32', shape.windowRope ? context : 0, rotaryWidth / 2),
    windowSine: column('f32', shape.windowRope ? context : 0, rotaryWidth / 2),
    scores: column('f32', attentionScratch(shape, context)),
    /** Keys and values of one head in f32, while those in bf16 are attended to. */
    widened: column('f32', kept === 'one' && model.cacheBits === 16 ? 2 * context : 0, headWidth),
    /** Workspace of the matrix products. */
    scratch: column('f32', MATMUL_SCRATCH),
    none: column('f32', 0),
    /** A matrix's weights in f32, if they are kept in fewer bits or their rows' norms are needed: all where gradients pass through or for norms. */
    dequantized: column(
      'f32',
      weightBits < 32 || hasMagnitude ? restoredWeights(shape, hasMagnitude ? 'all' : kept) : 0,
    ),
    /** A projection's inputs in 8 bits, and the scale of each block. */
    input: column('u8', rows, inputBlocks * INPUT_BLOCK),
    inputScale: each(inputBlocks),
    /** A of an adapter times a projection's input, rows × rank, and that input after dropout. */
    low: each(lora?.settings.rank ?? 0),
    dropped: each(lora && lora.settings.dropout > 0 ? widest : 0),
    /** Of an adapter with magnitudes: 1 / norm of each adapted row, the A and B of which it is, and outputs before the magnitudes. */
    inverseNorm: column('f32', magnitudes),
    normedWeights: column('f32', hasMagnitude ? lora.numParameters : 0),
    unscaled: each(hasMagnitude && kept !== 'one' ? widest : 0),
    words: column('u32', 4),
    /** For each row: the index of its sequence in the batch. */
    sequence: column('u32', rows),
    token: column('i32', rows),
    /** For each row: its position in its sequence, and the row of the keys where its sequence begins. */
    position: column('i32', rows),
    firstKey: column('i32', rows),
    /** The first key in a row's window, and how many follow it. Empty without windows. */
    windowFirst: column('i32', shape.windows.some((window) => window > 0) ? rows : 0),
    windowPosition: column('i32', shape.windows.some((window) => window > 0) ? rows : 0),
    /** Running sums over the vocabulary. */
    max: each(1),
    sum: each(1),
    weighted: each(1),
    targetLogit: each(1),
    logprob: each(1),
    entropy: each(1),
    /** The critic's values. Empty without a value head. */
    value: each(hasValueHead ? 1 : 0),
  } satisfies Plan
}

function restoredWeights(shape: TransformerShape, kept: Kept): number {
  const { width, numHeads, headWidth, vocabularySize } = shape
  const widest = Math.max(numHeads * headWidth, widestFed(shape))
  const inHead = Math.min(vocabularySize, VOCABULARY_CHUNK) * width
  const projection = width * widest
  const inProduct = Math.min(projection, RESTORED_COLUMNS * Math.max(width, widest))
  return Math.max(inHead, kept === 'one' ? inProduct : projection)
}

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
