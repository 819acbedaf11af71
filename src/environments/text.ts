/**
 * The contract of text environments. A turn of the model is an answer in words; the environment replies with a reward, further messages,
 * or both. It uses only text. The conversation handles tokens, so that ids are stored as sent and as sampled and no text is tokenized
 * twice.
 */
import { type DefinitionRecord, defineFactory, type Factory, type Parts } from '../base/definition.ts'
import { checkCount, InputError, show } from '../base/errors.ts'
import type { Settings, SettingValues } from '../base/settings.ts'

/** One message of a conversation. Roles are those of the model's chat template: system, user, assistant, tool. */
export interface Message {
  readonly role: string
  /** Null if the assistant only calls tools. */
  readonly content: string | null
  /** Other fields that the chat template reads: `tool_calls`, `tool_call_id`, `name`, `reasoning_content` … */
  readonly [field: string]: unknown
}

/** Whether a value is a message: it has a role, and a content that is a string, or null with `tool_calls`. */
export function isMessage(message: unknown): message is Message {
  const { role, content, tool_calls: calls } = (message ?? {}) as Record<string, unknown>
  if (typeof role !== 'string' || role === '') return false
  return typeof content === 'string' || (content === null && Array.isArray(calls) && calls.length > 0)
}

/**
 * A constraint on an answer: JSON that matches a schema, or text that matches a grammar in GBNF or a regular expression from beginning to
 * end.
 */
export type Constraint = { readonly schema: object } | { readonly grammar: string } | { readonly regex: string }

/** Changes of a turn's logits before its tokens are drawn, in this order. Temperature and filters follow. Absent: no change. */
export interface LogitChanges {
  /** Numbers added to the logits of token ids. */
  readonly bias?: Readonly<Record<string, number>>
  /** Above 0. Logits of ids in the prompt or the answer so far are divided by it if they are above 0, and multiplied by it otherwise. */
  readonly repetition?: number
  /** Subtracted from the logit of an id for each time that it occurs in the answer. */
  readonly frequency?: number
  /** Subtracted from the logit of an id that occurs in the answer. */
  readonly presence?: number
  /** Before the answer has this many tokens, no end token is drawn and no stop string ends the turn. */
  readonly minTokens?: number
}

/** The names of logit changes. */
export const LOGIT_CHANGES = ['bias', 'repetition', 'frequency', 'presence', 'minTokens'] as const

/**
 * Sampling and stop strings of one turn of the model; omitted values are the cohort's. A turn sampled from another distribution than the
 * cohort's is not trained on: its tokens have a loss mask of 0, and `untrainedTokens` counts them.
 */
export interface TurnSampling {
  /** Divisor of the logits, above 0. */
  readonly temperature?: number
  /** Keeps this many most probable tokens; 0: all. */
  readonly topK?: number
  /** Keeps the fewest most probable tokens with at least this total probability: above 0 and at most 1. */
  readonly topP?: number
  /** Keeps tokens with at least this fraction of the highest probability: 0 to 1. */
  readonly minP?: number
  /** Strings that end the turn, in addition to its end tokens. They do not affect training. */
  readonly stopStrings?: readonly string[]
}

/** The start of a conversation, with data for the environment and rewards. */
export interface Example {
  /** Plain text, which the model continues, or messages for the model's chat template. */
  readonly prompt: string | readonly Message[]
  /** The right answer, if there is one; supervised fine-tuning learns it. */
  readonly answer?: string
  /**
   * Learned by supervised fine-tuning in place of `answer` if the example has several turns: the messages after the prompt, turns of the
   * assistant with replies between them. It ends with the assistant.
   */
  readonly demonstration?: readonly Message[]
  /** A bad answer, or its messages. Losses of preferences compare it with `answer` or `demonstration`, the chosen answer. */
  readonly rejected?: string | readonly Message[]
  /** By how much the chosen answer is better; default 0. */
  readonly margin?: number
  /** Functions that the model may call, as JSON schemas for the chat template. */
  readonly tools?: readonly object[]
  /** Maximum tokens per turn in this conversation; default: the cohort's. */
  readonly maxTokens?: number
  /** Sampling of the first turn; default: the cohort's. */
  readonly sampling?: TurnSampling
  readonly [column: string]: unknown
}

/** Why a turn of the model ended: the model ended it; its budget or the context was used up; or it was aborted. */
export const stopReasons = ['stop', 'length', 'context', 'aborted'] as const
export type StopReason = (typeof stopReasons)[number]

/** A finished turn of the model. */
export interface Turn {
  readonly example: Example
  readonly exampleIndex: number
  /** The model's text, without its end token and other special tokens. */
  readonly completion: string
  /** The model's text with special tokens, which some models use for tool calls; without the end token. */
  readonly raw: string
  /** Number of the turn, from 0. */
  readonly turn: number
  readonly stopReason: StopReason
  /** All messages before this turn; a plain-text prompt is one user message. */
  readonly messages: readonly Message[]
  /**
   * Returns this turn, or an earlier one by number, as sampled. Available until the reply is given, and only in a cohort's turns.
   * @throws InputError for a turn that the conversation does not have.
   */
  readonly past?: (turn?: number) => PastTurn
}

