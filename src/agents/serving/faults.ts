/**
 * A server that goes wrong on purpose, in every way in which servers of language models were seen to, by a schedule or by chance that a
 * seed keys; and a record of what was truly generated, to which whoever was answered can be held.
 */
import { createHash } from 'node:crypto'
import { setImmediate as immediate, setTimeout as sleep } from 'node:timers/promises'
import { InputError, show, unknownWord } from '../../base/errors.ts'
import {
  type Body,
  BrokenAnswer,
  type EventStream,
  RequestError,
  type Route,
  type RouteAnswer,
} from '../../base/http/server.ts'
import { philox4x32 } from '../../base/random.ts'
import type { Batcher, Generation } from './batcher.ts'
import type { ServedWeights } from './served-weights.ts'

/** What can go wrong, and what then happens. */
export const faultKinds = {
  'status-402': 'refused with 402, and nothing is generated',
  'status-408': '408',
  'status-409': '409',
  'status-410': '410',
  'status-429': '429, with retry-after',
  'status-500': '500',
  'status-502': '502',
  'status-503': '503',
  reset: 'the connection is cut before anything is generated',
  'reset-after': 'the connection is cut after all was generated',
  'half-json': 'half of the answer, and the connection is cut',
  'not-json': 'a page of HTML with status 200',
  slow: 'the answer comes a fifth of a second late',
  hang: 'no answer, until the client goes away',
  'stream-stops': 'a stream ends after its first event; an answer that is whole becomes half-json',
  'no-logprobs': 'log-probabilities are null',
  'null-logprob': 'one of them is null',
  'nan-logprob': 'one of them is no number',
  'positive-logprob': 'one of them is above 0',
  'logprobs-one-short': 'there is one less than tokens',
  'other-token': 'a token is another one than the one that its log-probability is of',
  'unknown-token': 'a token is beyond the vocabulary',
  'token-missing': 'a token is left out, its log-probability is not',
  'other-answer': 'the answer is of a request before',
  'candidates-without-token': 'the ids that a token was drawn from lack it',
  'version-gap': 'runs of versions do not begin where the one before ends',
  'versions-short': 'runs of versions end before the tokens do',
  'version-swap': 'the weights have another name for some tokens of the answer',
  'mode-not-echoed': 'the mode of the output is not said',
  'aborted-empty': 'the answer was broken off before its first token',
  'aborted-half': 'the answer was broken off, with half of its tokens',
  'length-short': 'the answer ends for its length, before it has it',
  'abort-ignored': 'a request to break off is answered, and nothing is broken off',
  'pause-refused': 'a pause is refused with 503',
  'update-refused': 'new weights are refused with 500',
  'not-applied': 'new weights, or an adapter, are confirmed under their name, and not applied',
  restarted: 'the server has the weights again that it began with, under their name',
  'old-weights': 'the server has the weights again that it began with, under the name of the last',
} as const
/** One of them. */
export type FaultKind = keyof typeof faultKinds

const NAMES = Object.keys(faultKinds) as FaultKind[]
/** Faults of routes that abort, pause, and take weights; others are of routes that generate. */
const OF_ABORT: readonly FaultKind[] = ['abort-ignored']
const OF_PAUSE: readonly FaultKind[] = ['pause-refused']
const OF_UPDATE: readonly FaultKind[] = ['update-refused', 'not-applied']
const ELSEWHERE = new Set<FaultKind>([...OF_ABORT, ...OF_PAUSE, ...OF_UPDATE])

/** When a server goes wrong. */
export interface FaultOptions {
  /** Which faults there may be; default all. */
  readonly kinds?: readonly FaultKind[]
  /** Of how many requests one goes wrong, by chance that `seed` keys; default 0.2. */
  readonly rate?: number
  readonly seed?: number
  /** What becomes of each request that can go wrong, in their order, null for nothing; none goes wrong behind its end. In place of chance. */
  readonly schedule?: readonly (FaultKind | null)[]
}

/** What was asked, what went wrong, and what was truly generated. */
export interface FaultRecord {
  readonly route: string
  readonly requestId: string | null
  readonly fault: FaultKind | null
  /**
   * Of each turn: the prompt's ids, and of what was chosen ids, log-probabilities, the names of the weights, and the SHA-256 of their
   * numbers, whatever they are called: of what can be trained, the adapter or the model.
   */
  readonly turns: readonly {
    readonly prompt: readonly number[]
    readonly ids: readonly number[]
    readonly logprobs: readonly number[]
    readonly versions: readonly string[]
    readonly weights: readonly string[]
  }[]
}

