import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { PpoSum, ppoLoss } from '../../src/kernels/loss/ppo.ts'
import * as fc from '../support/properties.ts'

const INFINITY = Number.POSITIVE_INFINITY

interface Coefficients {
  mean: number
  scale: number
  clip: number
  clipValue: number
  entropy: number
  value: number
  weight: number
}

/** Columns of one block (from row 0) and of its minibatch (from row `from`). */
interface Block {
  numRows: number
  from: number
  logprob: Float32Array
  entropy: Float32Array
  value: Float32Array
  oldLogprob: Float32Array
  oldValue: Float32Array
  advantage: Float32Array
  returns: Float32Array
}

function run(block: Block, c: Coefficients, sums = new Float64Array(PpoSum.length), sumsFrom = 0) {
  const [dLogprob, dEntropy, dValue] = [0, 1, 2].map(() => new Float32Array(block.numRows).fill(Number.NaN)) as [
    Float32Array,
    Float32Array,
    Float32Array,
  ]
  const { logprob, entropy, value, oldLogprob, oldValue, advantage, returns, numRows, from } = block
  const batch = { logprob: oldLogprob, value: oldValue, advantage, return: returns }
  const coefficients = { clipCoef: c.clip, clipValue: c.clipValue, entropyCoef: c.entropy, valueCoef: c.value }
  const settings = { advantageMean: c.mean, advantageScale: c.scale, ...coefficients, weight: c.weight }
  const derivatives = { dLogprob, dEntropy, dValue }
  ppoLoss(derivatives, sums, { logprob, entropy, value }, batch, settings, numRows, from, sumsFrom)
  return { ...derivatives, sums }
}

const clamp = (x: number, low: number, high: number) => (x < low ? low : Math.min(x, high))

/** The terms of one row by equations 7 and 9, in f64, for any logprob, entropy and value. */
function rowTwin(block: Block, c: Coefficients, row: number, logprob: number, entropy: number, value: number) {
  const i = block.from + row
  const ratio = Math.exp(logprob - block.oldLogprob[i]!)
  const advantage = (block.advantage[i]! - c.mean) * c.scale
  const policyLoss = -Math.min(ratio * advantage, clamp(ratio, 1 - c.clip, 1 + c.clip) * advantage)
  const near = block.oldValue[i]! + clamp(value - block.oldValue[i]!, -c.clipValue, c.clipValue)
  const valueLoss = Math.max((value - block.returns[i]!) ** 2, (near - block.returns[i]!) ** 2) / 2
  return {
    policyLoss,
    valueLoss,
    loss: c.weight * (policyLoss + c.value * valueLoss - c.entropy * entropy),
    kl: ratio - 1 - Math.log(ratio),
    clipped: Math.abs(ratio - 1) > c.clip ? 1 : 0,
  }
}

const blocks: fc.Arbitrary<{ block: Block; c: Coefficients }> = fc
  .record({
    numRows: fc.integer({ min: 1, max: 8 }),
    from: fc.integer({ min: 0, max: 5 }),
    seed: fc.nat(),
    clip: fc.constantFrom(0.1, 0.2, 0.5),
    clipValue: fc.constantFrom(INFINITY, 0.2, 1),
  })
  .map(({ numRows, from, seed, clip, clipValue }) => {
    const random = new Random(seed)
    const normals = (stream: number, length: number, mean: number, scale: number) =>
      Float32Array.from({ length }, (_, i) => {
        random.draw(Stream.step, stream, 0, i)
        return mean + scale * random.normal(0, 0)
      })
    return {
      block: {
        numRows,
        from,
        logprob: normals(0, numRows, -2, 0.3),
        entropy: normals(1, numRows, 1, 0.3),
        value: normals(2, numRows, 0, 1),
        oldLogprob: normals(3, from + numRows, -2, 0.3),
        oldValue: normals(4, from + numRows, 0, 1),
        advantage: normals(5, from + numRows, 1, 3),
        returns: normals(6, from + numRows, 0, 2),
      },
      c: { mean: 0.75, scale: 0.4, clip, clipValue, entropy: 0.01, value: 0.5, weight: 1 / 64 },
    }
  })

