/**
 * A cohort of conversations: the lanes of one text environment under one language model. Its lanes take conversations one
 * after another, so a lane that is done goes on at once while others still decode. First it is a draft, which knows its options and its
 * model and plans its columns (`draft.ts`); then a cohort over them (`columns.ts`).
 *
 * A tick says one token in every lane that has the turn; a lane that is done is stored. What the environment said each
 * turn is worth is recorded, and the conversation's reward is a declared reduction of it (`rewardReduction`), for
 * episodes of a buffer and samples of a file alike. Random numbers are keyed by the conversation (group and member), so
 * it does not matter which lane takes it, or beside which others. Where a turn was cut off and the environment has more
 * to say, the conversation ends or goes on, as was chosen (`cutTurn`), and is counted.
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
import type { Kernels } from '../../kernels/kernels.ts'
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

/** The lanes of one text environment under one language model. */
export interface ConversationCohortOptions {
  environment: TextEnvironmentDefinition
  policy: LanguageModelDefinition
  /** How many conversations at once: a whole number ≥ 1. */
  numLanes: number
  /** How the cohort is called; the policy's id where it is not given. */
  name?: string
  /** The distribution that tokens are drawn from. Default: the model's own. */
  sampling?: Partial<Sampling>
  /** Texts that end a turn of the model, beside its end tokens. Default none. */
  stopStrings?: readonly string[]
  /** Tokens of a turn, at most; default the environment's. */
  maxTokens?: number
  /** Conversations begun from one prompt, one after another: a group. Default 1. */
  groupSize?: number
  /** Draw tokens (default), or take the most probable one. */
  explore?: boolean
  /** What a conversation's reward is of its turns'. Default `last`. */
  rewardReduction?: RewardReduction
  /** Seconds after which the environment's reply counts as failed. Default 60. */
  replySeconds?: number
  /** Seconds after which a turn to which the engine adds no token has failed, while a trainer collects. Default 300. */
  turnSeconds?: number
  /**
   * What becomes of an example that is longer than the context. All of them are looked at before the first conversation. Where it
   * is not given, an example is looked at when its turn comes, and one that is too long is an error then.
   */
  tooLong?: TooLong
  /** Questions that are held out: conversations, and supervised steps, take the others, or those alone. Default: none are. */
  heldOut?: HeldOut
  /**
   * What becomes of a conversation whose turn its budget or the context cut off, where the environment has more to say: it ends
   * there (default), or the turn is closed and the reply is appended, as far as the context has room.
   */
  cutTurn?: CutTurn
  /**
   * What becomes of a conversation's turns: one row while each prompt begins with what stands (default), or a row for each turn,
   * which begins with all that stands.
   */
  segmentation?: Segmentation
  /** Who chooses the model's tokens. Default: this process, with the policy's weights as they stand. */
  engine?: EngineDefinition
}

/** The names of the options. */
export const conversationOptions = Object.keys({
  ...{
    environment: true,
    policy: true,
    numLanes: true,
    name: true,
    sampling: true,
    stopStrings: true,
    maxTokens: true,
  },
  ...{
    groupSize: true,
    explore: true,
    rewardReduction: true,
    replySeconds: true,
    turnSeconds: true,
    tooLong: true,
    heldOut: true,
    cutTurn: true,
    segmentation: true,
    engine: true,
  },
} satisfies Record<keyof ConversationCohortOptions, true>)

/** What becomes of a conversation whose turn was cut off. */
export const cutTurns = ['end', 'continue'] as const
export type CutTurn = (typeof cutTurns)[number]

/** What becomes of a conversation's turns: one row while what stands stays as it is, or a row each. */
export const segmentations = ['interleaved', 'branching'] as const
/** One of them. */
export type Segmentation = (typeof segmentations)[number]

/** A reply that is awaited. */
export interface PendingReply {
  reply: Reply | null
  /** Settles when the reply has arrived; never rejects. */
  arrival: Promise<void>
  /** Tells the environment that the reply is no longer needed, and removes the deadline. */
  cancel(): void
}