/** Goes wrong by plan, and keeps what happened. */
export class Faults {
  readonly #kinds: readonly FaultKind[]
  readonly #rate: number
  readonly #seed: number
  readonly #schedule: readonly (FaultKind | null)[] | null
  readonly #words = new Uint32Array(4)
  readonly #events: {
    route: string
    requestId: string | null
    fault: FaultKind | null
    turns: readonly Generation[]
  }[] = []
  readonly #prompts = new WeakMap<Generation, Int32Array>()
  readonly #weights: ServedWeights
  readonly #first: Float32Array
  /** SHA-256 of the weights' numbers, of each version of the engine. */
  readonly #digests: string[]
  #numAsked = 0
  /** The last whole answer of each route, which `other-answer` gives. */
  readonly #answers = new Map<string, object>()

  /** @throws InputError for kinds that are not known, and numbers out of range. */
  constructor(options: FaultOptions, batcher: Batcher, weights: ServedWeights) {
    const { kinds = NAMES, rate = 0.2, seed = 0, schedule = null } = options
    for (const kind of [...kinds, ...(schedule ?? [])]) {
      if (kind !== null && !NAMES.includes(kind)) throw unknownWord('faults', String(kind), NAMES)
    }
    if (!(rate >= 0 && rate <= 1)) throw new InputError('faults, rate', show(rate), 'a number from 0 to 1')
    this.#kinds = kinds
    this.#rate = rate
    this.#seed = seed
    this.#schedule = schedule
    this.#weights = weights
    this.#first = weights.copy()
    this.#digests = [digestOf(this.#first)]
    weights.onChange = (version) => {
      this.#digests[version] = digestOf(weights.copy())
    }
    batcher.onSubmit = (id, requests, turns) => {
      for (const [i, turn] of turns.entries()) this.#prompts.set(turn, requests[i]!.ids)
      const event = this.#events.findLast(({ requestId, turns: had }) => requestId === id && had.length === 0)
      if (event !== undefined) event.turns = turns
    }
  }

  /** What has happened so far, in the order in which it was asked, from a record's number on. */
  records(from = 0): FaultRecord[] {
    return this.#events.slice(from).map(({ turns, ...event }) => ({
      ...event,
      turns: turns.map((turn) => ({
        prompt: Array.from(this.#prompts.get(turn)!),
        ids: turn.tokens.map(({ id }) => id),
        logprobs: turn.tokens.map(({ logprob }) => logprob),
        versions: turn.tokens.map(({ version }) => this.#weights.labelOf(version)),
        weights: turn.tokens.map(({ version }) => this.#digests[version]!),
      })),
    }))
  }

  /** The same routes, going wrong. */
  over(routes: ReadonlyMap<string, Route>): Map<string, Route> {
    const wrong = new Map(
      [...routes].map(([key, route]): [string, Route] => {
        const [method, path] = key.split(' ') as [string, string]
        if (method !== 'POST') return [key, route]
        if (/generate$|completions$/.test(path)) return [key, this.#generating(path, route)]
        if (/abort/.test(path)) return [key, this.#changing(path, route, OF_ABORT)]
        if (/pause/.test(path)) return [key, this.#changing(path, route, OF_PAUSE)]
        const isUpdate = /load_lora_adapter|finish_weight_update|weights_from_disk/.test(path) && !/unload/.test(path)
        return [key, isUpdate ? this.#changing(path, route, OF_UPDATE) : route]
      }),
    )
    for (const [key, route] of wrong) {
      const { admit, errorBody } = routes.get(key)!
      Object.assign(route, { admit, errorBody })
    }
    return wrong
  }

  /** The next fault among these; null for none. */
  #next(may: (kind: FaultKind) => boolean): FaultKind | null {
    const number = this.#numAsked++
    if (this.#schedule !== null) {
      const kind = this.#schedule[number] ?? null
      return kind !== null && may(kind) ? kind : null
    }
    const kinds = this.#kinds.filter(may)
    philox4x32(this.#words, number, 0, 0, 0, this.#seed, 0xfa)
    if (kinds.length === 0 || this.#words[0]! / 2 ** 32 >= this.#rate) return null
    return kinds[this.#words[1]! % kinds.length]!
  }

  /** A route that aborts, pauses, or takes weights. */
  #changing(path: string, route: Route, kinds: readonly FaultKind[]): Route {
    return async (request) => {
      const fault = this.#next((kind) => kinds.includes(kind))
      this.#events.push({ route: path, requestId: null, fault, turns: [] })
      if (fault === 'abort-ignored') return { status: 'aborted', aborted: 1 }
      if (fault === 'pause-refused') throw new RequestError(503, 'no pause')
      if (fault === 'update-refused') throw new RequestError(500, 'no new weights')
      const before = fault === 'not-applied' ? this.#weights.copy() : null
      const answer = await route(request)
      if (before !== null) this.#weights.putBack(before)
      return answer
    }
  }

  /** A route that generates. */
  #generating(path: string, route: Route): Route {
    return async (request) => {
      const fault = this.#next((kind) => !ELSEWHERE.has(kind))
      const id = request.body.request_id ?? request.body.rid ?? null
      this.#events.push({ route: path, requestId: typeof id === 'string' ? id : null, fault, turns: [] })
      this.#before(fault)
      if (fault === 'hang')
        await new Promise<void>((resolve) => request.signal.addEventListener('abort', () => resolve()))
      if (fault === 'hang') throw new BrokenAnswer(null)
      const answering = route(request)
      if (fault === 'version-swap') await this.#swap()
      const answer = await answering
      if (fault === 'slow') await sleep(200)
      if (answer === null || fault === null) return this.#kept(path, answer)
      if ('events' in answer) return this.#cut(answer as EventStream, fault)
      if (fault === 'other-answer') return this.#answers.get(path) ?? answer
      return behind(answer, fault)
    }
  }

  #kept(path: string, answer: RouteAnswer): RouteAnswer {
    if (answer !== null && !('events' in answer)) this.#answers.set(path, answer)
    return answer
  }

  /** What goes wrong before anything is generated. */
  #before(fault: FaultKind | null): void {
    const [, status] = /^status-(\d+)$/.exec(fault ?? '') ?? []
    if (status !== undefined)
      throw new RequestError(Number(status), `a fault: ${fault}`, { retryAfter: status === '429' ? 1 : null })
    if (fault === 'reset') throw new BrokenAnswer(null)
    if (fault === 'restarted') this.#weights.putBack(this.#first, 'default')
    if (fault === 'old-weights') this.#weights.putBack(this.#first)
  }

  /** Calls the weights by another name while an answer is under way, and by their own again. */
  async #swap(): Promise<void> {
    const label = this.#weights.currentLabel()
    for (const name of ['another', label]) {
      for (let i = 0; i < 3; i++) await immediate()
      this.#weights.relabel(name)
    }
  }

  /** A stream that goes wrong. */
  #cut(stream: EventStream, fault: FaultKind): EventStream {
    if (fault !== 'stream-stops') return stream
    async function* events() {
      let count = 0
      for await (const event of stream.events) {
        if (count++ === 1) throw new BrokenAnswer(null)
        yield event
      }
    }
    return { ...stream, events: events() }
  }
}

