/**
 * Continuous batching over an engine. Turns wait in a bounded queue, take a slot when one is free, and leave it when
 * they end, while others continue. A local engine advances all slots one token at a time, and the process serves its
 * sockets in between; an engine that generates by itself is awaited.
 */
import { setImmediate as immediate } from 'node:timers/promises'
import { InputError } from '../../base/errors.ts'
import { RequestError } from '../../base/http/server.ts'
import type { Engine, TurnRequest } from '../../engines/engine.ts'
import { LocalEngine } from '../../engines/local/local.ts'
import type { Constraint, LogitChanges } from '../../environments/text.ts'

export interface GenerationRequest
  extends Pick<TurnRequest, 'maxTokens' | 'sampling' | 'explore' | 'stopStrings' | 'key' | 'constraint' | 'changes'> {
  readonly ids: Int32Array
  /** Number of most probable tokens reported with each chosen token. */
  readonly numTop: number
  /** Number of most probable tokens reported with each token of the prompt; absent: none is evaluated. */
  readonly numPromptTop?: number
  /** The turn's owner. A slot's cache is not shared between owners. Turns without one share an owner. */
  readonly owner?: object
}

/** A token of a prompt: its log-probability at temperature 1, in nats, and the most probable ids at its position. */
export interface PromptToken extends Pick<GeneratedToken, 'id' | 'logprob' | 'top'> {
  /** 1 if no token was more probable. */
  readonly rank: number
}

export interface GeneratedToken {
  readonly id: number
  /** In nats, of the distribution that it was sampled from. */
  readonly logprob: number
  /** Version of the weights that chose it. */
  readonly version: number
  /** The candidate set, if a filter excluded tokens; empty if every token could be chosen. */
  readonly candidates: readonly number[]
  /** The most probable ids with log-probabilities, in descending order. */
  readonly top: readonly (readonly [id: number, logprob: number])[]
}

/** Why a turn ended; `failed` if the engine could not generate it. */
export type GenerationEnd = 'stop' | 'length' | 'aborted' | 'failed'

export interface Generation {
  readonly tokens: readonly GeneratedToken[]
  /** The constraint on the answer; absent: none. */
  readonly constraint?: Constraint
  /** The changes of the logits; absent: none. */
  readonly changes?: LogitChanges
  /** The prompt's tokens except the first, if they were requested and the turn has begun. */
  readonly prompt?: readonly PromptToken[] | null
  /** Number of prompt ids that were in the cache. */
  readonly numCached: number
  /** Null while it runs. */
  readonly end: GenerationEnd | null
  /** Why it failed. Null if it did not, or if the engine itself failed, which is logged to the terminal. */
  readonly error: string | null
}

/** Turns submitted together. */
export interface GenerationGroup {
  readonly turns: readonly Generation[]
  /** Settles when a turn has a new token or ends; with `all`, when all have ended. */
  more(all?: boolean): Promise<void>
  /** Aborts the turns that have not ended, waiting ones included. */
  abort(): void
}

/** How new turns are treated: accepted; refused, during a pause or a stop; or frozen along with the running ones. */
export type BatcherState = 'open' | 'frozen' | 'paused' | 'stopping'

/** Consecutive times that an engine may break off a turn without a new token. */
const MOST_BREAKS = 3

/** Minimum milliseconds between a stream's writes, which have a cost and wake the client; tokens between are joined. */
const STREAM_MS = 50

const NO_IDS = new Int32Array()

/** A slot of the engine, and the ids in its cache. */
interface Slot {
  turn: Turn | null
  /** The first `numCached` are valid; the others are room, so that a conversation that continues needs no new memory. */
  ids: Int32Array
  numCached: number
  owner: object | undefined
}

interface Turn extends Generation {
  readonly request: GenerationRequest
  readonly tokens: GeneratedToken[]
  prompt: PromptToken[] | null
  numCached: number
  end: GenerationEnd | null
  error: string | null
  /** The caller no longer waits for it. */
  isUnwanted: boolean
  /** Times that the engine broke it off since its last token. */
  breaks: number
  readonly group: Group
}

