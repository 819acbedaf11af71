/**
 * Categorical distributions, four rows at a time, one a lane; the plain twin `categorical.ts` has the formulas. In f32,
 * shifted by the segment's maximum. Each kernel is one body for four rows, inlined
 * twice: for whole groups and for the rows that are left. The lanes that are left over in the last four rows repeat the first of them and are not
 * stored. A logprob is (z − max) − log Σ exp(z − max) by the same operations in every kernel, so what was sampled and what
 * is evaluated have the same bits.
 */
import { exp4, gather4, load4, log4, scatter4, store4 } from '../vector.simd'

export function maskLogits(logits: usize, mask: usize, numRows: i32, numLogits: i32, from: i32): void {
  const masked = f32x4.splat(-1e9)
  const zero = i32x4.splat(0)
  const length = <usize>(numRows * numLogits)
  mask += <usize>(from * numLogits)
  let i: usize = 0
  for (; i + 4 <= length; i += 4) {
    const bytes = v128.load32_zero(mask + i)
    const illegal = i32x4.eq(i32x4.extend_low_i16x8_u(i16x8.extend_low_i8x16_u(bytes)), zero)
    v128.store(logits + (i << 2), v128.bitselect(masked, v128.load(logits + (i << 2)), illegal))
  }
  for (; i < length; i++) if (load<u8>(mask + i) == 0) store<f32>(logits + (i << 2), -1e9)
}

export function categoricalSample(
  action: usize,
  logprob: usize,
  logits: usize,
  uniform: usize,
  sizes: usize,
  numRows: i32,
  numChoices: i32,
  numLogits: i32,
  from: i32,
): void {
  const logitsRow = <usize>numLogits << 2
  const row = <usize>numChoices << 2
  action += <usize>from * row
  logprob += <usize>from << 2
  let left = numRows
  for (; left >= 4; left -= 4) {
    sample4(action, logprob, logits, uniform, sizes, numChoices, logitsRow, row, 4)
    action += row << 2
    uniform += row << 2
    logits += logitsRow << 2
    logprob += 16
  }
  if (left > 0) sample4(action, logprob, logits, uniform, sizes, numChoices, logitsRow, row, left)
}

// @ts-ignore: decorator
@inline
function sample4(
  action: usize,
  logprob: usize,
  logits: usize,
  uniform: usize,
  sizes: usize,
  numChoices: i32,
  logitsRow: usize,
  row: usize,
  left: i32,
): void {
  const z1 = left > 1 ? logitsRow : 0
  const z2 = left > 2 ? 2 * logitsRow : 0
  const z3 = left > 3 ? 3 * logitsRow : 0
  const u1 = left > 1 ? row : 0
  const u2 = left > 2 ? 2 * row : 0
  const u3 = left > 3 ? 3 * row : 0
  let sumLogprob = f32x4.splat(0)
  let z = logits
  for (let c = 0; c < numChoices; c++) {
    const size = load<i32>(sizes + (<usize>c << 2))
    const max = maximum(z, z1, z2, z3, size)
    const total = sumExp(z, z1, z2, z3, size, max)
    const threshold = f32x4.mul(gather4(uniform + (<usize>c << 2), u1, u2, u3), total)
    let chosen = i32x4.splat(0)
    let cumulative = f32x4.splat(0)
    let candidate = gather4(z, z1, z2, z3)
    let picked = candidate
    for (let j = 1; j < size; j++) {
      cumulative = f32x4.add(cumulative, exp4(f32x4.sub(candidate, max)))
      const passed = f32x4.le(cumulative, threshold)
      candidate = gather4(z + (<usize>j << 2), z1, z2, z3)
      picked = v128.bitselect(candidate, picked, passed)
      chosen = i32x4.sub(chosen, passed) // The mask is −1 where it is set.
    }
    scatter4(action + (<usize>c << 2), row, chosen, left)
    sumLogprob = f32x4.add(sumLogprob, f32x4.sub(f32x4.sub(picked, max), log4(total)))
    z += <usize>size << 2
  }
  store4(logprob, sumLogprob, left)
}

