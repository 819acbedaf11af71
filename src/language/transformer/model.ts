/** A decoder-only transformer without memory: its parameters, by Hugging Face's names, in one flat f32 block. */
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { type Random, Stream } from '../../base/random.ts'
import type { Parameter } from '../../policies/policy.ts'
import { type Experts, type TransformerConfig, type TransformerShape, transformerShape } from './config.ts'
import {
  EXPERT_PROJECTIONS,
  MIXTURE,
  NORMS,
  PROJECTIONS,
  type ProjectionName,
  projectionSides,
  sizeOf,
  VALUE_HEAD,
} from './parameters.ts'

/** Bits of the numbers in a cache. */
export type CacheBits = 32 | 16

/** Bits of a weight: f32, bf16, or integers with scales. */
export type WeightBits = 32 | 16 | 8 | 4

/** A transformer's shape and parameters, without memory. */
export interface TransformerModel {
  readonly config: TransformerConfig
  readonly shape: TransformerShape
  readonly numParameters: number
  /** Weights are outputs × inputs, row-major. Names are those of Llama's files; other families' files have their own. */
  readonly parameters: readonly Parameter[]
  /** The last two parameters are the critic's: they map each hidden state to a value. */
  readonly hasValueHead: boolean
  /** With 8- or 4-bit weights, also quantize inputs to 8 bits: integer arithmetic, with other results. */
  readonly quantizesActivations: boolean
  /** Training keeps only each layer's input, and computes its other activations again for its gradients. */
  readonly recomputesActivations: boolean
  /** Where updates run: on the threads of the run, or by our own shaders. */
  readonly device: 'none' | 'webgpu'
  /** Bits of a key's or value's numbers, in caches and wherever they are attended to: 32, or 16 (bf16). */
  readonly cacheBits: CacheBits
  /** Bits of a weight of the embedding and the output head, in a model whose projections are quantized. */
  readonly embeddingBits: WeightBits
  /** Weight of the loss that balances experts (`mixture.ts`) in training; 0: none. */
  readonly routerLoss: number
  /** Starting weights, keyed by the seed and `key`: normal with deviation `initializer_range`; norms multiply by 1, biases are 0. */
  initialize(weights: Float32Array, random: Random, key: number): void
}

/** What `transformer` takes beside a configuration. */
export interface TransformerOptions {
  readonly valueHead?: boolean
  readonly quantizeActivations?: boolean
  readonly checkpointing?: boolean
  readonly cacheBits?: CacheBits
  readonly embeddingBits?: WeightBits
  readonly routerLoss?: number
}

/** The options of a model, with which `transformer` makes it again from its configuration. */
export function optionsOf(model: TransformerModel): Required<TransformerOptions> {
  return {
    valueHead: model.hasValueHead,
    quantizeActivations: model.quantizesActivations,
    checkpointing: model.recomputesActivations,
    cacheBits: model.cacheBits,
    embeddingBits: model.embeddingBits,
    routerLoss: model.routerLoss,
  }
}

