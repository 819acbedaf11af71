/**
 * A decoder-only transformer before it has memory: its parameters, by their Hugging Face names and shapes, in one flat f32
 * block; and the columns that evaluating, differentiating and decoding take.
 */
import { column, type Plan } from '../../components/column.ts'
import { checkGiven, InputError, show } from '../../errors.ts'
import { INPUT_BLOCK, MATMUL_SCRATCH, VOCABULARY_STEP } from '../../kernels/bind.ts'
import { type Random, Stream } from '../../random.ts'
import type { Parameter } from '../policy.ts'
import { type TransformerConfig, type TransformerShape, transformerShape } from './config.ts'
import type { LoraModel } from './lora.ts'

/** Tokens of the vocabulary whose logits are in memory at once while sequences are evaluated. */
export const VOCABULARY_CHUNK = 8 * VOCABULARY_STEP

/** A transformer before it has memory. */
export interface TransformerModel {
  readonly config: TransformerConfig
  readonly shape: TransformerShape
  readonly numParameters: number
  /** Weights are outputs × inputs, row-major, as in Hugging Face's files. */
  readonly parameters: readonly Parameter[]
  /** The last two parameters are a critic's: a value of each hidden state. */
  readonly hasValueHead: boolean
  /** Weights in 8 or 4 bits are multiplied with inputs in 8 bits: in sums of whole numbers, with other results. */
  readonly quantizesActivations: boolean
  /** Starting weights, keyed by the seed and `key`: normal with deviation `initializer_range`, norms 1, biases 0. */
  initialize(weights: Float32Array, random: Random, key: number): void
}

/** The names of a value head's parameters, as TRL has them. */
export const VALUE_HEAD = { weight: 'v_head.summary.weight', bias: 'v_head.summary.bias' } as const

/**
 * A transformer from the content of a `config.json` of the llama, qwen2, qwen3 or smollm3 family; with a value head, which begins
 * at 0, for algorithms with a critic; `quantizeActivations`: with inputs in 8 bits where its weights are in 8 or 4 bits.
 *
 * @throws InputError as `transformerShape` does.
 * @example transformer({ model_type: 'llama', vocab_size: 64, hidden_size: 128, num_hidden_layers: 4,
 *   num_attention_heads: 4, intermediate_size: 344, max_position_embeddings: 64, rms_norm_eps: 1e-5, rope_theta: 10000 })
 */
export function transformer(
  config: TransformerConfig,
  {
    subject,
    valueHead = false,
    quantizeActivations = false,
  }: { readonly subject?: string; readonly valueHead?: boolean; readonly quantizeActivations?: boolean } = {},
): TransformerModel {
  checkGiven('config of transformer', config, [])
  const shape = transformerShape(config, subject)
  const deviation = config.initializer_range ?? 0.02
  if (typeof deviation !== 'number' || !(deviation >= 0)) {
    throw new InputError(`${subject ?? 'config.json'}, initializer_range`, show(deviation), 'a number ≥ 0')
  }
  const parameters = listParameters(shape, valueHead)
  const last = parameters.at(-1)!
  return {
    config,
    shape,
    numParameters: last.offset + sizeOf(last),
    parameters,
    hasValueHead: valueHead,
    quantizesActivations: quantizeActivations,
    initialize(weights, random, key) {
      parameters.forEach((parameter, index) => {
        const view = weights.subarray(parameter.offset, parameter.offset + sizeOf(parameter))
        if (Object.values<string>(VALUE_HEAD).includes(parameter.name)) view.fill(0)
        else if (parameter.shape.length === 2) fillNormal(view, deviation, random, key, index)
        else view.fill(parameter.name.endsWith('.bias') ? 0 : 1)
      })
    },
  }
}

function listParameters(shape: TransformerShape, valueHead: boolean): Parameter[] {
  const { width, headWidth, feedForwardWidth, vocabularySize } = shape
  const parameters: Parameter[] = []
  let offset = 0
  const add = (name: string, ...sides: number[]): void => {
    parameters.push({ name, offset, shape: sides })
    offset += sizeOf({ shape: sides })
  }
  const queryWidth = shape.numHeads * headWidth
  const keyWidth = shape.numKeyHeads * headWidth
  add('model.embed_tokens.weight', vocabularySize, width)
  for (let index = 0; index < shape.numLayers; index++) {
    const layer = `model.layers.${index}`
    add(`${layer}.input_layernorm.weight`, width)
    for (const [name, outputs] of [
      ['q', queryWidth],
      ['k', keyWidth],
      ['v', keyWidth],
    ] as const) {
      add(`${layer}.self_attn.${name}_proj.weight`, outputs, width)
      if (shape.attentionBias) add(`${layer}.self_attn.${name}_proj.bias`, outputs)
      if (shape.queryKeyNorm && name !== 'v') add(`${layer}.self_attn.${name}_norm.weight`, headWidth)
    }
    add(`${layer}.self_attn.o_proj.weight`, width, queryWidth)
    add(`${layer}.post_attention_layernorm.weight`, width)
    add(`${layer}.mlp.gate_proj.weight`, feedForwardWidth, width)
    add(`${layer}.mlp.up_proj.weight`, feedForwardWidth, width)
    add(`${layer}.mlp.down_proj.weight`, width, feedForwardWidth)
  }
  add('model.norm.weight', width)
  if (!shape.tiedEmbeddings) add('lm_head.weight', vocabularySize, width)
  if (valueHead) {
    add(VALUE_HEAD.weight, 1, width)
    add(VALUE_HEAD.bias, 1)
  }
  return parameters
}

