/**
 * The families of transformers that `config.json` names, as a table of how each differs from Llama. The forward pass knows parts, not
 * families.
 */

/** How the tensors of a family's files differ from this project's parameters, which have Llama's names. */
export interface Layout {
  /** Parts of names, ours and theirs, replaced in this order. */
  readonly names?: readonly (readonly [ours: string, theirs: string])[]
  /** Modules that hold several of ours, in this order. */
  readonly fused?: Readonly<Record<string, readonly string[]>>
  /** The matrices of layers are inputs × outputs. */
  readonly transposed?: boolean
  /** Tensors that follow from the configuration and are left out. */
  readonly spare?: RegExp
}

export interface Family {
  readonly architecture: string
  /** Other names of keys: ours (Llama's), and theirs. */
  readonly keys?: Readonly<Record<string, string>>
  /** Defaults of transformers 5.23 for missing keys, where they differ from Llama's. */
  readonly absent?: Readonly<Record<string, unknown>>
  /** Biases of queries, keys and values; of attention's output; of the feed-forward layer: always, never, or as a key says. */
  readonly bias?: {
    readonly query?: Given
    readonly output?: Given
    readonly feedForward?: Given
    readonly head?: Given
  }
  /** `layer`: LayerNorm with biases, instead of the root mean square. */
  readonly norm?: 'layer'
  /** Weights of norms are differences from 1. */
  readonly normOffset?: 1
  /** Norms are after attention and feed-forward layers, or around them (before and after); default: before them. */
  readonly norms?: 'after' | 'around'
  /** Attention and feed-forward layer read the same norm: always, or as a key says. */
  readonly parallel?: Given
  /** Queries and keys are normalized before RoPE, by head or whole. */
  readonly queryKeyNorm?: 'head' | 'whole'
  /** The feed-forward layer has no gate. */
  readonly plain?: true
  /** Layers may have experts: the keys of their width, of the shared expert's, and whether shares sum to 1. */
  readonly experts?: {
    readonly width: string
    readonly shared?: string
    readonly normalized: Given
    /** Some layers have none, by `decoder_sparse_step` and `mlp_only_layers`. */
    readonly some?: true
  }
  /** Positions have an embedding, and there is no RoPE. */
  readonly learnedPositions?: true
  /** RoPE may turn a part of each head, `partial_rotary_factor`. */
  readonly partial?: true
  /** RoPE turns neighboring elements together, instead of halves. */
  readonly neighbors?: true
  /** Some layers have no RoPE. */
  readonly unturned?: true
  /** Layers with a window, if `layer_types` is missing: all, or all but every n-th. */
  readonly windows?: 'all' | 'last' | number
  /** Embeddings are multiplied by the root of the width. */
  readonly scaledEmbeddings?: true
  /** Keys of numbers: scores are divided by the root of one, or multiplied by one; soft caps. */
  readonly queryScalar?: true
  readonly multipliers?: true
  readonly layout?: Layout
}

/** True, false, or the name of a key. */
export type Given = boolean | string

const FUSED = {
  'self_attn.qkv_proj': ['self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj'],
  'mlp.gate_up_proj': ['mlp.gate_proj', 'mlp.up_proj'],
} as const
const ALL_BIASES = { query: 'attention_bias', output: 'attention_bias' } as const

const GEMMA = {
  bias: ALL_BIASES,
  normOffset: 1,
  scaledEmbeddings: true,
} as const
const GEMMA_ABSENT = {
  tie_word_embeddings: true,
  head_dim: 256,
  hidden_act: 'gelu_pytorch_tanh',
  rms_norm_eps: 1e-6,
} as const
const AROUND = {
  names: [
    ['.post_attention_layernorm.', '.pre_feedforward_layernorm.'],
    ['.post_self_attn_layernorm.', '.post_attention_layernorm.'],
    ['.post_mlp_layernorm.', '.post_feedforward_layernorm.'],
  ],
} as const

