/**
 * What was asked and answered in a session, as ids. Each answer is a call. Where a request's messages begin with those of a call and its
 * answer, what stands is taken as it stands, and only what is new is tokenized: what the model said is never tokenized again. A
 * call hangs on the one whose ids its prompt begins with, so an agent that goes on makes a chain, and one that sums up, asks others or
 * tries again makes a tree.
 *
 * A row of the table is a path from a root to a leaf, as the model saw it last. What several paths share is learned in the first of
 * them alone: its other rows have it as context.
 */
import { jsonOrText } from '../../base/files/files.ts'
import type { Message } from '../../environments/text.ts'
import { spelledMessage } from '../../language/templates/dialogue.ts'
import type { Tokenizer } from '../../language/tokenizers/tokenizer.ts'
import { nextTurn } from '../../language/tokenizers/turn-ids.ts'
import type { Trajectory } from '../../tables/trajectories/trajectory.ts'
import type { GeneratedToken } from '../serving/batcher.ts'
import { type ClientAnswer, type ClientPrompt, promptOf, type TemplateInput } from '../serving/client-turns.ts'

/** An answer of the model, and what it answers. */
interface Call {
  /** The session's answers are numbered from 0. */
  readonly number: number
  /** All messages with the answer, as they stand in ids; null where the client sent a text or ids. */
  readonly messages: readonly Message[] | null
  /** The same as the client has them: what a request of it begins with that goes on. */
  readonly told: readonly string[]
  readonly tools: string
  /** Ids of the prompt and of the answer. */
  readonly ids: readonly number[]
  readonly promptLength: number
  readonly tokens: readonly GeneratedToken[]
  readonly isCut: boolean
  readonly parent: Call | null
}

/** What became of a session's calls. */
export interface CallCounts {
  readonly calls: number
  /** Calls whose prompts begin with what stood. */
  readonly continued: number
  /** Calls before which the chat template rewrote what stood. */
  readonly rewritten: number
  /** Turns that the model had said and that were tokenized as others' words, since a template rewrote them or they follow other messages. */
  readonly retokenized: number
  /** Calls whose prompts another call had before. */
  readonly repeated: number
}

/** Which rows they are, and what they are worth. */
export type SessionWorth = Pick<
  Trajectory,
  'source' | 'promptId' | 'group' | 'member' | 'epoch' | 'reward' | 'error' | 'components'
>