describe('ppoLoss', () => {
  // Advantages of both signs with ratios above, below and within the clip range; values moved by more and by less than
  // the clip range, towards the return and away from it; one row that did not move at all.
  const golden: Block = {
    numRows: 8,
    from: 0,
    logprob: Float32Array.of(-1, -1, -1, -1, -1, -1, -0.5, -2),
    oldLogprob: Float32Array.of(-1.5, -1.5, -0.5, -0.5, -1.125, -0.875, -0.5, -1),
    advantage: Float32Array.of(2, -1, 2, -1, 1.5, -0.5, 3, 0.5),
    value: Float32Array.of(1, 1, 1, 1, 0, 2, -1, 0.125),
    oldValue: Float32Array.of(0.875, 0, 0, 2, 0.5, 2, -1.125, 1),
    returns: Float32Array.of(2, 2, -1, -1, 3, 2.5, 0, 0.375),
    entropy: Float32Array.of(0.5, 0.625, 0.25, 1, 1.5, 0.75, 0.125, 2),
  }
  const coefficients = { mean: 0.5, scale: 0.75, clip: 0.2, entropy: 0.01, value: 0.5, weight: 1 / 16 }
  // r = (logprob - old).exp(); A = (adv - 0.5) * 0.75
  // pl = torch.max(-A * r, -A * r.clamp(0.8, 1.2))
  // vl = 0.5 * torch.max((value - ret)**2, (oldv + (value - oldv).clamp(-clipv, clipv) - ret)**2)
  // (1 / 16 * (pl + 0.5 * vl - 0.01 * ent).sum()).backward()
  // logprob.grad; value.grad
  // pl.sum(), vl.sum(), ent.sum(), (r - 1 - (logprob - old)).sum(), ((r - 1).abs() > 0.2).sum()
  const byLogprob = [0, 0.115925714346, -0.042646687011, 0, -0.0531163337375, 0.0413670423087, -0.1171875, 0]
  test.each([
    [
      0.25,
      [-0.03125, 0, 0.0625, 0, -0.09375, -0.015625, -0.03125, 0],
      [-1.3405242255, 13.0078125, 6.75, 0.894028657648, 5],
    ],
    [
      INFINITY,
      [-0.03125, -0.03125, 0.0625, 0.0625, -0.09375, -0.015625, -0.03125, -0.0078125],
      [-1.3405242255, 10.15625, 6.75, 0.894028657648, 5],
    ],
  ])('with values clipped at %d gives the gradients and the sums that torch gives', (clipValue, byValue, totals) => {
    const { dLogprob, dEntropy, dValue, sums } = run(golden, { ...coefficients, clipValue })
    for (let row = 0; row < 8; row++) {
      expect(dLogprob[row]).toBeCloseTo(byLogprob[row]!, 7)
      expect(dValue[row]).toBeCloseTo(byValue[row]!, 7)
      expect(dEntropy[row]).toBeCloseTo(-0.000625, 9)
    }
    for (const [i, total] of totals.entries()) expect(sums[i]).toBeCloseTo(total, 9)
  })

  test('equals the central differences of the formula', () => {
    const H = 1e-5
    fc.assert(
      fc.property(blocks, ({ block, c }) => {
        const { dLogprob, dEntropy, dValue } = run(block, c)
        for (let row = 0; row < block.numRows; row++) {
          const i = block.from + row
          const at = [block.logprob[row]!, block.entropy[row]!, block.value[row]!] as const
          // Near a kink there is no derivative to compare with.
          const ratio = Math.exp(at[0] - block.oldLogprob[i]!)
          if (Math.abs(Math.abs(ratio - 1) - c.clip) < 1e-3) continue
          const change = at[2] - block.oldValue[i]!
          const error = at[2] - block.returns[i]!
          const near = block.oldValue[i]! + clamp(change, -c.clipValue, c.clipValue) - block.returns[i]!
          if (Math.abs(Math.abs(change) - c.clipValue) < 1e-3) continue
          if (Math.abs(change) > c.clipValue && Math.abs(Math.abs(error) - Math.abs(near)) < 1e-3) continue
          for (const [part, actual] of [dLogprob[row]!, dEntropy[row]!, dValue[row]!].entries()) {
            const loss = (step: number) => {
              const moved = at.with(part, at[part]! + step) as [number, number, number]
              return rowTwin(block, c, row, ...moved).loss
            }
            const difference = (loss(H) - loss(-H)) / (2 * H)
            // Differences are good to 1e-9 here; the rest is one rounding to f32.
            expect(Math.abs(actual - difference)).toBeLessThan(1e-7 * Math.max(1, Math.abs(difference)))
          }
        }
      }),
      { numRuns: 500 },
    )
  })

  test('adds the sums of its rows from `sumsFrom` on, and to no other element', () => {
    fc.assert(
      fc.property(blocks, fc.integer({ min: 0, max: 3 }), ({ block, c }, sumsFrom) => {
        const sums = new Float64Array(sumsFrom + PpoSum.length + 2).fill(100)
        run(block, c, sums, sumsFrom)
        const expected = new Float64Array(PpoSum.length)
        for (let row = 0; row < block.numRows; row++) {
          const terms = rowTwin(block, c, row, block.logprob[row]!, block.entropy[row]!, block.value[row]!)
          expected[PpoSum.policyLoss]! += terms.policyLoss
          expected[PpoSum.valueLoss]! += terms.valueLoss
          expected[PpoSum.entropy]! += block.entropy[row]!
          expected[PpoSum.approxKl]! += terms.kl
          expected[PpoSum.clipped]! += terms.clipped
        }
        for (const [i, value] of sums.entries()) {
          const added = expected[i - sumsFrom] ?? 0
          expect(Math.abs(value - 100 - added)).toBeLessThan(1e-10)
        }
      }),
    )
  })

  test('adds up over the blocks of a minibatch', () => {
    fc.assert(
      fc.property(blocks, ({ block, c }) => {
        const whole = run(block, c)
        const split = Math.floor(block.numRows / 2)
        const part = (first: number, numRows: number): Block => ({
          ...block,
          numRows,
          from: block.from + first,
          logprob: block.logprob.subarray(first),
          entropy: block.entropy.subarray(first),
          value: block.value.subarray(first),
        })
        const low = run(part(0, split), c)
        const high = run(part(split, block.numRows - split), c, low.sums)
        expect([...low.dLogprob, ...high.dLogprob]).toEqual([...whole.dLogprob])
        expect([...low.dValue, ...high.dValue]).toEqual([...whole.dValue])
        for (const [i, sum] of whole.sums.entries()) expect(high.sums[i]).toBeCloseTo(sum, 10)
      }),
    )
  })

  test('has the policy gradient of the advantages where the policy has not moved yet', () => {
    const block = { ...golden, oldLogprob: golden.logprob, oldValue: golden.value }
    const { dLogprob, dValue, sums } = run(block, { ...coefficients, clipValue: 0.25 })
    for (let row = 0; row < 8; row++) {
      expect(dLogprob[row]).toBeCloseTo((-(golden.advantage[row]! - 0.5) * 0.75) / 16, 9)
      expect(dValue[row]).toBeCloseTo(((golden.value[row]! - golden.returns[row]!) * 0.5) / 16, 9)
    }
    expect([sums[PpoSum.approxKl], sums[PpoSum.clipped]]).toEqual([0, 0])
  })
})
