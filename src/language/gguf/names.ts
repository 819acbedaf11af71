/** Names of families, settings and tensors in llama.cpp, in `config.json` and in this project. */
import { InputError, show, unknownWord } from '../../base/errors.ts'
import type { Parameter } from '../../policies/policy.ts'
import type { TransformerConfig } from '../transformer/config.ts'
import type { TransformerModel } from '../transformer/model.ts'
import type { Gguf, GgufValue } from './file.ts'

interface Architecture {
  readonly type: string
  readonly architecture: string
  /** Rows of queries and keys lie in the order in which neighbors are turned together. */
  readonly paired?: true
  /** Weights of norms have the offset of `config.json`'s family added: 1 for Gemma. */
  readonly normOffset?: 1
  /** Keys that are the same for every model of the family. */
  readonly more?: TransformerConfig
  /** Layers of the model of 27 billion parameters, by which llama.cpp tells it: its scores are divided by another number. */
  readonly largest?: number
}

/** By `general.architecture`. */
const ARCHITECTURES: Readonly<Record<string, Architecture>> = {
  llama: { type: 'llama', architecture: 'LlamaForCausalLM', paired: true },
  qwen2: { type: 'qwen2', architecture: 'Qwen2ForCausalLM' },
  qwen3: { type: 'qwen3', architecture: 'Qwen3ForCausalLM' },
  qwen2moe: { type: 'qwen2_moe', architecture: 'Qwen2MoeForCausalLM' },
  qwen3moe: { type: 'qwen3_moe', architecture: 'Qwen3MoeForCausalLM', more: { norm_topk_prob: true } },
  olmoe: { type: 'olmoe', architecture: 'OlmoeForCausalLM' },
  gemma: { type: 'gemma', architecture: 'GemmaForCausalLM', normOffset: 1, more: { hidden_act: 'gelu_pytorch_tanh' } },
  gemma2: { type: 'gemma2', architecture: 'Gemma2ForCausalLM', normOffset: 1, largest: 46 },
  gemma3: { type: 'gemma3_text', architecture: 'Gemma3ForCausalLM', normOffset: 1, largest: 62 },
}
const MIXTRAL: Architecture = { type: 'mixtral', architecture: 'MixtralForCausalLM', paired: true }
const MISTRAL: Architecture = { type: 'mistral', architecture: 'MistralForCausalLM', paired: true }

/** Keys of the metadata, after the architecture's name, and those of `config.json`. */
const KEYS: Readonly<Record<string, string>> = {
  context_length: 'max_position_embeddings',
  embedding_length: 'hidden_size',
  block_count: 'num_hidden_layers',
  feed_forward_length: 'intermediate_size',
  'attention.head_count': 'num_attention_heads',
  'attention.head_count_kv': 'num_key_value_heads',
  'attention.key_length': 'head_dim',
  'attention.layer_norm_rms_epsilon': 'rms_norm_eps',
  'attention.sliding_window': 'sliding_window',
  'rope.freq_base': 'rope_theta',
  'rope.freq_base_swa': 'rope_local_base_freq',
  attn_logit_softcapping: 'attn_logit_softcapping',
  final_logit_softcapping: 'final_logit_softcapping',
  expert_count: 'num_experts',
  expert_used_count: 'num_experts_per_tok',
  expert_feed_forward_length: 'moe_intermediate_size',
  expert_shared_feed_forward_length: 'shared_expert_intermediate_size',
}