export function categoricalMode(
  action: usize,
  logprob: usize,
  logits: usize,
  sizes: usize,
  numRows: i32,
  numChoices: i32,
  numLogits: i32,
  from: i32,
): void {
  const logitsRow = <usize>numLogits << 2
  const row = <usize>numChoices << 2
  action += <usize>from * row
  logprob += <usize>from << 2
  for (let left = numRows; left > 0; left -= 4) {
    const z1 = left > 1 ? logitsRow : 0
    const z2 = left > 2 ? 2 * logitsRow : 0
    const z3 = left > 3 ? 3 * logitsRow : 0
    let sumLogprob = f32x4.splat(0)
    let z = logits
    for (let c = 0; c < numChoices; c++) {
      const size = load<i32>(sizes + (<usize>c << 2))
      let best = i32x4.splat(0)
      let max = gather4(z, z1, z2, z3)
      for (let j = 1; j < size; j++) {
        const candidate = gather4(z + (<usize>j << 2), z1, z2, z3)
        const better = f32x4.gt(candidate, max)
        max = v128.bitselect(candidate, max, better)
        best = v128.bitselect(i32x4.splat(j), best, better)
      }
      scatter4(action + (<usize>c << 2), row, best, left)
      sumLogprob = f32x4.sub(sumLogprob, log4(sumExp(z, z1, z2, z3, size, max)))
      z += <usize>size << 2
    }
    store4(logprob, sumLogprob, left)
    action += row << 2
    logits += logitsRow << 2
    logprob += 16
  }
}

export function categoricalEvaluate(
  logprob: usize,
  entropy: usize,
  action: usize,
  logits: usize,
  sizes: usize,
  numRows: i32,
  numChoices: i32,
  numLogits: i32,
  from: i32,
): void {
  const logitsRow = <usize>numLogits << 2
  const row = <usize>numChoices << 2
  action += <usize>from * row
  let left = numRows
  for (; left >= 4; left -= 4) {
    evaluate4(logprob, entropy, action, logits, sizes, numChoices, logitsRow, row, 4)
    action += row << 2
    logits += logitsRow << 2
    logprob += 16
    entropy += 16
  }
  if (left > 0) evaluate4(logprob, entropy, action, logits, sizes, numChoices, logitsRow, row, left)
}

// @ts-ignore: decorator
@inline
function evaluate4(
  logprob: usize,
  entropy: usize,
  action: usize,
  logits: usize,
  sizes: usize,
  numChoices: i32,
  logitsRow: usize,
  row: usize,
  left: i32,
): void {
  const z1 = left > 1 ? logitsRow : 0
  const z2 = left > 2 ? 2 * logitsRow : 0
  const z3 = left > 3 ? 3 * logitsRow : 0
  const a1 = left > 1 ? row : 0
  const a2 = left > 2 ? 2 * row : 0
  const a3 = left > 3 ? 3 * row : 0
  let sumLogprob = f32x4.splat(0)
  let sumEntropy = f32x4.splat(0)
  let z = logits
  for (let c = 0; c < numChoices; c++) {
    const size = load<i32>(sizes + (<usize>c << 2))
    const max = maximum(z, z1, z2, z3, size)
    const chosen = gather4(action + (<usize>c << 2), a1, a2, a3)
    let picked = gather4(z, z1, z2, z3)
    let total = f32x4.splat(0)
    let weighted = f32x4.splat(0)
    for (let j = 0; j < size; j++) {
      const candidate = gather4(z + (<usize>j << 2), z1, z2, z3)
      const shifted = f32x4.sub(candidate, max)
      const e = exp4(shifted)
      total = f32x4.add(total, e)
      weighted = f32x4.add(weighted, f32x4.mul(e, shifted))
      picked = v128.bitselect(candidate, picked, i32x4.eq(chosen, i32x4.splat(j)))
    }
    const logTotal = log4(total)
    sumLogprob = f32x4.add(sumLogprob, f32x4.sub(f32x4.sub(picked, max), logTotal))
    sumEntropy = f32x4.add(sumEntropy, f32x4.sub(logTotal, f32x4.div(weighted, total)))
    z += <usize>size << 2
  }
  store4(logprob, sumLogprob, left)
  store4(entropy, sumEntropy, left)
}