/** A cohort of conversations that has its memory. `conversation` is the component of its lanes. */
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
  /** Told what a user should know of the engine. Null: it is a warning of the process. */
  onNotice: ((message: string) => void) | null
  readonly cutTurn: CutTurn
  readonly segmentation: Segmentation
  readonly tooLong: TooLong
  /** The examples that conversations begin with; null where all are, and none has been looked at. */
  readonly examples: UsableExamples | null
  /** Its lanes as bitecs has them: which take conversations is what the query finds. */
  readonly entities: LaneEntities
  /** The entity of each row; `NOBODY`, 2³² − 1, in rows without one. */
  lanes: Uint32Array
  readonly conversation: Conversation
  /** Who chooses the model's tokens. */
  readonly engine: Engine
  /** 1 for lanes whose turn the engine has. */
  readonly submitted: Uint8Array
  /** How often the engine has broken each lane's turn off since it last gave a token. */
  readonly breaks: Uint8Array
  /** Why the aborted turn has failed; null if the turn will be continued. */
  readonly failing: (string | null)[]
  /** No elements where they are kept in 8 or 4 bits, under an adapter. */
  readonly weights: Float32Array
  /** Null where they are whole. */
  readonly quantized: QuantizedColumns | null
  /** What is trained instead of the weights; null where there is no adapter. */
  readonly adapter: LoraAdapter | null
  readonly learner: Columns<Plan>
  readonly random: Random
  /** The examples' order in the epoch `orderEpoch`. */
  readonly order: Uint32Array
  readonly words: Uint32Array
  orderEpoch: number
  /** What was said in each lane before the model's turn. */
  readonly histories: Message[][]
  /** The environment's last reply to each lane, and the one that it owes. */
  readonly replies: (Reply | null)[]
  readonly pending: (PendingReply | null)[]
  /** Of each lane, the turns of its conversation that are not drawn, or ended, as the cohort says, by their numbers. */
  readonly drawings: Map<number, TurnDrawing>[]
  /** Segments of each lane's conversation before the one that it is in, without what only its end tells. */
  readonly segments: Segment[][]
  /** Texts that end a turn of the model, beside its end tokens. */
  readonly stopStrings: readonly string[]
  /** How many conversations may begin, of all that ever did. */
  released: number
  /** Conversations that are over, in the order in which they ended: a trainer's in a planned log, others in the heap. */
  readonly trajectories: Trajectories
  /** Lanes whose conversations are over and wait for room in the log. Written by store. */
  waiting: number
  /**
   * What its trajectories are from: by default a name made of all that decides what is said, with a trainer its algorithms too,
   * so that two trainings have two and a resumed one keeps its own.
   */
  source: string
  /** Number of the weights. */
  version: number
  /** Whether the model was read from files, and not made. */
  readonly isLoaded: boolean
  /** What of its files was left out, a sentence each. */
  readonly notes: readonly string[]
}

/** A row of a conversation that is not over: its reward is not known yet. */
export type Segment = Omit<Trajectory, 'reward' | 'components' | 'error'>

/** The segment that lane n is in, as it stands: its token columns are views. */
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

/** The segments that all lanes have put aside, as a table. */
export function segmentsOf({ segments }: ConversationCohort): Trajectories {
  const table = new Trajectories()
  for (const row of segments.flat()) table.append({ ...row, reward: null, components: {}, error: null })
  return table
}

/** Gives each lane the segments of its conversation, of a table that `segmentsOf` made of another cohort's. */
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

/** What a learner adds to a cohort of conversations before its memory is taken. */
export interface ConversationReservation {
  /** The learner's own columns. */
  readonly learner: Plan
  /** What examples are used for, where that is more than to begin conversations. */
  readonly use?: ExampleUse
  /** The log's size; without it conversations that are over lie in the heap, and nothing limits them. */
  readonly log?: TrajectoryLogSize
}

