/**
 * Returns of several steps from a replay: a ring of numRows rows with numLanes rows per step, so the next row of a lane
 * is numLanes rows later.
 */

/** The columns of a replay that say what came of a row. */
export interface ReplayedRows {
  readonly reward: Float32Array
  readonly terminated: Uint8Array
  readonly truncated: Uint8Array
  readonly valid: Uint8Array
  /** Number of the lane in the whole run. */
  readonly lane: Uint32Array
}

/** What is written of each row that is learned from. */
export interface ReplayedReturns {
  /** Σ γ^k r_k over at most `nStep` steps, until the episode is over. */
  readonly return: Float32Array
  /** The weight of the value of the next observation: γ^k after k steps, 0 after a terminal state. */
  readonly discount: Float32Array
  /** The row with the next observation: its own, or its final one if the episode was truncated there. */
  readonly next: Uint32Array
  readonly isFinal: Uint8Array
}

/**
 * Lists the rows of from … from + numLanes for which the replay has `nStep` steps, or all steps until the episode's
 * end. Returns their number.
 */
export function listReplayable(
  rows: Uint32Array,
  replay: ReplayedRows,
  from: number,
  nStep: number,
  numLanes: number,
  numRows: number,
): number {
  const { terminated, truncated, valid, lane } = replay
  let count = 0
  for (let first = from; first < from + numLanes; first++) {
    let row = first
    let k = 0
    // If a lane has another row now, or no longer acts, no row has it as its next step.
    while (k < nStep && valid[row] !== 0 && lane[row] === lane[first]) {
      if (terminated[row] !== 0 || truncated[row] !== 0) break
      row = (row + numLanes) % numRows
      k++
    }
    if (valid[row] === 0 || lane[row] !== lane[first]) continue
    rows[count] = first
    count++
  }
  return count
}

/** The returns of rows[first … first + count), which `listReplayable` has listed. */
export function multiStepReturns(
  written: ReplayedReturns,
  replay: ReplayedRows,
  rows: Uint32Array,
  first: number,
  count: number,
  gamma: number,
  nStep: number,
  numLanes: number,
  numRows: number,
): void {
  const { reward, terminated, truncated } = replay
  for (let i = 0; i < count; i++) {
    let row = rows[first + i]!
    let sum = 0
    let discount = 1
    let isFinal = 0
    for (let k = 0; k < nStep; k++) {
      sum += discount * reward[row]!
      discount *= gamma
      if (terminated[row] !== 0) {
        discount = 0
        break
      }
      if (truncated[row] !== 0) {
        isFinal = 1
        break
      }
      row = (row + numLanes) % numRows
    }
    written.return[i] = sum
    written.discount[i] = discount
    written.next[i] = row
    written.isFinal[i] = isFinal
  }
}

/** gathered[i] = the observation of row next[i], or its final one, for i < count, `width` elements each. The three columns have one type. */
export function gatherNext(
  gathered: Float32Array | Uint8Array,
  seen: Float32Array | Uint8Array,
  seenLast: Float32Array | Uint8Array,
  { next, isFinal }: Pick<ReplayedReturns, 'next' | 'isFinal'>,
  count: number,
  width: number,
): void {
  for (let i = 0; i < count; i++) {
    const source = isFinal[i] !== 0 ? seenLast : seen
    const from = next[i]! * width
    for (let k = 0; k < width; k++) gathered[i * width + k] = source[from + k]!
  }
}
