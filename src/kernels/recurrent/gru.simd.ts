/**
 * A gated recurrent unit, step by step over all lanes; the plain twin `gru.ts` says what is computed. The products with
 * the hidden weights are those of dense layers over the lanes of a step, and the weights' gradient one over all rows.
 */
import { denseBackwardInput, denseBackwardWeights, denseForward, LINEAR } from '../dense/dense.simd'
import { load4, store4, tanhInPlace } from '../vector.simd'
import { addInto, goesOn, sigmoidInPlace, sigmoidSlope, stateBefore, tanhSlope } from './steps.simd'

export function gruForward(
  after: usize,
  gates: usize,
  x: usize,
  weight: usize,
  bias: usize,
  recorded: usize,
  continues: usize,
  carried: usize,
  scratch: usize,
  numLanes: i32,
  length: i32,
  units: i32,
  continuesLength: i32,
  carriedLength: i32,
): void {
  const unit = <usize>units << 2
  const product = scratch + <usize>numLanes * unit
  const one = <f32>min(units, 1)
  for (let t = 0; t < length; t++) {
    for (let n = 0; n < numLanes; n++) {
      const h = stateBefore(after, recorded, continues, carried, continuesLength, carriedLength, n, t, length, unit)
      memory.copy(scratch + <usize>n * unit, h, unit)
    }
    denseForward(product, scratch, weight, bias, numLanes, units, 3 * units, 0, 0, 0)
    for (let n = 0; n < numLanes; n++) {
      const row = <usize>(n * length + t)
      const from = x + 3 * row * unit
      const given = product + 3 * <usize>n * unit
      const r = gates + 4 * row * unit
      addInto(r, from, given, 2 * units)
      sigmoidInPlace(r, 2 * units, one)
      const z = r + unit
      const tanh = z + unit
      const m = tanh + unit
      memory.copy(m, given + 2 * unit, unit)
      for (let left = units, at: usize = 0; left > 0; left -= 4, at += 16) {
        const inner = f32x4.mul(load4(r + at, left), load4(m + at, left))
        store4(tanh + at, f32x4.add(load4(from + 2 * unit + at, left), inner), left)
      }
      tanhInPlace(tanh, units, one)
      const h = scratch + <usize>n * unit
      for (let left = units, at: usize = 0; left > 0; left -= 4, at += 16) {
        const y = load4(tanh + at, left)
        const kept = f32x4.mul(load4(z + at, left), f32x4.sub(load4(h + at, left), y))
        store4(after + row * unit + at, f32x4.add(y, kept), left)
      }
    }
  }
}

/** As `Activation` in the plain twin of the dense layers. */
const LINEAR: i32 = 0

export function gruBackward(
  dX: usize,
  dWeight: usize,
  dBias: usize,
  dAfter: usize,
  after: usize,
  gates: usize,
  weight: usize,
  recorded: usize,
  continues: usize,
  carried: usize,
  scratch: usize,
  numLanes: i32,
  length: i32,
  units: i32,
  continuesLength: i32,
  carriedLength: i32,
): void {
  const unit = <usize>units << 2
  const numRows = numLanes * length
  const hidden = scratch // numRows × units: what each row began with, the lanes of a step together.
  const dProduct = hidden + <usize>numRows * unit // numRows × 3 · units.
  const dState = dProduct + 3 * <usize>numRows * unit // numLanes × units.
  const transposed = dState + <usize>numLanes * unit
  const one = f32x4.splat(1)
  memory.fill(dState, 0, <usize>numLanes * unit)
  for (let t = length - 1; t >= 0; t--) {
    const dStep = dProduct + 3 * <usize>(t * numLanes) * unit
    for (let n = 0; n < numLanes; n++) {
      const row = <usize>(n * length + t)
      const h = hidden + <usize>(t * numLanes + n) * unit
      const before = stateBefore(after, recorded, continues, carried, continuesLength, carriedLength, n, t, length, unit)
      memory.copy(h, before, unit)
      const r = gates + 4 * row * unit
      const into = dX + 3 * row * unit
      const dOf = dStep + 3 * <usize>n * unit
      const dNext = dState + <usize>n * unit
      for (let left = units, at: usize = 0; left > 0; left -= 4, at += 16) {
        const r4 = load4(r + at, left)
        const z4 = load4(r + unit + at, left)
        const n4 = load4(r + 2 * unit + at, left)
        const m4 = load4(r + 3 * unit + at, left)
        const d = f32x4.add(load4(dAfter + row * unit + at, left), load4(dNext + at, left))
        const dN = f32x4.mul(f32x4.mul(d, f32x4.sub(one, z4)), tanhSlope(n4))
        const dR = f32x4.mul(f32x4.mul(dN, m4), sigmoidSlope(r4))
        const dZ = f32x4.mul(f32x4.mul(d, f32x4.sub(load4(h + at, left), n4)), sigmoidSlope(z4))
        store4(into + at, dR, left)
        store4(into + unit + at, dZ, left)
        store4(into + 2 * unit + at, dN, left)
        store4(dOf + at, dR, left)
        store4(dOf + unit + at, dZ, left)
        store4(dOf + 2 * unit + at, f32x4.mul(dN, r4), left)
        store4(dNext + at, f32x4.mul(d, z4), left)
      }
    }
    if (t == 0) break
    denseBackwardInput(dState, dStep, weight, transposed, dState, numLanes, units, 3 * units, true, LINEAR)
    for (let n = 0; n < numLanes; n++) {
      const row = <usize>(n * length + t)
      if (!goesOn(continues, continuesLength, row)) memory.fill(dState + <usize>n * unit, 0, unit)
    }
  }
  memory.fill(dWeight, 0, 3 * <usize>units * unit)
  memory.fill(dBias, 0, 3 * unit)
  denseBackwardWeights(dWeight, dBias, dProduct, hidden, numRows, units, 3 * units, 0)
}