/**
 * A transformer from the content of a `config.json` of a family in `families.ts`. `valueHead` adds a
 * value head that begins at 0, for algorithms with a critic. `quantizeActivations` quantizes inputs to 8 bits where
 * weights have 8 or 4 bits. `checkpointing` keeps only the inputs of layers while gradients are computed (Chen et al. 2016). `cacheBits: 16` rounds keys and values to bf16.
 * `embeddingBits` are those of the embedding and the output head where the projections have fewer than 32.
 * `routerLoss` weights a loss that balances experts in training.
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
    checkpointing = false,
    cacheBits = 32,
    embeddingBits = 32,
    routerLoss = 0,
  }: TransformerOptions & { readonly subject?: string } = {},
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
    recomputesActivations: checkpointing,
    device: 'none',
    cacheBits,
    embeddingBits,
    routerLoss,
    initialize(weights, random, key) {
      parameters.forEach((parameter, index) => {
        const view = weights.subarray(parameter.offset, parameter.offset + sizeOf(parameter))
        if (Object.values<string>(VALUE_HEAD).includes(parameter.name)) view.fill(0)
        else if (parameter.shape.length === 2) fillNormal(view, deviation, random, key, index)
        else view.fill(parameter.name.endsWith('.bias') ? 0 : 1 - shape.normOffset)
      })
    },
  }
}

function listParameters(shape: TransformerShape, valueHead: boolean): Parameter[] {
  const { width, headWidth, vocabularySize } = shape
  const parameters: Parameter[] = []
  let offset = 0
  const add = (name: string, ...sides: number[]): void => {
    parameters.push({ name, offset, shape: sides })
    offset += sizeOf({ shape: sides })
  }
  const addNorm = (name: string, sides: number): void => {
    add(`${name}.weight`, sides)
    if (shape.norm === 'layer') add(`${name}.bias`, sides)
  }
  const addExpert = (module: string, sides: number): void => {
    for (const name of EXPERT_PROJECTIONS) add(`${module}.${name}.weight`, ...projectionSides(shape, name, sides))
  }
  const addMixture = (layer: string, { count, width: sides, sharedWidth }: Experts): void => {
    add(`${layer}.${MIXTURE.router}.weight`, count, width)
    for (let expert = 0; expert < count; expert++) addExpert(`${layer}.${MIXTURE.experts}.${expert}`, sides)
    if (sharedWidth === 0) return
    addExpert(`${layer}.${MIXTURE.shared}`, sharedWidth)
    add(`${layer}.${MIXTURE.sharedGate}.weight`, 1, width)
  }
  const addProjection = (layer: string, name: ProjectionName, bias: boolean): void => {
    const [numOutputs, numInputs] = projectionSides(shape, name)
    add(`${layer}.${PROJECTIONS[name]}.weight`, numOutputs, numInputs)
    if (bias) add(`${layer}.${PROJECTIONS[name]}.bias`, numOutputs)
  }
  const normWidth = (heads: number): number => (shape.queryKeyNorm === 'whole' ? heads * headWidth : headWidth)
  add('model.embed_tokens.weight', vocabularySize, width)
  if (shape.rotaryWidth === 0) add('model.embed_positions.weight', shape.contextLength, width)
  for (let index = 0; index < shape.numLayers; index++) {
    const layer = `model.layers.${index}`
    if (shape.normsBefore) addNorm(`${layer}.${NORMS.inputNorm}`, width)
    addProjection(layer, 'q_proj', shape.queryBias)
    if (shape.queryKeyNorm) add(`${layer}.${NORMS.queryNorm}.weight`, normWidth(shape.numHeads))
    addProjection(layer, 'k_proj', shape.queryBias)
    if (shape.queryKeyNorm) add(`${layer}.${NORMS.keyNorm}.weight`, normWidth(shape.numKeyHeads))
    addProjection(layer, 'v_proj', shape.queryBias)
    addProjection(layer, 'o_proj', shape.outputBias)
    if (shape.normsAfter) addNorm(`${layer}.${NORMS.attendedNorm}`, width)
    if (shape.normsBefore && !shape.parallel) addNorm(`${layer}.${NORMS.feedForwardNorm}`, width)
    if (shape.experts?.layers[index]) addMixture(layer, shape.experts)
    else {
      if (shape.gated) addProjection(layer, 'gate_proj', shape.feedForwardBias)
      addProjection(layer, 'up_proj', shape.feedForwardBias)
      addProjection(layer, 'down_proj', shape.feedForwardBias)
    }
    if (shape.normsAfter) addNorm(`${layer}.${NORMS.fedNorm}`, width)
  }
  addNorm('model.norm', width)
  if (!shape.tiedEmbeddings) add('lm_head.weight', vocabularySize, width)
  if (shape.headBias) add('lm_head.bias', vocabularySize)
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
