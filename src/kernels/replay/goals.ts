/** Goals in observations, and hindsight: relabels rows as if the episode had pursued another goal. */
import { InputError, show } from '../../base/errors.ts'
import { philox4x32, Stream, unitFromWord } from '../../base/random.ts'
import type { ReplayedRows } from './returns.ts'

/**
 * The places of the achieved and the desired goal in an observation, `width` elements each. A step earns 0 if both are
 * at most `tolerance` apart (Euclidean) in the next observation, and −1 otherwise.
 */
export interface GoalPlace {
  /** First element of what is achieved. */
  readonly achieved: number
  /** First element of the goal. */
  readonly desired: number
  readonly width: number
  readonly tolerance: number
  /** Whether an episode terminates where its goal is reached. */
  readonly ends: boolean
}

/** Whether an observation, which begins at element `from`, has reached its goal. @throws InputError for another column. */
export function isGoalReached(observation: Float32Array | Uint8Array, from: number, goal: GoalPlace): boolean {
  return squareOf(observation, from, goal) <= goal.tolerance * goal.tolerance
}

/** The squared distance between the achieved and the desired goal. */
function squareOf(observation: Float32Array | Uint8Array, from: number, goal: GoalPlace): number {
  if (!(observation instanceof Float32Array)) throw new InputError('observation', show(observation), 'a Float32Array')
  const { achieved, desired, width } = goal
  let square = 0
  for (let k = from; k < from + width; k++) square += (observation[k + achieved]! - observation[k + desired]!) ** 2
  return square
}

/** Relative margin around the squared tolerance, within which an environment that computes in f64 may still be right. */
const ROUNDING = 0.01

/**
 * The error in a step's reward, given the goal in the next observation, or in an episode that continues after its goal; null if there is none.
 * @throws InputError for another column.
 */
export function refusedReward(
  nextObservation: Float32Array | Uint8Array,
  from: number,
  goal: GoalPlace,
  reward: number,
  isTerminated: boolean,
): { readonly got: string; readonly expected: string } | null {
  const square = squareOf(nextObservation, from, goal)
  const limit = goal.tolerance * goal.tolerance
  const isRight = reward === 0 ? square <= limit * (1 + ROUNDING) : reward === -1 && square > limit * (1 - ROUNDING)
  if (!isRight) {
    const expected = `0 where the goal is within its tolerance of ${goal.tolerance}, and -1 elsewhere`
    return { got: `${reward} at a distance of ${Math.sqrt(square)} from the goal`, expected }
  }
  if (reward === -1 || isTerminated || !goal.ends) return null
  return {
    got: '0 and an episode that goes on',
    expected: 'an episode that terminates at its goal, or goal.ends false',
  }
}

/** A part of the counter that distinguishes these draws from other draws of a replay. */
const USE = 0x484552

/**
 * Hindsight experience replay (Andrychowicz et al. 2017, § 4.5, strategy "future"): replaces the goal of a `fraction`
 * of a minibatch's rows by one that their own episode achieved in the same step or later, and the reward by the one for
 * that goal. Each row and its successor have
 * `block.observation` and `nextObservation`; rows[first … first + count) are their places in the replay, a ring of steps of `numLanes` rows.
 * Draws are keyed by (step, place in the minibatch). A row whose episode terminated there keeps its goal: the observation after it is not
 * stored. `words` (4) is workspace.
 */
export function relabelGoals(
  block: {
    readonly observation: Float32Array | Uint8Array
    readonly nextObservation: Float32Array | Uint8Array
    readonly return: Float32Array
    readonly discount: Float32Array
  },
  replay: ReplayedRows & {
    readonly episode: Uint32Array
    readonly step: Int32Array
    readonly observation: Float32Array | Uint8Array
    readonly finalObservation: Float32Array | Uint8Array
  },
  goal: GoalPlace,
  words: Uint32Array,
  rows: Uint32Array,
  first: number,
  count: number,
  fraction: number,
  numLanes: number,
  step: number,
  key0: number,
  key1: number,
): void {
  const numRows = replay.reward.length
  const width = replay.observation.length / numRows
  for (let i = 0; i < count; i++) {
    philox4x32(words, first + i, step, USE, Stream.replay, key0, key1)
    if (unitFromWord(words[0]!) >= fraction) continue
    const row = rows[first + i]!
    const length = futureLength(replay, row, numLanes, numRows)
    if (length === 0) continue
    const later = (row + Math.floor(unitFromWord(words[1]!) * length) * numLanes) % numRows
    const isFinal = replay.truncated[later] !== 0
    const source = isFinal ? replay.finalObservation : replay.observation
    const from = (isFinal ? later : (later + numLanes) % numRows) * width + goal.achieved
    for (let k = 0; k < goal.width; k++) {
      const at = i * width + goal.desired + k
      block.observation[at] = source[from + k]!
      block.nextObservation[at] = source[from + k]!
    }
    const isReached = isGoalReached(block.nextObservation, i * width, goal)
    block.return[i] = isReached ? 0 : -1
    if (isReached && goal.ends) block.discount[i] = 0
  }
}

/** The number of steps of the row's episode, from this row on, that the replay has with their next observations. */
function futureLength(
  { terminated, truncated, valid, lane, episode, step }: Parameters<typeof relabelGoals>[1],
  row: number,
  numLanes: number,
  numRows: number,
): number {
  let length = 0
  let at = row
  while (terminated[at] === 0) {
    if (truncated[at] !== 0) return length + 1
    const next = (at + numLanes) % numRows
    const isNext = valid[next] !== 0 && lane[next] === lane[row] && episode[next] === episode[row]
    if (!isNext || step[next] !== step[at]! + 1) break
    length++
    at = next
  }
  return length
}
