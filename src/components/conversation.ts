import { type Columns, column, saved } from './column.ts'

/** The state of a lane's conversation. */
export const ConversationPhase = {
  /** No conversation: the lane takes the next one. */
  free: 0,
  /** The model has the turn. */
  model: 1,
  /** The model's turn is over; the environment has not been asked yet. */
  over: 2,
  /** The environment was asked, and its reply is pending. */
  asked: 3,
  /** The conversation is over. */
  ended: 4,
  /** The conversation is discarded; the lane is free when the engine has ended its turn. */
  abandoned: 5,
  /** The row has no lane. */
  absent: 6,
} as const

/**
 * A conversation in each lane: its tokens and state. If the chat template rewrites earlier text, the lane begins a new segment, and the
 * token columns start over. Checkpoints contain all of it.
 */
export type Conversation = Columns<ReturnType<typeof conversationPlan>>

/**
 * Plans the conversation component of a cohort with at most `context` tokens and `maxTurns` turns per conversation, and candidate sets of
 * at most `candidates` ids per token.
 */
export function conversationPlan(numLanes: number, context: number, maxTurns: number, candidates: number) {
  const perToken = <T extends 'i32' | 'u8' | 'f32'>(type: T) => saved(column(type, numLanes, context))
  const perLane = <T extends 'i32' | 'u8' | 'f64'>(type: T) => saved(column(type, numLanes))
  return {
    /** Token ids, input and sampled: lanes × context, like the next five columns. Written by reset, infer and step. */
    token: perToken('i32'),
    /** 1 if the model chose the token. */
    lossMask: perToken('u8'),
    /** Log-probability in nats under the sampled distribution; NaN for a token that was not sampled. */
    logprob: perToken('f32'),
    /** Version of the weights that chose it; −1 if none did. */
    version: perToken('i32'),
    /** Number of its turn, from 0; environment messages belong to the turn that follows them. */
    turnOf: perToken('i32'),
    /** Number of candidates if a filter removed tokens; otherwise 0. */
    candidateCount: perToken('i32'),
    /** Candidate ids of the segment's tokens, concatenated: lanes × (context · candidates). A checkpoint stores them as lists. */
    candidateIds: column('i32', numLanes, context * candidates),
    /** Number of candidate ids. Written by reset, infer and step. */
    numCandidateIds: column('i32', numLanes),
    /** Tokens of this segment so far. Written by reset, infer and step. */
    length: perLane('i32'),
    /** Position at which the model's turn begins. */
    turnStart: perLane('i32'),
    /** Maximum tokens of a turn. Written by reset. */
    budget: perLane('i32'),
    /** Number of the turn, from 0. */
    turn: perLane('i32'),
    /** Number of the segment, from 0, and tokens of earlier segments, which key its random numbers. Written by step. */
    segment: perLane('i32'),
    tokensBefore: perLane('i32'),
    /** Turns of this segment cut off by their budget or the context. Written by infer. */
    cutTurns: perLane('i32'),
    /** 1 if the environment's last reply was dropped: the turn was cut, or there was no room. Written by step. */
    droppedReplies: perLane('u8'),
    /** A `ConversationPhase`. */
    phase: perLane('u8'),
    /** Why the last turn ended: an index of `stopReasons`. Written by infer. */
    stopReason: perLane('u8'),
    /** Reward of each turn, NaN if unknown: lanes × turns. Written by step. */
    turnReward: saved(column('f64', numLanes, Math.min(maxTurns, context))),
    /** Reward of the conversation, and whether it is known. Written by step. */
    reward: perLane('f64'),
    known: perLane('u8'),
    /** Identity of the conversation: its prompt, group, member of the group, and epoch. */
    promptId: perLane('i32'),
    group: perLane('i32'),
    member: perLane('i32'),
    epoch: perLane('i32'),
    /**
     * Number of leading tokens that equal those of the lane's last turn, whose keys and values an engine may have cached. Not saved: a
     * resumed run recomputes them. Written by reset, infer and step.
     */
    unchanged: column('i32', numLanes),
    /** Number of conversations begun, in one element. Written by reset. */
    begun: saved(column('f64', 1)),
  }
}

/** Candidate ids of lane n's segment, as a view. */
export function candidateIdsOf({ candidateIds, numCandidateIds }: Conversation, n: number): Int32Array {
  const width = candidateIds.length / numCandidateIds.length
  return candidateIds.subarray(n * width, n * width + numCandidateIds[n]!)
}

/** Sets lane n's candidate ids to those that `candidateIdsOf` returned for another cohort. */
export function setCandidateIds(
  { candidateIds, numCandidateIds }: Conversation,
  n: number,
  ids: readonly number[],
): void {
  candidateIds.set(ids, (n * candidateIds.length) / numCandidateIds.length)
  numCandidateIds[n] = ids.length
}

/** Rewards of the turns of the conversation in lane n, the current one included, as a view. */
export function turnRewardsOf({ turnReward, turn }: Conversation, n: number): Float64Array {
  const width = turnReward.length / turn.length
  return turnReward.subarray(n * width, n * width + turn[n]! + 1)
}
