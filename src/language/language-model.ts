/**
 * A language model as a policy: a transformer, its tokenizer and its weights, from a folder or initialized by the seed.
 * Its definition can be sent to other threads; files are read when a world is made. `notes` names tensors that were
 * left out. Every tokenizer has Hugging Face's `files`, so `loadTokenizer` reads the folder of any run or export.
 */
import { type DefinitionRecord, defineFactory, type Factory } from '../base/definition.ts'
import { InputError, show } from '../base/errors.ts'
import { jsonOrText } from '../base/files/files.ts'
import { boolean, choice, integer, number, type Settings, type SettingValues, strings, text } from '../base/settings.ts'
import type { TextEnvironmentDefinition } from '../environments/text.ts'
import type { Parameter } from '../policies/policy.ts'
import { learnsOn } from '../policies/shader-device.ts'
import { openLanguageModel } from './load-language-model.ts'
import { checkArguments, type TemplateArguments } from './templates/chat-template.ts'
import { byteTokenizer } from './tokenizers/byte-tokenizer.ts'
import type { Tokenizer } from './tokenizers/tokenizer.ts'
import { type LoraModel, lora } from './transformer/lora.ts'
import { openLora } from './transformer/lora-folder.ts'
import { type TransformerModel, transformer, type WeightBits } from './transformer/model.ts'
import type { ProjectionName } from './transformer/parameters.ts'
import type { TakeRows } from './transformer/quantized.ts'

/** A language model whose memory can be planned; its weights are not read yet. */
export interface OpenLanguageModel {
  readonly model: TransformerModel
  readonly tokenizer: Tokenizer
  /** Bits per projection weight: 32, or fewer under an adapter. */
  readonly weightBits: WeightBits
  /** The adapter that is trained instead of the weights, if there is one. */
  readonly adapter: LoraModel | null
  readonly context: number
  /** The folder of the model and tokenizer; null for a new model. */
  readonly folder: string | null
  /** The weights begin at random although there is a folder. */
  readonly isNew?: boolean
  /** Opens the initial weights. @throws InputError for a missing or damaged file. */
  openWeights(): Promise<LanguageModelWeights>
}

export interface LanguageModelWeights {
  /** Reads the weights row by row, once there is memory (`rowTaker`); null: initialize by the seed. */
  readonly fill: ((take: TakeRows) => void) | null
  /** Null without an adapter, or to initialize it. */
  readonly adapter: Float32Array | null
  /** Tensors that are left out, one sentence each. */
  readonly notes: readonly string[]
}

/** A language model with its parameters: the policy that `createWorld` takes for a text environment. */
export interface LanguageModelDefinition extends DefinitionRecord {
  /** Reads its files, if any, without the weights. @throws InputError for missing files, or files that do not fit. */
  open(environment: TextEnvironmentDefinition): Promise<OpenLanguageModel>
}

