/** Names the parameters of a model, an adapter, both, or a gradient of either. Absent parameters are empty arrays. */
import { bytesIn4Bits, VOCABULARY_STEP } from '../../kernels/bind.ts'
import type { Parameter, ParameterViews } from '../../policies/policy.ts'
import type { Experts, TransformerShape } from './config.ts'

/** A matrix of weights, numOutputs × numInputs. */
export interface Matrix {
  readonly numOutputs: number
  readonly numInputs: number
  readonly weight: Float32Array
  /** The weights in 16, 8 or 4 bits, if they are kept so; `weight` is empty then. */
  readonly quantized: QuantizedMatrix | null
}

/** A dense layer y = W x + b, without an adapter. */
export interface Dense extends Matrix {
  readonly bias: Float32Array
}

/** A dense layer plus an adapter's scale · B A x. */
export interface Projection extends Dense {
  /** Index of the projection in the model. */
  readonly place: number
  /** A (rank × numInputs) and B (numOutputs × rank). */
  readonly a: Float32Array
  readonly b: Float32Array
  /** The magnitude of each output's weights; empty if they are not apart. */
  readonly magnitude: Float32Array
}

/** A norm's weight, and its bias if it has one. */
export interface Norm {
  readonly weight: Float32Array
  readonly bias: Float32Array
}

/** A feed-forward layer that some rows choose. */
export interface ExpertWeights {
  readonly gate: Projection
  readonly up: Projection
  readonly down: Projection
}

export interface MixtureWeights {
  /** experts × width. */
  readonly router: Float32Array
  readonly experts: readonly ExpertWeights[]
  /** The expert that takes every row, and the weights (width) whose product with the row gives its share. */
  readonly shared: ExpertWeights | null
  readonly sharedGate: Float32Array
}

export interface LayerWeights {
  readonly inputNorm: Norm
  readonly query: Projection
  readonly key: Projection
  readonly value: Projection
  readonly queryNorm: Norm
  readonly keyNorm: Norm
  readonly output: Projection
  /** The norm after attention. */
  readonly attendedNorm: Norm
  readonly feedForwardNorm: Norm
  /** The norm after the feed-forward layer. */
  readonly fedNorm: Norm
  /** Empty in layers with experts. */
  readonly gate: Projection
  readonly up: Projection
  readonly down: Projection
  readonly mixture: MixtureWeights | null
}

export interface TransformerWeights {
  readonly embedding: Matrix
  readonly layers: readonly LayerWeights[]
  readonly norm: Norm
  /** The embeddings of positions, if the model has them. */
  readonly positions: Float32Array
  /** The rows of the output head, VOCABULARY_CHUNK tokens per chunk. */
  readonly head: readonly Dense[]
  readonly wholeHead: Dense
  readonly valueHead: Float32Array
  readonly valueBias: Float32Array
}

/** The seven projections of a layer, by Hugging Face's module names, in the order of computation. */
export const PROJECTIONS = {
  q_proj: 'self_attn.q_proj',
  k_proj: 'self_attn.k_proj',
  v_proj: 'self_attn.v_proj',
  o_proj: 'self_attn.o_proj',
  gate_proj: 'mlp.gate_proj',
  up_proj: 'mlp.up_proj',
  down_proj: 'mlp.down_proj',
} as const

/** The embedding's parameter, and the output head's where they are not tied. */
export const EMBEDDING = 'model.embed_tokens.weight'
export const HEAD = 'lm_head.weight'

export type ProjectionName = keyof typeof PROJECTIONS

/** The modules of a layer with experts, by Hugging Face's names. */
export const MIXTURE = {
  router: 'mlp.gate',
  experts: 'mlp.experts',
  shared: 'mlp.shared_expert',
  sharedGate: 'mlp.shared_expert_gate',
} as const

/** A projection of an expert, as part of its module's name. */
export const EXPERT_PROJECTIONS = ['gate_proj', 'up_proj', 'down_proj'] as const

