/**
 * A cohort of conversations: the lanes of one text environment with one language model. A lane that finishes a conversation starts the
 * next one at once. A cohort is first a draft with options, model and planned columns (`draft.ts`), then runs over its columns
 * (`columns.ts`).
 *
 * A tick generates one token in every lane that has the turn, and stores finished lanes. The reward of each turn is recorded, and the
 * conversation's reward is a reduction of them (`rewardReduction`). Random numbers are keyed by the conversation (group and member),
 * independent of its lane. If a turn is cut off and the environment has more to say, the conversation ends or continues, depending on
 * `cutTurn`, and is counted.
 */
import { InputError } from '../../base/errors.ts'
import type { Random } from '../../base/random.ts'
import type { Columns, Plan } from '../../components/column.ts'
import { type Conversation, ConversationPhase, candidateIdsOf } from '../../components/conversation.ts'
import { deliverWeights, type Engine, type EngineDefinition } from '../../engines/engine.ts'
import {
  type Message,
  type Reply,
  type RewardReduction,
  stopReasons,
  type TextEnvironmentDefinition,
} from '../../environments/text.ts'
import type { KernelBuild, Kernels } from '../../kernels/kernels.ts'
import type { ExampleUse, TooLong, UsableExamples } from '../../language/examples.ts'
import type { HeldOut } from '../../language/held-out.ts'
import type { LanguageModelDefinition, LanguageModelWeights, OpenLanguageModel } from '../../language/language-model.ts'
import type { Tokenizer } from '../../language/tokenizers/tokenizer.ts'
import type { LoraAdapter } from '../../language/transformer/lora.ts'
import { loadLoraWeights } from '../../language/transformer/lora-folder.ts'
import type { TransformerModel } from '../../language/transformer/model.ts'
import type { QuantizedColumns } from '../../language/transformer/quantized.ts'
import type { Sampling } from '../../language/transformer/sampling.ts'
import type { TurnDrawing } from '../../language/turn-sampling.ts'
import { Trajectories } from '../../tables/trajectories/trajectories.ts'
import type { Trajectory } from '../../tables/trajectories/trajectory.ts'
import type { TrajectoryLogSize } from '../../tables/trajectories/trajectory-log.ts'
import type { LaneEntities } from '../lanes.ts'

/** Options of a cohort of conversations. */
export interface ConversationCohortOptions {
  environment: TextEnvironmentDefinition
  policy: LanguageModelDefinition
  /** Number of concurrent conversations, a whole number ≥ 1. */
  numLanes: number
  /** Name of the cohort; default: the policy's id. */
  name?: string
  /** The distribution from which tokens are sampled. Default: the model's own. */
  sampling?: Partial<Sampling>
  /** Strings that end a turn of the model, in addition to its end tokens. Default: none. */
  stopStrings?: readonly string[]
  /** Maximum tokens per turn; default: the environment's. */
  maxTokens?: number
  /** Size of a group: consecutive conversations with the same prompt. Default 1. */
  groupSize?: number
  /** Sample tokens (default), or choose the most probable one. */
  explore?: boolean
  /** How turn rewards reduce to the conversation's reward. Default `last`. */
  rewardReduction?: RewardReduction
  /** Seconds after which the environment's reply counts as failed. Default 60. */
  replySeconds?: number
  /** While a trainer collects, seconds without a token from the engine after which a turn fails. Default 300. */
  turnSeconds?: number
  /**
   * What happens to examples that exceed the context. If given, all examples are checked before the first conversation. If not, each is
   * checked at its turn, and one that is too long is an error.
   */
  tooLong?: TooLong
  /** Holds out examples: conversations and supervised steps use either only the other examples or only the held-out ones. Default: none are held out. */
  heldOut?: HeldOut
  /**
   * What happens to a conversation whose turn was cut off by its budget or the context while the environment has more to say: it ends
   * (default), or the turn is closed and the reply is appended if the context has room.
   */
  cutTurn?: CutTurn
  /**
   * Segmentation of turns: one segment while each prompt continues the previous text (default), or one segment per turn, with all earlier
   * text.
   */
  segmentation?: Segmentation
  /** The engine that chooses the model's tokens. Default: this process, with the policy's current weights. */
  engine?: EngineDefinition
}

