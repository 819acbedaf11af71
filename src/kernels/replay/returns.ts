/**
 * Returns of several steps from a replay: a ring of numRows rows, numLanes to a step, so that what a lane did next is numLanes
 * rows on.
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
  /** What the value of the next observation counts: γ^k after k steps, 0 after a terminal state. */
  readonly discount: Float32Array
  /** The row that has the next observation: its own one, or its final one where the episode was truncated there. */
  readonly next: Uint32Array
  readonly isFinal: Uint8Array
}

/**
 * Lists those of the rows from … from + numLanes of which the replay has `nStep` steps, or all until the episode's end. Returns
 * how many they are.
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
    // A lane that has another row now, or acts no more, is nobody's next step.
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

/** gathered[i] = of row next[i] what was seen there, or at last, for i < count, `width` elements each. The three columns have one type. */
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
