/**
 * The contract of text environments. The model's turn is an answer in words; the environment replies with a reward, with
 * further messages, or with both. It deals in text only: what becomes tokens, and when, is the conversation's work, so that
 * ids are stored as sent and as sampled and no text is tokenized twice.
 */
import { type DefinitionRecord, defineFactory, type Factory, type Parts } from '../base/definition.ts'
import { checkCount, InputError, show } from '../base/errors.ts'
import type { Settings, SettingValues } from '../base/settings.ts'

/** One message of a conversation. Roles are those of the model's chat template: system, user, assistant, tool. */
export interface Message {
  readonly role: string
  /** Null where the assistant only calls tools. */
  readonly content: string | null
  /** Whatever else the chat template reads: `tool_calls`, `tool_call_id`, `name`, `reasoning_content` … */
  readonly [field: string]: unknown
}

/** True for a message: a role, and a content that is text, or null where there are `tool_calls`. */
export function isMessage(message: unknown): message is Message {
  const { role, content, tool_calls: calls } = (message ?? {}) as Record<string, unknown>
  if (typeof role !== 'string' || role === '') return false
  return typeof content === 'string' || (content === null && Array.isArray(calls) && calls.length > 0)
}

/**
 * How one turn of the model is drawn, and what ends it; what is not given is as the cohort has it. Of a turn that is drawn from
 * another distribution than the cohort's nothing is learned: its tokens have a loss mask of 0, and `untrainedTokens` counts them.
 */
export interface TurnSampling {
  /** What logits are divided by: above 0. */
  readonly temperature?: number
  /** The most probable tokens that are left; 0: all. */
  readonly topK?: number
  /** The fewest most probable tokens that have this probability together are left: above 0 and at most 1. */
  readonly topP?: number
  /** Tokens of at least this part of the most probable one's probability are left: 0 to 1. */
  readonly minP?: number
  /** Texts that end the turn, beside its end tokens. They change nothing about what is learned. */
  readonly stopStrings?: readonly string[]
}

/** What a conversation begins with, and whatever the environment or a reward wants to know of it. */
export interface Example {
  /** Plain text, which the model continues, or messages for the model's chat template. */
  readonly prompt: string | readonly Message[]
  /** The right answer, where there is one: what supervised fine-tuning learns. */
  readonly answer?: string
  /**
   * What supervised fine-tuning learns in place of `answer` where it takes several turns: what follows the prompt, turns of the
   * assistant and between them what is replied. It ends with the assistant.
   */
  readonly demonstration?: readonly Message[]
  /** Functions that the model may call, as JSON schemas, for the chat template to tell it of. */
  readonly tools?: readonly object[]
  /** Tokens of a turn, at most, in this conversation; what the cohort says where it is not given. */
  readonly maxTokens?: number
  /** How the first turn is drawn, where that is not as the cohort has it. */
  readonly sampling?: TurnSampling
  readonly [column: string]: unknown
}

/** Why a turn of the model ended: it said so; its budget, or the context, had no room left; somebody broke it off. */
export const stopReasons = ['stop', 'length', 'context', 'aborted'] as const
export type StopReason = (typeof stopReasons)[number]

/** A turn of the model that is over. */
export interface Turn {
  readonly example: Example
  /** Which of the environment's examples it is. */
  readonly exampleIndex: number
  /** What the model said in words: without the token that ended it, or any other special token that it chose. */
  readonly completion: string
  /** The same with special tokens spelled out, as those are by which some models call tools; without the token that ended it. */
  readonly raw: string
  /** The turn's number, from 0. */
  readonly turn: number
  readonly stopReason: StopReason
  /** All that was said before this turn; the example's prompt as one user message where it is plain text. */
  readonly messages: readonly Message[]
  /**
   * This turn as it was sampled, or, by its number, one before it. It can be asked until the reply is given; turns that no cohort
   * has made lack it.
   * @throws InputError for a turn that the conversation has not had.
   */
  readonly past?: (turn?: number) => PastTurn
}

/** A turn as it was sampled: ids with the token that ended it, and of each its log-probability in nats and the weights' version. */
export interface PastTurn extends Pick<Turn, 'completion' | 'raw' | 'stopReason'> {
  readonly ids: readonly number[]
  /** Of the distribution that it was drawn from; NaN where nobody knows. */
  readonly logprobs: readonly number[]
  /** −1 where nobody knows. */
  readonly versions: readonly number[]
}

/**
 * What the reward of a conversation, or of an episode, is of the rewards of its turns: that of the last turn, which is then one of
 * the whole so far; their sum; or their mean.
 */
export const rewardReductions = ['last', 'sum', 'mean'] as const
/** One of them. */
export type RewardReduction = (typeof rewardReductions)[number]

/**
 * What turns' rewards come to; NaN stands for one that cannot be told. Null where it cannot be told: of no turn, of a last one that
 * is unknown, of any that is unknown in a sum or mean, and where that is no finite number.
 */
export function reduceTurnRewards(turnReward: ArrayLike<number>, reduction: RewardReduction): number | null {
  const { length } = turnReward
  if (length === 0) return null
  let total = 0
  for (let turn = 0; turn < length; turn++) total += turnReward[turn]!
  const reward = { last: turnReward[length - 1]!, sum: total, mean: total / length }[reduction]
  return Number.isFinite(reward) ? reward : null
}