/** A turn as sampled: ids with the end token, and per id the log-probability in nats and the weights' version. */
export interface PastTurn extends Pick<Turn, 'completion' | 'raw' | 'stopReason'> {
  readonly ids: readonly number[]
  /** Under the sampled distribution; NaN if unknown. */
  readonly logprobs: readonly number[]
  /** −1 if unknown. */
  readonly versions: readonly number[]
}

/**
 * How the rewards of turns reduce to that of a conversation or episode: `last`, the last turn's, which then covers everything so far;
 * `sum`; or `mean`.
 */
export const rewardReductions = ['last', 'sum', 'mean'] as const
/** A reduction of turn rewards: one of `rewardReductions`. */
export type RewardReduction = (typeof rewardReductions)[number]

/**
 * Reduces the rewards of turns; NaN is an unknown reward. Returns null if the result is unknown: without turns, if the last reward is
 * unknown (`last`), if any is (`sum`, `mean`), or if the result is not finite.
 */
export function reduceTurnRewards(turnReward: ArrayLike<number>, reduction: RewardReduction): number | null {
  const { length } = turnReward
  if (length === 0) return null
  let total = 0
  for (let turn = 0; turn < length; turn++) total += turnReward[turn]!
  const reward = { last: turnReward[length - 1]!, sum: total, mean: total / length }[reduction]
  return Number.isFinite(reward) ? reward : null
}

/** The environment's reply to a turn. */
export interface Reply {
  /**
   * The reward of the turn, or of the conversation so far, depending on the cohort's `rewardReduction`; null if unknown. Never invent a
   * value.
   */
  readonly reward: number | null
  /** Components of the reward, by name. */
  readonly components?: Readonly<Record<string, number | null>>
  /** Why the reward is unknown. */
  readonly error?: string
  /** Messages to the model, which then has another turn; without them the conversation is over. */
  readonly messages?: readonly Message[]
  /** Without messages, and with `answersAgain`: the model answers the last prompt again. Each answer is a segment of its own. */
  readonly again?: boolean
  /** The turn that the messages follow, if there were several answers; default: the last one. */
  readonly stands?: number
  /** Maximum tokens of the next turn; default: the example's or the cohort's. */
  readonly maxTokens?: number
  /** Sampling of the next turn only; default: the cohort's. */
  readonly sampling?: TurnSampling
}

/** The result of a text environment's `make`. */
export interface TextEnvironmentModel {
  /** Number of examples, which are numbered from 0. */
  readonly numExamples: number
  /** Returns the example with that number; always the same one. */
  example(index: number): Example
  /** Replies to the model's turn; returns a promise if it depends on others. */
  respond(turn: Turn, signal: AbortSignal): Reply | Promise<Reply>
  /**
   * Replies to several turns in one call, in order, if that is cheaper or compares turns; `respond` is then not called. The turns are at
   * most `size`, and wait for as many until no lane can continue without a reply; or those of a whole `group`, which requires as many
   * lanes and conversations of one turn.
   */
  readonly together?: {
    readonly size: number | 'group'
    respond(turns: readonly Turn[], signal: AbortSignal): readonly Reply[] | Promise<readonly Reply[]>
  }
  /** Whether every reply arrives after bounded work, so that it needs no time limit: under load it may wait for long. Default false. */
  readonly repliesInTime?: boolean
  /** Reads the examples' files and returns the examples; optional. */
  open?(): Promise<Pick<TextEnvironmentModel, 'numExamples' | 'example' | 'close'>>
  /** Releases resources such as a connection to a tool server, when its world is closed. */
  close?(): void
  /** Whether its replies may use `again`, so that room for segments of several answers is planned. Default false. */
  readonly answersAgain?: boolean
  /** Maximum turns of the model per conversation; default 1. */
  readonly maxTurns?: number
  /** Default maximum of tokens per turn; default 64. */
  readonly maxTokens?: number
  /** Characters of prompts and answers, if they are few: a model made for it needs only these. */
  readonly alphabet?: string
}

/** A text environment with its settings. */
export interface TextEnvironmentDefinition extends DefinitionRecord, TextEnvironmentModel {
  readonly kind: 'text'
  readonly maxTurns: number
  readonly maxTokens: number
}

export type TextEnvironmentFactory<S extends Settings = Settings> = Factory<S, TextEnvironmentDefinition>

/**
 * Defines a text environment.
 * @throws InputError on creation, for wrong numbers.
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
  /** `parts` are the values of settings declared with `part`, like a custom reward. */
  make(parameters: SettingValues<S>, parts: Parts): TextEnvironmentModel
}): TextEnvironmentFactory<S> {
  return defineFactory('text environment', options, (parameters, parts) => {
    if (typeof options.make !== 'function') throw new InputError(`${options.id} make`, show(options.make), 'a function')
    const model = options.make(parameters, parts)
    if (typeof model !== 'object' || model === null) {
      throw new InputError(
        `${options.id} make`,
        `a function that returns ${show(model)}`,
        'a function that returns an object',
      )
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
    throw new InputError(`${id} maxTurns`, String(maxTurns), '1, since it replies to whole groups')
  }
}