/** Modules: ours, after the layer, and llama.cpp's. */
const MODULES: Readonly<Record<string, string>> = {
  ...{ 'model.embed_tokens': 'token_embd', 'model.norm': 'output_norm', lm_head: 'output' },
  ...{ input_layernorm: 'attn_norm', post_attention_layernorm: 'ffn_norm' },
  ...{ post_self_attn_layernorm: 'post_attention_norm', post_mlp_layernorm: 'post_ffw_norm' },
  ...{ 'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v' },
  ...{ 'self_attn.o_proj': 'attn_output', 'self_attn.q_norm': 'attn_q_norm', 'self_attn.k_norm': 'attn_k_norm' },
  ...{ 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down' },
  ...{ 'mlp.gate': 'ffn_gate_inp', 'mlp.shared_expert_gate': 'ffn_gate_inp_shexp' },
  ...{ 'mlp.experts.gate_proj': 'ffn_gate_exps', 'mlp.experts.up_proj': 'ffn_up_exps' },
  ...{ 'mlp.experts.down_proj': 'ffn_down_exps', 'mlp.shared_expert.gate_proj': 'ffn_gate_shexp' },
  ...{ 'mlp.shared_expert.up_proj': 'ffn_up_shexp', 'mlp.shared_expert.down_proj': 'ffn_down_shexp' },
}

/** A tensor's name, and which of its matrices a parameter is, if it has several. */
export function ggufName(name: string): { readonly stored: string; readonly expert: number | null } {
  const [, layer, module, end] = /^(?:model\.layers\.(\d+)\.)?(.*)\.(weight|bias)$/.exec(name)!
  const [, expert] = /^mlp\.experts\.(\d+)\./.exec(module!) ?? []
  const known = MODULES[module!.replace(/^mlp\.experts\.\d+/, 'mlp.experts')]
  const stored = `${layer === undefined ? '' : `blk.${layer}.`}${known ?? module}.${end}`
  return { stored, expert: expert === undefined ? null : Number(expert) }
}

/** The heads of a parameter whose rows llama.cpp turns in pairs; null for others. */
export function headsOf({ name }: Parameter, { numHeads, numKeyHeads }: TransformerModel['shape']): number | null {
  const [, kind] = /\.self_attn\.([qk])_proj\./.exec(name) ?? []
  return kind === undefined ? null : kind === 'q' ? numHeads : numKeyHeads
}

/** The places of a head's rows in the other order: neighbors are turned together, or row i with row i + half. */
export const inHalves = (place: number, half: number): number => (place % 2) * half + Math.floor(place / 2)
export const inPairs = (place: number, half: number): number => (place % half) * 2 + Math.floor(place / half)

/** The rows of each head at other places. */
export function turned(
  values: Float32Array,
  numHeads: number,
  headWidth: number,
  placeOf: typeof inHalves,
): Float32Array {
  const width = values.length / numHeads / headWidth
  const out = new Float32Array(values.length)
  for (let row = 0; row < numHeads * headWidth; row++) {
    const place = row % headWidth
    const to = row - place + placeOf(place, headWidth / 2)
    out.set(values.subarray(row * width, (row + 1) * width), to * width)
  }
  return out
}

/** Reads the network's `config.json` from the metadata. @throws InputError for a family that is not known. */
export function configOf({ path, metadata, tensors }: Gguf, ropeFactors: readonly number[] | null) {
  const name = metadata.get('general.architecture')
  const known = typeof name === 'string' && Object.hasOwn(ARCHITECTURES, name) ? ARCHITECTURES[name] : undefined
  if (known === undefined) {
    throw unknownWord(`${path}, general.architecture`, name ?? 'nothing', Object.keys(ARCHITECTURES))
  }
  const take = (key: string): GgufValue | undefined => metadata.get(`${String(name)}.${key}`)
  const hasExperts = name === 'llama' && Number(take('expert_count') ?? 0) > 0
  const hasWindow = name === 'llama' && take('attention.sliding_window') !== undefined
  const family = hasExperts ? MIXTRAL : hasWindow ? MISTRAL : known
  const config: Record<string, unknown> = {
    architectures: [family.architecture],
    model_type: family.type,
    ...family.more,
  }
  for (const [theirs, ours] of Object.entries(KEYS)) {
    const value = take(theirs)
    if (value !== undefined) config[ours] = value
  }
  config.vocab_size = tensors.get('token_embd.weight')?.shape[0]
  config.tie_word_embeddings = !tensors.has('output.weight')
  config.head_dim ??= Number(config.hidden_size) / Number(config.num_attention_heads)
  const width = take('rope.dimension_count') ?? config.head_dim
  if (width !== config.head_dim) {
    throw new InputError(`${path}, ${name}.rope.dimension_count`, show(width), `${config.head_dim}, all of a head`)
  }
  if (family.largest !== undefined) {
    const isLargest = config.num_hidden_layers === family.largest
    config.query_pre_attn_scalar = isLargest
      ? Math.floor(Number(config.hidden_size) / Number(config.num_attention_heads))
      : config.head_dim
  }
  const pattern = take('attention.sliding_window_pattern')
  if (Array.isArray(pattern)) {
    config.layer_types = pattern.map((isWindowed) => (isWindowed === true ? 'sliding_attention' : 'full_attention'))
  } else if (pattern !== undefined) config.sliding_window_pattern = pattern
  if (family.type === 'qwen2_moe') config.norm_topk_prob ??= false
  const scaling = ropeOf(path, take, ropeFactors, Number(config.max_position_embeddings))
  if (scaling !== null) config.rope_scaling = scaling
  return { family, config }
}

/** RoPE's scaling: by factors in a tensor (as for Llama 3.1), or by name. */
function ropeOf(
  path: string,
  take: (key: string) => GgufValue | undefined,
  factors: readonly number[] | null,
  contextLength: number,
): Record<string, unknown> | null {
  if (factors !== null) {
    const original_max_position_embeddings = take('rope.scaling.original_context_length') ?? contextLength
    const each = { short_factor: factors, long_factor: factors, attention_factor: 1 }
    return { rope_type: 'longrope', ...each, original_max_position_embeddings }
  }
  const type = take('rope.scaling.type') ?? 'none'
  const factor = take('rope.scaling.factor')
  if (type === 'none' || factor === undefined || factor === 1) return null
  if (type === 'linear') return { rope_type: type, factor }
  const original = take('rope.scaling.original_context_length')
  if (type === 'yarn' && original !== undefined) {
    return { rope_type: type, factor, original_max_position_embeddings: original }
  }
  throw new InputError(`${path}, rope.scaling.type`, show(type), 'none, linear, or yarn with its original context')
}

/** The name of a model's family in llama.cpp. @throws InputError for a model that it would compute otherwise. */
export function architectureOf({ config, shape }: TransformerModel): { readonly name: string; readonly paired?: true } {
  const refuse = (got: string, expected: string) => new InputError('model of a GGUF file', got, expected)
  const type = config.model_type === 'mixtral' || config.model_type === 'mistral' ? 'llama' : config.model_type
  const found = Object.entries(ARCHITECTURES).find(([, each]) => each.type === type && each.normOffset === undefined)
  if (found === undefined) {
    const known = Object.values(ARCHITECTURES).filter(({ normOffset }) => normOffset === undefined)
    throw refuse(`model_type ${show(config.model_type)}`, `one of ${known.map((each) => each.type).join(', ')}`)
  }
  if (shape.windows.some((window) => window > 0 && window < shape.contextLength)) {
    throw refuse('layers with windows', 'layers that see all tokens')
  }
  if (shape.outputBias || shape.feedForwardBias) throw refuse('biases of attention_bias or mlp_bias', 'none')
  if (shape.activation !== 'silu') throw refuse(`activation ${config.hidden_act}`, 'silu')
  if (shape.experts?.layers.includes(false)) throw refuse('layers without experts', 'experts in each layer')
  if (
    shape.experts !== null &&
    shape.experts.normalized !== (config.model_type === 'mixtral' || type === 'qwen3_moe')
  ) {
    throw refuse(`norm_topk_prob ${shape.experts.normalized}`, 'the value that its family has in llama.cpp')
  }
  const { scaling } = shape.rope
  if (scaling !== null && scaling.kind !== 'linear' && scaling.kind !== 'llama3') {
    throw refuse(`RoPE of kind ${scaling.kind}`, 'default, linear or llama3')
  }
  const [name, { paired }] = found
  return { name, ...(paired && { paired }) }
}

/** The metadata of a network, without the architecture's name. */
export function ggufKeys({ shape }: TransformerModel): Record<string, number | string> {
  const { experts, rope } = shape
  return {
    context_length: shape.contextLength,
    embedding_length: shape.width,
    block_count: shape.numLayers,
    feed_forward_length: shape.feedForwardWidth,
    vocab_size: shape.vocabularySize,
    'attention.head_count': shape.numHeads,
    'attention.head_count_kv': shape.numKeyHeads,
    'attention.key_length': shape.headWidth,
    'attention.value_length': shape.headWidth,
    'attention.layer_norm_rms_epsilon': shape.normEpsilon,
    'rope.dimension_count': shape.rotaryWidth,
    'rope.freq_base': rope.theta,
    ...(rope.scaling?.kind === 'linear' && {
      'rope.scaling.type': 'linear',
      'rope.scaling.factor': rope.scaling.factor,
    }),
    ...(experts !== null && {
      expert_count: experts.count,
      expert_used_count: experts.chosen,
      expert_feed_forward_length: experts.width,
      ...(experts.sharedWidth > 0 && { expert_shared_feed_forward_length: experts.sharedWidth }),
    }),
  }
}

/** By what Llama 3's scaling divides RoPE's frequencies; null for other models. */
export function ropeFactors({ rope: { theta, scaling }, rotaryWidth }: TransformerModel['shape']): Float32Array | null {
  if (scaling?.kind !== 'llama3') return null
  const { factor, low_freq_factor: low, high_freq_factor: high, original_max_position_embeddings: length } = scaling
  return Float32Array.from({ length: rotaryWidth / 2 }, (_, k) => {
    const turns = length / (2 * Math.PI * theta ** ((2 * k) / rotaryWidth))
    if (turns > high) return 1
    if (turns < low) return factor
    const part = (turns - low) / (high - low)
    return 1 / ((1 - part) / factor + part)
  })
}
