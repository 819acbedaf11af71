/** Text generation: a language model's answers to prompts, with ids and log-probabilities. */
import { checkCount, checkGiven, InputError, show } from '../../../base/errors.ts'
import {
  defineTextEnvironment,
  type Message,
  type StopReason,
  type TextEnvironmentDefinition,
} from '../../../environments/text.ts'
import { type LanguageModelDefinition, languageModel } from '../../../language/language-model.ts'
import { promptIds } from '../../../language/templates/dialogue.ts'
import { type ConverseOptions, converse } from './converse.ts'

/** Options of `generateTokens`. Tokens are sampled, or with `explore: false` the most probable. */
export interface GenerateOptions extends ConverseOptions {
  /** Texts to continue, or message lists for the chat template. */
  readonly prompts: readonly (string | readonly Message[])[]
  /** Answers per prompt; default 1. */
  readonly samples?: number
  /** Maximum tokens of an answer; default 64. */
  readonly maxTokens?: number
  /** Maximum tokens of prompt and answer; default as needed, for a loaded model. */
  readonly context?: number
  /** Texts that end an answer, besides the model's end tokens. */
  readonly stopStrings?: readonly string[]
  /** The task of a new model, whose characters its tokenizer knows. */
  readonly environment?: TextEnvironmentDefinition
}

/** An answer of `generateTokens`. */
export interface Generated {
  /** Index of the prompt, and of the answer among the prompt's. */
  readonly prompt: number
  readonly sample: number
  /** The answer's text, without the end token. */
  readonly completion: string
  /** The prompt's and the answer's ids, the end token included. */
  readonly promptIds: readonly number[]
  readonly completionIds: readonly number[]
  /** The log-probability of each completion id under the sampled distribution, in nats. */
  readonly logprobs: readonly number[]
  readonly stopReason: StopReason
}

/**
 * Answers all prompts, reusing lanes as they become free. Answers are in the prompts' order.
 * @throws InputError for no prompt, a prompt that the tokenizer, its template or the context refuses, and numbers out
 * of range.
 * @example const [{ completion }] = await generateTokens({ policy: languageModel({ folder: 'model' }), prompts: ['2+2='] })
 */
export async function generateTokens(given: GenerateOptions): Promise<Generated[]> {
  checkGiven('options of generateTokens', given, ['prompts', 'policy'])
  const { prompts, samples = 1, environment, seed = 0, explore = true, context, policy, ...options } = given
  if (!Array.isArray(prompts) || prompts.length === 0) throw new InputError('prompts', show(prompts), 'at least one')
  checkCount('samples', samples)
  const alphabet = environment?.alphabet
  const asked = defineTextEnvironment({
    id: 'prompts',
    settings: {},
    make: () => ({
      numExamples: prompts.length,
      example: (index) => ({ prompt: prompts[index]! }),
      respond: () => ({ reward: null }),
      ...(alphabet === undefined ? {} : { alphabet }),
    }),
  })()
  const episodes = prompts.length * samples
  const talk = { environment: asked, episodes, groupSize: samples, seed, explore }
  const size = context ?? (await contextOf(policy, asked, prompts, options.maxTokens))
  const sized = size === undefined ? policy : languageModel({ ...policy.parameters, context: size } as never)
  const { conversed } = await converse({ ...options, ...talk, policy: sized })
  const answers = conversed.map(({ rows, ...said }): Generated => {
    const { logprob, promptId, member, stopReason } = rows[0]! // One turn makes one row.
    const logprobs = Array.from(logprob).slice(said.promptIds.length)
    return { prompt: promptId, sample: member, ...said, logprobs, stopReason }
  })
  return answers.sort((a, b) => a.prompt - b.prompt || a.sample - b.sample)
}

/** The context that the longest prompt and its answer need, for a loaded model without a given one. */
async function contextOf(
  policy: LanguageModelDefinition,
  environment: TextEnvironmentDefinition,
  prompts: GenerateOptions['prompts'],
  maxTokens = environment.maxTokens,
): Promise<number | undefined> {
  if (policy.id !== languageModel.id || policy.parameters.context !== 0 || policy.parameters.folder === '') return
  const { tokenizer, context } = await policy.open(environment)
  const lengths = prompts.map((prompt, i) => promptIds(tokenizer, { prompt }, `prompt ${i}`).length)
  return Math.min(context, Math.max(...lengths) + maxTokens)
}
