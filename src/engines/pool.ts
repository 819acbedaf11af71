/**
 * Several engines as one, for example the replicas of a server. A conversation stays with its member, whose cache has it, while that
 * member is in use and has room. Turns that a member cannot generate go to others. Weights are delivered to every member. A member that
 * does not prove them is excluded until it proves later ones, and the user gets a warning with the reason.
 */
import { checkOptions, InputError, show } from '../base/errors.ts'
import { philox4x32 } from '../base/random.ts'
import type { Columns, Plan } from '../components/column.ts'
import { LOGIT_CHANGES } from '../environments/text.ts'
import { Arrival } from './arrival.ts'
import {
  checkTurn,
  deliverWeights,
  type Engine,
  type EngineContext,
  type EngineDefinition,
  type GeneratedTokens,
  type Polled,
  type TurnEnd,
  type TurnRequest,
  type WeightsDelivery,
} from './engine.ts'

/** Options of a pool. */
export interface PoolOptions {
  /** Maximum number of concurrent turns per member; more turns wait. Default: no limit. */
  readonly limit?: number
}

/** Consecutive failed turns after which a member is excluded. */
const FAILURES_MAX = 3

/**
 * An engine of several members. Its id joins the members' distinct ids.
 * @throws InputError for an empty list, a value that is not an engine, and a limit below 1; on creation, for members with different kinds
 * of log-probabilities and for members that generate only in `advance`, like the local engine.
 * @example poolEngine([vllmEngine({ url: 'http://a:8000' }), sglangEngine({ url: 'http://b:30000' })])
 */
export function poolEngine(members: readonly EngineDefinition[], options: PoolOptions = {}): EngineDefinition {
  checkOptions('poolEngine', options, ['limit'])
  const { limit = Number.POSITIVE_INFINITY } = options
  if (!(Array.isArray(members) && members.length > 0 && members.every((each) => typeof each?.create === 'function'))) {
    throw new InputError('members of a pool', show(members), 'a list of at least one engine')
  }
  if (!(limit === Number.POSITIVE_INFINITY || (Number.isSafeInteger(limit) && limit >= 1))) {
    throw new InputError('limit of a pool', show(limit), 'a whole number ≥ 1')
  }
  const id = [...new Set(members.map((each) => each.id))].join('+')
  const noTraining = members.map((each) => each.noTraining).find((reason) => reason !== undefined)
  return {
    id,
    ...(noTraining === undefined ? {} : { noTraining }),
    ...(members.some((each) => each.samplesByServicePath) ? { samplesByServicePath: true } : {}),
    plan: (shape) => Object.fromEntries(members.map((each, i) => [`member${i}`, each.plan?.(shape) ?? {}])),
    create: (context) => new Pool(id, members, limit, context),
  }
}

interface Member {
  readonly engine: Engine
  readonly name: string
  load: number
  /** Consecutive failed turns. */
  failures: number
  /** Why it is excluded; null if it is in use. */
  excluded: string | null
  /** The arrival that the pool already waits for. */
  awaited: Promise<void> | null
}

interface PooledTurn {
  readonly request: TurnRequest
  /** The member that has it; null while it waits. */
  member: Member | null
  /** Whether this member has generated tokens. */
  hasTokens: boolean
  /** The error of each member that failed. */
  readonly errors: Map<Member, string>
}

class Pool implements Engine {
  readonly id: string
  readonly logprobs: Engine['logprobs']
  readonly constrains: boolean
  readonly changes: NonNullable<Engine['changes']>
  readonly threads = null
  version = -1
  readonly #context: EngineContext
  readonly #members: readonly Member[]
  readonly #limit: number
  readonly #turns = new Map<number, PooledTurn>()
  /** Waiting turns, in order. */
  #waiting: PooledTurn[] = []
  #ends: TurnEnd[] = []
  #arrival = new Arrival()
  #isDealing = false
  readonly #words = new Uint32Array(4)

