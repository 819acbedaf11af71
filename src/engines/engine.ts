/**
 * The contract of engines: who chooses tokens. A cohort of conversations submits each turn of the model as the ids that stand,
 * lets the engine advance, and polls what has been generated since, all or part of a turn. The cohort keeps the conversation; the
 * engine keeps nothing that cannot be made again. So a turn that an engine breaks off, or forgets when a run is resumed, is
 * submitted once more with the ids that were polled, and goes on behind them. Nothing above the cohort asks which engine it has.
 *
 * What goes wrong while tokens are chosen is the end of a turn (`aborted`, `failed`), not an exception; exceptions are for
 * callers' mistakes. Whoever waits for an engine has no time limit of its own: an engine that asks others ends a turn that takes
 * too long as `failed`.
 */
import { InputError } from '../base/errors.ts'
import type { Random } from '../base/random.ts'
import type { Columns, Plan } from '../components/column.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { Tokenizer } from '../language/tokenizers/tokenizer.ts'
import type { LoraAdapter } from '../language/transformer/lora.ts'
import type { TransformerModel } from '../language/transformer/model.ts'
import type { BaseWeights } from '../language/transformer/quantized.ts'
import type { Sampling } from '../language/transformer/sampling.ts'
import type { EngineShape } from './engine-shape.ts'
import type { DecodingColumns } from './local/local-columns.ts'

/**
 * Of which distribution an engine's log-probabilities are: `candidates`, of the one that the token was drawn from, after
 * temperature and renormalized over the candidate set; `tempered`, after temperature, of the whole vocabulary; `raw`, at temperature
 * 1 of the whole vocabulary; `none`, there are none.
 */
export const logprobKinds = ['candidates', 'tempered', 'raw', 'none'] as const
/** One of them. */
export type LogprobKind = (typeof logprobKinds)[number]

/** What an answer has to be: JSON of a schema, or a text of a grammar in GBNF. */
export type Constraint = { readonly schema: object } | { readonly grammar: string }

/** A turn that an engine is to generate. */
export interface TurnRequest {
  /** Which of the engine's slots it takes, from 0: a slot has one turn at a time. A cohort's is its lane. */
  readonly slot: number
  /** All ids that stand, in the order in which the model reads them. A view, which stays as it is until the turn ends. */
  readonly ids: Int32Array
  /** How many of them, the last ones, were generated in this turn already: 0, but of a turn that is submitted again. */
  readonly generated: number
  /** How many of them, the first ones, are as they stood in this slot's last turn: an engine may have kept their keys and values. */
  readonly unchanged: number
  /** Tokens to generate, at most: a whole number ≥ 1. */
  readonly maxTokens: number
  /** How tokens are drawn; the most probable one is taken where `explore` is false. */
  readonly sampling: Sampling
  readonly explore: boolean
  /** Texts that end the turn, beside the tokenizer's end tokens. */
  readonly stopStrings: readonly string[]
  /**
   * What the turn's random numbers are keyed by, beside the seed: the conversation's group and member, and the number of tokens
   * before these ids. A server's seed is a hash of them, so that no two turns share one.
   */
  readonly key: readonly [group: number, member: number, tokensBefore: number]
  /** What the answer has to be; absent: anything. Only for an engine that `constrains`. */
  readonly constraint?: Constraint
}

/** Tokens that were generated, in columns with a row a token; of one slot in the order in which they were chosen. */
export interface GeneratedTokens {
  /** Rows that are there; the columns may be longer. */
  readonly count: number
  readonly slot: Int32Array
  readonly token: Int32Array
  /** In nats, of the distribution that `Engine.logprobs` names; NaN where there is none. */
  readonly logprob: Float32Array
  /** Number of the weights that chose the token, as the engine says; −1 where it does not know. */
  readonly version: Int32Array
  /**
   * The candidate set that row i was drawn from, where a filter left tokens out: ids candidate[candidateOffset[i]] to
   * candidate[candidateOffset[i + 1]] in rising order; none where every token could be chosen. Null: the engine does not tell.
   */
  readonly candidate: Int32Array | null
  readonly candidateOffset: Int32Array
}

