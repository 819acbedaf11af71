/**
 * Counts the episodes that ended in a rollout, in the order of its rows (time, then lane).
 *
 * `recent` (a ring of `recent.length` returns) and `recentSteps` (their lengths in steps) take each finished episode;
 * `finished` counts all episodes so far and is the ring's position. `totals` gets, for this rollout: number of episodes,
 * sum of returns, sum of lengths. Returns the first row at whose episode end the ring was full and its mean return was
 * at least `threshold`, or −1.
 */
export function accountEpisodes(
  totals: Float64Array,
  recent: Float64Array,
  recentSteps: Float64Array,
  episodeReturn: Float32Array,
  step: Int32Array,
  terminated: Uint8Array,
  truncated: Uint8Array,
  valid: Uint8Array,
  finished: number,
  threshold: number,
  numRows: number,
): number {
  let count = 0
  let returns = 0
  let lengths = 0
  let solvedRow = -1
  for (let row = 0; row < numRows; row++) {
    if (valid[row] === 0 || (terminated[row] === 0 && truncated[row] === 0)) continue
    const place = (finished + count) % recent.length
    recent[place] = episodeReturn[row]!
    recentSteps[place] = step[row]! + 1
    count++
    returns += episodeReturn[row]!
    lengths += step[row]! + 1
    if (solvedRow < 0 && finished + count >= recent.length && mean(recent) >= threshold) solvedRow = row
  }
  totals[0] = count
  totals[1] = returns
  totals[2] = lengths
  return solvedRow
}

function mean(x: Float64Array): number {
  let sum = 0
  for (let i = 0; i < x.length; i++) sum += x[i]!
  return sum / x.length
}
