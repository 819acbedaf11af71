/**
 * A language model as a policy: a transformer, its tokenizer and its weights, from a folder or drawn by the seed. Its
 * definition travels; what it needs of files is read when a world is made.
 */
import { type DefinitionRecord, defineFactory, type Factory } from '../definition.ts'
import type { TextEnvironmentDefinition } from '../environments/text.ts'
import { InputError } from '../errors.ts'
import { type TransformerModel, transformer } from '../policies/transformer/model.ts'
import { type Settings, type SettingValues, text, toggle, whole } from '../settings.ts'
import { byteTokenizer } from './byte-tokenizer.ts'
import { loadLanguageModel } from './load-language-model.ts'
import type { Tokenizer } from './tokenizer.ts'

/** A language model that is ready to be given memory. */
export interface OpenLanguageModel {
  readonly model: TransformerModel
  readonly tokenizer: Tokenizer
  /** Null where they are to be drawn by the seed. */
  readonly weights: Float32Array | null
  /** Tokens of a conversation, at most. */
  readonly context: number
}

/** A language model with its parameters: what `createWorld` takes as the policy of a text environment. */
export interface LanguageModelDefinition extends DefinitionRecord {
  /** Reads its files, if it has any. @throws InputError where they are missing, damaged, or do not fit one another. */
  open(environment: TextEnvironmentDefinition): Promise<OpenLanguageModel>
}

const settings = {
  folder: text(
    '',
    'a folder with config.json, weights and tokenizer, or the id of a model on the Hugging Face hub; empty: a new model of the sizes below',
  ),
  context: whole(0, 'tokens of a conversation, at most; 0: 64 of a new model, as many as it was made for of another', {
    min: 0,
  }),
  width: whole(64, 'elements of a hidden state', { min: 2 }),
  layers: whole(2, 'layers', { min: 1 }),
  heads: whole(4, 'heads of attention', { min: 1 }),
  feedForwardWidth: whole(0, 'elements of the feed-forward layers; 0: four times the width', { min: 0 }),
  critic: toggle(false, 'give it a value head, which algorithms with a critic need'),
  anyText: toggle(false, "know every byte, not only the environment's own characters"),
} satisfies Settings

/** Makes a language model from a folder, or a new one. */
export const languageModel: Factory<typeof settings, LanguageModelDefinition> = defineFactory(
  'policy',
  { id: 'languageModel', module: import.meta.url, settings },
  (parameters) => ({
    open: (environment: TextEnvironmentDefinition) =>
      parameters.folder === '' ? Promise.resolve(create(parameters, environment)) : load(parameters),
  }),
)

function create(parameters: SettingValues<typeof settings>, environment: TextEnvironmentDefinition): OpenLanguageModel {
  const { width, layers, heads, feedForwardWidth, critic, anyText } = parameters
  const { alphabet } = environment
  const tokenizer = anyText || alphabet === undefined ? byteTokenizer() : byteTokenizer({ alphabet })
  const context = parameters.context || 64
  if (width % heads !== 0) throw new InputError('languageModel.heads', String(heads), `a divisor of width ${width}`)
  const config = {
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
  return { model, tokenizer, weights: null, context }
}

async function load({ folder, context, critic }: SettingValues<typeof settings>): Promise<OpenLanguageModel> {
  const { model, weights, tokenizer } = await loadLanguageModel(folder, { valueHead: critic })
  const { contextLength } = model.shape
  if (context > contextLength) {
    throw new InputError(
      'languageModel.context',
      String(context),
      `at most ${contextLength}, as ${folder} was made for`,
    )
  }
  return { model, tokenizer, weights, context: context || contextLength }
}
