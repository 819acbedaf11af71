/** Shared by completions and chats: a request's turns, its choices as they are generated, and their response fields. */
import { randomInt } from 'node:crypto'
import { InputError } from '../../base/errors.ts'
import { type Body, RequestError } from '../../base/http/server.ts'
import type { ModelHost } from '../dialects/dialect.ts'
import { type GeneratedToken, type Generation, type GenerationGroup, type GenerationRequest, steps } from './batcher.ts'
import { badField, booleanField, drawingOf, integerField, keyOfSeed, objectField, textsField } from './fields.ts'
import { CHANGE_FIELDS, changesOf } from './logit-changes.ts'
import { checkModel, MOST_CHOICES, MOST_STOPS, type Naming, versionSpans } from './naming.ts'
import type { ServedModel } from './served-model.ts'
import { TextStream } from './text-stream.ts'

export interface Telling {
  readonly model: string
  /** Null without log-probabilities. */
  readonly numTop: number | null
  readonly tokenIds: boolean
  readonly versions: boolean
  /** Tokens are written as `token_id:N`. */
  readonly spellsIds: boolean
  readonly stopStrings: readonly string[]
  readonly isStream: boolean
  readonly includesUsage: boolean
}

export function readTelling(body: Body, { naming, hints }: ModelHost, numTop: number | null): Telling {
  const model = checkModel(body, naming)
  const isStream = booleanField(body, 'stream', false)
  const options = objectField(body, 'stream_options')
  for (const name of Object.keys(options)) {
    if (name !== 'include_usage') hints.unknown(`stream_options.${name}`, () => 'include_usage')
  }
  return {
    ...{ model, numTop, isStream },
    tokenIds: booleanField(body, 'return_token_ids', false),
    versions: booleanField(body, 'return_weight_versions', false),
    spellsIds: booleanField(body, 'return_tokens_as_token_ids', false),
    stopStrings: textsField(body, 'stop', MOST_STOPS),
    includesUsage: booleanField(options, 'include_usage', false),
  }
}

/** The turns of a request: each prompt `n` times. */
export function turnsOf(
  prompts: readonly Int32Array[],
  body: Body,
  maxTokensOf: (ids: Int32Array) => number,
  { stopStrings, numTop }: Telling,
  served: ServedModel,
  owner?: object,
): GenerationRequest[] {
  const n = integerField(body, 'n', 1, 1, MOST_CHOICES)
  const seed = integerField(body, 'seed', randomInt(2 ** 47), Number.MIN_SAFE_INTEGER)
  const drawing = { ...drawingOf(body), ...changesOf(body, CHANGE_FIELDS, served) }
  return prompts.flatMap((ids, p) =>
    Array.from({ length: n }, (_, i) => ({
      ...drawing,
      ...{ ids, stopStrings, numTop: numTop ?? 0, maxTokens: maxTokensOf(ids) },
      key: keyOfSeed(seed, p * n + i),
      ...(owner === undefined ? {} : { owner }),
    })),
  )
}

export class Choice {
  readonly index: number
  readonly turn: Generation
  readonly ids: Int32Array
  readonly text: TextStream
  /** Tokens that were sent, and whether the end was. */
  #told = 0
  isOver = false

  constructor(index: number, turn: Generation, ids: Int32Array, text: TextStream) {
    this.index = index
    this.turn = turn
    this.ids = ids
    this.text = text
  }