class Group implements GenerationGroup {
  readonly id: string | null
  readonly turns: readonly Turn[]
  readonly #abort: (turn: Turn) => void
  #waiting: (() => void)[] = []
  #waitsForAll = false

  constructor(id: string | null, requests: readonly GenerationRequest[], abort: (turn: Turn) => void) {
    this.id = id
    this.turns = requests.map((request) => ({
      ...{
        request,
        ...(request.constraint && { constraint: request.constraint }),
        ...(request.changes && { changes: request.changes }),
        tokens: [],
        prompt: null,
        numCached: 0,
        end: null,
        error: null,
        isUnwanted: false,
        breaks: 0,
      },
      group: this,
    }))
    this.#abort = abort
  }

  more(all = false): Promise<void> {
    this.#waitsForAll = all
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  abort(): void {
    for (const turn of this.turns) if (turn.end === null) this.#abort(turn)
  }

  tell(): void {
    if (this.#waitsForAll && this.turns.some(({ end }) => end === null)) return
    const waiting = this.#waiting
    this.#waiting = []
    for (const resolve of waiting) resolve()
  }
}

/** Runs many clients' turns on one engine. */
export class Batcher {
  readonly engine: Engine
  readonly queueLength: number
  /** Called for all accepted turns, with their request's id. */
  onSubmit: ((id: string | null, requests: readonly GenerationRequest[], turns: readonly Generation[]) => void) | null =
    null
  readonly #slots: readonly Slot[]
  #queue: Turn[] = []
  #state: BatcherState = 'open'
  #isRunning = false
  #wake: (() => void)[] = []
  #step: void | Promise<void> = undefined
  /** Wakes the loop while it waits for the engine. */
  #nudge = () => {}
  /** The version of the weights that computed the slots' caches. */
  #version: number

  constructor(engine: Engine, numSlots: number, queueLength: number) {
    this.engine = engine
    this.queueLength = queueLength
    this.#slots = Array.from({ length: numSlots }, () => ({ turn: null, ids: NO_IDS, numCached: 0, owner: undefined }))
    this.#version = engine.version
  }

  get numSlots(): number {
    return this.#slots.length
  }

  get state(): BatcherState {
    return this.#state
  }

  get numRunning(): number {
    return this.#slots.filter(({ turn }) => turn !== null).length
  }

  get numWaiting(): number {
    return this.#queue.length
  }

  /** Accepts all turns or none. @throws RequestError if the queue is full (429), closed (503) or too small (400). */
  submit(requests: readonly GenerationRequest[], id: string | null = null): GenerationGroup {
    const numSlots = this.#slots.length
    if (requests.some(({ numTop }) => numTop > 0) && !(this.engine instanceof LocalEngine)) {
      throw new RequestError(400, `the engine ${this.engine.id} does not report the most probable tokens`, {
        ...{ param: 'top_logprobs', code: 'unsupported_field' },
      })
    }
    if (requests.some(({ numPromptTop }) => numPromptTop !== undefined) && !(this.engine instanceof LocalEngine)) {
      throw new RequestError(400, `the engine ${this.engine.id} does not report log-probabilities of prompts`, {
        ...{ param: 'prompt_logprobs', code: 'unsupported_field' },
      })
    }
    if (this.#state === 'stopping') throw new RequestError(503, 'the server is stopping', { code: 'stopping' })
    if (this.#state === 'paused') {
      throw new RequestError(503, 'generation is paused', { code: 'paused', retryAfter: 1 })
    }
    if (requests.length > numSlots + this.queueLength) {
      throw new RequestError(
        400,
        `got ${requests.length} turns at once, expected at most ${numSlots + this.queueLength}`,
        {
          param: 'n',
        },
      )
    }
    if (this.numRunning + this.numWaiting + requests.length > numSlots + this.queueLength) {
      const full = `${this.numRunning} turns run and ${this.numWaiting} wait, of at most ${numSlots} and ${this.queueLength}`
      throw new RequestError(429, full, { code: 'queue_full', retryAfter: 1 })
    }
    const group = new Group(id, requests, (turn) => this.#abort(turn))
    this.onSubmit?.(id, requests, group.turns)
    this.#queue.push(...group.turns)
    this.#goOn()
    return group
  }

  /** Aborts the turns with this request id. Returns their number. */
  abort(id: string): number {
    return this.#abortThose((turn) => turn.group.id === id)
  }

  /** Aborts all turns. Returns their number. */
  abortAll(): number {
    return this.#abortThose(() => true)
  }

  #abortThose(isMeant: (turn: Turn) => boolean): number {
    const turns = [...this.#queue, ...this.#slots.flatMap(({ turn }) => turn ?? [])].filter(isMeant)
    for (const turn of turns) this.#abort(turn)
    return turns.length
  }

  /** Sets how new turns are treated. Existing turns continue, unless all are frozen. */
  set(state: BatcherState): void {
    this.#state = state
    this.#goOn()
  }

  /** Settles, and never fails, when no engine step is running. While turns are frozen, none begins. */
  async still(): Promise<void> {
    await Promise.resolve(this.#step).catch(() => {}) // The loop reports its failure.
  }

  /** Settles when no turn runs or waits. */
  async idle(): Promise<void> {
    while (this.numRunning + this.numWaiting > 0) await new Promise<void>((resolve) => this.#wake.push(resolve))
  }

  #abort(turn: Turn): void {
    turn.isUnwanted = true
    const n = this.#slots.findIndex((slot) => slot.turn === turn)
    if (n >= 0) {
      this.engine.abort(n)
      this.#take()
      this.#nudge() // A slot is free.
    } else {
      this.#queue = this.#queue.filter((other) => other !== turn)
      this.#finish(turn, 'aborted')
    }
  }

  #goOn(): void {
    this.#nudge()
    void this.#run()
  }

  async #run(): Promise<void> {
    if (this.#isRunning) return
    this.#isRunning = true
    try {
      while (this.#state !== 'frozen' && this.numRunning + this.numWaiting > 0) {
        this.#place()
        this.#step = this.engine.advance()
        await this.#step
        const hasNews = this.#take()
        const { arrival } = this.engine
        if (arrival !== null && !hasNews && this.numRunning > 0) {
          await Promise.race([arrival, new Promise<void>((resolve) => (this.#nudge = resolve))])
        }
        await immediate()
      }
    } catch (error) {
      console.error(`colonnade: ${(error as Error).stack ?? error}`)
      this.#state = 'stopping' // An engine that failed during a step cannot be used further.
      const turns = [...this.#queue, ...this.#slots.flatMap(({ turn }) => turn ?? [])]
      this.#queue = []
      for (const slot of this.#slots) slot.turn = null
      for (const turn of turns) this.#finish(turn, 'failed')
    }
    this.#isRunning = false
  }

  /** Gives free slots to waiting turns in order, each the slot whose cache shares the longest prefix. */
  #place(): void {
    if (this.#version !== this.engine.version) {
      for (const slot of this.#slots) slot.numCached = 0
      this.#version = this.engine.version
    }
    for (let free = this.#free(); free.length > 0 && this.#queue.length > 0; free = this.#free()) {
      const turn = this.#queue.shift()!
      const { ids: prompt, numTop: _, numPromptTop, owner, maxTokens, ...request } = turn.request
      const generated = turn.tokens.length // Above 0 if the engine broke it off.
      const ids = generated === 0 ? prompt : Int32Array.from([...prompt, ...turn.tokens.map(({ id }) => id)])
      const shared = free.map((n) => sharedLength(this.#slots[n]!, ids))
      const unchanged = Math.max(...shared)
      const n = free[shared.indexOf(unchanged)]!
      const slot = this.#slots[n]!
      if (generated === 0) turn.numCached = slot.owner === owner ? unchanged : 0
      try {
        this.engine.submit({ ...request, slot: n, ids, generated, unchanged, maxTokens: maxTokens - generated })
        if (numPromptTop !== undefined) this.#score(n, turn, numPromptTop)
      } catch (error) {
        if (!(error instanceof InputError)) {
          this.#queue.unshift(turn) // Reported with the others.
          throw error
        }
        this.#finish(turn, 'failed', error.message) // The engine does not support this turn; others continue.
        continue
      }
      slot.turn = turn
      slot.owner = owner
    }
  }

  /** Evaluates the prompt of a turn that has just begun. */
  #score(n: number, turn: Turn, numTop: number): void {
    const prompt: PromptToken[] = []
    turn.prompt = prompt
    turn.numCached = 0
    ;(this.engine as LocalEngine).scorePrompt(n, (at, logprob, logits) => {
      const id = turn.request.ids[at]!
      let rank = 1
      for (let token = 0; token < logits.length; token++) if (logits[token]! > logits[id]!) rank++
      prompt.push({ id, logprob, rank, top: mostProbable(logits, id, logprob, numTop, 1) })
    })
  }

  #free(): number[] {
    return this.#slots.flatMap(({ turn }, n) => (turn === null ? [n] : []))
  }

  /** Takes the tokens that the engine generated. Returns false if there are none. */
  #take(): boolean {
    const { tokens, ends } = this.engine.poll()
    for (const block of tokens) {
      for (let i = 0; i < block.count; i++) {
        const { turn } = this.#slots[block.slot[i]!]!
        if (turn === null) continue
        const [from, to] = [block.candidateOffset[i]!, block.candidateOffset[i + 1]!]
        const [id, logprob] = [block.token[i]!, block.logprob[i]!]
        turn.tokens.push({
          ...{ id, logprob, version: block.version[i]! },
          candidates: block.candidate === null ? [] : Array.from(block.candidate.subarray(from, to)),
          top: this.#top(i, id, logprob, turn.request),
        })
        turn.breaks = 0
        turn.group.tell()
      }
    }
    for (const end of ends) {
      const slot = this.#slots[end.slot]!
      const turn = slot.turn!
      slot.turn = null
      // The last token's keys and values have not been computed.
      keepIds(slot, turn.request.ids, turn.tokens.slice(0, -1))
      if (end.reason === 'aborted' && !turn.isUnwanted) this.#again(turn)
      else this.#finish(turn, end.reason, end.reason === 'failed' ? end.error : null)
    }
    return tokens.length > 0 || ends.length > 0
  }

  /** A turn that the engine broke off continues after its tokens, as the first in the queue. */
  #again(turn: Turn): void {
    const { constraint, changes } = turn.request
    const isMidway = (constraint !== undefined || changes !== undefined) && turn.tokens.length > 0
    const why = `${constraint === undefined ? 'changed logits' : 'a required format'}, which cannot be continued`
    if (isMidway) this.#finish(turn, 'failed', `the engine broke off an answer with ${why}`)
    else if (turn.breaks++ < MOST_BREAKS) this.#queue.unshift(turn)
    else this.#finish(turn, 'failed', `the engine broke off the turn ${turn.breaks} times without a new token`)
  }

  /** The most probable tokens of the engine's row i, by the logits that it sampled from. */
  #top(i: number, id: number, logprob: number, { numTop, sampling }: GenerationRequest): (readonly [number, number])[] {
    if (numTop === 0 || !(this.engine instanceof LocalEngine)) return []
    const { logits, lane } = this.engine.decoder.columns
    const size = logits.length / lane.length
    return mostProbable(logits.subarray(i * size, (i + 1) * size), id, logprob, numTop, sampling.temperature)
  }

  #finish(turn: Turn, end: GenerationEnd, error: string | null = null): void {
    turn.end = end
    turn.error = error
    turn.group.tell()
    if (this.numRunning + this.numWaiting > 0) return
    const wake = this.#wake
    this.#wake = []
    for (const resolve of wake) resolve()
  }
}

/** The ids of the highest of these logits with log-probabilities, where `logprob` is that of `id`. */
function mostProbable(
  logits: Float32Array,
  id: number,
  logprob: number,
  count: number,
  temperature: number,
): (readonly [number, number])[] {
  const best: number[] = []
  for (let token = 0; token < logits.length && count > 0; token++) {
    if (best.length === count && logits[token]! <= logits[best.at(-1)!]!) continue
    const at = best.findIndex((other) => logits[token]! > logits[other]!)
    best.splice(at < 0 ? best.length : at, 0, token)
    if (best.length > count) best.pop()
  }
  return best.map((token) => [token, logprob + (logits[token]! - logits[id]!) / temperature] as const)
}

function keepIds(slot: Slot, prompt: Int32Array, tokens: readonly GeneratedToken[]): void {
  slot.numCached = prompt.length + tokens.length
  if (slot.ids.length < slot.numCached) slot.ids = new Int32Array(Math.ceil(1.25 * slot.numCached))
  slot.ids.set(prompt)
  for (const [i, { id }] of tokens.entries()) slot.ids[prompt.length + i] = id
}

function sharedLength({ ids: cached, numCached }: Slot, ids: Int32Array): number {
  const most = Math.min(numCached, ids.length)
  if (bytesOf(cached, most).equals(bytesOf(ids, most))) return most // A conversation that continues, compared natively.
  let length = 0
  while (cached[length] === ids[length]) length++
  return length
}

function bytesOf({ buffer, byteOffset }: Int32Array, length: number): Buffer {
  return Buffer.from(buffer, byteOffset, 4 * length)
}

/** Waits for all turns; a disconnect aborts them. @throws RequestError 500 (engine failed) or 502 (turn failed). */
export async function whole(group: GenerationGroup, signal: AbortSignal): Promise<void> {
  for await (const _ of steps(group, signal, true));
}

/**
 * Yields at once, and again when a turn has progressed (or with `all`, when all have ended), until all have ended. The
 * first token and the end are reported immediately, others at most every `STREAM_MS`. A client that disconnects or
 * stops reading aborts them.
 * @throws RequestError as `whole` does.
 */
export async function* steps(group: GenerationGroup, signal: AbortSignal, all = false): AsyncGenerator<void> {
  const abort = () => group.abort()
  signal.addEventListener('abort', abort)
  if (signal.aborted) abort()
  let next = 0
  try {
    while (true) {
      const more = group.more(all)
      throwFailure(group)
      yield
      throwFailure(group)
      if (group.turns.every(({ end }) => end !== null)) return
      await more
      if (all) continue
      await over(group, next - performance.now())
      next = performance.now() + STREAM_MS
    }
  } finally {
    signal.removeEventListener('abort', abort)
    group.abort()
  }
}

/** @throws RequestError if the engine failed, or could not generate a turn. */
function throwFailure({ turns }: GenerationGroup): void {
  const failed = turns.find(({ end }) => end === 'failed')
  if (failed === undefined) return
  const [status, why] =
    failed.error === null ? [500, 'the engine failed; see the terminal of the server'] : [502, failed.error]
  throw new RequestError(status as number, why as string, { code: 'engine_failed' })
}

/** Settles after the milliseconds, or earlier when all turns have ended. */
async function over(group: GenerationGroup, milliseconds: number): Promise<void> {
  if (milliseconds <= 0 || group.turns.every(({ end }) => end !== null)) return
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, milliseconds)
  })
  await Promise.race([late, group.more(true)])
  clearTimeout(timer)
}
