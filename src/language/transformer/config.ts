/** Reads Hugging Face's `config.json` of a transformer, and refuses settings that are not implemented. */
import { InputError, show, unknownWord } from '../../base/errors.ts'

/** The content of a `config.json`. */
export type TransformerConfig = Readonly<Record<string, unknown>>

/** How RoPE's frequencies are scaled. The names of methods and parameters are those of `config.json`. */
export type RopeScaling =
  | { readonly kind: 'linear'; readonly factor: number }
  | {
      readonly kind: 'llama3'
      readonly factor: number
      readonly low_freq_factor: number
      readonly high_freq_factor: number
      readonly original_max_position_embeddings: number
    }

/** The network that a `config.json` describes, in this project's terms. */
export interface TransformerShape {
  readonly vocabularySize: number
  /** Elements of a token's hidden state. */
  readonly width: number
  readonly numLayers: number
  readonly numHeads: number
  /** Heads of keys and values. Each serves numHeads / numKeyHeads heads of queries. */
  readonly numKeyHeads: number
  readonly headWidth: number
  readonly feedForwardWidth: number
  /** Positions that the model was trained with. */
  readonly contextLength: number
  readonly normEpsilon: number
  readonly ropeTheta: number
  /** How RoPE's frequencies are scaled to reach more positions than the first training had. */
  readonly ropeScaling: RopeScaling | null
  /** For each layer: whether RoPE rotates its queries and keys. SmolLM3 has layers without RoPE. */
  readonly turned: readonly boolean[]
  /** Queries, keys and values have a bias (Qwen2). */
  readonly attentionBias: boolean
  /** Each head's queries and keys are normalized before RoPE (Qwen3). */
  readonly queryKeyNorm: boolean
  /** The output head shares the embedding's weights. */
  readonly tiedEmbeddings: boolean
}

interface Family {
  readonly architecture: string
  readonly attentionBias: boolean
  readonly queryKeyNorm: boolean
  /** Defaults of transformers 5.23 for keys that a `config.json` lacks. Null: derived from other keys. */
  readonly absent: {
    readonly tie_word_embeddings: boolean
    readonly rope_theta: number
    readonly num_key_value_heads: number | null
    readonly head_dim: number | null
  }
}

/** Differences between the families, by `model_type`. SmolLM and SmolLM2 are llamas. */
const FAMILIES: Readonly<Record<string, Family>> = {
  llama: {
    architecture: 'LlamaForCausalLM',
    attentionBias: false,
    queryKeyNorm: false,
    absent: { tie_word_embeddings: false, rope_theta: 10_000, num_key_value_heads: null, head_dim: null },
  },
  qwen2: {
    architecture: 'Qwen2ForCausalLM',
    attentionBias: true,
    queryKeyNorm: false,
    absent: { tie_word_embeddings: false, rope_theta: 10_000, num_key_value_heads: 32, head_dim: null },
  },
  qwen3: {
    architecture: 'Qwen3ForCausalLM',
    attentionBias: false,
    queryKeyNorm: true,
    absent: { tie_word_embeddings: false, rope_theta: 10_000, num_key_value_heads: 32, head_dim: 128 },
  },
  smollm3: {
    architecture: 'SmolLM3ForCausalLM',
    attentionBias: false,
    queryKeyNorm: false,
    absent: { tie_word_embeddings: true, rope_theta: 2_000_000, num_key_value_heads: 4, head_dim: null },
  },
}

/** The default of `rms_norm_eps` in every family. */
const NORM_EPSILON = 1e-6

/** SmolLM3's default: every fourth layer has no RoPE. */
const NO_ROPE_INTERVAL = 4

/**
 * Reads a configuration; `subject` names it in errors. Missing keys get the defaults that transformers has for the
 * family.
 * @throws InputError for an unknown `model_type`, a size that is missing or does not fit the others, and anything that
 * the forward pass does not implement: RoPE scaling other than `linear` and `llama3`, sliding windows, biases of other
 * layers, other activations, quantized weights.
 */