export const conversationOptions = Object.keys({
  ...{ environment: true, policy: true, numLanes: true, name: true, sampling: true, stopStrings: true },
  ...{ maxTokens: true, groupSize: true, explore: true, rewardReduction: true, replySeconds: true },
  ...{ turnSeconds: true, tooLong: true, heldOut: true, cutTurn: true, segmentation: true, engine: true },
} satisfies Record<keyof ConversationCohortOptions, true>)

/** What happens to a conversation whose turn was cut off. */
export const cutTurns = ['end', 'continue'] as const
export type CutTurn = (typeof cutTurns)[number]

/** One segment while earlier text stays the same, or one segment per turn. */
export const segmentations = ['interleaved', 'branching'] as const
export type Segmentation = (typeof segmentations)[number]

export interface PendingReply {
  reply: Reply | null
  /** Settles when the reply has arrived; never rejects. */
  arrival: Promise<void>
  /** Signals the environment that the reply is no longer needed, and removes the deadline. */
  cancel(): void
}

/** A cohort of conversations with memory. `conversation` is the component of its lanes. */
export interface ConversationCohort {
  readonly kind: 'conversations'
  readonly name: string
  readonly environment: TextEnvironmentDefinition
  readonly policyDefinition: LanguageModelDefinition
  readonly model: TransformerModel
  readonly tokenizer: Tokenizer
  readonly numLanes: number
  readonly context: number
  readonly maxTokens: number
  readonly groupSize: number
  readonly sampling: Sampling
  readonly explore: boolean
  readonly rewardReduction: RewardReduction
  readonly replyMilliseconds: number
  readonly turnMilliseconds: number
  /** Called for a late reply or turn; `stop` leaves it pending for a stop after this tick. Null: no call. */
  onLate: ((message: string) => 'continue' | 'stop') | null
  /** Receives notices about the engine for the user. Null: they become process warnings. */
  onNotice: ((message: string) => void) | null
  readonly cutTurn: CutTurn
  readonly segmentation: Segmentation
  readonly tooLong: TooLong
  /** The examples that conversations use; null if all are used, unchecked. */
  readonly examples: UsableExamples | null
  /** Its lanes as bitecs entities: a query decides which take conversations. */
  readonly entities: LaneEntities
  /** The entity of each row; `NOBODY`, 2³² − 1, in rows without one. */
  lanes: Uint32Array
  readonly conversation: Conversation
  readonly engine: Engine
  /** 1 for lanes whose turn the engine has. */
  readonly submitted: Uint8Array
  /** Per lane: how often the engine has aborted its turn since the last token. */
  readonly breaks: Uint8Array
  /** Why the aborted turn has failed; null if the turn will be continued. */
  readonly failing: (string | null)[]
  /** Empty if the weights are quantized. */
  readonly weights: Float32Array
  /** Null if the weights are not quantized. */
  readonly quantized: QuantizedColumns | null
  /** Trained in place of the weights; null without an adapter. */
  readonly adapter: LoraAdapter | null
  readonly learner: Columns<Plan>
  readonly random: Random
  /** The examples' order in the epoch `orderEpoch`. */
  readonly order: Uint32Array
  readonly words: Uint32Array
  orderEpoch: number
  /** Per lane: the messages before the model's turn. */
  readonly histories: Message[][]
  /** The environment's last reply to each lane, and the pending one. */
  readonly replies: (Reply | null)[]
  readonly pending: (PendingReply | null)[]
  /** Per lane: the turns of its conversation, by number, with other sampling or stop strings than the cohort's. */
  readonly drawings: Map<number, TurnDrawing>[]
  /** Per lane: the earlier segments of its conversation, without the fields that are known only at its end. */
  readonly segments: Segment[][]
  /** Strings that end a turn of the model, in addition to its end tokens. */
  readonly stopStrings: readonly string[]
  /** How many conversations may begin in total. */
  released: number
  /** Finished conversations in the order of their ends: in a planned log with a trainer, otherwise on the heap. */
  readonly trajectories: Trajectories
  /** Lanes whose conversations are over and wait for room in the log. Written by store. */
  waiting: number
  /**
   * Source of its trajectories. Default: a name derived from everything that influences the conversations, including a trainer's
   * algorithms, so that it differs between trainings and survives a resume.
   */
  source: string
  version: number
  /** Whether the model was loaded from files. */
  readonly isLoaded: boolean
  /** Notes on omitted parts of its files, one sentence each. */
  readonly notes: readonly string[]
}

