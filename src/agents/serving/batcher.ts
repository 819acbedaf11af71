/**
 * Continuous batching over an engine: turns wait in a bounded queue, take a slot when one is free, and leave it when they are over,
 * while others go on. With an engine that computes here, all that have a slot advance by a token at a time, and between two tokens
 * the process sees to its sockets; one that generates by itself is waited for.
 */
import { setImmediate as immediate } from 'node:timers/promises'
import { InputError } from '../../base/errors.ts'
import { RequestError } from '../../base/http/server.ts'
import type { Engine, TurnRequest } from '../../engines/engine.ts'
import { LocalEngine } from '../../engines/local/local.ts'
import type { Constraint } from '../../environments/text.ts'

/** A turn that is asked for. */
export interface GenerationRequest
  extends Pick<TurnRequest, 'maxTokens' | 'sampling' | 'explore' | 'stopStrings' | 'key' | 'constraint'> {
  readonly ids: Int32Array
  /** How many of the most probable tokens are told beside each that was chosen. */
  readonly numTop: number
  /** Whose turn it is: nobody is told what a slot keeps of another owner's turn. Turns without one are all of one owner. */
  readonly owner?: object
}

/** A token that was generated. */
export interface GeneratedToken {
  readonly id: number
  /** In nats, of the distribution that it was drawn from. */
  readonly logprob: number
  /** Number of the weights that chose it. */
  readonly version: number
  /** The ids that it was drawn from, where a filter left some out; empty where every token could be chosen. */
  readonly candidates: readonly number[]
  /** The most probable ids and their log-probabilities, the most probable first. */
  readonly top: readonly (readonly [id: number, logprob: number])[]
}

/** Why a turn is over; `failed` where the engine could not generate it. */
export type GenerationEnd = 'stop' | 'length' | 'aborted' | 'failed'

/** A turn under way, or over. */
export interface Generation {
  readonly tokens: readonly GeneratedToken[]
  /** The constraint on the answer; absent: none. */
  readonly constraint?: Constraint
  /** Of its ids, how many had their keys and values in the cache. */
  readonly numCached: number
  /** Null until it is over. */
  readonly end: GenerationEnd | null
  /** Why it failed; null where it did not, or the engine itself did, of which the terminal tells. */
  readonly error: string | null
}

/** Turns that were asked for together. */
export interface GenerationGroup {
  readonly turns: readonly Generation[]
  /** Settles when one of them has a token more, or is over; with `all` when the last of them is over. */
  more(all?: boolean): Promise<void>
  /** Breaks off those that are not over, also where they wait. */
  abort(): void
}

/** What new turns meet: they are taken; or refused, because of a pause or since the server stops; or held with those that run. */
export type BatcherState = 'open' | 'frozen' | 'paused' | 'stopping'

/** How often in a row an engine may break a turn off without having added to it. */
const MOST_BREAKS = 3

/**
 * Milliseconds between two tellings of a stream, at least: tokens that come meanwhile are told together. Each telling costs a write,
 * and wakes the client.
 */
const STREAM_MS = 50

/** A slot of the engine, and what of ids its cache holds. */
interface Slot {
  turn: Turn | null
  cached: readonly number[]
  /** Whose turn it had last. */
  owner: object | undefined
}

interface Turn extends Generation {
  readonly request: GenerationRequest
  readonly tokens: GeneratedToken[]
  numCached: number
  end: GenerationEnd | null
  error: string | null
  /** Nobody wants it any longer. */
  isUnwanted: boolean
  /** How often the engine has broken it off since its last token. */
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
        tokens: [],
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

  /** Tells those who wait. */
  tell(): void {
    if (this.#waitsForAll && this.turns.some(({ end }) => end === null)) return
    const waiting = this.#waiting
    this.#waiting = []
    for (const resolve of waiting) resolve()
  }
}

/** Turns of many clients over one engine. */
export class Batcher {
  readonly engine: Engine
  readonly queueLength: number
  /** Told of all turns that are taken up, with what names their request. */
  onSubmit: ((id: string | null, requests: readonly GenerationRequest[], turns: readonly Generation[]) => void) | null =
    null
  readonly #slots: readonly Slot[]
  #queue: Turn[] = []
  #state: BatcherState = 'open'
  #isRunning = false
  #wake: (() => void)[] = []
  /** The engine's last step. */
  #step: void | Promise<void> = undefined
  /** Lets it look again, where it waits for the engine. */
  #nudge = () => {}
  /** The weights that made what the slots keep. */
  #version: number

