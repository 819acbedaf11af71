/** Reads Hugging Face's `config.json` of a transformer into its parts, and refuses parts that are not implemented. */
import { InputError, show, unknownWord } from '../../base/errors.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { FAMILIES, type Family, type Given, type Layout, unknownFamily } from './families.ts'
import { checkRope, type Rope, readRope } from './rope.ts'

/** The content of a `config.json`. */
export type TransformerConfig = Readonly<Record<string, unknown>>

type Activation = Parameters<Kernels['activationForward']>[3]

/** Experts in place of feed-forward layers. */
export interface Experts {
  readonly count: number
  /** How many each row chooses. */
  readonly chosen: number
  /** Elements of each expert's activation. */
  readonly width: number
  /** The shares of the chosen experts sum to 1. */
  readonly normalized: boolean
  /** Elements of the activation of the expert that takes every row; 0: none. */
  readonly sharedWidth: number
  /** For each layer: whether it has experts. */
  readonly layers: readonly boolean[]
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
  /** `layer` subtracts the mean and has biases (LayerNorm). */
  readonly norm: 'rms' | 'layer'
  readonly normEpsilon: number
  /** Added to the weights of norms: 1 for Gemma. */
  readonly normOffset: number
  /** Attention and feed-forward layers have norms before them, after them, or both. */
  readonly normsBefore: boolean
  readonly normsAfter: boolean
  /** Attention and feed-forward layer read the same norm, and their sum is added. */
  readonly parallel: boolean
  /** Number of elements of a head that RoPE rotates, from the first on; 0: positions have an embedding instead. */
  readonly rotaryWidth: number
  /** RoPE rotates pairs of neighboring elements, instead of one element of each half. */
  readonly turnsNeighbors: boolean
  readonly rope: Rope
  /** RoPE of the layers with a window, if it differs. */
  readonly windowRope: Rope | null
  /** For each layer: whether RoPE rotates its queries and keys. SmolLM3 has layers without RoPE. */
  readonly turned: readonly boolean[]
  /** For each layer: how many tokens a token sees, itself included; 0: all before it. All windows have one size. */
  readonly windows: readonly number[]
  readonly queryBias: boolean
  readonly outputBias: boolean
  readonly feedForwardBias: boolean
  readonly headBias: boolean
  /** Queries and keys are normalized before RoPE: each head (Qwen3), or all heads together (OLMo2). */
  readonly queryKeyNorm: 'head' | 'whole' | null
  readonly activation: Activation
  /** The feed-forward layer has a gate: y = act(gate) · up, instead of act(up). */
  readonly gated: boolean
  readonly experts: Experts | null
  /** Factor of the queries, in addition to the division of scores by √headWidth. */
  readonly queryScale: number
  /** Scores are cap · tanh(score / cap); 0: no cap. */
  readonly attentionCap: number
  /** Logits are cap · tanh(logit / cap); 0: no cap. */
  readonly logitCap: number
  readonly embeddingScale: number
  /** Factor of the outputs of attention and feed-forward layers, before they are added. */
  readonly residualScale: number
  readonly logitScale: number
  /** The output head shares the embedding's weights. */
  readonly tiedEmbeddings: boolean
  /** How files name and arrange the parameters. */
  readonly layout: Layout
}

/** The default of `rms_norm_eps` in most families. */
const NORM_EPSILON = 1e-6

/** SmolLM3's default: every fourth layer has no RoPE. */
const NO_ROPE_INTERVAL = 4

/** Activations, by their names in `config.json`. */
const ACTIVATIONS: Readonly<Record<string, Activation>> = {
  ...{ silu: 'silu', swish: 'silu', gelu_pytorch_tanh: 'tanh', gelu_new: 'tanh', gelu: 'erf', relu: 'relu' },
}

/** Keys of parts that are not implemented, and the values that mean their absence. */
const WITHOUT: Readonly<Record<string, readonly unknown[]>> = {
  quantization_config: [null],
  qk_layernorm: [false],
  add_cross_attention: [false],
  scale_attn_weights: [true],
  scale_attn_by_inverse_layer_idx: [false],
  use_bidirectional_attention: [false, null],
  clip_qkv: [null],
  router_jitter_noise: [0],
}