/** A row of an unfinished conversation, without its reward. */
export type Segment = Omit<Trajectory, 'reward' | 'components' | 'error'>

/** The current segment of lane n; its token columns are views. */
export function segmentOf({ conversation, context, source }: ConversationCohort, n: number): Segment {
  const [from, to] = [n * context, n * context + conversation.length[n]!]
  return {
    source,
    promptId: conversation.promptId[n]!,
    group: conversation.group[n]!,
    member: conversation.member[n]!,
    epoch: conversation.epoch[n]!,
    segment: conversation.segment[n]!,
    turns: conversation.turn[n]! + 1 - conversation.turnOf[from]!, // Its first token leads to its first turn.
    cutTurns: conversation.cutTurns[n]!,
    droppedReplies: conversation.droppedReplies[n]!,
    stopReason: stopReasons[conversation.stopReason[n]!]!,
    token: conversation.token.subarray(from, to),
    lossMask: conversation.lossMask.subarray(from, to),
    logprob: conversation.logprob.subarray(from, to),
    version: conversation.version.subarray(from, to),
    turn: conversation.turnOf.subarray(from, to),
    candidateCount: conversation.candidateCount.subarray(from, to),
    candidateIds: candidateIdsOf(conversation, n),
  }
}

/** The stored earlier segments of all lanes, as a table. */
export function segmentsOf({ segments }: ConversationCohort): Trajectories {
  const table = new Trajectories()
  for (const row of segments.flat()) table.append({ ...row, reward: null, components: {}, error: null })
  return table
}

/** Restores each lane's earlier segments from a table that `segmentsOf` created for another cohort. */
export function takeUpSegments({ conversation, segments }: ConversationCohort, table: Trajectories): void {
  const rows = Array.from({ length: table.count }, (_, i) => table.row(i))
  for (const n of segments.keys()) {
    const isOfLane = ({ group, member }: Trajectory) =>
      conversation.phase[n] !== ConversationPhase.free &&
      conversation.phase[n] !== ConversationPhase.absent &&
      group === conversation.group[n] &&
      member === conversation.member[n]
    segments[n] = rows.filter(isOfLane).map(({ reward: _, components: __, error: ___, ...segment }) => segment)
  }
}

/** A learner's reservation in a cohort of conversations, before memory is allocated. */
export interface ConversationReservation {
  readonly learner: Plan
  /** Uses of examples besides conversations. */
  readonly use?: ExampleUse
  /** The log's size; without it finished conversations are kept on the heap without a limit. */
  readonly log?: TrajectoryLogSize
}

/** A cohort of conversations before it has memory. */
export interface ConversationDraft {
  readonly kind: 'conversations'
  readonly options: ConversationCohortOptions
  readonly name: string
  /** Keys its initial weights: the number of earlier cohorts of conversations in the world. */
  readonly key: number
  readonly opened: OpenLanguageModel
  /** The world's. */
  readonly kernels: KernelBuild
  reservation?: ConversationReservation
  /** The usable examples, once they are checked. */
  examples?: UsableExamples | null
  /** The model's initial weights, between opening them and creating the cohort. */
  begins?: LanguageModelWeights
}

/** The example at a position of the endless order. Each epoch uses every example once, in its own order. */
export function exampleAt(
  cohort: ConversationCohort,
  kernels: Kernels,
  place: number,
): { promptId: number; epoch: number } {
  const { order, words, random, examples } = cohort
  const epoch = Math.floor(place / order.length)
  if (epoch !== cohort.orderEpoch) {
    for (let i = 0; i < order.length; i++) order[i] = i
    kernels.shuffleRows(order, words, order.length, epoch, NO_UPDATE, random.key0, random.key1)
    cohort.orderEpoch = epoch
  }
  const number = order[place % order.length]!
  return { promptId: examples === null ? number : examples.numbers[number]!, epoch }
}