  constructor(engine: Engine, numSlots: number, queueLength: number) {
    this.engine = engine
    this.queueLength = queueLength
    this.#slots = Array.from({ length: numSlots }, () => ({ turn: null, cached: [], owner: undefined }))
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

  /**
   * Takes turns up, all of them or none; by `id` they can be broken off.
   * @throws RequestError where the queue has no room for them (429), new turns are refused (503), or they are more than the queue holds (400).
   */
  submit(requests: readonly GenerationRequest[], id: string | null = null): GenerationGroup {
    const numSlots = this.#slots.length
    if (requests.some(({ numTop }) => numTop > 0) && !(this.engine instanceof LocalEngine)) {
      throw new RequestError(400, `the engine ${this.engine.id} does not tell the most probable tokens`, {
        ...{ param: 'top_logprobs', code: 'unsupported_field' },
      })
    }
    if (this.#state === 'stopping') throw new RequestError(503, 'the server is stopping', { code: 'stopping' })
    if (this.#state === 'paused') {
      throw new RequestError(503, 'generation is paused', { code: 'paused', retryAfter: 1 })
    }
    if (requests.length > numSlots + this.queueLength) {
      throw new RequestError(400, `${requests.length} turns at once, of at most ${numSlots + this.queueLength}`, {
        param: 'n',
      })
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

  /** Breaks off the turns of the requests with this id. Returns how many there were. */
  abort(id: string): number {
    return this.#abortThose((turn) => turn.group.id === id)
  }

  /** Breaks all turns off. Returns how many there were. */
  abortAll(): number {
    return this.#abortThose(() => true)
  }

  #abortThose(isMeant: (turn: Turn) => boolean): number {
    const turns = [...this.#queue, ...this.#slots.flatMap(({ turn }) => turn ?? [])].filter(isMeant)
    for (const turn of turns) this.#abort(turn)
    return turns.length
  }

  /** From now on new turns meet this; those that are there go on, except where all are frozen. */
  set(state: BatcherState): void {
    this.#state = state
    this.#goOn()
  }

  /** Settles, and never fails, when no step of the engine is under way: while turns are frozen none begins. */
  async still(): Promise<void> {
    await Promise.resolve(this.#step).catch(() => {}) // Whoever takes the step tells of its failure.
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
      this.#state = 'stopping' // An engine that failed in the middle of a step is not to be trusted with another.
      const turns = [...this.#queue, ...this.#slots.flatMap(({ turn }) => turn ?? [])]
      this.#queue = []
      for (const slot of this.#slots) slot.turn = null
      for (const turn of turns) this.#finish(turn, 'failed')
    }
    this.#isRunning = false
  }

  /** Gives turns that wait, in their order, the slots that are free: of those the one that has most of its ids in the cache. */
  #place(): void {
    if (this.#version !== this.engine.version) {
      for (const slot of this.#slots) slot.cached = []
      this.#version = this.engine.version
    }
    for (let free = this.#free(); free.length > 0 && this.#queue.length > 0; free = this.#free()) {
      const turn = this.#queue.shift()!
      const { ids: prompt, numTop: _, owner, maxTokens, ...request } = turn.request
      const generated = turn.tokens.length // Above 0 where the engine broke it off.
      const ids = generated === 0 ? prompt : Int32Array.from([...prompt, ...turn.tokens.map(({ id }) => id)])
      const shared = free.map((n) => sharedLength(this.#slots[n]!.cached, ids))
      const unchanged = Math.max(...shared)
      const n = free[shared.indexOf(unchanged)]!
      const slot = this.#slots[n]!
      if (generated === 0) turn.numCached = slot.owner === owner ? unchanged : 0
      try {
        this.engine.submit({ ...request, slot: n, ids, generated, unchanged, maxTokens: maxTokens - generated })
      } catch (error) {
        if (!(error instanceof InputError)) {
          this.#queue.unshift(turn) // It is told with the others.
          throw error
        }
        this.#finish(turn, 'failed', error.message) // The engine does not do what this turn asks for; others go on.
        continue
      }
      slot.turn = turn
      slot.owner = owner
    }
  }

  #free(): number[] {
    return this.#slots.flatMap(({ turn }, n) => (turn === null ? [n] : []))
  }

  /** Takes in what the engine has generated; false where that is nothing. */
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
      // The last token was chosen, but its keys and values were not computed.
      slot.cached = [...turn.request.ids, ...turn.tokens.slice(0, -1).map(({ id }) => id)]
      if (end.reason === 'aborted' && !turn.isUnwanted) this.#again(turn)
      else this.#finish(turn, end.reason, end.reason === 'failed' ? end.error : null)
    }
    return tokens.length > 0 || ends.length > 0
  }

  /** A turn that the engine has broken off by itself goes on behind what it has, the first of those that wait. */
  #again(turn: Turn): void {
    const isMidway = turn.request.constraint !== undefined && turn.tokens.length > 0
    if (isMidway)
      this.#finish(turn, 'failed', 'the engine broke an answer off that it held to a form: it cannot go on with it')
    else if (turn.breaks++ < MOST_BREAKS) this.#queue.unshift(turn)
    else this.#finish(turn, 'failed', `the engine broke the turn off ${turn.breaks} times without a token between`)
  }

  /** The most probable tokens of the engine's row i, by the logits that it drew from. */
  #top(i: number, id: number, logprob: number, { numTop, sampling }: GenerationRequest): (readonly [number, number])[] {
    if (numTop === 0 || !(this.engine instanceof LocalEngine)) return []
    const { logits, lane } = this.engine.decoder.columns
    const size = logits.length / lane.length
    const row = logits.subarray(i * size, (i + 1) * size)
    const best: number[] = []
    for (let token = 0; token < size; token++) {
      if (best.length === numTop && row[token]! <= row[best.at(-1)!]!) continue
      const at = best.findIndex((other) => row[token]! > row[other]!)
      best.splice(at < 0 ? best.length : at, 0, token)
      if (best.length > numTop) best.pop()
    }
    return best.map((token) => [token, logprob + (row[token]! - row[id]!) / sampling.temperature] as const)
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

/** How many ids the two begin with alike. */
function sharedLength(cached: readonly number[], ids: Int32Array): number {
  let length = 0
  while (length < cached.length && length < ids.length && cached[length] === ids[length]) length++
  return length
}

/**
 * Waits until all turns are over. A client that goes away breaks them off.
 * @throws RequestError 500 where the engine failed, 502 where it could not generate one of them.
 */
export async function whole(group: GenerationGroup, signal: AbortSignal): Promise<void> {
  for await (const _ of steps(group, signal, true));
}

/**
 * Yields once, and again when one of the turns has come further, or with `all` when all are over, until they are. The first token and the
 * end are told at once, others at most every `STREAM_MS`. A client that goes away, and whoever stops reading, breaks them off.
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

/** @throws RequestError where the engine failed, or could not generate one of the turns. */
function throwFailure({ turns }: GenerationGroup): void {
  const failed = turns.find(({ end }) => end === 'failed')
  if (failed === undefined) return
  const [status, why] =
    failed.error === null ? [500, 'the engine failed, as the terminal of the server tells'] : [502, failed.error]
  throw new RequestError(status as number, why as string, { code: 'engine_failed' })
}

/** Settles after so many milliseconds, or before them when all turns are over. */
async function over(group: GenerationGroup, milliseconds: number): Promise<void> {
  if (milliseconds <= 0 || group.turns.every(({ end }) => end !== null)) return
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, milliseconds)
  })
  await Promise.race([late, group.more(true)])
  clearTimeout(timer)
}