function fillNormal(view: Float32Array, deviation: number, random: Random, key: number, parameter: number): void {
  for (let i = 0; i < view.length; i++) {
    if (i % 4 === 0) random.draw(Stream.initialize, key, parameter, i / 4)
    view[i] = deviation * random.normal(i % 4 < 2 ? 0 : 2, (i % 2) as 0 | 1)
  }
}

/** Elements of a parameter. */
export function sizeOf({ shape }: Pick<Parameter, 'shape'>): number {
  return shape.reduce((product, side) => product * side, 1)
}

/** What a layer computes of `rows` rows. */
function layerPlan({ shape }: TransformerModel, rows: number) {
  const { width, numHeads, numKeyHeads, headWidth, feedForwardWidth, queryKeyNorm } = shape
  const each = (elements: number) => column('f32', rows, elements)
  const normed = queryKeyNorm ? 1 : 0
  return {
    /** The layer's input: rows × width. */
    x: each(width),
    inputInverseRms: each(1),
    /** Queries and keys before their norm; no elements where there is none. */
    rawQuery: each(normed * numHeads * headWidth),
    rawKey: each(normed * numKeyHeads * headWidth),
    queryInverseRms: each(normed * numHeads),
    keyInverseRms: each(normed * numKeyHeads),
    /** Queries and keys, turned by their positions, and values. */
    query: each(numHeads * headWidth),
    key: each(numKeyHeads * headWidth),
    value: each(numKeyHeads * headWidth),
    attended: each(numHeads * headWidth),
    logSum: each(numHeads),
    /** The residual stream between attention and feed-forward. */
    middle: each(width),
    middleInverseRms: each(1),
    gate: each(feedForwardWidth),
    up: each(feedForwardWidth),
  } satisfies Plan
}

/** Bits that a weight of a projection is kept in: whole, or frozen in fewer. */
export type WeightBits = 32 | 8 | 4

/** What a forward pass of `rows` rows takes, with the activations of all layers or of one. */
export function forwardPlan(
  model: TransformerModel,
  rows: number,
  context: number,
  numLayers: number,
  lora: LoraModel | null,
  weightBits: WeightBits,
) {
  const { shape, hasValueHead, quantizesActivations } = model
  const { width, numHeads, headWidth, feedForwardWidth } = shape
  const each = (elements: number) => column('f32', rows, elements)
  const widest = Math.max(width, numHeads * headWidth, feedForwardWidth)
  const inputBlocks = weightBits < 32 && quantizesActivations ? Math.ceil(widest / INPUT_BLOCK) : 0
  return {
    layers: Object.fromEntries(Array.from({ length: numLayers }, (_, index) => [index, layerPlan(model, rows)])),
    /** The residual stream after the last layer, its norm's factor, and what the logits are made of. */
    top: each(width),
    topInverseRms: each(1),
    hidden: each(width),
    /** A layer's normed input, and its feed-forward activation. */
    normed: each(width),
    activated: each(feedForwardWidth),
    /** Cosine and sine of each position's angles: context × headWidth / 2. */
    cosine: column('f32', context, headWidth / 2),
    sine: column('f32', context, headWidth / 2),
    scores: column('f32', 2 * Math.ceil(context / 4) * 4),
    /** Workspace of the matrix products. */
    scratch: column('f32', MATMUL_SCRATCH),
    none: column('f32', 0),
    /** A projection's weights, where they are kept in fewer bits. */
    dequantized: column('f32', weightBits < 32 ? width * Math.max(numHeads * headWidth, feedForwardWidth) : 0),
    /** A projection's inputs in 8 bits, and what each block of them is multiplied by. */
    input: column('u8', rows, inputBlocks * INPUT_BLOCK),
    inputScale: each(inputBlocks),
    /** What an adapter makes of a projection's input, rows × rank, and that input after dropout. */
    low: each(lora?.settings.rank ?? 0),
    dropped: each(lora && lora.settings.dropout > 0 ? widest : 0),
    words: column('u32', 4),
    /** Of each row: which of the batch's sequences it belongs to. */
    sequence: column('u32', rows),
    token: column('i32', rows),
    /** Of each row: its place in its sequence, and the row of the keys where its sequence begins. */
    position: column('i32', rows),
    firstKey: column('i32', rows),
    /** Running sums over the vocabulary. */
    max: each(1),
    sum: each(1),
    weighted: each(1),
    targetLogit: each(1),
    logprob: each(1),
    entropy: each(1),
    /** The critic's; no elements where there is none. */
    value: each(hasValueHead ? 1 : 0),
  } satisfies Plan
}