export function transformerShape(config: TransformerConfig, subject = 'config.json'): TransformerShape {
  const modelType = config.model_type
  if (typeof modelType !== 'string' || !Object.hasOwn(FAMILIES, modelType)) {
    throw unknownWord(`${subject}, model_type`, modelType, Object.keys(FAMILIES))
  }
  const family = FAMILIES[modelType]!
  const refuse: Refuse = (name, got, expected) => new InputError(`${subject}, ${name}`, show(got), expected)
  /** Reads a size. `otherwise` replaces null, and also a missing key if the family has no default for it. */
  const size = (name: string, otherwise?: number, absent: number | null = null): number => {
    const value = config[name] ?? (name in config ? otherwise : (absent ?? otherwise))
    if (!Number.isSafeInteger(value) || (value as number) < 1) throw refuse(name, value, 'a whole number ≥ 1')
    return value as number
  }
  const positive = (name: string, value: unknown): number => {
    if (typeof value !== 'number' || !(value > 0 && value < Infinity)) throw refuse(name, value, 'a number above 0')
    return value
  }
  /** Refuses every value but the allowed ones. A missing setting has the first. */
  const only = (name: string, ...allowed: unknown[]): void => {
    const value = config[name] ?? allowed[0]
    if (!allowed.includes(value)) throw refuse(name, value, allowed.map(show).join(' or '))
  }

  const { architectures } = config
  if (architectures != null && !(Array.isArray(architectures) && architectures.includes(family.architecture))) {
    throw refuse('architectures', architectures, family.architecture)
  }
  only('hidden_act', 'silu')
  only('mlp_bias', false)
  only('attention_bias', false)
  only('use_sliding_window', false)
  only('quantization_config', null)
  const { layer_types: layerTypes = [] } = config
  if (!Array.isArray(layerTypes) || layerTypes.some((type) => type !== 'full_attention')) {
    throw refuse('layer_types', layerTypes, 'full_attention in every layer')
  }

  const numHeads = size('num_attention_heads')
  const width = size('hidden_size')
  const numLayers = size('num_hidden_layers')
  const { theta, ropeScaling } = readRope(config, refuse)
  const shape = {
    vocabularySize: size('vocab_size'),
    width,
    numLayers,
    numHeads,
    numKeyHeads: size('num_key_value_heads', numHeads, family.absent.num_key_value_heads),
    headWidth: size('head_dim', modelType === 'qwen3' ? undefined : width / numHeads, family.absent.head_dim),
    feedForwardWidth: size('intermediate_size'),
    contextLength: size('max_position_embeddings'),
    normEpsilon: positive('rms_norm_eps', config.rms_norm_eps ?? NORM_EPSILON),
    ropeTheta: positive('rope_theta', theta ?? family.absent.rope_theta),
    ropeScaling,
    turned: modelType === 'smollm3' ? turnedLayers(config, numLayers, refuse) : new Array(numLayers).fill(true),
    attentionBias: family.attentionBias,
    queryKeyNorm: family.queryKeyNorm,
    tiedEmbeddings: (config.tie_word_embeddings ?? family.absent.tie_word_embeddings) === true,
  }
  if (numHeads % shape.numKeyHeads !== 0) {
    throw refuse('num_key_value_heads', shape.numKeyHeads, `a divisor of num_attention_heads = ${numHeads}`)
  }
  if (shape.headWidth % 2 !== 0) throw refuse('head_dim', shape.headWidth, 'an even number, for RoPE')
  return shape
}

type Refuse = (name: string, got: unknown, expected: string) => InputError

/** RoPE's base and scaling: in `rope_parameters`, or, before transformers 5, at the top level and in `rope_scaling`. */
function readRope(config: TransformerConfig, refuse: Refuse): { theta: unknown; ropeScaling: RopeScaling | null } {
  const name = config.rope_parameters != null ? 'rope_parameters' : 'rope_scaling'
  const rope = config[name] ?? {}
  if (typeof rope !== 'object') throw refuse(name, rope, 'an object')
  const { rope_type, type, rope_theta, ...parameters } = rope as Record<string, unknown>
  const kind = rope_type ?? type ?? 'default'
  const kinds: Record<string, readonly string[]> = {
    default: [],
    linear: ['factor'],
    llama3: ['factor', 'low_freq_factor', 'high_freq_factor', 'original_max_position_embeddings'],
  }
  if (typeof kind !== 'string' || !Object.hasOwn(kinds, kind)) {
    throw refuse(`${name}, rope_type`, kind, `one of ${Object.keys(kinds).join(', ')}: no other scaling is built`)
  }
  const known = kinds[kind]!
  const other = Object.keys(parameters).find((key) => !known.includes(key))
  if (other !== undefined) {
    throw refuse(`${name}, ${other}`, parameters[other], `${['rope_type', 'rope_theta', ...known].join(', ')} alone`)
  }
  for (const key of known) {
    const value = parameters[key]
    if (typeof value !== 'number' || !(value > 0 && value < Infinity)) {
      throw refuse(`${name}, ${key}`, value, 'a number above 0')
    }
  }
  const { low_freq_factor: low, high_freq_factor: high } = parameters as Record<string, number>
  if (kind === 'llama3' && high! <= low!) throw refuse(`${name}, high_freq_factor`, high, `more than ${low}`)
  const ropeScaling = kind === 'default' ? null : ({ kind, ...parameters } as RopeScaling)
  return { theta: rope_theta ?? config.rope_theta, ropeScaling }
}

/** Which layers have RoPE: by `no_rope_layers` (1 means that a layer has it), or all but every n-th. */
function turnedLayers(config: TransformerConfig, numLayers: number, refuse: Refuse): boolean[] {
  const { no_rope_layers: flags, no_rope_layer_interval: interval = NO_ROPE_INTERVAL } = config
  const layers = Array.from({ length: numLayers }, (_, index) => index)
  if (flags != null) {
    if (!Array.isArray(flags) || flags.length < numLayers || flags.some((flag) => flag !== 0 && flag !== 1)) {
      throw refuse('no_rope_layers', flags, `0 or 1 for each of ${numLayers} layers`)
    }
    return layers.map((index) => flags[index] === 1)
  }
  if (!(Number.isSafeInteger(interval) && (interval as number) >= 1)) {
    throw refuse('no_rope_layer_interval', interval, 'a whole number ≥ 1')
  }
  return layers.map((index) => (index + 1) % (interval as number) !== 0)
}
