import { describe, expect, test } from 'vitest'
import { crossEntropyLoss, TokenSum, valueLoss } from '../../src/kernels/loss/tokens.ts'
import { spansOf } from '../../src/kernels/spans.ts'
import { Numbers, strict } from './calls.ts'

const spans = spansOf(Int32Array.of(0, 3, 4, 9))
const counted = Uint8Array.of(0, 1, 1, 0, 1, 0, 1, 1, 1)

function run(
  kind: 'cross-entropy' | 'value',
  columns: Float32Array[],
  perSequence: boolean,
  clip = 0.2,
  whole: Int32Array | null = null,
) {
  const slope = new Float32Array(9).fill(9)
  const sums = new Float64Array(TokenSum.length)
  const [x, old, returns] = columns as [Float32Array, Float32Array, Float32Array]
  if (kind === 'cross-entropy') strict(crossEntropyLoss)(slope, sums, x, counted, spans, whole, perSequence, 5, 0, 3)
  else {
    const settings = { clipValue: clip, valueCoef: 0.5 }
    strict(valueLoss)(slope, sums, x, old, { returns, counted }, spans, whole, settings, perSequence, 5, 0, 3)
  }
  return { slope, loss: sums[TokenSum.loss]!, tokens: sums[TokenSum.tokens] }
}

const length = (t: number) => (t < 3 ? 2 : 4)

describe('crossEntropyLoss', () => {
  test('is −Σ ℓ over the tokens that count, each token as much as any other', () => {
    const logprob = new Numbers(1).floats(9, -4, 0)
    const { slope, loss, tokens } = run('cross-entropy', [logprob], false)
    const sum = logprob.reduce((all, l, t) => all + (counted[t] ? l : 0), 0)
    expect(loss).toBeCloseTo(-sum / 5, 6)
    expect(tokens).toBe(6)
    expect([...slope]).toEqual([...counted].map((c) => (c ? Math.fround(-1 / 5) : 0)))
  })

  test('by sequence, each sequence counts as much as any other', () => {
    const logprob = new Numbers(2).floats(9, -4, 0)
    const { slope, loss } = run('cross-entropy', [logprob], true)
    let sum = 0
    logprob.forEach((l, t) => {
      if (counted[t]) sum -= l / length(t) / 5
      expect(slope[t]).toBeCloseTo(counted[t] ? -1 / length(t) / 5 : 0, 7)
    })
    expect(loss).toBeCloseTo(sum, 6)
  })
})

describe('valueLoss', () => {
  test('loss and derivative are those of the scalar twin', () => {
    for (let seed = 0; seed < 40; seed++) {
      const numbers = new Numbers(seed)
      const columns = [numbers.floats(9), numbers.floats(9), numbers.floats(9)]
      const [value, old, returns] = columns as [Float32Array, Float32Array, Float32Array]
      for (const clip of [0.2, Number.POSITIVE_INFINITY]) {
        for (const perSequence of [false, true]) {
          const term = (t: number, v: number) => {
            const near = old[t]! + Math.min(Math.max(v - old[t]!, -clip), clip)
            const square = Math.max((v - returns[t]!) ** 2, (near - returns[t]!) ** 2)
            return counted[t] ? (0.5 * 0.5 * square) / 5 / (perSequence ? length(t) : 1) : 0
          }
          const { slope, loss } = run('value', columns, perSequence, clip)
          expect(loss).toBeCloseTo(
            value.reduce((sum, v, t) => sum + term(t, v), 0),
            8,
          )
          value.forEach((v, t) => {
            expect(slope[t]).toBeCloseTo((term(t, v + 1e-6) - term(t, v - 1e-6)) / 2e-6, 5)
          })
        }
      }
    }
  })
})

test.each(['cross-entropy', 'value'] as const)(
  '%s by sequence: segments are divided by the tokens of their conversation',
  (kind) => {
    const numbers = new Numbers(5)
    const columns = [numbers.floats(9, -4, 0), numbers.floats(9), numbers.floats(9)]
    const { slope } = run(kind, columns, true, 0.2, Int32Array.of(6, 3, 6)) // The first and the last are one conversation's.
    const alone = run(kind, columns, false)
    alone.slope.forEach((each, t) => {
      expect(slope[t]).toBeCloseTo(each / 6, 7)
    })
    expect(alone.slope.some((each) => each !== 0)).toBe(true)
  },
)