/**
 * Why a turn ended: an end token or a stop string; `maxTokens`; it was broken off, and can be submitted again; or the engine could
 * not generate it, and why.
 */
export type TurnEnd =
  | { readonly slot: number; readonly reason: 'stop' | 'length' | 'aborted' }
  | { readonly slot: number; readonly reason: 'failed'; readonly error: string }

/** What was generated since it was last polled; it holds until the engine is asked for anything else. */
export interface Polled {
  /** Blocks of tokens, in no order but that within a slot. */
  readonly tokens: readonly GeneratedTokens[]
  /** Turns whose last token was polled with this, or before. */
  readonly ends: readonly TurnEnd[]
}

/** Weights on their way from who learns to who chooses tokens. */
export interface WeightsDelivery {
  /** The number that they are known by from now on. */
  readonly version: number
  /** What is trained: the numbers of the adapter, or of the whole model; a view of the learner's own, to be read at once. */
  readonly weights: Float32Array
  /** What the service that learns calls them, for an engine of the same service; absent where they are nowhere but here. */
  readonly servicePath?: string
}

/** Who chooses tokens. */
export interface Engine {
  readonly id: string
  /** Of which distribution its log-probabilities are. */
  readonly logprobs: LogprobKind
  /**
   * Whether it holds answers to a constraint; default false. The log-probabilities of such an answer are NaN, unless they are of the
   * distribution that the constraint leaves.
   */
  readonly constrains?: boolean
  /** Number of the weights that it has, as it last confirmed; −1 before the first. */
  readonly version: number
  /**
   * Takes up a turn.
   * @throws InputError for a slot that is not there or has a turn, and what the engine cannot do.
   */
  submit(turn: TurnRequest): void
  /**
   * Generates some of every turn that it has; a promise where others help. One that generates by itself does nothing. What came
   * of the last call has to be polled before.
   * @throws InputError where it was not, and would be lost.
   */
  advance(): void | Promise<void>
  /** What has been generated since the last call. */
  poll(): Polled
  /** Settles, and never fails, when there is something to poll; null where `advance` generates. */
  readonly arrival: Promise<void> | null
  /** Breaks a slot's turn off: the next poll has what it came to, and its end, `aborted`. Nothing where it has none. */
  abort(slot: number): void
  /**
   * Takes these weights from the next token on, also in turns under way. Returns the version that the engine itself then says it
   * has: whoever delivers compares.
   */
  setWeights(delivery: WeightsDelivery): number | Promise<number>
  /**
   * Holds the engine to the weights that it was given: asked before anything is learned from what it chose, and before it is given
   * others. False where some of what it chose since it was last held to them may be of other weights, so that nothing of it may be
   * learned from, and later turns may. An engine without it computes in this process.
   * @throws InputError where later turns may not either.
   */
  prove?(): Promise<boolean>
  /**
   * Holds all turns where they are, from when it settles until what it gives is called: while a learner changes the weights that the
   * engine computes by, and its threads. An engine without it has weights of its own.
   */
  hold?(): Promise<() => void>
  /** How other threads of this process help; null where they cannot. */
  readonly threads: EngineThreads | null
  /** Gives back connections and timers; turns under way end nowhere. */
  close(): void
}

/** The other threads that decode. */
export interface DecodingWorkers {
  /** Tells those that have one of so many shares to begin; rejects where one has failed. */
  begin(numShares: number): Promise<void>
  /** Waits until they are done. */
  finish(): Promise<void>
}

/** How threads help an engine that computes in this process. */
export interface EngineThreads {
  /** What thread `index` works in, in the world's memory. */
  columnsOf(index: number): DecodingColumns
  /** Those that are ready; null while there are none. */
  workers: DecodingWorkers | null
}

