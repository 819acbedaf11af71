/**
 * Changes the logits of a turn before a token is drawn. In this order: biases are added; the logits of ids that the sequence has
 * are divided by `repetition`, or multiplied if they are not above 0 (Keskar et al. 2019); and from those of ids that the answer has n
 * times, `frequency` · n and `presence` are subtracted. Each step is rounded to 32 bits, so whole rows and chunks have equal bits.
 */

/** The changes of turns, one row a turn. */
export interface TurnChanges {
  /** Above 0; 1 changes nothing. */
  readonly repetition: Float32Array
  readonly frequency: Float32Array
  readonly presence: Float32Array
  /** The biases of row k are those at biasBegin[k] to biasEnd[k]. */
  readonly biasBegin: Int32Array
  readonly biasEnd: Int32Array
  readonly biasId: Int32Array
  readonly bias: Float32Array
}

/** The changes of rows of logits, and the ids before these rows. */
export interface ChangedRows {
  /** The row of `TurnChanges`; −1: none. */
  readonly change: Int32Array
  /** The sequence so far is ids[first] to ids[end]; its answer begins at ids[answer]. */
  readonly first: Int32Array
  readonly answer: Int32Array
  readonly end: Int32Array
  /** Workspace: one element per token of a chunk, all 0; and one for each id that both a chunk and a sequence can have. */
  readonly times: Int32Array
  readonly seen: Int32Array
}

/**
 * Changes a chunk of logits (numRows × count, the tokens `firstToken` to `firstToken` + count). `wasAbove`, of the same size or empty,
 * notes whether each repeated logit was above 0. With `isGradient` the chunk holds gradients by changed logits, which become gradients by
 * the unchanged logits; `wasAbove` is then read. Rows of one sequence are in its order.
 */
export function changeVocabulary(
  logits: Float32Array,
  wasAbove: Uint8Array,
  ids: ArrayLike<number>,
  rows: ChangedRows,
  changes: TurnChanges,
  numRows: number,
  firstToken: number,
  count: number,
  isGradient: boolean,
): void {
  const { change, first, answer, end, times, seen } = rows
  let numSeen = 0
  let next = 0
  let sequence = -1
  let answerAt = -1
  for (let row = 0; row < numRows; row++) {
    const turn = change[row]!
    if (turn < 0) continue
    const at = row * count
    if (!isGradient) addBiases(logits, at - firstToken, changes, turn, firstToken, firstToken + count)
    const repetition = changes.repetition[turn]!
    const frequency = changes.frequency[turn]!
    const presence = changes.presence[turn]!
    if (repetition === 1 && (isGradient || (frequency === 0 && presence === 0))) continue
    if (first[row] !== sequence || answer[row] !== answerAt || end[row]! < next) {
      for (let i = 0; i < numSeen; i++) times[seen[i]!] = 0
      numSeen = 0
      sequence = first[row]!
      answerAt = answer[row]!
      next = sequence
    }
    for (; next < end[row]!; next++) {
      const id = ids[next]! - firstToken
      if (id < 0 || id >= count) continue
      if (times[id] === 0) {
        seen[numSeen++] = id
        times[id] = 1
      }
      if (next >= answerAt) times[id] = times[id]! + 1
    }
    for (let i = 0; i < numSeen; i++) {
      const place = at + seen[i]!
      if (isGradient) {
        logits[place] = wasAbove[place] === 1 ? logits[place]! / repetition : logits[place]! * repetition
        continue
      }
      if (repetition !== 1) {
        const isAbove = logits[place]! > 0
        if (wasAbove.length > 0) wasAbove[place] = isAbove ? 1 : 0
        logits[place] = isAbove ? logits[place]! / repetition : logits[place]! * repetition
      }
      const said = times[seen[i]!]! - 1
      if (said === 0) continue
      logits[place] = logits[place]! - Math.fround(frequency * said)
      logits[place] = logits[place]! - presence
    }
  }
  for (let i = 0; i < numSeen; i++) times[seen[i]!] = 0
}

function addBiases(
  logits: Float32Array,
  at: number,
  { biasBegin, biasEnd, biasId, bias }: TurnChanges,
  turn: number,
  from: number,
  to: number,
): void {
  for (let i = biasBegin[turn]!; i < biasEnd[turn]!; i++) {
    const id = biasId[i]!
    if (id >= from && id < to) logits[at + id] = logits[at + id]! + bias[i]!
  }
}