  constructor(id: string, definitions: readonly EngineDefinition[], limit: number, context: EngineContext) {
    this.id = id
    this.#limit = limit
    this.#context = context
    const columns = context.columns as Readonly<Record<string, Columns<Plan>>>
    this.#members = definitions.map((definition, i) => ({
      engine: definition.create({ ...context, columns: columns[`member${i}`]! }),
      name: `member ${i + 1} of ${definitions.length} (${definition.id})`,
      ...{ load: 0, failures: 0, excluded: null, awaited: null },
    }))
    const [first] = this.#members
    this.logprobs = first!.engine.logprobs
    this.constrains = this.#members.every(({ engine }) => engine.constrains === true)
    this.changes = LOGIT_CHANGES.filter((name) =>
      this.#members.every(({ engine }) => engine.changes?.includes(name) === true),
    )
    for (const { engine, name } of this.#members) {
      if (engine.logprobs !== this.logprobs) {
        const expected = `${show(this.logprobs)}, the kind of member 1`
        throw new InputError(`pool, ${name}`, `log-probabilities of kind ${show(engine.logprobs)}`, expected)
      }
      if (engine.arrival === null) {
        const expected = 'engines that generate by themselves'
        throw new InputError(`pool, ${name}`, 'an engine that generates in advance()', expected)
      }
    }
    this.#await()
  }

  get arrival(): Promise<void> {
    return this.#arrival.promise
  }

  submit(request: TurnRequest): void {
    const { numSlots, context } = this.#context
    checkTurn(this.id, request, numSlots, context, this.#turns.has(request.slot))
    const turn = { request, member: null, hasTokens: false, errors: new Map<Member, string>() }
    this.#turns.set(request.slot, turn)
    this.#waiting.push(turn)
    this.#deal()
  }

  /** Does nothing: the members generate by themselves. */
  advance(): void {}

  poll(): Polled {
    if (this.#arrival.isSettled) this.#arrival = new Arrival()
    const tokens: GeneratedTokens[] = []
    const ends = this.#ends
    this.#ends = []
    for (const member of this.#members) {
      const polled = member.engine.poll()
      for (const block of polled.tokens) {
        tokens.push(block)
        for (let i = 0; i < block.count; i++) this.#turns.get(block.slot[i]!)!.hasTokens = true
      }
      for (const end of polled.ends) this.#end(member, end, ends)
    }
    this.#await()
    this.#dealSoon() // Not now: polled columns are valid until the next call of an engine.
    return { tokens, ends }
  }

  abort(slot: number): void {
    const turn = this.#turns.get(slot)
    if (turn === undefined) return
    if (turn.member !== null) turn.member.engine.abort(slot)
    else {
      this.#waiting.splice(this.#waiting.indexOf(turn), 1)
      this.#conclude({ slot, reason: 'aborted' })
    }
  }

  async setWeights(delivery: WeightsDelivery): Promise<number> {
    const { version } = delivery
    const given = await Promise.allSettled(this.#members.map(({ engine }) => deliverWeights(engine, delivery)))
    for (const [i, result] of given.entries()) {
      const member = this.#members[i]!
      if (result.status === 'rejected') this.#exclude(member, (result.reason as Error).message)
      else {
        if (member.excluded !== null)
          this.#context.tell(`engine ${member.name} is in use again, with version ${version}`)
        member.excluded = null
        member.failures = 0
      }
    }
    this.#checkUsed(`weights of pool ${this.id}, version ${version}`)
    this.version = version
    this.#dealSoon()
    return version
  }

  /** Excludes members that cannot prove their weights. Their tokens are mixed with others', so one failure makes the result false. */
  async prove(): Promise<boolean> {
    const proofs = await Promise.allSettled(this.#members.map(({ engine }) => engine.prove?.() ?? true))
    for (const [i, proof] of proofs.entries()) {
      if (proof.status === 'rejected') this.#exclude(this.#members[i]!, (proof.reason as Error).message)
    }
    this.#checkUsed(`pool ${this.id}, version ${this.version}`)
    return proofs.every((proof) => proof.status === 'fulfilled' && proof.value)
  }

  close(): void {
    for (const { engine } of this.#members) engine.close()
    this.#turns.clear()
    this.#waiting = []
  }

  /** Handles the end of a member's turn. */
  #end(member: Member, end: TurnEnd, ends: TurnEnd[]): void {
    const { slot, reason } = end
    const turn = this.#turns.get(slot)!
    member.load--
    turn.member = null
    if (reason !== 'failed') {
      if (reason !== 'aborted') member.failures = 0
      this.#turns.delete(slot)
      ends.push(end)
      return
    }
    turn.errors.set(member, end.error)
    member.failures++
    if (member.failures >= FAILURES_MAX) this.#exclude(member, end.error)
    if (turn.hasTokens) {
      this.#turns.delete(slot) // It comes again behind them.
      ends.push({ slot, reason: 'aborted' })
    } else this.#waiting.push(turn)
  }

  #exclude(member: Member, reason: string): void {
    if (member.excluded === null) {
      this.#context.tell(`engine ${member.name} is excluded until it proves later weights: ${reason}`)
    }
    member.excluded = reason
    for (const [slot, turn] of this.#turns) if (turn.member === member) member.engine.abort(slot)
  }

  /** @throws InputError if every member is excluded. */
  #checkUsed(subject: string): void {
    if (this.#members.some(({ excluded }) => excluded === null)) return
    const reasons = this.#members.map(({ name, excluded }) => `${name}: ${excluded}`).join('; ')
    throw new InputError(subject, `no member in use (${reasons})`, 'at least one engine in use')
  }

  #conclude(end: TurnEnd): void {
    this.#turns.delete(end.slot)
    this.#ends.push(end)
    this.#arrival.settle()
  }

  /** Deals turns in a microtask, before any caller waits again. */
  #dealSoon(): void {
    if (this.#isDealing || this.#waiting.length === 0) return
    this.#isDealing = true
    queueMicrotask(() => {
      this.#isDealing = false
      this.#deal()
    })
  }

  /** Gives waiting turns to members that have room. */
  #deal(): void {
    const left: PooledTurn[] = []
    for (const turn of this.#waiting) {
      const open = this.#members.filter((member) => member.excluded === null && !turn.errors.has(member))
      if (open.length === 0) {
        this.#conclude({ slot: turn.request.slot, reason: 'failed', error: this.#reasonOf(turn) })
        continue
      }
      const member = this.#preferred(turn.request, open)
      if (member === null) left.push(turn)
      else {
        member.load++
        turn.member = member
        turn.hasTokens = false
        member.engine.submit(turn.request)
      }
    }
    this.#waiting = left
  }

  /** The open member with the highest rendezvous weight for a conversation: excluding a member moves only its own conversations. */
  #preferred({ key: [group, member] }: TurnRequest, open: readonly Member[]): Member | null {
    let best: Member | null = null
    let most = -1
    for (const each of open) {
      if (each.load >= this.#limit) continue
      philox4x32(this.#words, group, member, this.#members.indexOf(each), 0, 0, 0)
      if (this.#words[0]! <= most) continue
      most = this.#words[0]!
      best = each
    }
    return best
  }

  #reasonOf({ errors }: PooledTurn): string {
    return this.#members.map((member) => `${member.name}: ${errors.get(member) ?? member.excluded}`).join('; ')
  }

  /** Resolves the pool's arrival when a member has something to poll. */
  #await(): void {
    for (const member of this.#members) {
      const { arrival } = member.engine
      if (arrival === null || arrival === member.awaited) continue
      member.awaited = arrival
      void arrival.then(() => this.#arrival.settle())
    }
  }
}