/** What is known of a cohort of conversations before it has memory. */
export interface ConversationDraft {
  readonly kind: 'conversations'
  readonly options: ConversationCohortOptions
  readonly name: string
  /** Keys its starting weights: how many cohorts of conversations the world has before it. */
  readonly key: number
  readonly opened: OpenLanguageModel
  reservation?: ConversationReservation
  /** Which examples are used, once they are looked at. */
  examples?: UsableExamples | null
  /** What the model begins with, from when it is read until the cohort has it. */
  begins?: LanguageModelWeights
}

/** Which example has the given place in the order of all: each epoch takes every example once, in an order of its own. */
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

/** Stands for an update in the key of the examples' order. */
const NO_UPDATE = 0xffffffff

/**
 * Gives the cohort's engine its weights as they stand, by this number from now on.
 * @throws InputError where the engine says afterwards that it has others.
 */
export async function refreshWeights(cohort: ConversationCohort, version: number): Promise<void> {
  cohort.version = version
  await deliverWeights(cohort.engine, { version, weights: cohort.adapter?.weights ?? cohort.weights })
}

/**
 * Loads a saved adapter into a cohort that talks, between two of its ticks: conversations under way go on, and what is said
 * from now on carries the next version, which is returned. A trainer's optimizer keeps its moments.
 * @throws InputError where the cohort has no adapter, for an adapter of another rank, alpha, targets or model, a folder that
 * holds none, and in the middle of a trainer's step of several threads; then nothing has changed.
 * @example await loadAdapter(world.cohort(), 'runs/text-reverse-1/adapter')
 */
export async function loadAdapter(cohort: ConversationCohort, folder: string): Promise<number> {
  const { adapter, name } = cohort ?? {}
  if (adapter === undefined)
    throw new InputError('loadAdapter(cohort, folder)', 'no cohort', 'one, like world.cohort()')
  if (adapter === null)
    throw new InputError(`adapter ${folder}`, `cohort ${name}, which has none`, 'one with an adapter')
  const weights = await loadLoraWeights(folder, adapter.lora)
  if (cohort.engine.threads !== null && cohort.engine.threads.workers !== null) {
    throw new InputError(`adapter ${folder}`, 'a step of several threads under way', 'a place between two steps')
  }
  adapter.weights.set(weights)
  await refreshWeights(cohort, cohort.version + 1)
  return cohort.version
}

/** Tells the cohort that its columns come from a checkpoint: it submits their turns to the engine again. */
export function takeUp({ conversation, engine, submitted, breaks, failing }: ConversationCohort): void {
  for (const [n, isSubmitted] of submitted.entries()) if (isSubmitted === 1) engine.abort(n)
  engine.poll() // Of turns that are no more.
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

/** What lanes wait for: replies of the environment, and tokens of an engine that generates by itself. */
export function owedAnswers({ pending, submitted, engine }: ConversationCohort): readonly Promise<void>[] {
  const isAwaited = engine.arrival !== null && submitted.includes(1)
  if (!isAwaited && pending.every(isNone)) return NOTHING
  const replies = pending.filter((reply) => reply !== null).map(({ arrival }) => arrival)
  return isAwaited ? [...replies, engine.arrival] : replies
}

/** True if some lane can continue without waiting for the environment, or for an engine that generates by itself. */
export function canGoOn({ conversation, released, submitted, engine }: ConversationCohort): boolean {
  const mayBegin = conversation.begun[0]! < released
  const isAwaited = engine.arrival !== null
  return conversation.phase.some((phase, n) => {
    if (phase === ConversationPhase.free) return mayBegin
    const hasTurn = phase === ConversationPhase.model || phase === ConversationPhase.abandoned
    if (hasTurn) return !(isAwaited && submitted[n] === 1)
    // An end waits for room in the log.
    return phase !== ConversationPhase.asked && phase !== ConversationPhase.ended && phase !== ConversationPhase.absent
  })
}
