/** The end of a tick, for lanes `from` to `to`, with the plain twin's bits (`close.ts`). */
import { bytes4, flags4, highPair, load4, loadBytes, lowPair, store4, storeBytes } from '../vector.simd'

export function settleDead(
  valid: usize,
  reward: usize,
  terminated: usize,
  truncated: usize,
  phase: usize,
  ready: i32,
  from: i32,
  to: i32,
): i32 {
  const ready16 = i8x16.splat(<i8>ready)
  let dead = 0
  let n: usize = from
  const end: usize = to
  while (n < end) {
    if (n + 16 <= end && i8x16.all_true(i8x16.eq(v128.load(phase + n), ready16))) {
      v128.store(valid + n, i8x16.splat(1))
      n += 16
      continue
    }
    const stop = min(n + 16, end)
    for (; n < stop; n++) {
      const acted = load<u8>(phase + n) == <u8>ready
      store<u8>(valid + n, acted)
      if (acted) continue
      store<f32>(reward + (n << 2), 0)
      store<u8>(terminated + n, 0)
      store<u8>(truncated + n, 0)
      dead++
    }
  }
  return dead
}

export function limitSteps(truncated: usize, step: usize, stepsMax: i32, from: i32, to: i32): void {
  const last = i32x4.splat(stepsMax - 1)
  const end: usize = to
  let n: usize = from
  while (n < end) {
    const at = step + (n << 2)
    if (n + 16 <= end) {
      const first = i32x4.max_s(v128.load(at), v128.load(at, 16))
      const second = i32x4.max_s(v128.load(at, 32), v128.load(at, 48))
      if (!v128.any_true(i32x4.ge_s(i32x4.max_s(first, second), last))) {
        n += 16
        continue
      }
    }
    const stop = min(n + 16, end)
    for (; n < stop; n++) if (load<i32>(step + (n << 2)) + 1 >= stepsMax) store<u8>(truncated + n, 1)
  }
}

export function closeRow(
  rowLane: usize,
  rowEpisode: usize,
  rowStep: usize,
  rowEpisodeReturn: usize,
  rowVersion: usize,
  rowNextValue: usize,
  lanesStep: usize,
  lanesEpisodeReturn: usize,
  phase: usize,
  lanesLane: usize,
  lanesEpisode: usize,
  reward: usize,
  terminated: usize,
  truncated: usize,
  valid: usize,
  version: i32,
  endedPhase: i32,
  from: i32,
  to: i32,
): void {
  const version4 = i32x4.splat(version)
  const zero = i32x4.splat(0)
  const end: usize = to
  let n: usize = from
  // A loop with one way out, at its end: V8 of Node 20 moves constants out of no other.
  if (n + 4 <= end) do {
    const at = n << 2
    const acted = flags4(v128.load32_zero(valid + n))
    const step4 = v128.load(lanesStep + at)
    v128.store(rowLane + at, v128.load(lanesLane + at))
    v128.store(rowEpisode + at, v128.load(lanesEpisode + at))
    v128.store(rowVersion + at, version4)
    v128.store(rowNextValue + at, zero)
    v128.store(rowStep + at, v128.or(step4, v128.not(acted))) // −1 where the lanesLane did not act.
    v128.store(lanesStep + at, i32x4.sub(step4, acted)) // The mask is −1 where it did.

    // To add 0 leaves a sum as it is: one that began at 0 is never −0.
    const sums = lanesEpisodeReturn + (n << 3)
    const earned = v128.and(v128.load(reward + at), acted)
    const sum0 = f64x2.add(v128.load(sums), lowPair(earned))
    const sum1 = f64x2.add(v128.load(sums, 16), highPair(earned))
    v128.store(sums, sum0)
    v128.store(sums, sum1, 16)
    const rounded = v128.shuffle<i64>(f32x4.demote_f64x2_zero(sum0), f32x4.demote_f64x2_zero(sum1), 0, 2)
    v128.store(rowEpisodeReturn + at, v128.and(rounded, acted))
    n += 4
  } while (n + 4 <= end)
  for (; n < end; n++) {
    const at = n << 2
    store<i32>(rowLane + at, load<i32>(lanesLane + at))
    store<i32>(rowEpisode + at, load<i32>(lanesEpisode + at))
    store<i32>(rowVersion + at, version)
    store<f32>(rowNextValue + at, 0)
    if (load<u8>(valid + n) == 0) {
      store<i32>(rowStep + at, -1)
      store<f32>(rowEpisodeReturn + at, 0)
      continue
    }
    const taken = load<i32>(lanesStep + at)
    store<i32>(rowStep + at, taken)
    store<i32>(lanesStep + at, taken + 1)
    const sum = load<f64>(lanesEpisodeReturn + (n << 3)) + <f64>load<f32>(reward + at)
    store<f64>(lanesEpisodeReturn + (n << 3), sum)
    store<f32>(rowEpisodeReturn + at, <f32>sum)
  }
  endPhases(phase, terminated, truncated, valid, endedPhase, from, to)
}