/**
 * Reads a configuration; `subject` names it in errors. Missing keys get the defaults that transformers has for the
 * family.
 * @throws InputError for an unknown `model_type`, a size that is missing or does not fit the others, and any part that
 * the forward pass does not have, by its key.
 */
export function transformerShape(config: TransformerConfig, subject = 'config.json'): TransformerShape {
  const modelType = config.model_type
  const refuse: Refuse = (name, got, expected) => new InputError(`${subject}, ${name}`, show(got), expected)
  const family = familyOf(config, subject, refuse)
  const absent = family.absent ?? {}
  const keyOf = (name: string): string => family.keys?.[name] ?? name
  /** A key's value; null stays where the key is there. */
  const read = (name: string): unknown => {
    const key = keyOf(name)
    return key in config ? config[key] : absent[name]
  }
  /** Reads a size. `otherwise` replaces null, and also a missing key if the family has no default for it. */
  const size = (name: string, otherwise?: number): number => {
    const value = read(name) ?? otherwise
    if (!Number.isSafeInteger(value) || (value as number) < 1) throw refuse(keyOf(name), value, 'a whole number ≥ 1')
    return value as number
  }
  const positive = (name: string, otherwise?: number): number => {
    const value = read(name) ?? otherwise
    if (typeof value !== 'number' || !(value > 0 && value < Infinity)) {
      throw refuse(keyOf(name), value, 'a number above 0')
    }
    return value
  }
  const isGiven = (given: Given | undefined): boolean => {
    if (typeof given !== 'string') return given === true
    const value = read(given) ?? false
    if (typeof value !== 'boolean') throw refuse(given, value, 'true or false')
    return value
  }

  const { architectures } = config
  const isKnown = isKnownFamily(config)
  if (
    isKnown &&
    architectures != null &&
    !(Array.isArray(architectures) && architectures.includes(family.architecture))
  ) {
    throw refuse('architectures', architectures, family.architecture)
  }
  for (const [name, allowed] of Object.entries(WITHOUT)) {
    const value = config[name] ?? allowed[0]
    if (!allowed.includes(value)) throw refuse(name, value, allowed.map(show).join(' or '))
  }
  const bias = family.bias ?? {}
  for (const key of ['attention_bias', 'mlp_bias']) {
    if (Object.values(bias).includes(key)) continue
    if ((config[key] ?? false) !== false) throw refuse(key, config[key], 'false')
  }

  const numHeads = size('num_attention_heads')
  const width = size('hidden_size')
  const numLayers = size('num_hidden_layers')
  const numKeyHeads = size('num_key_value_heads', numHeads)
  // Families with a default for head_dim do not take null.
  const headWidth = size('head_dim', 'head_dim' in absent ? undefined : width / numHeads)
  const windows = readWindows(config, family, numLayers, read, refuse)
  const contextLength = size('max_position_embeddings')
  const ropes = readRopes(config, family, windows, read, refuse)
  const rotaryWidth = family.learnedPositions ? 0 : turnedElements(headWidth, ropes.partial, refuse)
  for (const each of [ropes.rope, ropes.windowRope]) if (each) checkRope(each, rotaryWidth, subject)
  const scaledBy = family.multipliers === true ? (name: string) => positive(name, 1) : () => 1
  const queryScale = family.queryScalar
    ? Math.sqrt(headWidth / positive('query_pre_attn_scalar'))
    : family.multipliers && read('attention_multiplier') != null
      ? scaledBy('attention_multiplier') * Math.sqrt(headWidth)
      : 1
  const cap = (name: string) => (family.queryScalar && read(name) != null ? positive(name) : 0)
  const shape: TransformerShape = {
    vocabularySize: size('vocab_size'),
    ...{ width, numLayers, numHeads, numKeyHeads, headWidth, contextLength },
    feedForwardWidth: size('intermediate_size', family.learnedPositions ? 4 * width : undefined),
    norm: family.norm ?? 'rms',
    normEpsilon: positive('rms_norm_eps', NORM_EPSILON),
    normOffset: family.normOffset ?? 0,
    normsBefore: family.norms !== 'after',
    normsAfter: family.norms !== undefined,
    parallel: isGiven(family.parallel),
    rotaryWidth,
    turnsNeighbors: family.neighbors ?? false,
    ...{ rope: ropes.rope, windowRope: ropes.windowRope },
    turned: family.unturned ? turnedLayers(config, numLayers, refuse) : new Array(numLayers).fill(true),
    windows,
    queryBias: isGiven(bias.query),
    outputBias: isGiven(bias.output),
    feedForwardBias: isGiven(bias.feedForward),
    headBias: isGiven(bias.head),
    queryKeyNorm: family.queryKeyNorm ?? null,
    activation: readActivation(modelType, read('hidden_act') ?? 'silu', (got, expected) =>
      refuse(keyOf('hidden_act'), got, expected),
    ),
    gated: family.plain !== true,
    experts: family.experts ? readExperts(family.experts, numLayers, size, isGiven, read, refuse) : null,
    queryScale,
    attentionCap: cap('attn_logit_softcapping'),
    logitCap: cap('final_logit_softcapping'),
    embeddingScale: family.scaledEmbeddings ? Math.fround(Math.sqrt(width)) : scaledBy('embedding_multiplier'),
    residualScale: scaledBy('residual_multiplier'),
    logitScale: 1 / scaledBy('logits_scaling'),
    tiedEmbeddings: (config.tie_word_embeddings ?? absent.tie_word_embeddings ?? false) === true,
    layout: family.layout ?? {},
  }
  if (numHeads % shape.numKeyHeads !== 0) {
    throw refuse('num_key_value_heads', shape.numKeyHeads, `a divisor of num_attention_heads = ${numHeads}`)
  }
  return shape
}

