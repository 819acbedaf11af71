import { describe, expect, test } from 'vitest'
import { type Correction, correctionWeights } from '../../src/kernels/loss/correction.ts'
import { spansOf } from '../../src/kernels/spans.ts'
import { strict } from './calls.ts'

/** Log-ratios of old to behavior logprobs; three sequences, the second with a token that does not count. */
const logRatio = [0.2, -0.4, 1.5, 0.1, -2, 0.3, 0.05]
const counted = [1, 1, 1, 0, 1, 1, 1]
const spans = spansOf(Int32Array.of(0, 2, 5, 7))

function run(correction: Correction, low: number, high: number, countsRejected = true) {
  const mask = Uint8Array.from(counted)
  const weight = new Float32Array(7).fill(9)
  const old = Float32Array.from(logRatio)
  const behavior = new Float32Array(7)
  const columns = [weight, mask, old, behavior, spans] as const
  const rejected = strict(correctionWeights)(...columns, correction, low, high, countsRejected, 3)
  return { weight: [...weight].map((w) => Number(w.toFixed(4))), mask: [...mask], rejected }
}

const e = (x: number) => Number(Math.exp(x).toFixed(4))

describe('correctionWeights', () => {
  test('TIS truncates the ratio of each token', () => {
    const { weight, rejected } = run('token-truncate', 0.5, 2)
    expect(weight).toEqual([e(0.2), e(-0.4), 2, 0, 0.5, e(0.3), e(0.05)])
    expect(rejected).toBe(0)
  })

  test('IcePop drops tokens whose ratio is beyond its bounds', () => {
    expect(run('token-mask', 0.5, 2)).toEqual({
      weight: [e(0.2), e(-0.4), 0, 0, 0, e(0.3), e(0.05)],
      mask: counted,
      rejected: 2,
    })
  })

  test('a sequence has one ratio, of its counted tokens', () => {
    const [first, second, third] = [e(-0.2), e(-0.5), e(0.35)]
    expect(run('sequence-truncate', 0.7, 1.2).weight).toEqual([first, first, 0.7, 0, 0.7, 1.2, 1.2])
    expect(run('sequence-mask', 0.7, 1.5).weight).toEqual([first, first, 0, 0, 0, third, third])
    expect(run('sequence-mask', 0, 1).weight).toEqual([first, first, second, 0, second, 0, 0])
  })

  test('rejected tokens stay in the denominator, or leave it', () => {
    expect(run('sequence-mask', 0.7, 1.5, true).mask).toEqual(counted)
    expect(run('sequence-mask', 0.7, 1.5, false).mask).toEqual([1, 1, 0, 0, 0, 1, 1])
  })

  test('a sequence has the same weights alone and in company', () => {
    const [old, behavior] = [Float32Array.from(logRatio), new Float32Array(7)]
    for (const correction of ['token-mask', 'sequence-truncate'] as const) {
      const [all, alone] = [new Float32Array(7), new Float32Array(7)]
      const mask = Uint8Array.from(counted)
      correctionWeights(all, mask, old, behavior, spans, correction, 0, 2, true, 3)
      const last = { begin: spans.begin.subarray(2), end: spans.end.subarray(2) }
      correctionWeights(alone, mask, old, behavior, last, correction, 0, 2, true, 1)
      expect(alone.slice(5)).toEqual(all.slice(5))
    }
  })

  test('without a bound the weights make a bandit’s gradient unbiased; with one they do not', () => {
    // E over β of w · A ∇ℓ is E over π of A ∇ℓ: each outcome is a token, weighed by its probability under β.
    const log = (p: number[]) => p.map(Math.log)
    const [policy, behavior, advantage] = [
      [0.7, 0.2, 0.1],
      [0.2, 0.3, 0.5],
      [1, -0.5, 0.25],
    ]
    const gradient = (high: number) => {
      const [old, drawn] = [Float32Array.from(log(policy)), Float32Array.from(log(behavior))]
      const weight = new Float32Array(3)
      const bounds = spansOf(Int32Array.of(0, 1, 2, 3))
      correctionWeights(weight, Uint8Array.of(1, 1, 1), old, drawn, bounds, 'token-truncate', 0, high, true, 3)
      return policy.map((p, j) =>
        behavior.reduce((sum, b, k) => sum + b * weight[k]! * advantage[k]! * ((j === k ? 1 : 0) - p), 0),
      )
    }
    const mean = policy.reduce((sum, p, k) => sum + p * advantage[k]!, 0)
    const truth = policy.map((p, j) => p * (advantage[j]! - mean))
    const apart = (x: number[]) => Math.max(...x.map((value, j) => Math.abs(value - truth[j]!)))
    expect(apart(gradient(Number.POSITIVE_INFINITY))).toBeLessThan(1e-6)
    expect(apart(gradient(1.5))).toBeGreaterThan(0.01)
  })
})
