import { expect, test } from 'vitest'
import { A2cSum, a2cLoss } from '../../src/kernels/loss/a2c.ts'
import * as fc from '../support/properties.ts'

const numbers = (length: number) =>
  fc.array(fc.double({ min: -3, max: 3, noNaN: true }), { minLength: length, maxLength: length })

const cases = fc
  .record({ numRows: fc.integer({ min: 0, max: 9 }), from: fc.integer({ min: 0, max: 4 }) })
  .chain(({ numRows, from }) =>
    fc.record({
      numRows: fc.constant(numRows),
      from: fc.constant(from),
      sumsFrom: fc.integer({ min: 0, max: 4 }),
      logprob: numbers(numRows),
      entropy: numbers(numRows),
      value: numbers(numRows),
      advantage: numbers(from + numRows),
      returns: numbers(from + numRows),
    }),
  )

const settings = { advantageMean: 0.3, advantageScale: 1.7, entropyCoef: 0.2, valueCoef: 0.6, weight: 1 / 7 }

/** The terms of a row, in f64. */
function termsOf(advantage: number, returns: number, [logprob, entropy, value]: readonly [number, number, number]) {
  const policyLoss = -(advantage - settings.advantageMean) * settings.advantageScale * logprob
  const valueLoss = (value - returns) ** 2 / 2
  const whole = policyLoss + settings.valueCoef * valueLoss - settings.entropyCoef * entropy
  return { policyLoss, valueLoss, loss: settings.weight * whole }
}

test("the derivatives are the slopes of the loss, and the sums are those of the block's rows alone", () => {
  fc.assert(
    fc.property(cases, ({ numRows, from, sumsFrom, ...columns }) => {
      const [logprob, entropy, value, advantage, returns] = (
        ['logprob', 'entropy', 'value', 'advantage', 'returns'] as const
      ).map((name) => Float32Array.from(columns[name])) as [Float32Array, ...Float32Array[]] as Float32Array[]
      const [dLogprob, dEntropy, dValue] = [1, 2, 3].map(() => new Float32Array(numRows + 1).fill(9)) as Float32Array[]
      const sums = new Float64Array(sumsFrom + A2cSum.length + 2).fill(100)
      const batch = {
        logprob: new Float32Array(0),
        value: new Float32Array(0),
        advantage: advantage!,
        return: returns!,
      }
      const derivatives = { dLogprob: dLogprob!, dEntropy: dEntropy!, dValue: dValue! }
      const evaluated = { logprob: logprob!, entropy: entropy!, value: value! }
      a2cLoss(derivatives, sums, evaluated, batch, settings, numRows, from, sumsFrom)
      const expected = [0, 0, 0]
      for (let row = 0; row < numRows; row++) {
        const at = [logprob![row]!, entropy![row]!, value![row]!] as const
        const loss = (k: number, move: number) =>
          termsOf(advantage![from + row]!, returns![from + row]!, at.with(k, at[k]! + move) as never).loss
        const slopes = [0, 1, 2].map((k) => (loss(k, 1e-4) - loss(k, -1e-4)) / 2e-4)
        const got = [dLogprob![row], dEntropy![row], dValue![row]]
        slopes.forEach((slope, k) => void expect(got[k]).toBeCloseTo(slope, 5))
        const terms = termsOf(advantage![from + row]!, returns![from + row]!, at)
        expected[A2cSum.policyLoss]! += terms.policyLoss
        expected[A2cSum.valueLoss]! += terms.valueLoss
        expected[A2cSum.entropy]! += at[1]
      }
      expected.forEach((sum, i) => void expect(sums[sumsFrom + i]! - 100).toBeCloseTo(sum, 9))
      expect([...sums.subarray(0, sumsFrom), ...sums.subarray(sumsFrom + A2cSum.length)].every((x) => x === 100)).toBe(
        true,
      )
      expect([dLogprob![numRows], dEntropy![numRows], dValue![numRows]]).toEqual([9, 9, 9])
    }),
    { endOnFailure: true },
  )
})