  /** The new part since the last call; null if there is none. */
  take(): { readonly tokens: readonly GeneratedToken[]; readonly text: string; readonly from: number } | null {
    const { tokens, end } = this.turn
    if (this.isOver || (tokens.length === this.#told && end === null)) return null
    const from = this.#told
    const fresh = tokens.slice(from)
    this.#told = tokens.length
    let text = fresh.map(({ id }) => this.text.push(id)).join('')
    if (end !== null) {
      text += this.text.end()
      this.isOver = true
    }
    return { tokens: fresh, text, from }
  }

  /** OpenAI's name of its end; vLLM's `abort` if it was aborted. */
  get finishReason(): string | null {
    if (!this.isOver) return null
    return this.turn.end === 'aborted' ? 'abort' : this.turn.end
  }
}

/** Generates, and yields pieces of all choices as they come. A client that disconnects ends it. */
export async function* pieces(group: GenerationGroup, choices: readonly Choice[], signal: AbortSignal) {
  for await (const _ of steps(group, signal)) {
    for (const choice of choices) {
      const piece = choice.take()
      if (piece !== null) yield { choice, ...piece }
    }
  }
}

export function choicesOf(
  group: GenerationGroup,
  requests: readonly GenerationRequest[],
  { tokenizer }: ServedModel,
  skipSpecial = true,
): Choice[] {
  return group.turns.map((turn, index) => {
    const { ids, stopStrings, changes } = requests[index]!
    return new Choice(index, turn, ids, new TextStream(tokenizer, stopStrings, skipSpecial, changes?.minTokens))
  })
}

export function usageOf(choices: readonly Pick<Choice, 'ids' | 'turn'>[]): object {
  const prompts = new Set(choices.map(({ ids }) => ids))
  const prompt = [...prompts].reduce((sum, { length }) => sum + length, 0)
  const completion = choices.reduce((sum, { turn }) => sum + turn.tokens.length, 0)
  const cached = choices.reduce((sum, { turn }) => sum + turn.numCached, 0)
  return {
    ...{ prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion },
    prompt_tokens_details: { cached_tokens: Math.min(prompt, cached) },
  }
}

/** The fields of a choice besides its text. */
export function besides(choice: Choice, tokens: readonly GeneratedToken[], telling: Telling, naming: Naming): object {
  const isWhole = tokens.length === choice.turn.tokens.length && choice.isOver
  return {
    ...(telling.tokenIds ? { token_ids: tokens.map(({ id }) => id) } : {}),
    ...(telling.versions && (isWhole || choice.isOver)
      ? { weight_versions: versionSpans(choice.turn.tokens, naming) }
      : {}),
    ...(choice.isOver ? { stop_reason: choice.text.stopString } : {}),
  }
}

/** Turns errors of the tokenizer or its template into errors of the field. */
export function tokenized<T>(param: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof InputError)) throw error
    throw new RequestError(400, `${param}: ${error.message}`, { param, code: 'bad_field' })
  }
}

/**
 * The field `prompt_logprobs` of a request, which asks for log-probabilities of the prompt; null without it.
 * @throws RequestError 400 for a stream, as vLLM does.
 */
export function readPromptLogprobs(body: Body, { isStream }: Telling): number | null {
  const count = integerField(body, 'prompt_logprobs', null, 0, 20)
  if (count === null || !isStream) return count
  throw badField('prompt_logprobs', count, 'none in a stream')
}

/** vLLM's `prompt_logprobs`: null for the first token, and for each other one the log-probabilities by id. */
export function toldPrompt({ turn }: Pick<Choice, 'turn'>, { tokenizer }: ServedModel): (object | null)[] {
  const told = (id: number, logprob: number, rank: number) => {
    return [String(id), { logprob, rank, decoded_token: tokenizer.decode([id]) }] as const
  }
  return [
    null,
    ...(turn.prompt ?? []).map(({ id, logprob, rank, top }) =>
      Object.fromEntries([told(id, logprob, rank), ...top.map(([each, value], i) => told(each, value, i + 1))]),
    ),
  ]
}

/** How tokens are written: as text or as ids. */
export function spelling({ tokenizer }: ServedModel, { spellsIds }: Telling): (id: number) => string {
  return (id) => (spellsIds ? `token_id:${id}` : tokenizer.decode([id]))
}

/** The time in OpenAI's format. */
export function seconds(): number {
  return Math.floor(Date.now() / 1000)
}
