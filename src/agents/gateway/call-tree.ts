/**
 * A session's requests and answers as ids. Each answer is a call. If a request's messages begin with those of an
 * earlier call and its answer, their ids are reused, and only new messages are tokenized: the model's answers are never
 * tokenized again. A call's parent is the one whose ids its prompt begins with. An agent that continues makes a chain;
 * one that summarizes, calls subagents or retries makes a tree.
 *
 * Each id is stored once, so a session's memory grows with its content, not with how often it is sent. Clients send
 * messages again, so only hashes of earlier messages are stored, and the answers that clients received in another form. A client of Responses does not send messages
 * again, so each of its messages is stored once.
 *
 * A table row is a path from a root to a leaf, as the model last saw it. A shared prefix is learned only in the first
 * path; in the others it is context.
 */
import { hash } from 'node:crypto'
import { jsonOrText } from '../../base/files/files.ts'
import type { Message } from '../../environments/text.ts'
import { spelledMessage } from '../../language/templates/dialogue.ts'
import type { Tokenizer } from '../../language/tokenizers/tokenizer.ts'
import { nextTurn } from '../../language/tokenizers/turn-ids.ts'
import type { Trajectory, TurnForm } from '../../tables/trajectories/trajectory.ts'
import type { Generation } from '../serving/batcher.ts'
import { type ClientAnswer, type ClientPrompt, promptOf, type TemplateInput } from '../serving/client-turns.ts'
import { Beginning, Beginnings } from './beginnings.ts'
import { type Piece, Pieces } from './pieces.ts'
import { lastId, type Place, TokenTrie } from './token-trie.ts'

/** The tokens of an answer, as columns. */
interface Chosen {
  readonly logprob: Piece<Float32Array>
  /** One number if all tokens have the same. */
  readonly version: Int32Array | number
  /** The candidate set of token i is candidate[end[i − 1]] to candidate[end[i]]; null if no filter excluded tokens. */
  readonly candidates: { readonly end: Int32Array; readonly candidate: Int32Array } | null
  /** The answer's constraint and changed logits; null if there are none or the log-probabilities are unknown. */
  readonly form: Omit<TurnForm, 'turn'> | null
}

/** An answer of the model, and its prompt. */
interface Call {
  /** Numbers the session's answers from 0. */
  readonly number: number
  /** The call whose messages and answer this one's messages begin with; null if there is none. */
  readonly before: Call | null
  /** The answer as its ids say it, if the client received another form. */
  readonly spelled: Message | null
  /** The number of messages, including those of `before` and the answer; 0 if the client sent a text or ids. */
  readonly numMessages: number
  /** The chat template's input besides messages. */
  readonly input: string
  /** Where its prompt and its answer end in the trie. */
  readonly asked: Place
  readonly end: Place
  readonly chosen: Chosen
  readonly isCut: boolean
  readonly parent: Call | null
  /** The next call with the same messages and answer. */
  twin: Call | null
}

/** Messages of a response, after those of another one. */
interface Kept {
  readonly before: Kept | null
  readonly messages: readonly Message[]
}

/** A prompt that is not answered yet. */
interface Asked {
  readonly before: Call | null
  /** Where the prompt's known ids end. */
  readonly from: Place
  readonly beginning: Beginning
  readonly input: string
}

export interface CallCounts {
  readonly calls: number
  /** Calls whose prompts begin with existing ids. */
  readonly continued: number
  /** Calls for which the chat template rewrote existing messages. */
  readonly rewritten: number
  /** Turns of the model that were tokenized again, since a template rewrote them or they follow other messages. */
  readonly retokenized: number
  /** Calls whose prompts another call had before. */
  readonly repeated: number
}

/** The identity and the reward of a session's rows. */
export type SessionWorth = Pick<
  Trajectory,
  'source' | 'promptId' | 'group' | 'member' | 'epoch' | 'reward' | 'error' | 'components'
>

