/**
 * The contract of engines, which choose tokens. A cohort of conversations submits each model turn as a list of ids, lets the engine
 * advance, and polls the tokens generated since, for part of a turn or all of it. The cohort keeps the conversation; the engine keeps
 * nothing that cannot be recomputed. If an engine aborts a turn, or loses it when a run resumes, the cohort submits it again with the
 * polled ids, and it continues after them. No code above the cohort depends on the kind of engine.
 *
 * Errors during generation end the turn (`aborted`, `failed`). Exceptions are for callers' mistakes. Callers set no time limit: an engine
 * that depends on a remote service must end a slow turn as `failed`.
 */
import { InputError } from '../base/errors.ts'
import type { Random } from '../base/random.ts'
import type { Columns, Plan } from '../components/column.ts'
import type { Constraint, LogitChanges } from '../environments/text.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { Tokenizer } from '../language/tokenizers/tokenizer.ts'
import type { LoraAdapter } from '../language/transformer/lora.ts'
import type { TransformerModel } from '../language/transformer/model.ts'
import type { BaseWeights } from '../language/transformer/quantized.ts'
import type { Sampling } from '../language/transformer/sampling.ts'
import type { EngineShape } from './engine-shape.ts'
import type { DecodingColumns } from './local/local-columns.ts'

/**
 * The distribution of an engine's log-probabilities. `candidates`: the sampled distribution, after temperature and renormalized over the
 * candidate set. `tempered`: the whole vocabulary after temperature. `raw`: the whole vocabulary at temperature 1. `none`: not available.
 */
export const logprobKinds = ['candidates', 'tempered', 'raw', 'none'] as const
/** A kind of log-probabilities: one of `logprobKinds`. */
export type LogprobKind = (typeof logprobKinds)[number]

/** A turn for an engine to generate. */
export interface TurnRequest {
  /** The engine slot of the turn, from 0; the cohort passes its lane. A slot has at most one turn at a time. */
  readonly slot: number
  /** All current ids in reading order. A view that does not change until the turn ends. */
  readonly ids: Int32Array
  /** How many of the last ids this turn already generated; 0 unless the turn is submitted again. */
  readonly generated: number
  /** How many of the first ids are the same as in this slot's last turn: the engine may have their keys and values cached. */
  readonly unchanged: number
  /** Maximum number of tokens to generate, a whole number ≥ 1. */
  readonly maxTokens: number
  /** How tokens are sampled. If `explore` is false, the most probable token is chosen. */
  readonly sampling: Sampling
  readonly explore: boolean
  /** Strings that end the turn, in addition to the tokenizer's end tokens. */
  readonly stopStrings: readonly string[]
  /**
   * The key of the turn's random numbers, combined with the seed. For a server, the seed is a hash of the key, so that turns do not share
   * one.
   */
  readonly key: readonly [group: number, member: number, tokensBefore: number]
  /** Constraint on the answer; absent: none. Requires an engine with `constrains`. */
  readonly constraint?: Constraint
  /** Changes of the logits; absent: none. Requires an engine whose `changes` lists them. */
  readonly changes?: LogitChanges
}

/** Generated tokens in columns, one row per token. The rows of a slot are in the order of generation. */
export interface GeneratedTokens {
  /** Number of valid rows; the columns may be longer. */
  readonly count: number
  readonly slot: Int32Array
  readonly token: Int32Array
  /** In nats, from the distribution named by `Engine.logprobs`; NaN if unknown. */
  readonly logprob: Float32Array
  /** Version of the weights that chose the token, as reported by the engine; −1 if unknown. */
  readonly version: Int32Array
  /**
   * The candidate set of row i, if a filter removed tokens: ids candidate[candidateOffset[i]] to candidate[candidateOffset[i + 1]] in
   * ascending order. Empty if every token was possible. Null if the engine does not report candidates.
   */
  readonly candidate: Int32Array | null
  readonly candidateOffset: Int32Array
}

/**
 * Why a turn ended: `stop`, an end token or a stop string; `length`, `maxTokens` reached; `aborted`, which allows a new submission; or
 * `failed`, with the error.
 */
export type TurnEnd =
  | { readonly slot: number; readonly reason: 'stop' | 'length' | 'aborted' }
  | { readonly slot: number; readonly reason: 'failed'; readonly error: string }

/** The output since the last poll. Valid until the next call of any engine method. */
export interface Polled {
  /** Blocks of tokens. Only the rows of one slot are ordered. */
  readonly tokens: readonly GeneratedTokens[]
  /** Turns whose last token is in this poll or an earlier one. */
  readonly ends: readonly TurnEnd[]
}

/** Weights that the learner sends to an engine. */
export interface WeightsDelivery {
  /** The new version number. */
  readonly version: number
  /** The trained values, of the adapter or of the whole model. A view of the learner's memory: read it at once. */
  readonly weights: Float32Array
  /** Path of the weights at the training service, for an engine of the same service; absent if they are only in this process. */
  readonly servicePath?: string
}

