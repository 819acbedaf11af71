/** Agents' sessions and limits. Sessions are found by random keys and ids, which are kept as hashes only. */
import { randomBytes } from 'node:crypto'
import { InputError, show, thrownText } from '../../base/errors.ts'
import { hashOf, Secret } from '../../base/http/keys.ts'
import { RequestError } from '../../base/http/server.ts'
import { philox4x32 } from '../../base/random.ts'
import type { Message } from '../../environments/text.ts'
import type { Trajectory } from '../../tables/trajectories/trajectory.ts'
import type { ResponseStore } from '../dialects/routes.ts'
import type { ClientAnswer, ClientPrompt, ClientTurns, TemplateInput } from '../serving/client-turns.ts'
import { checkRoom } from '../serving/naming.ts'
import type { ServedModel } from '../serving/served-model.ts'
import { type CallCounts, CallTree } from './call-tree.ts'

/** How much sessions may use, and for how long. */
export interface SessionLimits {
  /** Concurrent open sessions. */
  readonly maxSessions: number
  readonly maxCalls: number
  /** Tokens that the model may choose per session, and per answer. */
  readonly maxTokens: number
  readonly maxTurnTokens: number
  /** Seconds after which an idle session, and one that is not ended, is abandoned. */
  readonly idleSeconds: number
  readonly sessionSeconds: number
}

export const SESSION_LIMITS: SessionLimits = {
  ...{ maxSessions: 1024, maxCalls: 256, maxTokens: 2 ** 20, maxTurnTokens: 2 ** 20 },
  ...{ idleSeconds: 600, sessionSeconds: 3600 },
}

/** The identity of a session's rows in the table. */
export type SessionPlace = Required<Pick<Trajectory, 'source' | 'promptId' | 'group' | 'member' | 'epoch'>>

/** A session's reward: null if unknown, with the reason. */
export interface SessionReward {
  readonly reward: number | null
  readonly components?: Readonly<Record<string, number | null>>
  readonly error?: string | null
}

/** An ended session with its rows. */
export interface EndedSession {
  /** Sessions are numbered in order of creation. */
  readonly number: number
  readonly place: SessionPlace
  readonly worth: Required<SessionReward>
  /** Empty without an answer of the model. */
  readonly rows: readonly Trajectory[]
  readonly counts: CallCounts
}

/** Checks a session's reward. @throws InputError for anything but finite numbers and null. */
export function checkReward(subject: string, said: SessionReward): Required<SessionReward> {
  const { reward, components = {}, error = null } = said ?? {}
  const isValue = (value: unknown) => value === null || Number.isFinite(value)
  const expected = 'a finite number, or null if unknown'
  if (!isValue(reward)) throw new InputError(`${subject}, reward`, show(reward), expected)
  if (typeof components !== 'object' || components === null || Array.isArray(components)) {
    throw new InputError(`${subject}, components`, show(components), 'numbers by name')
  }
  for (const [name, value] of Object.entries(components)) {
    if (!isValue(value)) throw new InputError(`${subject}, components.${name}`, show(value), expected)
  }
  if (error !== null && typeof error !== 'string') throw new InputError(`${subject}, error`, show(error), 'a text')
  return { reward, components, error: error ?? (reward === null ? 'there is no reward' : null) }
}

export class Session implements ClientTurns {
  readonly number: number
  readonly place: SessionPlace
  /** A program of ours ends it, so it never times out. Its place alone keys random numbers, to be repeatable. */
  readonly isHeld: boolean
  /** Part of the path, and the API key. Shown only once, to the creator. */
  readonly id: string
  readonly key: string
  readonly calls: CallTree
  /** The responses that a request to OpenAI's Responses can continue. */
  readonly responses: ResponseStore = {
    get: (id) => this.#responses.get(id)?.(),
    set: (id, messages, numDropped) => {
      const shared = this.calls.shared(messages)
      this.#responses.set(id, () => shared().slice(numDropped))
    },
  }
  readonly #responses = new Map<string, () => readonly Message[]>()
  /** The session's deadline, and the end of its last call, in ms. A session is not idle during a call. */
  readonly deadline: number
  lastAsked: number
  /** A reward sent before the end. */
  said: Required<SessionReward> | null = null
  /** Why the last refused call was refused. */
  refusal: string | null = null
  #numAsked = 0
  #numUnderWay = 0
  readonly #served: ServedModel
  readonly #limits: SessionLimits
  readonly #stop = new AbortController()

  constructor(
    number: number,
    place: SessionPlace,
    isHeld: boolean,
    served: ServedModel,
    limits: SessionLimits,
    now: number,
  ) {
    this.number = number
    this.place = place
    this.isHeld = isHeld
    this.id = randomBytes(24).toString('base64url')
    this.key = `sk-colonnade-${randomBytes(24).toString('base64url')}`
    this.calls = new CallTree(served.tokenizer)
    this.#served = served
    this.#limits = limits
    this.lastAsked = now
    this.deadline = now + 1000 * limits.sessionSeconds
  }

  /** The cache of its turns is not shared with other owners. */
  get owner(): object {
    return this
  }

