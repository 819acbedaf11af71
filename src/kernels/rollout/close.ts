/**
 * The end of a tick, for lanes `from` to `to`: kernels of the store and infer systems. Columns named row… are one row
 * block of the rollout; the others are the lanes' own.
 */

/**
 * Sets valid = 1 if the lane is in the `ready` phase. Other lanes did not act and get reward 0 and no flags. Returns
 * the number of those lanes.
 */
export function settleDead(
  valid: Uint8Array,
  reward: Float32Array,
  terminated: Uint8Array,
  truncated: Uint8Array,
  phase: Uint8Array,
  ready: number,
  from: number,
  to: number,
): number {
  let dead = 0
  for (let n = from; n < to; n++) {
    valid[n] = phase[n] === ready ? 1 : 0
    if (valid[n] !== 0) continue
    reward[n] = 0
    terminated[n] = 0
    truncated[n] = 0
    dead++
  }
  return dead
}

/** Sets truncated where the episode has taken its last allowed step. */
export function limitSteps(truncated: Uint8Array, step: Int32Array, stepsMax: number, from: number, to: number): void {
  for (let n = from; n < to; n++) if (step[n]! + 1 >= stepsMax) truncated[n] = 1
}

/** A row block of the rollout: reward and flags are read, the other columns written. */
export interface ClosedRow {
  readonly lane: Uint32Array
  readonly episode: Uint32Array
  readonly step: Int32Array
  readonly episodeReturn: Float32Array
  readonly version: Uint32Array
  readonly nextValue: Float32Array
  readonly reward: Float32Array
  readonly terminated: Uint8Array
  readonly truncated: Uint8Array
  readonly valid: Uint8Array
}

/** The progress of each lane: lane and episode are read, the other columns updated. */
export interface LaneEpisodes {
  readonly lane: Uint32Array
  readonly episode: Uint32Array
  readonly step: Int32Array
  readonly episodeReturn: Float64Array
  readonly phase: Uint8Array
}

/**
 * Writes lane, episode, step, return so far and version of each row, and updates the lane's step, its return, and its
 * phase (`endedPhase` if the row ended the episode). nextValue is 0 until infer completes it. A dead row has step −1.
 */
export function closeRow(
  row: ClosedRow,
  lanes: LaneEpisodes,
  version: number,
  endedPhase: number,
  from: number,
  to: number,
): void {
  const { reward, terminated, truncated, valid } = row
  const { step, episodeReturn, phase } = lanes
  for (let n = from; n < to; n++) {
    row.lane[n] = lanes.lane[n]!
    row.episode[n] = lanes.episode[n]!
    row.version[n] = version
    row.nextValue[n] = 0
    if (valid[n] === 0) {
      row.step[n] = -1
      row.episodeReturn[n] = 0
      continue
    }
    row.step[n] = step[n]!
    step[n] = step[n]! + 1
    episodeReturn[n] = episodeReturn[n]! + reward[n]!
    row.episodeReturn[n] = episodeReturn[n]!
    if (terminated[n] !== 0 || truncated[n] !== 0) phase[n] = endedPhase
  }
}

/** The valid rows to list: those whose episode continues, was truncated without terminating, or is over; or all. */
export const Listed = { goesOn: 0, truncated: 1, ended: 2, any: 3 } as const

/**
 * Appends the `wanted` rows (a value of `Listed`) among the valid ones to a list: their place in the rollout
 * (`firstRow` + n) and the next observation (`width` elements of `observation`, of the list's type). Returns the list's new length.
 */
export function listRows(
  listRow: Uint32Array,
  listObservation: Float32Array | Uint8Array,
  observation: Float32Array | Uint8Array,
  terminated: Uint8Array,
  truncated: Uint8Array,
  valid: Uint8Array,
  wanted: number,
  length: number,
  firstRow: number,
  width: number,
  from: number,
  to: number,
): number {
  let end = length
  for (let n = from; n < to; n++) {
    if (valid[n] === 0 || !isWanted(wanted, terminated[n] !== 0, truncated[n] !== 0)) continue
    listRow[end] = firstRow + n
    for (let k = 0; k < width; k++) listObservation[end * width + k] = observation[n * width + k]!
    end++
  }
  return end
}

function isWanted(wanted: number, isTerminal: boolean, isTruncated: boolean): boolean {
  if (wanted === Listed.any) return true
  if (wanted === Listed.ended) return isTerminal || isTruncated
  return !isTerminal && isTruncated === (wanted === Listed.truncated)
}

/** Completes nextValue of the previous row with this row's value, if the lane's episode continued. */
export function completeNextValue(
  previousNextValue: Float32Array,
  value: Float32Array,
  previousTerminated: Uint8Array,
  previousTruncated: Uint8Array,
  previousValid: Uint8Array,
  from: number,
  to: number,
): void {
  for (let n = from; n < to; n++) {
    if (previousValid[n] !== 0 && previousTerminated[n] === 0 && previousTruncated[n] === 0) {
      previousNextValue[n] = value[n]!
    }
  }
}

/** Writes the values of the bootstrap list to their places in the rollout. */
export function scatterValues(
  nextValue: Float32Array,
  listRow: Uint32Array,
  listValue: Float32Array,
  length: number,
): void {
  for (let i = 0; i < length; i++) nextValue[listRow[i]!] = listValue[i]!
}