export class CallTree {
  readonly #tokenizer: Tokenizer
  readonly #trie = new TokenTrie()
  readonly #logprobs = new Pieces((length) => new Float32Array(length))
  readonly #calls: Call[] = []
  /** Calls by their messages with the answer, as the client has them. */
  readonly #byMessages = new Beginnings<Call>()
  /** The first call that ends at a place, and places at which prompts end. */
  readonly #ended = new Map<Place, Call>()
  readonly #prompts = new Set<Place>()
  readonly #said = new Set<string>()
  #input = ''
  /** The first call's prompt. */
  #firstPrompt: readonly Message[] | null = null
  /** The messages of responses, by all messages up to the last one. */
  readonly #kept = new Beginnings<Kept>()
  readonly #asked = new WeakMap<ClientPrompt, Asked>()
  #numTokens = 0
  #continued = 0
  #rewritten = 0
  #retokenized = 0
  #repeated = 0

  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer
  }

  get counts(): CallCounts {
    return {
      calls: this.#calls.length,
      continued: this.#continued,
      rewritten: this.#rewritten,
      retokenized: this.#retokenized,
      repeated: this.#repeated,
    }
  }

  /** The last answer's text; null before the first. */
  get completion(): string | null {
    const last = this.#calls.at(-1)
    if (last === undefined) return null
    const chosen = this.#trie.idsOf(last.end).subarray(last.asked.length)
    return this.#tokenizer.decode(this.#withoutEnd(Array.from(chosen)), { skipSpecial: true })
  }

  /** The first call's prompt: messages or a text. */
  get prompt(): string | readonly Message[] {
    const [first] = this.#calls
    if (first === undefined) return ''
    return this.#firstPrompt ?? this.#tokenizer.decode(this.#trie.idsOf(first.asked))
  }

  /** Tokens that the model chose. */
  get numTokens(): number {
    return this.#numTokens
  }

  /** Stored ids of prompts and answers, each counted once. */
  get numIds(): number {
    return this.#trie.numIds
  }

  /** Prompt ids of messages: a call's existing ids, then those of new messages. @throws InputError as `renderIds`. */
  promptOf(messages: readonly Message[], input: TemplateInput): ClientPrompt {
    const told = messages.map(asTold)
    const spelled = inputKey(input)
    if (spelled !== this.#input) this.#input = spelled
    const key = this.#input // The same text for all calls.
    const beginning = new Beginning(told)
    const before = this.#standing(beginning, key)
    const { prompt, isKept } = this.#promptOf(messages, told, input, before)
    const from = isKept ? before!.end : this.#trie.root
    this.#asked.set(prompt, { before, from, beginning, input: key })
    return prompt
  }

  #promptOf(
    messages: readonly Message[],
    told: readonly string[],
    input: TemplateInput,
    before: Call | null,
  ): { prompt: ClientPrompt; isKept: boolean } {
    const tokenizer = this.#tokenizer
    if (before === null) {
      this.#countSaid(told)
      return { prompt: { ids: promptOf(tokenizer, messages, input), messages, input }, isKept: false }
    }
    const { tools, variables } = input
    const all = this.#asInIds(messages, before)
    const stood = all.slice(0, before.numMessages)
    const { ids, isRewritten } = nextTurn(tokenizer, stood, all, lastId(before.end)!, tools, variables)
    if (isRewritten) this.#rewritten++
    this.#countSaid(isRewritten ? told : told.slice(stood.length))
    if (isRewritten) return { prompt: { ids: Int32Array.from(ids), messages: all, input }, isKept: false }
    const whole = this.#trie.idsOf(before.end, ids.length)
    whole.set(ids, before.end.length)
    return { prompt: { ids: whole, messages: all, input }, isKept: true }
  }

  /** These messages, with the answers of `last` and of the calls before it as in the ids. */
  #asInIds(messages: readonly Message[], last: Call): Message[] {
    const all = [...messages]
    for (let call: Call | null = last; call !== null; call = call.before) {
      const at = call.numMessages - 1
      all[at] = call.spelled ?? { role: 'assistant', content: messages[at]!.content ?? '' }
    }
    return all
  }

  /** The call with the most messages that these begin with. */
  #standing(beginning: Beginning, input: string): Call | null {
    return this.#byMessages.find(beginning, beginning.told.length - 1, (first) => {
      let call: Call | null = first
      while (call !== null && call.input !== input) call = call.twin
      return call
    })
  }

  /** Counts those of these messages that are the model's answers in this session. */
  #countSaid(told: readonly string[]): void {
    if (this.#said.size > 0) this.#retokenized += told.filter((message) => this.#said.has(hashOf(message))).length
  }

  add({ prompt, turn, message }: ClientAnswer): void {
    const { messages } = prompt
    const known = this.#asked.get(prompt)
    const { before = null, from = this.#trie.root, input = '' } = known ?? {}
    const chosen = turn.tokens.map(({ id }) => id)
    let parent = this.#ended.get(from) ?? null
    const asked = this.#trie.add(from, prompt.ids, from.length, (place) => {
      parent = this.#ended.get(place) ?? parent
    })
    if (this.#prompts.has(asked)) this.#repeated++
    this.#prompts.add(asked)
    const end = this.#trie.add(asked, chosen, 0)
    const isContinued = parent !== null
    const spelled = spelledMessage(this.#tokenizer, this.#withoutEnd(chosen))
    const isTold = messages !== null && JSON.stringify(spelled) === JSON.stringify(message)
    const call: Call = {
      ...{ number: this.#calls.length, before, spelled: isTold ? null : spelled, input, asked, end, parent },
      numMessages: messages === null ? 0 : messages.length + 1,
      chosen: columnsOf(turn, this.#logprobs.take(chosen.length)),
      ...{ isCut: turn.end === 'length', twin: null },
    }
    if (this.#calls.length === 0) this.#firstPrompt = messages
    this.#calls.push(call)
    if (!this.#ended.has(end)) this.#ended.set(end, call)
    this.#numTokens += chosen.length
    if (isContinued) this.#continued++
    const told = asTold(message)
    this.#said.add(hashOf(told))
    if (messages === null) return
    const hash = known!.beginning.before(told)
    let last = this.#byMessages.get(hash)
    if (last === undefined) this.#byMessages.set(hash, call.numMessages, call)
    else {
      while (last.twin !== null) last = last.twin
      last.twin = call
    }
  }

  /** Keeps messages that the client will not send again. Messages that are already kept are not stored again. */
  shared(messages: readonly Message[]): () => Message[] {
    const beginning = new Beginning(messages.map(asTold))
    const found = this.#kept.find(beginning, messages.length, (before, length) => ({ before, length }))
    const { before, length } = found ?? { before: null, length: 0 }
    const kept = length === messages.length && before !== null ? before : { before, messages: messages.slice(length) }
    if (messages.length > 0) this.#kept.set(beginning.at(messages.length), messages.length, kept)
    return () => {
      const parts: (readonly Message[])[] = []
      for (let each: Kept | null = kept; each !== null; each = each.before) parts.unshift(each.messages)
      return parts.flat()
    }
  }

  #withoutEnd(ids: readonly number[]): readonly number[] {
    return this.#tokenizer.endIds.includes(ids.at(-1)!) ? ids.slice(0, -1) : ids
  }

  /** A row per path from a root to a leaf, in the order of the leaves' answers. Each is a segment of the session. */
  rows(worth: SessionWorth): Trajectory[] {
    const parents = new Set(this.#calls.map(({ parent }) => parent))
    const trained = new Set<Call>()
    const rows: Trajectory[] = []
    for (const leaf of this.#calls.filter((call) => !parents.has(call))) {
      const path: Call[] = []
      for (let call: Call | null = leaf; call !== null; call = call.parent) path.unshift(call)
      const fresh = new Set(path.filter((call) => !trained.has(call) && numChosen(call) > 0))
      if (fresh.size === 0) continue // The model has not answered.
      for (const call of path) trained.add(call)
      rows.push({ ...worth, segment: rows.length, ...rowOf(this.#trie.idsOf(leaf.end), path, fresh) })
    }
    return rows
  }
}

/** The tokens of a path. Calls that are not `fresh` are context. */
function rowOf(
  ids: Int32Array,
  path: readonly Call[],
  fresh: ReadonlySet<Call>,
): Omit<Trajectory, keyof SessionWorth | 'segment'> {
  const token = Array.from(ids)
  const { isCut, number } = path.at(-1)!
  const lossMask = token.map(() => 0)
  const logprob = token.map(() => Number.NaN)
  const version = token.map(() => -1)
  const turn = token.map(() => number)
  const candidateCount = token.map(() => 0)
  const candidateIds: number[] = []
  const forms: TurnForm[] = []
  let from = 0
  for (const call of path) {
    turn.fill(call.number, from, call.end.length) // The prompt of an answer belongs to its turn.
    const { chosen } = call
    if (chosen.form !== null && fresh.has(call)) forms.push({ turn: call.number, ...chosen.form })
    for (let i = 0; i < numChosen(call); i++) {
      const t = call.asked.length + i
      lossMask[t] = fresh.has(call) ? 1 : 0
      logprob[t] = chosen.logprob.chunk[chosen.logprob.begin + i]!
      version[t] = typeof chosen.version === 'number' ? chosen.version : chosen.version[i]!
      if (chosen.candidates === null) continue
      const { end, candidate } = chosen.candidates
      const set = candidate.subarray(i === 0 ? 0 : end[i - 1]!, end[i]!)
      candidateCount[t] = set.length
      for (const id of set) candidateIds.push(id)
    }
    from = call.end.length
  }
  return {
    ...{ token, lossMask, logprob, version, turn, turns: path.length, candidateCount, candidateIds },
    ...(forms.length === 0 ? {} : { forms }),
    cutTurns: path.filter((call) => fresh.has(call) && call.isCut).length,
    droppedReplies: 0,
    stopReason: isCut ? 'length' : 'stop',
  }
}

function numChosen({ asked, end }: Call): number {
  return end.length - asked.length
}

function columnsOf({ tokens, constraint, changes }: Generation, logprobs: Piece<Float32Array>): Chosen {
  const { version = 0 } = tokens[0] ?? {}
  const isUnknown = tokens.some(({ logprob }) => Number.isNaN(logprob))
  for (const [i, { logprob }] of tokens.entries()) logprobs.chunk[logprobs.begin + i] = logprob
  const isOne = tokens.every((each) => each.version === version)
  let numCandidates = 0
  const end = Int32Array.from(tokens, ({ candidates }) => (numCandidates += candidates.length))
  return {
    logprob: logprobs,
    form:
      (constraint ?? changes) === undefined || isUnknown
        ? null
        : { ...(constraint && { constraint }), ...(changes && { changes }) },
    version: isOne ? version : Int32Array.from(tokens, (each) => each.version),
    candidates:
      numCandidates === 0 ? null : { end, candidate: Int32Array.from(tokens.flatMap(({ candidates }) => candidates)) },
  }
}

function hashOf(told: string): string {
  return hash('sha256', told, 'base64')
}

/** A message in canonical form, which says where it ends: clients return it with other fields, and arguments as differently written JSON. */
function asTold({ role, content, tool_calls: calls }: Message): string {
  const called = Array.isArray(calls)
    ? calls.map((call) => {
        const { name, arguments: given } = ((call as { function?: unknown }).function ?? {}) as Record<string, unknown>
        return [name, sorted(typeof given === 'string' ? jsonOrText(given) : given)]
      })
    : []
  return `${measured(role)}${measured(content ?? '')}${measured(called.length === 0 ? '' : JSON.stringify(called))}`
}

/** A text behind its length. What UTF-8 cannot write, half of a surrogate pair, is written as JSON does. */
function measured(text: string): string {
  return `${text.length}${text.isWellFormed() ? `:${text}` : `!${JSON.stringify(text)}`}`
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null) return value
  const fields = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return Object.fromEntries(fields.map(([name, each]) => [name, sorted(each)]))
}

function inputKey({ tools, variables = {} }: TemplateInput): string {
  return hashOf(JSON.stringify(sorted([tools ?? null, variables])))
}
