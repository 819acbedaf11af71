import { type Columns, column, saved } from './column.ts'

/** Whose turn it is in a lane. */
export const ConversationPhase = {
  /** No conversation: the lane takes the next one. */
  free: 0,
  /** The model has the turn. */
  model: 1,
  /** The model's turn is over; the environment has not been asked yet. */
  over: 2,
  /** The environment was asked, and owes its reply. */
  asked: 3,
  /** The conversation is over. */
  ended: 4,
  /** Nobody waits for the conversation any longer, but the engine has its turn: the lane is free when that has ended. */
  abandoned: 5,
  /** Nobody is in the lane. */
  absent: 6,
} as const

/**
 * A conversation in each lane: its tokens so far, and where it stands. Where the chat template rewrites what stands, the lane
 * begins a new segment, and the token columns begin anew. A checkpoint keeps all of it.
 */
export type Conversation = Columns<ReturnType<typeof conversationPlan>>

/**
 * Plans the conversation component of a cohort whose conversations have at most `context` tokens and `maxTurns` turns, and
 * candidate sets of so many ids a token.
 */
export function conversationPlan(numLanes: number, context: number, maxTurns: number, candidates: number) {
  const perToken = <T extends 'i32' | 'u8' | 'f32'>(type: T) => saved(column(type, numLanes, context))
  const perLane = <T extends 'i32' | 'u8' | 'f64'>(type: T) => saved(column(type, numLanes))
  return {
    /** Token ids as sent and as sampled: lanes × context; so are the next five. Written by reset, infer and step. */
    token: perToken('i32'),
    /** 1 where the model chose the token. */
    lossMask: perToken('u8'),
    /** Log-probability under the distribution that the token was drawn from, in nats; NaN where nothing was drawn. */
    logprob: perToken('f32'),
    /** Number of the weights that chose it; −1 where none did. */
    version: perToken('i32'),
    /** The turn that it belongs to, from 0; what the environment says belongs to the turn that it leads to. */
    turnOf: perToken('i32'),
    /** From how many tokens it was drawn, where a filter had left some out; else 0. */
    candidateCount: perToken('i32'),
    /** The ids of the candidates of the segment's tokens, one token after another: lanes × (context · candidates). A checkpoint lists them. */
    candidateIds: column('i32', numLanes, context * candidates),
    /** How many of them there are. Written by reset, infer and step. */
    numCandidateIds: column('i32', numLanes),
    /** Tokens of this segment so far. Written by reset, infer and step. */
    length: perLane('i32'),
    /** Where the model's turn begins. */
    turnStart: perLane('i32'),
    /** Tokens of a turn, at most. Written by reset. */
    budget: perLane('i32'),
    /** Number of the turn, from 0. */
    turn: perLane('i32'),
    /** Number of the segment, from 0, and tokens of those before it, which key its random numbers. Written by step. */
    segment: perLane('i32'),
    tokensBefore: perLane('i32'),
    /** Turns of this segment that their budget or the context cut off. Written by infer. */
    cutTurns: perLane('i32'),
    /** 1 where the last reply of the environment was dropped: the turn was cut, or there was no room. Written by step. */
    droppedReplies: perLane('u8'),
    /** Whose turn it is: a `ConversationPhase`. */
    phase: perLane('u8'),
    /** Why the last turn ended: an index of `stopReasons`. Written by infer. */
    stopReason: perLane('u8'),
    /** What the environment said each turn is worth, NaN where it could not tell: lanes × turns. Written by step. */
    turnReward: saved(column('f64', numLanes, Math.min(maxTurns, context))),
    /** What the conversation is worth by them, and whether that can be told. Written by step. */
    reward: perLane('f64'),
    known: perLane('u8'),
    /** Which conversation it is: its prompt, its group, its place in the group, how often the prompts have been round. */
    promptId: perLane('i32'),
    group: perLane('i32'),
    member: perLane('i32'),
    epoch: perLane('i32'),
    /**
     * How many tokens, the first ones, stand as they did in the lane's last turn: of these an engine may have kept keys and values.
     * Not saved: a resumed run makes them again. Written by reset, infer and step.
     */
    unchanged: column('i32', numLanes),
    /** Conversations begun, in one element. Written by reset. */
    begun: saved(column('f64', 1)),
  }
}

/** Ids of the candidate sets of lane n's segment: a view. */
export function candidateIdsOf({ candidateIds, numCandidateIds }: Conversation, n: number): Int32Array {
  const width = candidateIds.length / numCandidateIds.length
  return candidateIds.subarray(n * width, n * width + numCandidateIds[n]!)
}

/** Gives lane n the ids that `candidateIdsOf` gave of another cohort's. */
export function setCandidateIds(
  { candidateIds, numCandidateIds }: Conversation,
  n: number,
  ids: readonly number[],
): void {
  candidateIds.set(ids, (n * candidateIds.length) / numCandidateIds.length)
  numCandidateIds[n] = ids.length
}

/** The rewards of the turns that the conversation in lane n has had, the one under way included: a view. */
export function turnRewardsOf({ turnReward, turn }: Conversation, n: number): Float64Array {
  const width = turnReward.length / turn.length
  return turnReward.subarray(n * width, n * width + turn[n]! + 1)
}
