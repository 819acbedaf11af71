import { printable } from '../../base/errors.ts'
import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { boolean, choice, integer, type ModuleTrust, number, text } from '../../entries/settings.ts'
import { generateTokens, loadTrainedModel } from '../../entries/text.ts'
import { InputError, kindOfRun, languageModel } from '../../index.ts'
import { askForModule, trustKeys } from '../words/trust.ts'

export const generateKeys = {
  prompt: text('', 'text to answer'),
  chat: boolean(
    false,
    "send the text as a user message through the model's chat template; otherwise the model continues the text",
  ),
  samples: integer(1, 'number of answers', { min: 1 }),
  maxTokens: integer(64, 'maximum of tokens of an answer', { min: 1 }),
  context: integer(0, 'maximum of tokens of prompt and answer together; 0: as many as they need', { min: 0 }),
  temperature: number(1, 'temperature that divides the logits', { above: 0 }),
  topK: integer(0, 'sample from this many most probable tokens; 0: from all', { min: 0 }),
  topP: number(1, 'sample from the fewest tokens that have this probability together', { above: 0, max: 1 }),
  explore: boolean(true, 'sample tokens instead of taking the most probable'),
  seed: integer(0, 'seed of the sampled tokens', { min: 0 }),
  quantize: choice(32, [32, 16, 8, 4], 'bits of each weight, for the folder of a model, as in languageModel.quantize'),
  embeddingBits: choice(
    32,
    [32, 8, 4],
    'bits of each weight of the embedding and the output head, as in languageModel.embeddingBits',
  ),
  ...trustKeys,
}

/** colonnade generate <run|folder|hub id> prompt="…" [key=value …] */
export const generateCommand: Command = async ({ words, json }) => {
  const { subject, texts } = splitWords(words, 'a run of a language model, a folder, or an id of the Hugging Face hub')
  const { prompt, chat, context, temperature, topK, topP, quantize, embeddingBits, trust, ...options } = readKeys(
    generateKeys,
    texts,
  )
  if (prompt === '') throw new InputError('prompt', 'nothing', 'a text to answer, like prompt="12+30="')
  const model = await findModel(subject, { allowModule: askForModule(trust) }, { quantize, embeddingBits })
  const prompts = [chat ? [{ role: 'user', content: prompt }] : prompt]
  const sampling = { temperature, topK, topP }
  const size = context === 0 ? {} : { context }
  const answers = await generateTokens({ ...model, ...options, ...size, prompts, sampling })
  if (!json)
    for (const { completion } of answers) console.log(process.stdout.isTTY ? printable(completion) : completion)
  return { subject, prompt, answers }
}

interface ModelKeys {
  readonly quantize?: 32 | 16 | 8 | 4
  readonly embeddingBits?: 32 | 8 | 4
  readonly loraRank?: number
  readonly loraAlpha?: number
  readonly loraTargets?: readonly string[]
}

/** Finds the language model of a run, a folder or a hub id. */
export async function findModel(subject: string, modules: ModuleTrust, keys: ModelKeys = {}) {
  if ((await kindOfRun(subject)) === null) return { policy: languageModel({ folder: subject, ...keys }) }
  const { loraRank = 0, quantize = 32, embeddingBits = 32 } = keys
  if (loraRank > 0) throw new InputError('loraRank', `${loraRank}, for a run`, '0: a run has its own')
  for (const [key, bits] of Object.entries({ quantize, embeddingBits })) {
    const expected = `32, as the run has it, or its model's folder: ${subject}/model`
    if (bits < 32) throw new InputError(key, `${bits}, for a run`, expected)
  }
  const { environment, policy, weights, adapter } = await loadTrainedModel(subject, modules)
  return { environment, policy, weights, adapter }
}