/** Whether a configuration's family is in the table. Other families are read by their keys. */
export function isKnownFamily({ model_type: type }: TransformerConfig): boolean {
  return typeof type === 'string' && Object.hasOwn(FAMILIES, type)
}

/** A family of the table, or one whose architecture is in no table, by its keys. */
function familyOf(config: TransformerConfig, subject: string, refuse: Refuse): Family {
  const { model_type: type, architectures } = config
  if (isKnownFamily(config)) return FAMILIES[type as string]!
  const known = Object.values(FAMILIES).map(({ architecture }) => architecture)
  const [named] = Array.isArray(architectures) ? architectures : []
  if (typeof type !== 'string' || !/ForCausalLM$/.test(String(named)) || known.includes(named)) {
    throw unknownWord(`${subject}, model_type`, type, Object.keys(FAMILIES))
  }
  const family = unknownFamily(config)
  if (typeof family !== 'string') return family
  throw refuse(family, config[family], `no such key: ${show(type)} is not known, so it is read by its keys`)
}

type Refuse = (name: string, got: unknown, expected: string) => InputError
type Read = (name: string) => unknown

function readActivation(modelType: unknown, given: unknown, refuse: (got: unknown, expected: string) => InputError) {
  // In Gemma's first files gelu means its approximation.
  const name = modelType === 'gemma' && given === 'gelu' ? 'gelu_pytorch_tanh' : given
  if (typeof name === 'string' && Object.hasOwn(ACTIVATIONS, name)) return ACTIVATIONS[name]!
  throw refuse(name, Object.keys(ACTIVATIONS).map(show).join(' or '))
}

/** Elements of a head that are turned: all, or a fraction. */
function turnedElements(headWidth: number, partial: unknown, refuse: Refuse): number {
  if (typeof partial !== 'number' || !(partial > 0 && partial <= 1)) {
    throw refuse('partial_rotary_factor', partial, 'a number above 0 and at most 1')
  }
  const turned = Math.floor(headWidth * partial)
  if (turned % 2 !== 0 || turned === 0) throw refuse('head_dim', turned, 'an even number, for RoPE')
  return turned
}