/** An engine, which chooses tokens. */
export interface Engine {
  readonly id: string
  /** The distribution of its log-probabilities. */
  readonly logprobs: LogprobKind
  /**
   * Whether it enforces constraints; default false. The log-probabilities of a constrained answer are NaN, unless they come from the
   * constrained distribution.
   */
  readonly constrains?: boolean
  /**
   * The changes of logits that the engine makes; default: none. The log-probabilities of such an answer are NaN, unless they come from the
   * changed logits.
   */
  readonly changes?: readonly (keyof LogitChanges)[]
  /** Checks a constraint before a turn with it is submitted. @throws InputError for a constraint that the engine cannot enforce. */
  prepare?(constraint: Constraint): void
  /** The last confirmed version of its weights; −1 before the first. */
  readonly version: number
  /** Accepts a turn. @throws InputError for a slot that does not exist or already has a turn, and for unsupported requests. */
  submit(turn: TurnRequest): void
  /**
   * Generates part of every open turn. Returns a promise if other threads help. Does nothing if the engine generates by itself.
   * @throws InputError if the output of the last call was not polled, since it would be lost.
   */
  advance(): void | Promise<void>
  /** Returns the output since the last call. */
  poll(): Polled
  /** Settles, and never rejects, when there is something to poll; null if `advance` generates. */
  readonly arrival: Promise<void> | null
  /** Aborts the slot's turn: the next poll has its remaining tokens and the end `aborted`. Does nothing for a free slot. */
  abort(slot: number): void
  /**
   * Uses these weights from the next token on, also for open turns. Returns the version that the engine then reports; the caller compares
   * it.
   */
  setWeights(delivery: WeightsDelivery): number | Promise<number>
  /**
   * Verifies that the engine used the delivered weights. Call it before learning from its tokens and before the next delivery. Returns
   * false if tokens since the last check may come from other weights: do not learn from them; later turns are valid. An engine without it
   * computes in this process.
   * @throws InputError if later turns are not valid either.
   */
  prove?(): Promise<boolean>
  /**
   * Pauses all turns while a learner changes the weights that the engine reads. Settles when they are paused, with a function that
   * resumes them. An engine without it has its own copy of the weights.
   */
  hold?(): Promise<() => void>
  /** How other threads of this process help; null if they cannot. */
  readonly threads: EngineThreads | null
  /** Releases connections and timers. Open turns get no end. */
  close(): void
}

/** The other threads that decode. */
export interface DecodingWorkers {
  /** Starts the threads that have one of `numShares` shares; rejects if one failed. */
  begin(numShares: number): Promise<void>
  /** Waits for all of them. */
  finish(): Promise<void>
}

/** How threads help an engine that computes in this process. */
export interface EngineThreads {
  /** The columns of thread `index`, in the world's memory. */
  columnsOf(index: number): DecodingColumns
  /** The threads that are ready; null if none is. */
  workers: DecodingWorkers | null
}

/** The inputs from which an engine is created. */
export interface EngineContext {
  readonly model: TransformerModel
  readonly tokenizer: Tokenizer
  readonly numSlots: number
  readonly context: number
  /** The default sampling of turns, and what ends them. */
  readonly sampling: Sampling
  readonly explore: boolean
  readonly stopStrings: readonly string[]
  readonly columns: Columns<Plan>
  /** Ids, slots × context. The cohort writes a slot's ids before it submits a turn; a local engine appends its tokens. */
  readonly ids: Int32Array
  /** The base weights and adapter in this process's memory, which the learner updates. */
  readonly weights: BaseWeights
  readonly adapter: LoraAdapter | null
  readonly kernels: Kernels
  readonly random: Random
  /** Reports a warning to the user, for example that a replica is no longer used. */
  tell(message: string): void
}

/** An engine before it is created; the cohort option `engine` takes one. */
export interface EngineDefinition {
  readonly id: string
  /** Why a policy cannot be trained on its tokens; absent if it can. */
  readonly noTraining?: string
  /** Whether it samples at the training service from `WeightsDelivery.servicePath`; default false. */
  readonly samplesByServicePath?: boolean
  /** Its columns in the world's memory; default: none. */
  plan?(shape: EngineShape): Plan
  create(context: EngineContext): Engine
}

/** Rejects a turn that no engine can accept. @throws InputError */
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
  if (isTaken) throw refuse('slot', `${slot}, which has a turn`, 'a slot without a turn')
  if (ids.length === 0) throw refuse('ids', 'none', 'at least one')
  if (!isCount(generated, ids.length)) throw refuse('generated', generated, `a whole number from 0 to ${ids.length}`)
  if (!isCount(unchanged, ids.length)) throw refuse('unchanged', unchanged, `a whole number from 0 to ${ids.length}`)
  if (maxTokens < 1 || !isCount(maxTokens, context - ids.length)) {
    throw refuse('maxTokens', maxTokens, `a whole number from 1 to ${context - ids.length}, the room after its ids`)
  }
}

/** Whether an engine's log-probabilities come from the distribution that tokens are sampled from. */
export function areOfSampling(kind: LogprobKind, { temperature, topK, topP, minP }: Sampling): boolean {
  if (kind === 'candidates') return true
  const isWhole = topK === 0 && topP === 1 && minP === 0
  return isWhole && (kind === 'tempered' || (kind === 'raw' && temperature === 1))
}

/** Runs the learner's work while the engine is paused, if the engine reads the learner's weights. */
export async function whileHeld<T>(engine: Engine, work: () => Promise<T>): Promise<T> {
  const release = await engine.hold?.()
  try {
    return await work()
  } finally {
    release?.()
  }
}

/** Delivers weights to an engine and checks the version that it confirms. @throws InputError if the engine reports another version. */
export async function deliverWeights(engine: Engine, delivery: WeightsDelivery): Promise<void> {
  const confirmed = await engine.setWeights(delivery)
  if (confirmed === delivery.version && engine.version === confirmed) return
  const got = `version ${confirmed === delivery.version ? engine.version : confirmed} confirmed`
  throw new InputError(`weights of engine ${engine.id}`, got, `version ${delivery.version}, as delivered`)
}
