import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { klEstimates } from '../../src/kernels/loss/kl.ts'
import * as fc from '../support/properties.ts'

function run(logprob: Float32Array, oldLogprob: Float32Array, numRows = logprob.length): [number, number, number] {
  const estimates = new Float64Array(3).fill(Number.NaN)
  klEstimates(estimates, logprob, oldLogprob, numRows)
  return [...estimates] as [number, number, number]
}

const logprobs = fc.float({ min: -20, max: 5, noNaN: true })

describe('klEstimates', () => {
  test('gives the figures that torch gives', () => {
    const estimates = run(Float32Array.of(-1, -0.5, -2, -0.125), Float32Array.of(-1.25, -0.25, -2.5, -1.125))
    // l = new - old
    // (-l).mean(), (0.5 * l * l).mean(), (l.exp() - 1 - l).mean()
    for (const [i, expected] of [-0.375, 0.171875, 0.23245732473].entries()) {
      expect(estimates[i]).toBeCloseTo(expected, 10)
    }
  })

  test('equals the means of the three formulas', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(logprobs, logprobs), { minLength: 1, maxLength: 50, size: 'max' }), (pairs) => {
        const estimates = run(
          Float32Array.from(pairs, (pair) => pair[0]),
          Float32Array.from(pairs, (pair) => pair[1]),
        )
        const ratios = pairs.map(([now, old]) => Math.exp(now) / Math.exp(old))
        const mean = (of: (ratio: number) => number) =>
          ratios.reduce((sum, ratio) => sum + of(ratio), 0) / ratios.length
        const expected = [
          mean((r) => -Math.log(r)),
          mean((r) => 0.5 * Math.log(r) ** 2),
          mean((r) => r - 1 - Math.log(r)),
        ]
        for (const [i, value] of expected.entries()) {
          // f64 on both sides; exp(25) of cancelling terms leaves about 1e-14 relative.
          expect(Math.abs(estimates[i]! - value)).toBeLessThanOrEqual(1e-12 * Math.max(1, Math.abs(value)))
        }
      }),
    )
  })

  test('are all 0 for a policy that has not changed, and k2 and k3 are never negative', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(logprobs, logprobs), { minLength: 1 }), (pairs) => {
        const now = Float32Array.from(pairs, (pair) => pair[0])
        const [, k2, k3] = run(
          now,
          Float32Array.from(pairs, (pair) => pair[1]),
        )
        expect(k2).toBeGreaterThanOrEqual(0)
        // Not negative but for the rounding of exp near 1.
        expect(k3).toBeGreaterThanOrEqual(-(2 ** -52))
        expect(run(now, now).map(Math.abs)).toEqual([0, 0, 0])
      }),
    )
  })

  test('come near the divergence of two normals, which is known', () => {
    // KL(N(0, 1) ‖ N(0.3, 1)) = 0.3² / 2; the log of the ratio is 0.3 a − 0.045 for a drawn from the old policy.
    const n = 50_000
    const random = new Random(3)
    const logprob = new Float32Array(n)
    for (let i = 0; i < n; i++) {
      random.draw(Stream.step, 0, 0, i)
      logprob[i] = 0.3 * random.normal(0, 0) - 0.045
    }
    const [k1, k2, k3] = run(logprob, new Float32Array(n))
    // Five standard errors: those of k1 are 0.3 / √n, the others' less than 0.08 / √n; k2 is biased by 0.045² / 2.
    expect(Math.abs(k1 - 0.045)).toBeLessThan((5 * 0.3) / Math.sqrt(n))
    expect(Math.abs(k2 - 0.045 - 0.045 ** 2 / 2)).toBeLessThan((5 * 0.08) / Math.sqrt(n))
    expect(Math.abs(k3 - 0.045)).toBeLessThan((5 * 0.08) / Math.sqrt(n))
  })

  test('reads `numRows` rows and no more', () => {
    expect(run(Float32Array.of(-1, Number.NaN), Float32Array.of(-2, 0), 1)).toEqual(
      run(Float32Array.of(-1), Float32Array.of(-2)),
    )
  })
})