function digestOf({ buffer, byteOffset, byteLength }: Float32Array): string {
  return createHash('sha256')
    .update(new Uint8Array(buffer, byteOffset, byteLength))
    .digest('hex')
}

/** What of an answer goes wrong when it was generated. */
function behind(answer: object, fault: FaultKind): object {
  const text = JSON.stringify(answer)
  if (fault === 'reset-after') throw new BrokenAnswer(null)
  if (fault === 'half-json' || fault === 'stream-stops') throw new BrokenAnswer(text.slice(0, text.length >> 1))
  if (fault === 'not-json') throw new BrokenAnswer('<html>busy</html>', true)
  const wrong = JSON.parse(text) as Record<string, unknown>
  const isGenerate = Array.isArray(wrong.choices) && 'output_mode' in wrong
  if (isGenerate) spoil(wrong, (wrong.choices as Body[])[0] as Record<string, unknown>, fault)
  return wrong
}

/** What vLLM's token route tells, made wrong. Faults that need a token leave an answer without any as it is. */
function spoil(answer: Record<string, unknown>, choice: Record<string, unknown>, fault: FaultKind): void {
  const ids = choice.token_ids as number[]
  const content = ((choice.logprobs ?? {}) as { content?: { token_id: number; logprob: unknown }[] }).content ?? []
  const spans = choice.weight_versions as { start: number; end: number }[]
  const half = ids.length >> 1
  if (fault === 'mode-not-echoed') delete answer.output_mode
  if (fault === 'aborted-empty' || fault === 'aborted-half') {
    const left = fault === 'aborted-empty' ? 0 : half
    ids.length = left
    content.length = Math.min(content.length, left)
    ;(choice.sampling_mask as unknown[] | null)?.splice(left)
    choice.weight_versions = spans
      .filter(({ start }) => start < left)
      .map((span) => ({ ...span, end: Math.min(span.end, left) }))
    choice.finish_reason = 'abort'
  }
  if (ids.length === 0 || content.length === 0) return
  if (fault === 'no-logprobs') choice.logprobs = null
  if (fault === 'null-logprob') content[half]!.logprob = null
  if (fault === 'nan-logprob') content[half]!.logprob = 'NaN'
  if (fault === 'positive-logprob') content[half]!.logprob = 0.5
  if (fault === 'logprobs-one-short') content.pop()
  if (fault === 'other-token') ids[half] = ids[half] === 0 ? 1 : 0
  if (fault === 'unknown-token') ids[half] = 2 ** 30
  if (fault === 'token-missing') ids.splice(half, 1)
  if (fault === 'candidates-without-token') choice.sampling_mask = ids.map((id) => [id === 0 ? 1 : 0])
  if (fault === 'version-gap') spans[0]!.start = 1
  if (fault === 'versions-short') spans.at(-1)!.end--
  if (fault === 'length-short') {
    ids.pop()
    content.pop()
    ;(choice.sampling_mask as unknown[] | null)?.pop()
    spans.at(-1)!.end--
    if (spans.at(-1)!.end === spans.at(-1)!.start) spans.pop()
    choice.finish_reason = 'length'
  }
}