/** The phase after the end, where a lane acted and a flag is set. */
function endPhases(
  phase: usize,
  terminated: usize,
  truncated: usize,
  valid: usize,
  endedPhase: i32,
  from: i32,
  to: i32,
): void {
  const zero = i8x16.splat(0)
  const ended = i8x16.splat(<i8>endedPhase)
  const end: usize = to
  let n: usize = from
  for (; n + 16 <= end; n += 16) {
    const goesOn = i8x16.eq(v128.or(v128.load(terminated + n), v128.load(truncated + n)), zero)
    const stays = v128.or(goesOn, i8x16.eq(v128.load(valid + n), zero))
    v128.store(phase + n, v128.bitselect(v128.load(phase + n), ended, stays))
  }
  for (; n < end; n++) {
    const over = load<u8>(terminated + n) | load<u8>(truncated + n)
    if (over != 0 && load<u8>(valid + n) != 0) store<u8>(phase + n, <u8>endedPhase)
  }
}

/** As in the plain twin's `Listed`. */
const GOES_ON = 0
const TRUNCATED = 1
const ENDED = 2
const ANY = 3

export function listRows(
  listRow: usize,
  listObservation: usize,
  observation: usize,
  terminated: usize,
  truncated: usize,
  valid: usize,
  wanted: i32,
  length: i32,
  firstRow: i32,
  width: i32,
  from: i32,
  to: i32,
): i32 {
  const row = <usize>width << 2
  const end: usize = to
  let count = length
  let n: usize = from
  while (n < end) {
    if ((wanted == TRUNCATED || wanted == ENDED) && n + 16 <= end) {
      // Truncated rows are ended ones: sixteen of which none has ended hold neither.
      if (!v128.any_true(v128.or(v128.load(terminated + n), v128.load(truncated + n)))) {
        n += 16
        continue
      }
    }
    const stop = min(n + 16, end)
    for (; n < stop; n++) {
      if (load<u8>(valid + n) == 0 || !isWanted(wanted, load<u8>(terminated + n), load<u8>(truncated + n))) continue
      store<i32>(listRow + (<usize>count << 2), firstRow + <i32>n)
      let into = listObservation + <usize>count * row
      let at = observation + n * row
      for (let k = width; k > 0; k -= 4, into += 16, at += 16) store4(into, load4(at, k), k)
      count++
    }
  }
  return count
}

// @ts-ignore: decorator
@inline
function isWanted(wanted: i32, terminated: u8, truncated: u8): bool {
  if (wanted == ANY) return true
  if (wanted == ENDED) return (terminated | truncated) != 0
  return terminated == 0 && <i32>(truncated != 0) == (wanted == GOES_ON ? 0 : 1)
}

export function completeNextValue(
  previousNextValue: usize,
  value: usize,
  previousTerminated: usize,
  previousTruncated: usize,
  previousValid: usize,
  from: i32,
  to: i32,
): void {
  let flag: usize = from
  let at = flag << 2
  for (let left = to - from; left > 0; left -= 4) {
    const over = flags4(v128.or(loadBytes(previousTerminated + flag, left), loadBytes(previousTruncated + flag, left)))
    const wentOn = v128.andnot(flags4(loadBytes(previousValid + flag, left)), over)
    const into = previousNextValue + at
    store4(into, v128.bitselect(load4(value + at, left), load4(into, left), wentOn), left)
    flag += 4
    at += 16
  }
}

export function scatterValues(nextValue: usize, listRow: usize, listValue: usize, length: i32): void {
  for (let i = 0; i < length; i++, listRow += 4, listValue += 4) {
    store<f32>(nextValue + (<usize>load<u32>(listRow) << 2), load<f32>(listValue))
  }
}
