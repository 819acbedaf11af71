/** Accounts for finished episodes with the plain twin's bits (`episodes.ts`): sixteen rows are passed over at once where none ended. */

export function accountEpisodes(
  totals: usize,
  recent: usize,
  recentSteps: usize,
  episodeReturn: usize,
  step: usize,
  terminated: usize,
  truncated: usize,
  valid: usize,
  finished: f64,
  threshold: f64,
  numRows: i32,
  recentLength: i32,
): i32 {
  let count = 0
  let returns: f64 = 0
  let lengths: f64 = 0
  let solvedRow = -1
  let place = <i32>(finished % <f64>recentLength)
  const end: usize = numRows
  let row: usize = 0
  while (row < end) {
    if (row + 16 <= end && !v128.any_true(v128.or(v128.load(terminated + row), v128.load(truncated + row)))) {
      row += 16
      continue
    }
    const stop = min(row + 16, end)
    for (; row < stop; row++) {
      if (load<u8>(valid + row) == 0 || (load<u8>(terminated + row) | load<u8>(truncated + row)) == 0) continue
      const episode = <f64>load<f32>(episodeReturn + (row << 2))
      const length = <f64>(load<i32>(step + (row << 2)) + 1)
      store<f64>(recent + (<usize>place << 3), episode)
      store<f64>(recentSteps + (<usize>place << 3), length)
      place = place + 1 == recentLength ? 0 : place + 1
      count++
      returns += episode
      lengths += length
      const full = finished + <f64>count >= <f64>recentLength
      if (solvedRow < 0 && full && mean(recent, recentLength) >= threshold) solvedRow = <i32>row
    }
  }
  store<f64>(totals, <f64>count)
  store<f64>(totals + 8, returns)
  store<f64>(totals + 16, lengths)
  return solvedRow
}

function mean(x: usize, length: i32): f64 {
  let sum: f64 = 0
  for (let i = 0; i < length; i++) sum += load<f64>(x + (<usize>i << 3))
  return sum / <f64>length
}