/** RoPE's base and scaling: in `rope_parameters`, or, before transformers 5, at the top level and in `rope_scaling`. */
function readRopes(config: TransformerConfig, family: Family, windows: readonly number[], read: Read, refuse: Refuse) {
  const name = config.rope_parameters != null ? 'rope_parameters' : 'rope_scaling'
  const others = {
    rope_theta: config.rope_theta ?? family.absent?.rope_theta ?? 10_000,
    original_max_position_embeddings: read('original_max_position_embeddings'),
  }
  const given = (config[name] ?? {}) as Record<string, unknown>
  const localTheta = read('rope_local_base_freq')
  const byLayer = typeof given === 'object' && ('full_attention' in given || 'sliding_attention' in given)
  const { partial, ...rope } = readRope(name, byLayer ? (given.full_attention ?? {}) : given, others, refuse)
  let windowRope: Rope | null = null
  if (localTheta !== undefined && windows.some((window) => window > 0)) {
    const local = byLayer ? (given.sliding_attention ?? {}) : {}
    const { theta, scaling } = readRope(name, local, { ...others, rope_theta: localTheta }, refuse)
    windowRope = { theta, scaling }
  } else if (byLayer) throw refuse(name, given, 'one rotation for all layers')
  const turned = partial ?? read('partial_rotary_factor') ?? 1
  if (turned !== 1 && !family.partial) {
    throw refuse(`${partial === undefined ? '' : `${name}, `}partial_rotary_factor`, turned, '1')
  }
  return { rope, windowRope, partial: turned }
}

/** How many tokens each layer's tokens see; 0: all. */
function readWindows(
  config: TransformerConfig,
  { windows }: Family,
  numLayers: number,
  read: Read,
  refuse: Refuse,
): number[] {
  const layers = Array.from({ length: numLayers }, (_, index) => index)
  const { layer_types: types } = config
  const known = ['full_attention', ...(windows === undefined ? [] : ['sliding_attention'])]
  if (
    types != null &&
    !(Array.isArray(types) && types.length >= numLayers && types.every((type) => known.includes(type)))
  ) {
    throw refuse('layer_types', types, `${known.join(' or ')} in each of ${numLayers} layers`)
  }
  if (windows === undefined) {
    if (config.use_sliding_window === true) throw refuse('use_sliding_window', true, 'false')
    return layers.map(() => 0)
  }
  const isUsed = windows !== 'last' || config.use_sliding_window === true
  const window = isUsed ? read('sliding_window') : null
  const interval = config.sliding_window_pattern ?? windows
  if (typeof windows === 'number' && !(Number.isSafeInteger(interval) && (interval as number) >= 1)) {
    throw refuse('sliding_window_pattern', interval, 'a whole number ≥ 1')
  }
  const isWindowed = (index: number): boolean => {
    if (types != null) return (types as string[])[index] === 'sliding_attention'
    if (windows === 'all') return true
    if (windows === 'last') return index >= Number(config.max_window_layers ?? 28)
    return (index + 1) % (interval as number) !== 0
  }
  if (window === null || window === undefined) {
    const at = types == null ? -1 : layers.findIndex(isWindowed)
    if (at >= 0) throw refuse('sliding_window', window, `a whole number ≥ 1, since layer ${at} has sliding_attention`)
    return layers.map(() => 0)
  }
  if (!Number.isSafeInteger(window) || (window as number) < 1)
    throw refuse('sliding_window', window, 'a whole number ≥ 1')
  return layers.map((index) => (isWindowed(index) ? (window as number) : 0))
}

/** The experts, and which layers have them: every n-th, but not those that `mlp_only_layers` lists. */
function readExperts(
  { width, shared, normalized, some }: NonNullable<Family['experts']>,
  numLayers: number,
  size: (name: string) => number,
  isGiven: (given: Given | undefined) => boolean,
  read: Read,
  refuse: Refuse,
): Experts {
  const only = (some ? read('mlp_only_layers') : null) ?? []
  if (!(Array.isArray(only) && only.every((layer) => Number.isSafeInteger(layer) && layer >= 0))) {
    throw refuse('mlp_only_layers', only, 'a list of layers')
  }
  const count = read('num_local_experts') === undefined ? 'num_experts' : 'num_local_experts'
  const interval = some ? size('decoder_sparse_step') : 1
  const experts: Experts = {
    count: size(count),
    chosen: size('num_experts_per_tok'),
    width: size(width),
    normalized: isGiven(normalized),
    sharedWidth: shared === undefined ? 0 : size(shared),
    layers: Array.from({ length: numLayers }, (_, index) => (index + 1) % interval === 0 && !only.includes(index)),
  }
  if (experts.chosen > experts.count) {
    throw refuse('num_experts_per_tok', experts.chosen, `at most ${count} = ${experts.count}`)
  }
  return experts
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