/** The calls of one session. */
export class CallTree {
  readonly #tokenizer: Tokenizer
  readonly #calls: Call[] = []
  /** Messages of prompts as the client has them. */
  readonly #told = new WeakMap<ClientPrompt, readonly string[]>()
  #rewritten = 0
  #retokenized = 0
  #repeated = 0

  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer
  }

  get counts(): CallCounts {
    return {
      calls: this.#calls.length,
      continued: this.#calls.filter(({ parent }) => parent !== null).length,
      rewritten: this.#rewritten,
      retokenized: this.#retokenized,
      repeated: this.#repeated,
    }
  }

  /** The words of the last answer; null before the first. */
  get completion(): string | null {
    const last = this.#calls.at(-1)
    if (last === undefined) return null
    const chosen = last.tokens.map(({ id }) => id)
    return this.#tokenizer.decode(this.#withoutEnd(chosen), { skipSpecial: true })
  }

  /** What the first call asked: messages, or a text. */
  get prompt(): string | readonly Message[] {
    const [first] = this.#calls
    if (first === undefined) return ''
    return first.messages?.slice(0, -1) ?? this.#tokenizer.decode(first.ids.slice(0, first.promptLength))
  }

  /** Tokens that the model chose. */
  get numTokens(): number {
    return this.#calls.reduce((sum, { tokens }) => sum + tokens.length, 0)
  }

  /**
   * The ids of messages up to where the assistant's turn begins: those that stand, where the messages begin with a call's, and
   * behind them what is new.
   * @throws InputError as `renderIds` does.
   */
  promptOf(messages: readonly Message[], input: TemplateInput): ClientPrompt {
    const told = messages.map(asTold)
    const prompt = this.#promptOf(messages, told, input)
    this.#told.set(prompt, told)
    return prompt
  }

  #promptOf(messages: readonly Message[], told: readonly string[], input: TemplateInput): ClientPrompt {
    const tokenizer = this.#tokenizer
    const before = this.#standing(told, inputKey(input))
    if (before === null) {
      this.#countSaid(told)
      return { ids: promptOf(tokenizer, messages, input), messages, input }
    }
    const { tools, variables } = input
    const stood = before.messages!
    const all = [...stood, ...messages.slice(stood.length)]
    const { ids, isRewritten } = nextTurn(tokenizer, stood, all, before.ids.at(-1)!, tools, variables)
    if (isRewritten) this.#rewritten++
    this.#countSaid(isRewritten ? told : told.slice(stood.length))
    return { ids: Int32Array.from(isRewritten ? ids : [...before.ids, ...ids]), messages: all, input }
  }

  /** The call with the most messages that these begin with. */
  #standing(told: readonly string[], tools: string): Call | null {
    let best: Call | null = null
    for (const call of this.#calls) {
      const { length } = call.told
      const isLonger = call.messages !== null && length < told.length && length > (best?.told.length ?? 0)
      if (isLonger && call.tools === tools && call.told.every((message, i) => message === told[i])) best = call
    }
    return best
  }

  /** Counts messages among these that the model has said in this session. */
  #countSaid(told: readonly string[]): void {
    const said = new Set(this.#calls.map((call) => call.told.at(-1)))
    this.#retokenized += told.filter((message) => said.has(message)).length
  }

  /** Keeps an answer that is over. */
  add({ prompt, turn, message }: ClientAnswer): void {
    const { messages, input } = prompt
    const asked = Array.from(prompt.ids)
    const chosen = turn.tokens.map(({ id }) => id)
    if (this.#calls.some((call) => call.promptLength === asked.length && begins(asked, call.ids, asked.length))) {
      this.#repeated++
    }
    let parent: Call | null = null
    for (const call of this.#calls) {
      const isLonger = call.ids.length > (parent?.ids.length ?? 0)
      if (isLonger && call.ids.length <= asked.length && begins(asked, call.ids, call.ids.length)) parent = call
    }
    this.#calls.push({
      number: this.#calls.length,
      messages: messages === null ? null : [...messages, spelledMessage(this.#tokenizer, this.#withoutEnd(chosen))],
      told: [...(this.#told.get(prompt) ?? []), asTold(message)],
      ...{ tools: inputKey(input), ids: [...asked, ...chosen], promptLength: asked.length, tokens: turn.tokens },
      isCut: turn.end === 'length',
      parent,
    })
  }

  #withoutEnd(ids: readonly number[]): readonly number[] {
    return this.#tokenizer.endIds.includes(ids.at(-1)!) ? ids.slice(0, -1) : ids
  }

  /** A row for each path from a root to a leaf, in the order in which the leaves were answered; each is a segment of the session. */
  rows(worth: SessionWorth): Trajectory[] {
    const parents = new Set(this.#calls.map(({ parent }) => parent))
    const trained = new Set<Call>()
    const rows: Trajectory[] = []
    for (const leaf of this.#calls.filter((call) => !parents.has(call))) {
      const path: Call[] = []
      for (let call: Call | null = leaf; call !== null; call = call.parent) path.unshift(call)
      const fresh = new Set(path.filter((call) => !trained.has(call) && call.tokens.length > 0))
      if (fresh.size === 0) continue // The model said nothing.
      for (const call of path) trained.add(call)
      rows.push({ ...worth, segment: rows.length, ...rowOf(path, fresh) })
    }
    return rows
  }
}

/** The tokens of a path; those of calls that are not `fresh` are context. */
function rowOf(path: readonly Call[], fresh: ReadonlySet<Call>): Omit<Trajectory, keyof SessionWorth | 'segment'> {
  const { ids: token, isCut, number } = path.at(-1)!
  const lossMask = token.map(() => 0)
  const logprob = token.map(() => Number.NaN)
  const version = token.map(() => -1)
  const turn = token.map(() => number)
  const candidates = token.map((): readonly number[] => [])
  let from = 0
  for (const call of path) {
    for (let t = from; t < call.ids.length; t++) turn[t] = call.number // What leads to an answer is of its turn.
    for (const [i, chosen] of call.tokens.entries()) {
      const t = call.promptLength + i
      lossMask[t] = fresh.has(call) ? 1 : 0
      logprob[t] = chosen.logprob
      version[t] = chosen.version
      candidates[t] = chosen.candidates
    }
    from = call.ids.length
  }
  return {
    ...{ token, lossMask, logprob, version, turn, turns: path.length },
    candidateCount: candidates.map((ids) => ids.length),
    candidateIds: candidates.flat(),
    cutTurns: path.filter((call) => fresh.has(call) && call.isCut).length,
    droppedReplies: 0,
    stopReason: isCut ? 'length' : 'stop',
  }
}

/** Whether the first `length` ids of both are the same. */
function begins(ids: readonly number[], start: readonly number[], length: number): boolean {
  for (let i = 0; i < length; i++) if (ids[i] !== start[i]) return false
  return true
}

/** A message in one spelling: clients send it back with other fields, and arguments as other JSON of the same. */
function asTold({ role, content, tool_calls: calls }: Message): string {
  const called = Array.isArray(calls)
    ? calls.map((call) => {
        const { name, arguments: given } = ((call as { function?: unknown }).function ?? {}) as Record<string, unknown>
        return [name, sorted(typeof given === 'string' ? jsonOrText(given) : given)]
      })
    : []
  return JSON.stringify([role, content ?? '', called])
}

/** The same with the fields of objects in order. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null) return value
  const fields = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return Object.fromEntries(fields.map(([name, each]) => [name, sorted(each)]))
}

function inputKey({ tools, variables = {} }: TemplateInput): string {
  return JSON.stringify(sorted([tools ?? null, variables]))
}