  get isOpen(): boolean {
    return !this.#stop.signal.aborted
  }

  /** Aborts when the session is over. */
  get signal(): AbortSignal {
    return this.#stop.signal
  }

  get isAsking(): boolean {
    return this.#numUnderWay > 0
  }

  /** Numbers a call that begins. @throws RequestError if the session is over or has reached a limit. */
  begin(): number {
    this.#checkOpen()
    const { maxCalls, maxTokens } = this.#limits
    if (this.#numAsked >= maxCalls) throw spent(`${maxCalls} calls`)
    if (this.calls.numTokens >= maxTokens) throw spent(`${maxTokens} tokens`)
    this.#numUnderWay++
    return this.#numAsked++
  }

  /** A call has ended, in any way. */
  end(now: number, refusal?: unknown): void {
    if (refusal !== undefined) this.refusal = thrownText(refusal)
    this.#numUnderWay--
    this.lastAsked = now
  }

  /** The seed of a call's tokens: a hash below 2⁵³, unique per call. */
  seedOf(call: number): number {
    const { group, member, epoch } = this.place
    const words = new Uint32Array(4)
    philox4x32(words, group, member, call, epoch, this.isHeld ? 0 : this.number + 1, 0)
    return words[0]! * 2 ** 21 + (words[1]! >>> 11)
  }

  promptOf(messages: readonly Message[], input: TemplateInput): ClientPrompt {
    return this.calls.promptOf(messages, input)
  }

  /** Agents often ask for more tokens than there is room for: grants the available ones. */
  budgetOf(ids: Int32Array, asked: number | null, param: string): number {
    const room = checkRoom(ids, null, param, this.#served)
    const { maxTokens, maxTurnTokens } = this.#limits
    return Math.min(room, asked ?? room, maxTurnTokens, maxTokens - this.calls.numTokens)
  }

  answered(answer: ClientAnswer): void {
    this.#checkOpen()
    this.calls.add(answer)
  }

  #checkOpen(): void {
    if (!this.isOpen) throw new RequestError(410, 'the session is over', { code: 'session_over' })
  }

  /** Ends the session: aborts running calls and refuses new ones. */
  close(worth: Required<SessionReward>): EndedSession {
    this.#stop.abort()
    const { number, place, calls } = this
    return { number, place, worth, rows: calls.rows({ ...place, ...worth }), counts: calls.counts }
  }
}

function spent(what: string): RequestError {
  // Not 429: clients would retry.
  return new RequestError(403, `the session has reached its limit: ${what}`, { code: 'session_limit' })
}

export class Sessions {
  readonly #limits: SessionLimits
  /** By the hash of id and key. Clients cannot choose hashes, so lookup time reveals nothing. */
  readonly #byId = new Map<string, { readonly secret: Secret; readonly session: Session }>()
  readonly #byKey = new Map<string, { readonly secret: Secret; readonly session: Session }>()
  #nextNumber: number

  constructor(limits: SessionLimits, firstNumber: number) {
    this.#limits = limits
    this.#nextNumber = firstNumber
  }

  get size(): number {
    return this.#byId.size
  }

  [Symbol.iterator](): Iterator<Session> {
    return [...this.#byId.values()].map(({ session }) => session)[Symbol.iterator]()
  }

  /** @throws RequestError 429 if the maximum of sessions is open. */
  open(place: Partial<SessionPlace>, served: ServedModel, source: string, now: number, isHeld = false): Session {
    const { maxSessions } = this.#limits
    if (this.size >= maxSessions) {
      throw new RequestError(429, `${maxSessions} sessions are open`, { code: 'too_many_sessions', retryAfter: 1 })
    }
    const number = this.#nextNumber++
    const whole = { source, promptId: 0, group: number, member: 0, epoch: 0, ...place }
    const session = new Session(number, whole, isHeld, served, this.#limits, now)
    this.#byId.set(hashOf(session.id).toString('hex'), { secret: new Secret(session.id), session })
    this.#byKey.set(hashOf(session.key).toString('hex'), { secret: new Secret(session.key), session })
    return session
  }

  byId(id: string): Session | null {
    return found(this.#byId, id)
  }

  byKey(key: string): Session | null {
    return found(this.#byKey, key)
  }

  remove({ id, key }: Session): void {
    this.#byId.delete(hashOf(id).toString('hex'))
    this.#byKey.delete(hashOf(key).toString('hex'))
  }

  /** Sessions past their limits, with the reason. */
  *abandoned(now: number): Generator<readonly [Session, string]> {
    const { idleSeconds, sessionSeconds } = this.#limits
    for (const session of this) {
      if (now >= session.deadline) yield [session, `abandoned: not ended after ${sessionSeconds} s`]
      else if (!session.isAsking && now - session.lastAsked >= 1000 * idleSeconds) {
        yield [session, `abandoned: idle for ${idleSeconds} s`]
      }
    }
  }
}

function found(sessions: ReadonlyMap<string, { secret: Secret; session: Session }>, said: string): Session | null {
  const entry = sessions.get(hashOf(said).toString('hex'))
  return entry?.secret.is(said) === true ? entry.session : null
}
