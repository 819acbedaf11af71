/**
 * Parameters by what they are: a model's weights, an adapter's, both together, or a gradient by either. What is not there has
 * no elements.
 */
import { VOCABULARY_STEP } from '../../kernels/bind.ts'
import type { Parameter, ParameterViews } from '../../policies/policy.ts'
import type { TransformerShape } from './config.ts'

/** A dense layer y = W x + b, and what an adapter adds to it: scale · B A x. */
export interface Projection {
  readonly numOutputs: number
  readonly numInputs: number
  /** Which of the model's projections it is. */
  readonly place: number
  /** numOutputs × numInputs. */
  readonly weight: Float32Array
  /** The weights where they are kept in 8 or 4 bits; `weight` has no elements then. */
  readonly quantized: QuantizedMatrix | null
  readonly bias: Float32Array
  /** A (rank × numInputs) and B (numOutputs × rank). */
  readonly a: Float32Array
  readonly b: Float32Array
}

/** One layer's parameters. */
export interface LayerWeights {
  readonly inputNorm: Float32Array
  readonly query: Projection
  readonly key: Projection
  readonly value: Projection
  readonly queryNorm: Float32Array
  readonly keyNorm: Float32Array
  readonly output: Projection
  readonly feedForwardNorm: Float32Array
  readonly gate: Projection
  readonly up: Projection
  readonly down: Projection
}

/** All parameters. */
export interface TransformerWeights {
  readonly embedding: Float32Array
  readonly layers: readonly LayerWeights[]
  readonly norm: Float32Array
  /** The rows of the logits' weights, VOCABULARY_CHUNK tokens a chunk. */
  readonly head: readonly Float32Array[]
  readonly wholeHead: Float32Array
  readonly valueHead: Float32Array
  readonly valueBias: Float32Array
}

/** The seven projections of a layer, by the names of their modules in Hugging Face's files, in the order of a layer's work. */
export const PROJECTIONS = {
  q_proj: 'self_attn.q_proj',
  k_proj: 'self_attn.k_proj',
  v_proj: 'self_attn.v_proj',
  o_proj: 'self_attn.o_proj',
  gate_proj: 'mlp.gate_proj',
  up_proj: 'mlp.up_proj',
  down_proj: 'mlp.down_proj',
} as const

/** The name of a projection. */
export type ProjectionName = keyof typeof PROJECTIONS

/** Outputs and inputs of a projection. */
export function projectionSides(
  shape: TransformerShape,
  name: ProjectionName,
): [numOutputs: number, numInputs: number] {
  const { width, numHeads, numKeyHeads, headWidth, feedForwardWidth } = shape
  switch (name) {
    case 'q_proj':
      return [numHeads * headWidth, width]
    case 'k_proj':
    case 'v_proj':
      return [numKeyHeads * headWidth, width]
    case 'o_proj':
      return [width, numHeads * headWidth]
    case 'gate_proj':
    case 'up_proj':
      return [feedForwardWidth, width]
    case 'down_proj':
      return [width, feedForwardWidth]
  }
}

/** Views of a column that holds these parameters, in their order. */
export function viewParameters(parameters: readonly Parameter[], column: Float32Array): ParameterViews {
  return parameters.map((parameter) => column.subarray(parameter.offset, parameter.offset + sizeOf(parameter)))
}

/** Views by the names of their parameters. */
export function mapParameters(parameters: readonly Parameter[], views: ParameterViews): Map<string, Float32Array> {
  return new Map(parameters.map(({ name }, index) => [name, views[index]!]))
}

/**
 * Views by what they are. `none` stands for what is not there, but for the norms, which are `norm` then: a frozen model's norms
 * still need a place for gradients that nobody reads. `matrices` are the projections' weights that are kept in 8 or 4 bits.
 */
export function nameParameters(
  shape: TransformerShape,
  views: ReadonlyMap<string, Float32Array>,
  none: Float32Array,
  norm: Float32Array = none,
  matrices?: ReadonlyMap<string, QuantizedMatrix>,
): TransformerWeights {
  const take = (name: string): Float32Array => views.get(name) ?? none
  const embedding = take('model.embed_tokens.weight')
  const wholeHead = shape.tiedEmbeddings ? embedding : take('lm_head.weight')
  const chunkElements = VOCABULARY_CHUNK * shape.width
  const names = Object.keys(PROJECTIONS) as ProjectionName[]
  return {
    embedding,
    layers: Array.from({ length: shape.numLayers }, (_, index) => {
      const prefix = `model.layers.${index}.`
      const normOf = (name: string): Float32Array => views.get(`${prefix}${name}.weight`) ?? norm
      const projection = (name: ProjectionName): Projection => {
        const module = prefix + PROJECTIONS[name]
        const [numOutputs, numInputs] = projectionSides(shape, name)
        return {
          numOutputs,
          numInputs,
          place: index * names.length + names.indexOf(name),
          weight: take(`${module}.weight`),
          quantized: matrices?.get(`${module}.weight`) ?? null,
          bias: take(`${module}.bias`),
          a: take(`${module}.lora_A.weight`),
          b: take(`${module}.lora_B.weight`),
        }
      }
      return {
        inputNorm: normOf('input_layernorm'),
        query: projection('q_proj'),
        key: projection('k_proj'),
        value: projection('v_proj'),
        queryNorm: normOf('self_attn.q_norm'),
        keyNorm: normOf('self_attn.k_norm'),
        output: projection('o_proj'),
        feedForwardNorm: normOf('post_attention_layernorm'),
        gate: projection('gate_proj'),
        up: projection('up_proj'),
        down: projection('down_proj'),
      }
    }),
    norm: views.get('model.norm.weight') ?? norm,
    head: Array.from({ length: Math.ceil(wholeHead.length / chunkElements) }, (_, chunk) =>
      wholeHead.subarray(chunk * chunkElements, Math.min((chunk + 1) * chunkElements, wholeHead.length)),
    ),
    wholeHead,
    valueHead: take(VALUE_HEAD.weight),
    valueBias: take(VALUE_HEAD.bias),
  }
}

/** A projection's weights in 8 or 4 bits. */
export interface QuantizedMatrix {
  readonly bits: 8 | 4
  readonly numOutputs: number
  readonly numInputs: number
  /** Of 8 bits numOutputs × numInputs, in two's complement; of 4 as `quantizeRows4` leaves them, with their scales. */
  readonly values: Uint8Array
  /** Of 8 bits what each output's values are multiplied by; of 4 none. */
  readonly scale: Float32Array
}

/** Tokens of the vocabulary whose logits are in memory at once while sequences are evaluated. */
export const VOCABULARY_CHUNK = 8 * VOCABULARY_STEP

/** The names of a value head's parameters, as TRL has them. */
export const VALUE_HEAD = { weight: 'v_head.summary.weight', bias: 'v_head.summary.bias' } as const

/** Elements of a parameter. */
export function sizeOf({ shape }: Pick<Parameter, 'shape'>): number {
  return shape.reduce((product, side) => product * side, 1)
}