/** What the environment says to a turn. */
export interface Reply {
  /**
   * The reward of the turn, or of the conversation so far, as the cohort's `rewardReduction` takes them; null where it cannot be
   * told, and never a number made up instead.
   */
  readonly reward: number | null
  /** What the reward is made of, by name. */
  readonly components?: Readonly<Record<string, number | null>>
  /** Why the reward cannot be told. */
  readonly error?: string
  /** What is said to the model, which then has another turn; without it the conversation is over. */
  readonly messages?: readonly Message[]
  /** Without messages, where `answersAgain`: the model answers once more what it has just answered. Each answer is a row of its own. */
  readonly again?: boolean
  /** Of several answers the turn that the messages follow; default the last one. */
  readonly stands?: number
  /** Tokens of the next turn, at most; default what the example or the cohort says. */
  readonly maxTokens?: number
  /** How the next turn is drawn, where that is not as the cohort has it; that of the turn before does not last. */
  readonly sampling?: TurnSampling
}

/** What the maker of a text environment returns. */
export interface TextEnvironmentModel {
  /** Examples are numbered from 0. */
  readonly numExamples: number
  /** The example of that number; always the same one. */
  example(index: number): Example
  /** Replies to the model's turn; a promise where it has to ask others. */
  respond(turn: Turn, signal: AbortSignal): Reply | Promise<Reply>
  /**
   * Replies to several turns in one call, in their order, where that is cheaper, or where turns are compared; `respond` is not
   * called then. `size` turns at most, which wait until there are so many, or until no lane can go on without a reply; or
   * those of a whole `group`, which takes as many lanes, and conversations of one turn.
   */
  readonly together?: {
    readonly size: number | 'group'
    respond(turns: readonly Turn[], signal: AbortSignal): readonly Reply[] | Promise<readonly Reply[]>
  }
  /**
   * Whether every reply comes by itself, after work that is bounded: it is given no time limit then, since most of the
   * time it may wait for its turn, under the load of the machine. Default false.
   */
  readonly repliesInTime?: boolean
  /** Reads what the examples are made of, where that takes files; they are those that it gives, then. */
  open?(): Promise<Pick<TextEnvironmentModel, 'numExamples' | 'example' | 'close'>>
  /** Gives back what the environment holds, like a connection to a server of tools; called when its world is closed. */
  close?(): void
  /** Whether its replies may let the model answer again: room for rows of several answers is planned then. Default false. */
  readonly answersAgain?: boolean
  /** Turns of the model after which a conversation ends whatever the reply; default 1. */
  readonly maxTurns?: number
  /** Tokens of a turn, at most, where the user does not say; default 64. */
  readonly maxTokens?: number
  /** Characters that prompts and answers are made of, if they are few: a model made for it need know no others. */
  readonly alphabet?: string
}

/** A text environment with its parameters. */
export interface TextEnvironmentDefinition extends DefinitionRecord, TextEnvironmentModel {
  readonly kind: 'text'
  readonly maxTurns: number
  readonly maxTokens: number
}

/** Makes a text environment from its parameters. */
export type TextEnvironmentFactory<S extends Settings = Settings> = Factory<S, TextEnvironmentDefinition>

/**
 * Defines a text environment.
 * @throws InputError where its numbers are wrong, when the environment is made.
 * @example
 * export const echo = defineTextEnvironment({
 *   id: 'text/echo',
 *   module: import.meta.url,
 *   settings: {},
 *   make: () => ({
 *     numExamples: 10,
 *     example: (index) => ({ prompt: `${index}=`, answer: `${index}` }),
 *     respond: ({ completion, example }) => ({ reward: completion === example.answer ? 1 : 0 }),
 *   }),
 * })
 */
export function defineTextEnvironment<S extends Settings>(options: {
  id: string
  module?: string
  settings: S
  /** `parts` are those that were given for settings that name one, like a reward of one's own. */
  make(parameters: SettingValues<S>, parts: Parts): TextEnvironmentModel
}): TextEnvironmentFactory<S> {
  return defineFactory('text environment', options, (parameters, parts) => {
    if (typeof options.make !== 'function') throw new InputError(`${options.id} make`, show(options.make), 'a function')
    const model = options.make(parameters, parts)
    if (typeof model !== 'object' || model === null) {
      throw new InputError(`${options.id} make`, `a function that returns ${show(model)}`, 'one that returns an object')
    }
    const { numExamples, maxTurns = 1, maxTokens = 64 } = model
    for (const [name, value] of Object.entries({ numExamples, maxTurns, maxTokens }))
      checkCount(`${options.id} ${name}`, value)
    if (model.together !== undefined) checkTogether(options.id, model.together, maxTurns)
    for (const name of ['example', 'respond'] as const) {
      if (typeof model[name] !== 'function')
        throw new InputError(`${options.id} ${name}`, show(model[name]), 'a function')
    }
    return { ...model, maxTurns, maxTokens, kind: 'text' as const }
  })
}

function checkTogether(id: string, together: NonNullable<TextEnvironmentModel['together']>, maxTurns: number): void {
  const { size, respond } = together ?? {}
  if (typeof respond !== 'function') throw new InputError(`${id} together.respond`, show(respond), 'a function')
  if (size !== 'group' && !(Number.isSafeInteger(size) && size >= 1)) {
    throw new InputError(`${id} together.size`, show(size), 'a whole number ≥ 1, or group')
  }
  if (size === 'group' && maxTurns !== 1) {
    throw new InputError(`${id} maxTurns`, String(maxTurns), '1, as its groups are judged whole')
  }
}
