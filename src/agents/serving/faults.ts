/** Injects faults seen in inference servers, by schedule or seeded chance, and records the tokens that were really generated. */
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

/** The kinds of fault, with their effects. */
export const faultKinds = {
  'status-402': 'refused with 402; nothing is generated',
  'status-408': '408',
  'status-409': '409',
  'status-410': '410',
  'status-429': '429, with retry-after',
  'status-500': '500',
  'status-502': '502',
  'status-503': '503',
  reset: 'the connection is cut before anything is generated',
  'reset-after': 'the connection is cut after everything was generated',
  'half-json': 'the connection is cut after half of the answer',
  'not-json': 'an HTML page with status 200',
  slow: 'the answer is 0.2 s late',
  hang: 'no answer until the client disconnects',
  'stream-stops': 'a stream ends after its first event; other answers become half-json',
  'no-logprobs': 'log-probabilities are null',
  'null-logprob': 'one log-probability is null',
  'nan-logprob': 'one log-probability is not a number',
  'positive-logprob': 'one log-probability is above 0',
  'logprobs-one-short': 'one log-probability fewer than tokens',
  'other-token': 'a token differs from the one that its log-probability belongs to',
  'unknown-token': 'a token is outside the vocabulary',
  'token-missing': 'a token is missing, but not its log-probability',
  'other-answer': 'the answer of an earlier request',
  'candidates-without-token': 'a token is missing from its candidate set',
  'version-gap': 'version spans do not begin where the previous one ends',
  'versions-short': 'version spans end before the tokens do',
  'version-swap': 'the weights have another name for some tokens of the answer',
  'mode-not-echoed': 'the mode of the output is missing',
  'aborted-empty': 'the answer was broken off before its first token',
  'aborted-half': 'the answer was broken off after half of its tokens',
  'length-short': 'the answer ends with reason length before it has that length',
  'abort-ignored': 'an abort request is confirmed, but nothing is aborted',
  'pause-refused': 'a pause is refused with 503',
  'update-refused': 'new weights are refused with 500',
  'not-applied': 'new weights, or an adapter, are confirmed by name but not applied',
  restarted: 'the server has its initial weights again, under their name',
  'old-weights': 'the server has its initial weights again, under the last name',
} as const
/** A kind of `faultKinds`. */
export type FaultKind = keyof typeof faultKinds

const NAMES = Object.keys(faultKinds) as FaultKind[]
/** Faults of the routes that abort, pause, and load weights; others are of routes that generate. */
const OF_ABORT: readonly FaultKind[] = ['abort-ignored']
const OF_PAUSE: readonly FaultKind[] = ['pause-refused']
const OF_UPDATE: readonly FaultKind[] = ['update-refused', 'not-applied']
const ELSEWHERE = new Set<FaultKind>([...OF_ABORT, ...OF_PAUSE, ...OF_UPDATE])

/** Which faults to inject, and when. */
export interface FaultOptions {
  /** The possible faults; default all. */
  readonly kinds?: readonly FaultKind[]
  /** The fraction of requests that fail, keyed by `seed`; default 0.2. */
  readonly rate?: number
  readonly seed?: number
  /** The fault of each request that can fail, in order; null for none, as after its end. Replaces chance. */
  readonly schedule?: readonly (FaultKind | null)[]
}

/** A request, its fault, and the tokens that were really generated. */
export interface FaultRecord {
  readonly route: string
  readonly requestId: string | null
  readonly fault: FaultKind | null
  /** For each turn: prompt ids, and chosen ids, log-probabilities, labels, and the trainable weights' SHA-256. */
  readonly turns: readonly {
    readonly prompt: readonly number[]
    readonly ids: readonly number[]
    readonly logprobs: readonly number[]
    readonly versions: readonly string[]
    readonly weights: readonly string[]
  }[]
}

/** Injects faults and records what happened. */
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
  /** SHA-256 of the weights, by version of the engine. */
  readonly #digests: string[]
  #numAsked = 0
  /** The last complete answer of each route, for `other-answer`. */
  readonly #answers = new Map<string, object>()

  /** @throws InputError for unknown kinds and numbers out of range. */
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

  /** The records from a number on, in the order of requests. */
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

  /** A route that aborts, pauses, or loads weights. */
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

  /** Faults before anything is generated. */
  #before(fault: FaultKind | null): void {
    const [, status] = /^status-(\d+)$/.exec(fault ?? '') ?? []
    if (status !== undefined)
      throw new RequestError(Number(status), `a fault: ${fault}`, { retryAfter: status === '429' ? 1 : null })
    if (fault === 'reset') throw new BrokenAnswer(null)
    if (fault === 'restarted') this.#weights.putBack(this.#first, 'default')
    if (fault === 'old-weights') this.#weights.putBack(this.#first)
  }

  /** Gives the weights another label while an answer is generated, then their own again. */
  async #swap(): Promise<void> {
    const label = this.#weights.currentLabel()
    for (const name of ['another', label]) {
      for (let i = 0; i < 3; i++) await immediate()
      this.#weights.relabel(name)
    }
  }

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

/** Faults in the answer of vLLM's token route. Those that need a token leave an empty answer unchanged. */
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