/** The projections that an adapter can adapt: those without a gate have six, and with experts the four of attention. */
export function projectionsOf({ gated, experts }: TransformerShape): ProjectionName[] {
  const names = Object.keys(PROJECTIONS) as ProjectionName[]
  if (experts !== null) return names.slice(0, 4)
  return gated ? names : names.filter((name) => name !== 'gate_proj')
}

/** A norm's module in a layer, by what it normalizes; and the width of its rows. */
export const NORMS = {
  inputNorm: 'input_layernorm',
  queryNorm: 'self_attn.q_norm',
  keyNorm: 'self_attn.k_norm',
  attendedNorm: 'post_self_attn_layernorm',
  feedForwardNorm: 'post_attention_layernorm',
  fedNorm: 'post_mlp_layernorm',
} as const

/** Output and input widths of a projection. `feedForwardWidth` is an expert's, if it is one. */
export function projectionSides(
  shape: TransformerShape,
  name: ProjectionName,
  feedForwardWidth = shape.feedForwardWidth,
): [numOutputs: number, numInputs: number] {
  const { width, numHeads, numKeyHeads, headWidth } = shape
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

/** Views of a column that holds these parameters, in order. */
export function viewParameters(parameters: readonly Parameter[], column: Float32Array): ParameterViews {
  return parameters.map((parameter) => column.subarray(parameter.offset, parameter.offset + sizeOf(parameter)))
}

export function mapParameters(parameters: readonly Parameter[], views: ParameterViews): Map<string, Float32Array> {
  return new Map(parameters.map(({ name }, index) => [name, views[index]!]))
}

/** Views by role. `none` replaces absent parameters, `norm` frozen norms (whose gradients are never read). */
export function nameParameters(
  shape: TransformerShape,
  views: ReadonlyMap<string, Float32Array>,
  none: Float32Array,
  norm: Float32Array = none,
  matrices?: ReadonlyMap<string, QuantizedMatrix>,
): TransformerWeights {
  const take = (name: string): Float32Array => views.get(name) ?? none
  const normNamed = (name: string): Norm => ({
    weight: views.get(`${name}.weight`) ?? norm,
    bias: views.get(`${name}.bias`) ?? norm,
  })
  const { vocabularySize, width: numInputs } = shape
  const matrix = (name: string): Matrix => ({
    ...{ numOutputs: vocabularySize, numInputs, weight: take(name), quantized: matrices?.get(name) ?? null },
  })
  const embedding = matrix(EMBEDDING)
  const wholeHead = { ...(shape.tiedEmbeddings ? embedding : matrix(HEAD)), bias: take('lm_head.bias') }
  // A gradient of an adapter has no head.
  const hasHead = wholeHead.weight.length > 0 || wholeHead.quantized !== null
  const names = Object.keys(PROJECTIONS) as ProjectionName[]
  return {
    embedding,
    layers: Array.from({ length: shape.numLayers }, (_, index) => {
      const prefix = `model.layers.${index}.`
      const normOf = (name: keyof typeof NORMS): Norm => normNamed(`${prefix}${NORMS[name]}`)
      const projection = (name: ProjectionName, module = prefix + PROJECTIONS[name], width?: number): Projection => {
        const [numOutputs, numInputs] = projectionSides(shape, name, width)
        return {
          numOutputs,
          numInputs,
          place: index * names.length + names.indexOf(name),
          weight: take(`${module}.weight`),
          quantized: matrices?.get(`${module}.weight`) ?? null,
          bias: take(`${module}.bias`),
          a: take(`${module}.lora_A.weight`),
          b: take(`${module}.lora_B.weight`),
          magnitude: take(`${module}.lora_magnitude_vector`),
        }
      }
      const expertAt = (place: string, width: number): ExpertWeights => {
        const [gate, up, down] = EXPERT_PROJECTIONS.map((name) => projection(name, `${prefix}${place}.${name}`, width))
        return { gate: gate!, up: up!, down: down! }
      }
      const mixture = ({ count, width, sharedWidth }: Experts): MixtureWeights => ({
        router: take(`${prefix}${MIXTURE.router}.weight`),
        experts: Array.from({ length: count }, (_, expert) => expertAt(`${MIXTURE.experts}.${expert}`, width)),
        shared: sharedWidth > 0 ? expertAt(MIXTURE.shared, sharedWidth) : null,
        sharedGate: take(`${prefix}${MIXTURE.sharedGate}.weight`),
      })
      return {
        inputNorm: normOf('inputNorm'),
        query: projection('q_proj'),
        key: projection('k_proj'),
        value: projection('v_proj'),
        queryNorm: normOf('queryNorm'),
        keyNorm: normOf('keyNorm'),
        output: projection('o_proj'),
        attendedNorm: normOf('attendedNorm'),
        feedForwardNorm: normOf('feedForwardNorm'),
        fedNorm: normOf('fedNorm'),
        gate: projection('gate_proj'),
        up: projection('up_proj'),
        down: projection('down_proj'),
        mixture: shape.experts?.layers[index] ? mixture(shape.experts) : null,
      }
    }),
    norm: normNamed('model.norm'),
    positions: take('model.embed_positions.weight'),
    head: Array.from({ length: hasHead ? Math.ceil(vocabularySize / VOCABULARY_CHUNK) : 0 }, (_, chunk) =>
      rowsOfMatrix(wholeHead, chunk * VOCABULARY_CHUNK, Math.min((chunk + 1) * VOCABULARY_CHUNK, vocabularySize)),
    ),
    wholeHead,
    valueHead: take(VALUE_HEAD.weight),
    valueBias: take(VALUE_HEAD.bias),
  }
}

/** A matrix's weights in fewer bits than 32, numOutputs × numInputs. */
export type QuantizedMatrix =
  | { readonly bits: 16; readonly values: Uint16Array }
  /** In two's complement, and the scale of each output's values. */
  | { readonly bits: 8; readonly values: Uint8Array; readonly scale: Float32Array }
  /** In the format of `quantizeRows4`, with scales inside. */
  | { readonly bits: 4; readonly values: Uint8Array }

/** Outputs `from` to `to` of a layer; `from` is a multiple of 16. */
function rowsOfMatrix({ numInputs, weight, quantized, bias }: Dense, from: number, to: number): Dense {
  const numOutputs = to - from
  const some = bias.length > 0 ? bias.subarray(from, to) : bias
  const whole = weight.subarray(from * numInputs, to * numInputs)
  return {
    numOutputs,
    numInputs,
    weight: whole,
    quantized: quantized && rowsQuantized(quantized, numInputs, from, to),
    bias: some,
  }
}

function rowsQuantized(matrix: QuantizedMatrix, width: number, from: number, to: number): QuantizedMatrix {
  switch (matrix.bits) {
    case 16:
      return { bits: 16, values: matrix.values.subarray(from * width, to * width) }
    case 8:
      return {
        bits: 8,
        values: matrix.values.subarray(from * width, to * width),
        scale: matrix.scale.subarray(from, to),
      }
    case 4:
      return { bits: 4, values: matrix.values.subarray(bytesIn4Bits(from, width), bytesIn4Bits(to, width)) }
  }
}

/** Vocabulary tokens whose logits are in memory at once while sequences are evaluated. */
export const VOCABULARY_CHUNK = 8 * VOCABULARY_STEP

/** TRL's names of a value head's parameters. */
export const VALUE_HEAD = { weight: 'v_head.summary.weight', bias: 'v_head.summary.bias' } as const

export function sizeOf({ shape }: Pick<Parameter, 'shape'>): number {
  return shape.reduce((product, side) => product * side, 1)
}
