/** A long short-term memory, step by step over all lanes, as `gru.simd.ts`; the plain twin `lstm.ts` says what is computed. */
import { denseBackwardInput, denseBackwardWeights, denseForward, LINEAR } from '../dense/dense.simd'
import { load4, store4, tanhInPlace } from '../vector.simd'
import { addInto, goesOn, sigmoidInPlace, sigmoidSlope, stateBefore, tanhSlope } from './steps.simd'

export function lstmForward(
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
      const h = stateBefore(after, recorded, continues, carried, continuesLength, carriedLength, n, t, length, 2 * unit)
      memory.copy(scratch + <usize>n * unit, h, unit)
    }
    denseForward(product, scratch, weight, bias, numLanes, units, 4 * units, 0, 0, 0)
    for (let n = 0; n < numLanes; n++) {
      const row = <usize>(n * length + t)
      const i = gates + 5 * row * unit
      const g = i + 2 * unit
      const o = g + unit
      const tanh = o + unit
      addInto(i, x + 4 * row * unit, product + 4 * <usize>n * unit, 4 * units)
      sigmoidInPlace(i, 2 * units, one)
      tanhInPlace(g, units, one)
      sigmoidInPlace(o, units, one)
      const before =
        stateBefore(after, recorded, continues, carried, continuesLength, carriedLength, n, t, length, 2 * unit) + unit
      const h = after + 2 * row * unit
      for (let left = units, at: usize = 0; left > 0; left -= 4, at += 16) {
        const kept = f32x4.mul(load4(i + unit + at, left), load4(before + at, left))
        const s = f32x4.add(kept, f32x4.mul(load4(i + at, left), load4(g + at, left)))
        store4(h + unit + at, s, left)
        store4(tanh + at, s, left)
      }
      tanhInPlace(tanh, units, one)
      for (let left = units, at: usize = 0; left > 0; left -= 4, at += 16) {
        store4(h + at, f32x4.mul(load4(o + at, left), load4(tanh + at, left)), left)
      }
    }
  }
}

/** As `Activation` in the plain twin of the dense layers. */
const LINEAR: i32 = 0

export function lstmBackward(
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
  const dProduct = hidden + <usize>numRows * unit // numRows × 4 · units.
  const dHidden = dProduct + 4 * <usize>numRows * unit // numLanes × units, by the h of the row at hand; then by its s.
  const dCell = dHidden + <usize>numLanes * unit
  const transposed = dCell + <usize>numLanes * unit // (4 · units + 1) × units.
  memory.fill(dHidden, 0, 2 * <usize>numLanes * unit)
  for (let t = length - 1; t >= 0; t--) {
    const dStep = dProduct + 4 * <usize>(t * numLanes) * unit
    for (let n = 0; n < numLanes; n++) {
      const row = <usize>(n * length + t)
      const before = stateBefore(after, recorded, continues, carried, continuesLength, carriedLength, n, t, length, 2 * unit)
      memory.copy(hidden + <usize>(t * numLanes + n) * unit, before, unit)
      const i = gates + 5 * row * unit
      const d = dAfter + 2 * row * unit
      const dOf = dStep + 4 * <usize>n * unit
      const dH = dHidden + <usize>n * unit
      const dS = dCell + <usize>n * unit
      for (let left = units, at: usize = 0; left > 0; left -= 4, at += 16) {
        const i4 = load4(i + at, left)
        const f4 = load4(i + unit + at, left)
        const g4 = load4(i + 2 * unit + at, left)
        const o4 = load4(i + 3 * unit + at, left)
        const tanh4 = load4(i + 4 * unit + at, left)
        const byH = f32x4.add(load4(d + at, left), load4(dH + at, left))
        const byCell = f32x4.add(load4(d + unit + at, left), load4(dS + at, left))
        const byS = f32x4.add(byCell, f32x4.mul(f32x4.mul(byH, o4), tanhSlope(tanh4)))
        store4(dOf + at, f32x4.mul(f32x4.mul(byS, g4), sigmoidSlope(i4)), left)
        store4(dOf + unit + at, f32x4.mul(f32x4.mul(byS, load4(before + unit + at, left)), sigmoidSlope(f4)), left)
        store4(dOf + 2 * unit + at, f32x4.mul(f32x4.mul(byS, i4), tanhSlope(g4)), left)
        store4(dOf + 3 * unit + at, f32x4.mul(f32x4.mul(byH, tanh4), sigmoidSlope(o4)), left)
        store4(dS + at, f32x4.mul(byS, f4), left)
      }
      memory.copy(dX + 4 * row * unit, dOf, 4 * unit)
    }
    if (t == 0) break
    denseBackwardInput(dHidden, dStep, weight, transposed, dHidden, numLanes, units, 4 * units, false, LINEAR)
    for (let n = 0; n < numLanes; n++) {
      if (goesOn(continues, continuesLength, <usize>(n * length + t))) continue
      memory.fill(dHidden + <usize>n * unit, 0, unit)
      memory.fill(dCell + <usize>n * unit, 0, unit)
    }
  }
  memory.fill(dWeight, 0, 4 * <usize>units * unit)
  memory.fill(dBias, 0, 4 * unit)
  denseBackwardWeights(dWeight, dBias, dProduct, hidden, numRows, units, 4 * units, 0)
}