const settings = {
  folder: text(
    '',
    'a folder with config.json, weights and tokenizer, a GGUF file, or the id of a model on the Hugging Face hub; empty: a new model of the sizes below',
  ),
  initialize: boolean(
    false,
    'start from random weights, drawn with the seed: the folder needs only config.json and a tokenizer, and learning rates default to those of a new model',
  ),
  context: integer(
    0,
    "maximum of tokens of a conversation; 0: 64 for a new model, the model's own maximum for a loaded one",
    {
      min: 0,
    },
  ),
  width: integer(64, 'width of a hidden state', { min: 2 }),
  layers: integer(2, 'layers', { min: 1 }),
  heads: integer(4, 'attention heads', { min: 1 }),
  feedForwardWidth: integer(0, 'width of the feed-forward layers; 0: four times the width', { min: 0 }),
  critic: boolean(false, 'add a value head, which algorithms with a critic need'),
  loraRank: integer(0, 'rank of adapters; only they are trained; 0: no adapters', { min: 0 }),
  loraAlpha: number(0, 'alpha of the adapters, whose scale is alpha / rank; 0: twice the rank', { min: 0 }),
  loraDropout: number(0, "dropout: fraction of the adapters' inputs that are set to 0 in training", {
    min: 0,
    max: 0.99,
  }),
  loraTargets: strings([], 'projections with adapters, like q_proj,v_proj; empty: all'),
  loraLayers: integer(0, 'layers with adapters, counted from the last one; 0: all', { min: 0 }),
  loraStabilized: boolean(false, 'scale the adapters by alpha / √rank (rsLoRA), for high ranks'),
  loraMagnitude: boolean(
    false,
    'also train the magnitude of each row of the adapted weights, apart from its direction (DoRA)',
  ),
  adapter: text('', "folder with an adapter in PEFT's format to continue from"),
  trainable: strings(
    [],
    'names of the parameters to train, where * is any text, like model.layers.4.*; the others are frozen; empty: all',
  ),
  quantize: choice(
    32,
    [32, 16, 8, 4],
    'bits of each frozen weight: bf16 takes half of the memory, 8 bits a quarter, 4 bits about a seventh; training then needs an adapter',
  ),
  embeddingBits: choice(
    32,
    [32, 8, 4],
    'bits of each weight of the embedding and the output head, if quantize is 8 or 4; with quantize=16 they are in bf16',
  ),
  quantizeActivations: boolean(
    false,
    'also round the inputs of weights in 8 or 4 bits to 8 bits: faster with native kernels, but the results change',
  ),
  checkpointing: boolean(
    false,
    'keep only the inputs of layers while gradients are computed: less memory, more time, the same bits',
  ),
  cacheBits: choice(
    32,
    [32, 16],
    'bits of the cached keys and values; 16: bf16, which halves the cache; training rounds them too',
  ),
  routerLoss: number(
    0,
    "weight of a loss that balances the load of a model's experts in training, like 0.001; it is part of the loss that is told; 0: none",
    { min: 0 },
  ),
  device: learnsOn,
  templateArguments: strings(
    [],
    'arguments of the chat template, like enable_thinking=false; values are JSON, otherwise text',
  ),
  anyText: boolean(false, "use a vocabulary of all bytes, not only the environment's characters"),
} satisfies Settings

/** Makes a language model, from a folder or new. */
export const languageModel: Factory<typeof settings, LanguageModelDefinition> = defineFactory(
  'policy',
  {
    id: 'languageModel',
    module: import.meta.url,
    settings,
    newer: [
      'routerLoss',
      'initialize',
      'trainable',
      'loraLayers',
      'loraStabilized',
      'loraMagnitude',
      'checkpointing',
      'cacheBits',
      'embeddingBits',
      'device',
    ],
  },
  (parameters) => ({
    async open(environment: TextEnvironmentDefinition) {
      if (parameters.initialize) checkInitialize(parameters)
      const { openWeights, ...bare } =
        parameters.folder === '' ? create(parameters, environment) : await openFolder(parameters)
      const { quantizeActivations, checkpointing, cacheBits, routerLoss, device } = parameters
      const ways = {
        embeddingBits: embeddingBitsOf(parameters),
        quantizesActivations: quantizeActivations,
        recomputesActivations: checkpointing,
        cacheBits,
        routerLoss,
        device,
      }
      const opened = { ...bare, model: { ...freeze(bare.model, parameters), ...ways } }
      if (routerLoss > 0 && opened.model.shape.experts === null) {
        throw new InputError(
          'languageModel.routerLoss',
          `${routerLoss}, of a model without experts`,
          '0, or a model with experts',
        )
      }
      const adapter = await adapt(parameters, opened.model)
      if (quantizeActivations && parameters.quantize > 8) {
        const got = parameters.quantize === 16 ? 'true, with quantize=16' : 'true, without quantize'
        throw new InputError('languageModel.quantizeActivations', got, 'quantize=8 or 4, or false')
      }
      return {
        ...opened,
        weightBits: parameters.quantize,
        adapter: adapter?.model ?? null,
        async openWeights() {
          const opened = await openWeights()
          return { ...opened, adapter: (await adapter?.readWeights()) ?? null }
        },
      }
    },
  }),
)