/** What an engine is made of. */
export interface EngineContext {
  readonly model: TransformerModel
  readonly tokenizer: Tokenizer
  readonly numSlots: number
  readonly context: number
  /** How all turns draw tokens, and what ends them. */
  readonly sampling: Sampling
  readonly explore: boolean
  readonly stopStrings: readonly string[]
  /** The columns of its plan. */
  readonly columns: Columns<Plan>
  /** The ids of each slot, slots × context, which the cohort writes before it submits a turn. An engine that computes here writes what it chooses behind them. */
  readonly ids: Int32Array
  /** The weights in this process's memory, and of its adapter: those that the learner changes. */
  readonly weights: BaseWeights
  readonly adapter: LoraAdapter | null
  readonly kernels: Kernels
  readonly random: Random
  /** Tells the user what is no failure yet, like a replica that is not used any more. */
  tell(message: string): void
}

/** An engine before it is made: what a cohort's `engine` option takes. */
export interface EngineDefinition {
  readonly id: string
  /** Why no policy can be trained by what it chooses; absent where one can. */
  readonly noTraining?: string
  /** Whether it chooses tokens at the service that learns, by the weights' `servicePath` there; absent where it does not. */
  readonly samplesByServicePath?: boolean
  /** Its columns in the world's memory; none where this is not given. */
  plan?(shape: EngineShape): Plan
  create(context: EngineContext): Engine
}

/**
 * Refuses a turn that no engine can take up.
 * @throws InputError that says what is wrong with it.
 */
export function checkTurn(
  id: string,
  { slot, ids, generated, unchanged, maxTokens }: TurnRequest,
  numSlots: number,
  context: number,
  isTaken: boolean,
): void {
  const refuse = (what: string, got: number | string, expected: string): InputError =>
    new InputError(`turn of engine ${id}, ${what}`, String(got), expected)
  const isCount = (value: number, most: number) => Number.isSafeInteger(value) && value >= 0 && value <= most
  if (!isCount(slot, numSlots - 1)) throw refuse('slot', slot, `a whole number from 0 to ${numSlots - 1}`)
  if (isTaken) throw refuse('slot', `${slot}, which has a turn`, 'one that has none')
  if (ids.length === 0) throw refuse('ids', 'none', 'at least one')
  if (!isCount(generated, ids.length)) throw refuse('generated', generated, `a whole number from 0 to ${ids.length}`)
  if (!isCount(unchanged, ids.length)) throw refuse('unchanged', unchanged, `a whole number from 0 to ${ids.length}`)
  if (maxTokens < 1 || !isCount(maxTokens, context - ids.length)) {
    throw refuse('maxTokens', maxTokens, `a whole number from 1 to ${context - ids.length}, the room behind its ids`)
  }
}

/** True where an engine's log-probabilities are of the distribution that tokens are drawn from. */
export function areOfSampling(kind: LogprobKind, { temperature, topK, topP, minP }: Sampling): boolean {
  if (kind === 'candidates') return true
  const isWhole = topK === 0 && topP === 1 && minP === 0
  return isWhole && (kind === 'tempered' || (kind === 'raw' && temperature === 1))
}

/** Does work of a learner while the engine chooses nothing, if it computes by the learner's weights. */
export async function whileHeld<T>(engine: Engine, work: () => Promise<T>): Promise<T> {
  const release = await engine.hold?.()
  try {
    return await work()
  } finally {
    release?.()
  }
}

/**
 * Gives an engine weights, and holds it to their version.
 * @throws InputError where it says afterwards that it has others.
 */
export async function deliverWeights(engine: Engine, delivery: WeightsDelivery): Promise<void> {
  const confirmed = await engine.setWeights(delivery)
  if (confirmed === delivery.version && engine.version === confirmed) return
  const got = `version ${confirmed === delivery.version ? engine.version : confirmed} confirmed`
  throw new InputError(`weights of engine ${engine.id}`, got, `version ${delivery.version}, as delivered`)
}
