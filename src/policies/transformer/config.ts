/**
 * What Hugging Face's `config.json` says of a decoder-only transformer. The file is the description: a model that was loaded
 * is saved with the same one, and a new model is made from one. What would change the arithmetic and is not built here is
 * refused by name.
 */
import { InputError, show, unknownWord } from '../../errors.ts'

/** The content of a `config.json`. */
export type TransformerConfig = Readonly<Record<string, unknown>>

/** The network that a `config.json` describes, in this project's words. */
export interface TransformerShape {
  readonly vocabularySize: number
  /** Elements of a token's hidden state. */
  readonly width: number
  readonly numLayers: number
  readonly numHeads: number
  /** Heads of keys and values, each for numHeads / numKeyHeads heads of queries. */
  readonly numKeyHeads: number
  readonly headWidth: number
  readonly feedForwardWidth: number
  /** Positions that the model was made for. */
  readonly contextLength: number
  readonly normEpsilon: number
  readonly ropeTheta: number
  /** Queries, keys and values have a bias (Qwen2). */
  readonly attentionBias: boolean
  /** Each head's queries and keys are normed before they are turned (Qwen3). */
  readonly queryKeyNorm: boolean
  /** Logits are made with the embedding's weights. */
  readonly tiedEmbeddings: boolean
}

/** What differs between the families, by `model_type`. SmolLM and SmolLM2 are llamas. */
const FAMILIES = {
  llama: { architecture: 'LlamaForCausalLM', attentionBias: false, queryKeyNorm: false },
  qwen2: { architecture: 'Qwen2ForCausalLM', attentionBias: true, queryKeyNorm: false },
  qwen3: { architecture: 'Qwen3ForCausalLM', attentionBias: false, queryKeyNorm: true },
} as const

/**
 * Reads a configuration; `subject` names it in errors.
 * @throws InputError for an unknown `model_type`, a size that is missing or does not fit the others, and anything that the
 * forward pass does not compute: scaled RoPE, sliding windows, biases of other layers, another activation, quantized weights.
 */
export function transformerShape(config: TransformerConfig, subject = 'config.json'): TransformerShape {
  const modelType = config.model_type
  if (typeof modelType !== 'string' || !Object.hasOwn(FAMILIES, modelType)) {
    throw unknownWord(`${subject}, model_type`, String(modelType), Object.keys(FAMILIES))
  }
  const family = FAMILIES[modelType as keyof typeof FAMILIES]
  const refuse = (name: string, got: unknown, expected: string) =>
    new InputError(`${subject}, ${name}`, show(got), expected)
  const size = (name: string, otherwise?: number): number => {
    const value = config[name] ?? otherwise
    if (!Number.isSafeInteger(value) || (value as number) < 1) throw refuse(name, value, 'a whole number ≥ 1')
    return value as number
  }
  const positive = (name: string, value: unknown): number => {
    if (typeof value !== 'number' || !(value > 0 && value < Infinity)) throw refuse(name, value, 'a number above 0')
    return value
  }
  /** Refuses a setting other than these; where it is not given, it has the first. */
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
  const shape = {
    vocabularySize: size('vocab_size'),
    width,
    numLayers: size('num_hidden_layers'),
    numHeads,
    numKeyHeads: size('num_key_value_heads', numHeads),
    headWidth: size('head_dim', modelType === 'qwen3' ? undefined : width / numHeads),
    feedForwardWidth: size('intermediate_size'),
    contextLength: size('max_position_embeddings'),
    normEpsilon: positive('rms_norm_eps', config.rms_norm_eps),
    ropeTheta: positive('rope_theta', ropeTheta(config, refuse)),
    attentionBias: family.attentionBias,
    queryKeyNorm: family.queryKeyNorm,
    tiedEmbeddings: config.tie_word_embeddings === true,
  }
  if (numHeads % shape.numKeyHeads !== 0) {
    throw refuse('num_key_value_heads', shape.numKeyHeads, `a divisor of num_attention_heads = ${numHeads}`)
  }
  if (shape.headWidth % 2 !== 0) throw refuse('head_dim', shape.headWidth, 'an even number, for RoPE')
  return shape
}

/** The base of RoPE's angles: in `rope_parameters` since transformers 5, beside the other settings before. */
function ropeTheta(
  config: TransformerConfig,
  refuse: (name: string, got: unknown, expected: string) => InputError,
): unknown {
  const name = config.rope_parameters != null ? 'rope_parameters' : 'rope_scaling'
  const rope = config[name] ?? {}
  if (typeof rope !== 'object') throw refuse(name, rope, 'an object')
  const { rope_type, type, rope_theta, ...others } = rope as Record<string, unknown>
  const kind = rope_type ?? type ?? 'default'
  if (kind !== 'default') throw refuse(`${name}, rope_type`, kind, '"default": scaled RoPE is not built')
  const [other] = Object.keys(others)
  if (other !== undefined) throw refuse(`${name}, ${other}`, others[other], 'rope_type and rope_theta alone')
  return rope_theta ?? config.rope_theta
}