function embeddingBitsOf({ quantize, embeddingBits }: SettingValues<typeof settings>): WeightBits {
  if (embeddingBits < 32 && quantize > 8) {
    throw new InputError(
      'languageModel.embeddingBits',
      `${embeddingBits}, with quantize=${quantize}`,
      'quantize=8 or 4',
    )
  }
  return quantize === 16 ? 16 : embeddingBits
}

/** Random weights are trained whole: an adapter would be of weights that no file has. */
function checkInitialize({ folder, loraRank, adapter }: SettingValues<typeof settings>): void {
  const subject = 'languageModel.initialize'
  if (folder === '') throw new InputError(subject, 'true, without languageModel.folder', 'a folder with config.json')
  if (loraRank > 0 || adapter !== '') throw new InputError(subject, 'true, with an adapter', 'false, or no adapter')
}

/** Freezes the parameters that no pattern of `trainable` names. */
function freeze(
  model: TransformerModel,
  { trainable, loraRank, adapter }: SettingValues<typeof settings>,
): TransformerModel {
  if (trainable.length === 0) return model
  const subject = 'languageModel.trainable'
  if (loraRank > 0 || adapter !== '') {
    throw new InputError(subject, `${trainable}, with an adapter`, 'none: loraTargets and loraLayers choose its parts')
  }
  const patterns = trainable.map((each) => {
    const pattern = new RegExp(`^${each.split('*').map(escaped).join('.*')}$`)
    if (model.parameters.some(({ name }) => pattern.test(name))) return pattern
    const [first, , third] = model.parameters
    throw new InputError(subject, show(each), `the name of a parameter, like ${first!.name} or ${third!.name}`)
  })
  const isTrained = ({ name }: Parameter) => patterns.some((pattern) => pattern.test(name))
  const parameters = model.parameters.map((each) => (isTrained(each) ? each : { ...each, isFrozen: true }))
  return { ...model, parameters }
}

const escaped = (text: string): string => text.replace(/[.+?^${}()|[\]\\]/g, '\\$&')

type Bare = Omit<OpenLanguageModel, 'adapter' | 'weightBits' | 'openWeights'> & {
  openWeights(): Promise<Omit<LanguageModelWeights, 'adapter'>>
}

async function adapt(
  given: SettingValues<typeof settings>,
  model: TransformerModel,
): Promise<{ readonly model: LoraModel; readWeights(): Promise<Float32Array | null> } | null> {
  const { adapter, loraRank: rank, loraAlpha, loraDropout: dropout, loraTargets, loraLayers, loraStabilized } = given
  const { loraMagnitude } = given
  if (adapter !== '') {
    const opened = await openLora(adapter, model)
    const has = opened.model.settings
    const { numLayers } = model.shape
    const { layers = Array.from({ length: numLayers }, (_, i) => i) } = has
    const isLast = layers.length === loraLayers && layers[0] === numLayers - loraLayers
    const names = (list: readonly string[]) => list.toSorted().join(',')
    const asked = [
      ['loraRank', rank, has.rank],
      ['loraAlpha', loraAlpha, has.alpha],
      ['loraDropout', dropout, has.dropout],
      ['loraTargets', names(loraTargets), names(has.targets)],
      ['loraLayers', loraLayers, isLast ? loraLayers : `layers ${layers.join(', ')}`],
      ['loraStabilized', loraStabilized, has.rankStabilized === true],
      ['loraMagnitude', loraMagnitude, has.magnitude === true],
    ] as const
    for (const [key, own, its] of asked) {
      if (!own || own === its) continue
      const orNone = typeof own === 'number' ? ', or 0' : typeof own === 'string' ? ', or none' : ''
      throw new InputError(`languageModel.${key}`, String(own), `${its}, as ${adapter} has${orNone}`)
    }
    return opened
  }
  if (rank === 0) {
    const others = {
      loraAlpha,
      loraDropout: dropout,
      loraTargets: loraTargets.length,
      loraLayers,
      loraStabilized,
      loraMagnitude,
    }
    const [asked] = Object.entries(others).find(([, value]) => Number(value) !== 0) ?? [null]
    if (asked === null) return null
    throw new InputError('languageModel.loraRank', `0, with ${asked}`, 'a whole number ≥ 1 if there are adapters')
  }
  const targets = loraTargets.length === 0 ? {} : { targets: loraTargets as readonly ProjectionName[] }
  const { numLayers } = model.shape
  if (loraLayers > numLayers) {
    throw new InputError('languageModel.loraLayers', String(loraLayers), `at most ${numLayers}, the model's layers`)
  }
  const last = Array.from({ length: loraLayers }, (_, i) => numLayers - loraLayers + i)
  const more = {
    ...(loraLayers > 0 && { layers: last }),
    ...(loraStabilized && { rankStabilized: true }),
    ...(loraMagnitude && { magnitude: true }),
  }
  return {
    model: lora(model, { rank, alpha: loraAlpha || 2 * rank, dropout, ...targets, ...more }),
    readWeights: async () => null,
  }
}