/** Replaces the update number in the key of the examples' order. */
const NO_UPDATE = 0xffffffff

/**
 * Delivers the current weights to the cohort's engine under this version.
 * @throws InputError if the engine then reports another version.
 */
export async function refreshWeights(cohort: ConversationCohort, version: number): Promise<void> {
  cohort.version = version
  await deliverWeights(cohort.engine, { version, weights: cohort.adapter?.weights ?? cohort.weights })
}

/**
 * Loads a saved adapter into a running cohort, between two ticks. Conversations continue, and later tokens carry the next version, which
 * is returned. A trainer's optimizer keeps its moments.
 * @throws InputError, without any change, for a cohort without an adapter, for an adapter of another rank, alpha, targets or model, for a
 * folder without an adapter, and within a trainer's step of several threads.
 * @example await loadAdapter(world.cohort(), 'runs/text-reverse-1/adapter')
 */
export async function loadAdapter(cohort: ConversationCohort, folder: string): Promise<number> {
  const { adapter, name } = cohort ?? {}
  if (adapter === undefined)
    throw new InputError('loadAdapter(cohort, folder)', 'no cohort', 'a cohort, like world.cohort()')
  if (adapter === null)
    throw new InputError(`adapter ${folder}`, `cohort ${name}, which has no adapter`, 'a cohort with an adapter')
  const weights = await loadLoraWeights(folder, adapter.lora)
  if (cohort.engine.threads !== null && cohort.engine.threads.workers !== null) {
    throw new InputError(`adapter ${folder}`, 'a call during a step of several threads', 'a call between two steps')
  }
  adapter.weights.set(weights)
  await refreshWeights(cohort, cohort.version + 1)
  return cohort.version
}

/** Prepares a cohort whose columns come from a checkpoint: it submits their turns to the engine again. */
export function takeUp({ conversation, engine, submitted, breaks, failing }: ConversationCohort): void {
  for (const [n, isSubmitted] of submitted.entries()) if (isSubmitted === 1) engine.abort(n)
  engine.poll() // Discards output of earlier turns.
  submitted.fill(0)
  breaks.fill(0)
  failing.fill(null)
  const { phase } = conversation
  for (const [n, each] of phase.entries()) {
    if (each === ConversationPhase.abandoned) phase[n] = ConversationPhase.free
  }
  conversation.unchanged.fill(0)
}

/** Drops pending replies of the environment; the lanes ask again when they continue. */
export function cancelReplies({ pending }: ConversationCohort): void {
  for (const [n, owed] of pending.entries()) {
    owed?.cancel()
    pending[n] = null
  }
}

const NOTHING: readonly Promise<void>[] = []

function isNone(reply: PendingReply | null): boolean {
  return reply === null
}

/** The promises that lanes wait for: environment replies, and tokens of an engine that generates by itself. */
export function owedAnswers({ pending, submitted, engine }: ConversationCohort): readonly Promise<void>[] {
  const isAwaited = engine.arrival !== null && submitted.includes(1)
  if (!isAwaited && pending.every(isNone)) return NOTHING
  const replies = pending.filter((reply) => reply !== null).map(({ arrival }) => arrival)
  return isAwaited ? [...replies, engine.arrival] : replies
}

/** Whether some lane can continue without waiting for the environment or for an engine that generates by itself. */
export function canGoOn({ conversation, released, submitted, engine }: ConversationCohort): boolean {
  const mayBegin = conversation.begun[0]! < released
  const isAwaited = engine.arrival !== null
  return conversation.phase.some((phase, n) => {
    if (phase === ConversationPhase.free) return mayBegin
    const hasTurn = phase === ConversationPhase.model || phase === ConversationPhase.abandoned
    if (hasTurn) return !(isAwaited && submitted[n] === 1)
    // A finished conversation waits for room in the log.
    return phase !== ConversationPhase.asked && phase !== ConversationPhase.ended && phase !== ConversationPhase.absent
  })
}