/** By `model_type`. SmolLM and SmolLM2 are llamas; Phi-4 is of the family phi3. */
export const FAMILIES: Readonly<Record<string, Family>> = {
  llama: { architecture: 'LlamaForCausalLM', bias: { ...ALL_BIASES, feedForward: 'mlp_bias' } },
  qwen2: {
    architecture: 'Qwen2ForCausalLM',
    absent: { num_key_value_heads: 32 },
    bias: { query: true },
    windows: 'last',
  },
  qwen3: {
    architecture: 'Qwen3ForCausalLM',
    absent: { num_key_value_heads: 32, head_dim: 128 },
    bias: ALL_BIASES,
    queryKeyNorm: 'head',
    windows: 'last',
  },
  smollm3: {
    architecture: 'SmolLM3ForCausalLM',
    absent: { tie_word_embeddings: true, rope_theta: 2_000_000, num_key_value_heads: 4 },
    bias: { ...ALL_BIASES, feedForward: 'mlp_bias' },
    unturned: true,
    windows: 'last',
  },
  mistral: {
    architecture: 'MistralForCausalLM',
    absent: { num_key_value_heads: 8, sliding_window: 4096 },
    windows: 'all',
  },
  mixtral: {
    architecture: 'MixtralForCausalLM',
    absent: {
      rms_norm_eps: 1e-5,
      rope_theta: 1_000_000,
      num_key_value_heads: 8,
      num_experts: 8,
      num_experts_per_tok: 2,
    },
    windows: 'all',
    experts: { width: 'intermediate_size', normalized: true },
    layout: {
      names: [
        ['.mlp.', '.block_sparse_moe.'],
        ['.gate_proj.', '.w1.'],
        ['.up_proj.', '.w3.'],
        ['.down_proj.', '.w2.'],
      ],
    },
  },
  qwen2_moe: {
    architecture: 'Qwen2MoeForCausalLM',
    absent: {
      ...{ num_key_value_heads: 16, qkv_bias: true, num_experts: 60, num_experts_per_tok: 4, decoder_sparse_step: 1 },
      ...{ moe_intermediate_size: 1408, shared_expert_intermediate_size: 5632 },
    },
    bias: { query: 'qkv_bias' },
    experts: {
      ...{ width: 'moe_intermediate_size', shared: 'shared_expert_intermediate_size' },
      ...{ normalized: 'norm_topk_prob', some: true },
    },
  },
  qwen3_moe: {
    architecture: 'Qwen3MoeForCausalLM',
    absent: {
      ...{ num_key_value_heads: 4, num_experts: 128, num_experts_per_tok: 8, decoder_sparse_step: 1 },
      moe_intermediate_size: 768,
    },
    bias: ALL_BIASES,
    queryKeyNorm: 'head',
    experts: { width: 'moe_intermediate_size', normalized: 'norm_topk_prob', some: true },
  },
  olmoe: {
    architecture: 'OlmoeForCausalLM',
    absent: { rms_norm_eps: 1e-5, num_experts: 64, num_experts_per_tok: 8 },
    bias: ALL_BIASES,
    queryKeyNorm: 'whole',
    experts: { width: 'intermediate_size', normalized: 'norm_topk_prob' },
  },
  phi3: {
    architecture: 'Phi3ForCausalLM',
    absent: { rms_norm_eps: 1e-5, original_max_position_embeddings: 4096 },
    windows: 'all',
    partial: true,
    layout: { fused: FUSED },
  },
  gemma: {
    architecture: 'GemmaForCausalLM',
    ...GEMMA,
    absent: { ...GEMMA_ABSENT, num_key_value_heads: 16 },
  },
  gemma2: {
    architecture: 'Gemma2ForCausalLM',
    ...GEMMA,
    keys: { hidden_act: 'hidden_activation' },
    absent: {
      ...GEMMA_ABSENT,
      num_key_value_heads: 4,
      query_pre_attn_scalar: 256,
      sliding_window: 4096,
      attn_logit_softcapping: 50,
      final_logit_softcapping: 30,
    },
    norms: 'around',
    windows: 2,
    queryScalar: true,
    layout: AROUND,
  },
  gemma3_text: {
    architecture: 'Gemma3ForCausalLM',
    ...GEMMA,
    keys: { hidden_act: 'hidden_activation' },
    absent: {
      ...GEMMA_ABSENT,
      num_key_value_heads: 4,
      query_pre_attn_scalar: 256,
      sliding_window: 4096,
      rope_theta: 1_000_000,
      rope_local_base_freq: 10_000,
    },
    norms: 'around',
    queryKeyNorm: 'head',
    windows: 6,
    queryScalar: true,
    layout: AROUND,
  },
  olmo2: {
    architecture: 'Olmo2ForCausalLM',
    absent: { rms_norm_eps: 1e-5 },
    bias: ALL_BIASES,
    norms: 'after',
    queryKeyNorm: 'whole',
    layout: AROUND,
  },
  granite: {
    architecture: 'GraniteForCausalLM',
    absent: { attention_multiplier: 1 },
    bias: { ...ALL_BIASES, feedForward: 'mlp_bias' },
    multipliers: true,
  },
  glm4: {
    architecture: 'Glm4ForCausalLM',
    absent: {
      num_key_value_heads: 2,
      head_dim: 128,
      rms_norm_eps: 1.5625e-7,
      partial_rotary_factor: 0.5,
      attention_bias: true,
    },
    bias: { query: 'attention_bias' },
    norms: 'around',
    partial: true,
    neighbors: true,
    layout: { fused: { 'mlp.gate_up_proj': FUSED['mlp.gate_up_proj'] } },
  },
  stablelm: {
    architecture: 'StableLmForCausalLM',
    keys: { rms_norm_eps: 'layer_norm_eps' },
    absent: { num_key_value_heads: 32, rms_norm_eps: 1e-5, partial_rotary_factor: 0.25 },
    bias: { query: 'use_qkv_bias' },
    norm: 'layer',
    partial: true,
    parallel: 'use_parallel_residual',
  },
  phi: {
    architecture: 'PhiForCausalLM',
    keys: { rms_norm_eps: 'layer_norm_eps' },
    absent: { hidden_act: 'gelu_new', rms_norm_eps: 1e-5, partial_rotary_factor: 0.5 },
    bias: { query: true, output: true, feedForward: true, head: true },
    norm: 'layer',
    partial: true,
    parallel: true,
    plain: true,
    layout: {
      names: [
        ['.self_attn.o_proj.', '.self_attn.dense.'],
        ['.mlp.up_proj.', '.mlp.fc1.'],
        ['.mlp.down_proj.', '.mlp.fc2.'],
        ['model.norm.', 'model.final_layernorm.'],
      ],
    },
  },
  gpt2: {
    architecture: 'GPT2LMHeadModel',
    keys: {
      hidden_size: 'n_embd',
      num_hidden_layers: 'n_layer',
      num_attention_heads: 'n_head',
      intermediate_size: 'n_inner',
      max_position_embeddings: 'n_positions',
      hidden_act: 'activation_function',
      rms_norm_eps: 'layer_norm_epsilon',
    },
    absent: { hidden_act: 'gelu_new', rms_norm_eps: 1e-5, tie_word_embeddings: true, max_position_embeddings: 1024 },
    bias: { query: true, output: true, feedForward: true },
    norm: 'layer',
    plain: true,
    learnedPositions: true,
    layout: {
      names: [
        ['model.embed_tokens.', 'transformer.wte.'],
        ['model.embed_positions.', 'transformer.wpe.'],
        ['model.norm.', 'transformer.ln_f.'],
        ['model.layers.', 'transformer.h.'],
        ['.input_layernorm.', '.ln_1.'],
        ['.post_attention_layernorm.', '.ln_2.'],
        ['.self_attn.qkv_proj.', '.attn.c_attn.'],
        ['.self_attn.o_proj.', '.attn.c_proj.'],
        ['.mlp.up_proj.', '.mlp.c_fc.'],
        ['.mlp.down_proj.', '.mlp.c_proj.'],
      ],
      fused: { 'self_attn.qkv_proj': FUSED['self_attn.qkv_proj'] },
      transposed: true,
      spare: /\.attn\.(masked_)?bias$/,
    },
  },
}