export function categoricalBackward(
  dLogits: usize,
  dLogprob: usize,
  dEntropy: usize,
  action: usize,
  logits: usize,
  sizes: usize,
  numRows: i32,
  numChoices: i32,
  numLogits: i32,
  from: i32,
): void {
  const logitsRow = <usize>numLogits << 2
  const row = <usize>numChoices << 2
  action += <usize>from * row
  let left = numRows
  for (; left >= 4; left -= 4) {
    backward4(dLogits, dLogprob, dEntropy, action, logits, sizes, numChoices, logitsRow, row, 4)
    action += row << 2
    logits += logitsRow << 2
    dLogits += logitsRow << 2
    dLogprob += 16
    dEntropy += 16
  }
  if (left > 0) backward4(dLogits, dLogprob, dEntropy, action, logits, sizes, numChoices, logitsRow, row, left)
}

// @ts-ignore: decorator
@inline
function backward4(
  dLogits: usize,
  dLogprob: usize,
  dEntropy: usize,
  action: usize,
  logits: usize,
  sizes: usize,
  numChoices: i32,
  logitsRow: usize,
  row: usize,
  left: i32,
): void {
  const one = f32x4.splat(1)
  const z1 = left > 1 ? logitsRow : 0
  const z2 = left > 2 ? 2 * logitsRow : 0
  const z3 = left > 3 ? 3 * logitsRow : 0
  const a1 = left > 1 ? row : 0
  const a2 = left > 2 ? 2 * row : 0
  const a3 = left > 3 ? 3 * row : 0
  const byLogprob = load4(dLogprob, left)
  const byEntropy = load4(dEntropy, left)
  let z = logits
  let dz = dLogits
  for (let c = 0; c < numChoices; c++) {
    const size = load<i32>(sizes + (<usize>c << 2))
    const max = maximum(z, z1, z2, z3, size)
    const chosen = gather4(action + (<usize>c << 2), a1, a2, a3)
    let total = f32x4.splat(0)
    let weighted = f32x4.splat(0)
    for (let j = 0; j < size; j++) {
      const shifted = f32x4.sub(gather4(z + (<usize>j << 2), z1, z2, z3), max)
      const e = exp4(shifted)
      total = f32x4.add(total, e)
      weighted = f32x4.add(weighted, f32x4.mul(e, shifted))
    }
    const perTotal = f32x4.div(one, total)
    const mean = f32x4.mul(weighted, perTotal) // log p + H = (z − max) − Σ p (z − max).
    for (let j = 0; j < size; j++) {
      const shifted = f32x4.sub(gather4(z + (<usize>j << 2), z1, z2, z3), max)
      const p = f32x4.mul(exp4(shifted), perTotal)
      const hit = v128.and(one, i32x4.eq(chosen, i32x4.splat(j)))
      const dz4 = f32x4.sub(
        f32x4.mul(byLogprob, f32x4.sub(hit, p)),
        f32x4.mul(f32x4.mul(byEntropy, p), f32x4.sub(shifted, mean)),
      )
      scatter4(dz + (<usize>j << 2), logitsRow, dz4, left)
    }
    z += <usize>size << 2
    dz += <usize>size << 2
  }
}

// @ts-ignore: decorator
@inline
function maximum(z: usize, z1: usize, z2: usize, z3: usize, size: i32): v128 {
  let max = gather4(z, z1, z2, z3)
  for (let j = 1; j < size; j++) max = f32x4.max(max, gather4(z + (<usize>j << 2), z1, z2, z3))
  return max
}

// @ts-ignore: decorator
@inline
function sumExp(z: usize, z1: usize, z2: usize, z3: usize, size: i32, max: v128): v128 {
  let total = f32x4.splat(0)
  for (let j = 0; j < size; j++) {
    total = f32x4.add(total, exp4(f32x4.sub(gather4(z + (<usize>j << 2), z1, z2, z3), max)))
  }
  return total
}
