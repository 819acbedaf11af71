/** Text generation: answers of a language model to prompts, with the ids and log-probabilities that they are made of. */
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

/** What `generateTokens` is told. Tokens are drawn; with `explore: false` the most probable are taken. */
export interface GenerateOptions extends ConverseOptions {
  /** Texts, which the model continues, or lists of messages for its chat template. */
  readonly prompts: readonly (string | readonly Message[])[]
  /** Answers to each prompt; default 1. */
  readonly samples?: number
  /** Tokens of an answer, at most; default 64. */
  readonly maxTokens?: number
  /** Tokens of prompt and answer together, at most; default as many as these take, of a model that was loaded. */
  readonly context?: number
  /** Texts that end an answer, beside the model's end tokens. */
  readonly stopStrings?: readonly string[]
  /** The task that a new model was made for, whose characters its tokenizer knows. */
  readonly environment?: TextEnvironmentDefinition
}

/** An answer. */
export interface Generated {
  /** Which of the prompts it answers, and its place among that prompt's answers. */
  readonly prompt: number
  readonly sample: number
  /** The answer in words, without the token that ended it. */
  readonly completion: string
  /** As sent, and as said: the token that ended it is among them. */
  readonly promptIds: readonly number[]
  readonly completionIds: readonly number[]
  /** Of each id of the completion, under the distribution that it was drawn from, in nats. */
  readonly logprobs: readonly number[]
  readonly stopReason: StopReason
}

/**
 * Answers prompts, all at once: a lane that is done takes the next. The answers come prompt by prompt, each prompt's in turn.
 * @throws InputError for no prompt, a prompt that the tokenizer, its template or the context refuses, and numbers out of range.
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
    const { logprob, promptId, member, stopReason } = rows[0]! // Of one turn there is one row.
    const logprobs = Array.from(logprob).slice(said.promptIds.length)
    return { prompt: promptId, sample: member, ...said, logprobs, stopReason }
  })
  return answers.sort((a, b) => a.prompt - b.prompt || a.sample - b.sample)
}

/** The context that the longest prompt and its answer take, of a loaded model that leaves it open. */
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