/**
 * The parts that a family outside the table may have: its keys name the parts, and its tensors must be those of the parts. Llama's names,
 * norms before attention and feed-forward layers, and a gate are assumed.
 */
const UNKNOWN: Family = {
  architecture: '',
  bias: { ...ALL_BIASES, feedForward: 'mlp_bias' },
  multipliers: true,
  partial: true,
}

/** Keys of an unknown family that do not describe the network, or that are read. */
const READ = new Set([
  ...['architectures', 'model_type', 'torch_dtype', 'dtype', 'transformers_version', 'use_cache', 'initializer_range'],
  ...[
    'bos_token_id',
    'eos_token_id',
    'pad_token_id',
    'unk_token_id',
    '_name_or_path',
    'return_dict',
    'tie_word_embeddings',
  ],
  ...['vocab_size', 'hidden_size', 'num_hidden_layers', 'num_attention_heads', 'num_key_value_heads', 'head_dim'],
  ...['intermediate_size', 'max_position_embeddings', 'rms_norm_eps', 'hidden_act', 'rope_theta', 'rope_scaling'],
  ...['rope_parameters', 'partial_rotary_factor', 'original_max_position_embeddings', 'attention_bias', 'mlp_bias'],
  ...[
    'layer_types',
    'sliding_window',
    'use_sliding_window',
    'max_window_layers',
    'attention_dropout',
    'hidden_dropout',
    'pretraining_tp',
  ],
  ...['embedding_multiplier', 'logits_scaling', 'residual_multiplier', 'attention_multiplier'],
])

/** The parts of a family outside the table, or the key of a part that is not known. */
export function unknownFamily(config: Readonly<Record<string, unknown>>): Family | string {
  const isNothing = (value: unknown) => value === null || value === false
  const other = Object.keys(config).find((key) => !READ.has(key) && !isNothing(config[key]))
  if (other !== undefined) return other
  if (config.sliding_window == null) return UNKNOWN
  return { ...UNKNOWN, windows: config.use_sliding_window === undefined ? 'all' : 'last' }
}