function create(parameters: SettingValues<typeof settings>, environment: TextEnvironmentDefinition): Bare {
  const { width, layers, heads, feedForwardWidth, critic, anyText } = parameters
  const { alphabet } = environment
  const tokenizer = anyText || alphabet === undefined ? byteTokenizer() : byteTokenizer({ alphabet })
  checkArguments('languageModel.templateArguments', argumentsOf(parameters), []) // A new model's template reads none.
  const context = parameters.context || 64
  if (width % heads !== 0) throw new InputError('languageModel.heads', String(heads), `a divisor of width ${width}`)
  const config = {
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    vocab_size: tokenizer.vocabularySize,
    hidden_size: width,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    intermediate_size: feedForwardWidth || 4 * width,
    max_position_embeddings: context,
    rms_norm_eps: 1e-5,
    rope_theta: 10_000,
    tie_word_embeddings: true,
    initializer_range: 1 / Math.sqrt(width),
  }
  const model = transformer(config, { valueHead: critic })
  return { model, tokenizer, context, folder: null, openWeights: async () => ({ fill: null, notes: [] }) }
}

function argumentsOf({ templateArguments }: SettingValues<typeof settings>): TemplateArguments {
  const given: Record<string, unknown> = {}
  for (const word of templateArguments) {
    const [, name, value] = /^([A-Za-z_]\w*)=(.*)$/s.exec(word) ?? []
    if (name === undefined) throw new InputError('languageModel.templateArguments', show(word), 'name=value')
    if (Object.hasOwn(given, name))
      throw new InputError('languageModel.templateArguments', `${name} twice`, 'each name once')
    given[name] = jsonOrText(value!)
  }
  return given
}

/** Settings that only a new model has. */
const ofNewModels = ['width', 'layers', 'heads', 'feedForwardWidth', 'anyText'] as const

async function openFolder(parameters: SettingValues<typeof settings>): Promise<Bare> {
  const { folder: folderOrId, context, critic, initialize } = parameters
  const templateArguments = argumentsOf(parameters)
  const opened = await openLanguageModel(folderOrId, { valueHead: critic, templateArguments })
  const { contextLength } = opened.model.shape
  if (context > contextLength) {
    const expected = `at most ${contextLength}, as ${folderOrId} was made for`
    throw new InputError('languageModel.context', String(context), expected)
  }
  const unused = ofNewModels.filter((name) => parameters[name] !== settings[name].default)
  const told = unused.map(
    (name) => `languageModel.${name} has no effect: ${folderOrId} has its own sizes and tokenizer`,
  )
  return {
    ...opened,
    context: context || contextLength,
    ...(initialize && { isNew: true }),
    async openWeights() {
      const begins = initialize ? { fill: null, notes: [] } : await opened.openWeights()
      return { ...begins, notes: [...told, ...begins.notes] }
    },
  }
}
