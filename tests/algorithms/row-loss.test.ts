import { describe, expect, test } from 'vitest'
import { ppoExpression, type RowCoefficients, vtraceExpression } from '../../bench/kernels/expressions.ts'
import { type RowLossColumns, rowLoss } from '../../src/algorithms/losses/row-loss.ts'
import { type LossOfRows, onPolicySettings } from '../../src/algorithms/on-policy/on-policy.ts'
import type { Settings } from '../../src/base/settings.ts'
import { createKernels } from '../../src/kernels/bind.ts'
import { Numbers } from '../kernels/calls.ts'
import * as fc from '../support/properties.ts'

const kernels = createKernels(new WebAssembly.Memory({ initial: 1 }), 'plain')
const ppoMetrics = ['policyLoss', 'valueLoss', 'entropy', 'approxKl', 'clipFraction']

/** A block of so many rows, and the minibatch's columns, in which it begins at row `from`. */
function makeBlock(seed: number, numRows: number, from: number) {
  const numbers = new Numbers(seed)
  const evaluated = {
    logprob: numbers.floats(numRows, -2, -1),
    entropy: numbers.floats(numRows, 0, 2),
    value: numbers.floats(numRows, -2, 2),
  }
  const length = from + numRows
  const recorded = {
    logprob: numbers.floats(length, -2, -1),
    value: numbers.floats(length, -2, 2),
    advantage: numbers.floats(length, -3, 3),
    return: numbers.floats(length, -2, 2),
  }
  const minibatch = { advantageMean: 0.3, advantageScale: 0.7, weight: 1 / 64 }
  return { evaluated, recorded, minibatch, numRows, from }
}

type Block = ReturnType<typeof makeBlock>

function empty({ numRows }: Block, numSums: number) {
  const column = () => new Float32Array(numRows).fill(Number.NaN)
  const sums = Float64Array.from({ length: numSums + 2 }, (_, i) => i)
  return { dLogprob: column(), dEntropy: column(), dValue: column(), sums }
}

/** What an expression gives, its sums two elements into theirs. */
function byExpression(
  loss: (
    columns: RowLossColumns,
    settings: RowCoefficients & { rhoMax: number },
  ) => ReturnType<typeof vtraceExpression>,
  settings: object,
  metrics: readonly string[],
  block: Block,
) {
  const out = empty(block, metrics.length)
  const bound = (rowLoss(loss as never) as LossOfRows<Settings>)(settings as never, kernels, { id: 'own', metrics })
  const { evaluated, recorded, minibatch, numRows, from } = block
  bound.ofRows(out, out.sums, evaluated, recorded, minibatch, numRows, from, 2)
  return out
}

function expectEqual(got: ReturnType<typeof empty>, wanted: ReturnType<typeof empty>) {
  for (const name of ['dLogprob', 'dEntropy', 'dValue', 'sums'] as const) {
    const largest = Math.max(...Array.from(wanted[name], Math.abs))
    const floor = name === 'sums' ? 1 : 1e-3 // The terms of a sum, some of which cancel, are each rounded to f32.
    got[name].forEach((value, i) => {
      const error = Math.abs(value - wanted[name][i]!)
      if (!(error <= 1e-6 * Math.max(floor * largest, Math.abs(wanted[name][i]!)))) {
        throw new Error(`${name}[${i}]: ${value}, not ${wanted[name][i]}`)
      }
    })
  }
}

const blocks = fc.record({
  seed: fc.nat(),
  numRows: fc.integer({ min: 1, max: 600 }),
  from: fc.integer({ min: 0, max: 7 }),
})

describe('a loss over rows as an expression equals the kernel', () => {
  const coefficients = { clipCoef: 0.2, entropyCoef: 0.01, valueCoef: 0.5, rhoMax: 1 }

  test.each([null, 0.4])("of PPO's clip, values clipped at %s", (clipValue) => {
    fc.assert(
      fc.property(blocks, ({ seed, numRows, from }) => {
        const block = makeBlock(seed, numRows, from)
        const { evaluated, recorded, minibatch } = block
        const wanted = empty(block, 5)
        const settings = { ...minibatch, ...coefficients, clipValue: clipValue ?? Number.POSITIVE_INFINITY }
        kernels.ppoLoss(wanted, wanted.sums, evaluated, recorded, settings, numRows, from, 2)
        expectEqual(byExpression(ppoExpression, { ...coefficients, clipValue }, ppoMetrics, block), wanted)
      }),
      { numRuns: 30 },
    )
  })

  test("of V-trace's actor and critic, which weighs by the truncated ratio what the kernel has weighed", () => {
    const metrics = ['policyLoss', 'valueLoss', 'entropy']
    fc.assert(
      fc.property(blocks, ({ seed, numRows, from }) => {
        const minibatch = { advantageMean: 0, advantageScale: 1, weight: 1 / 7 }
        const block = { ...makeBlock(seed, numRows, from), minibatch }
        const { evaluated, recorded } = block
        // The kernel is given ρ (r + γ v[t+1] − V(s)), as vtrace writes it.
        const advantage = recorded.advantage.map((value, i) => {
          const logRatio = i < from ? 0 : evaluated.logprob[i - from]! - recorded.logprob[i]!
          return value * Math.min(coefficients.rhoMax, Math.exp(logRatio))
        })
        const wanted = empty(block, 3)
        const settings = { ...minibatch, ...coefficients }
        kernels.a2cLoss(wanted, wanted.sums, evaluated, { ...recorded, advantage }, settings, numRows, from, 2)
        expectEqual(byExpression(vtraceExpression, coefficients, metrics, block), wanted)
      }),
      { numRuns: 30 },
    )
  })

  test('a figure that is no metric, and a metric that is missing, are errors with the id', () => {
    const values = Object.fromEntries(
      Object.entries(onPolicySettings()).map(([key, { default: value }]) => [key, value]),
    )
    const bind = (loss: (columns: RowLossColumns) => ReturnType<typeof vtraceExpression> | object, metrics: string[]) =>
      (rowLoss(loss as never) as LossOfRows<Settings>)(values, kernels, { id: 'own', metrics })
    expect(() => bind(({ logprob }) => ({ loss: logprob, kl: logprob }), [])).toThrow(/result of own: got "kl"/)
    expect(() => bind(({ logprob }) => logprob, ['kl'])).toThrow(/loss of own: got no kl, expected loss, kl/)
    expect(() => bind((columns) => (columns as never as { reward: object }).reward, [])).toThrow(
      /column of own: got "reward" \(did you mean "return"\?\), expected one of logprob, entropy, value, oldLogprob, oldValue, advantage, return/,
    )
    expect(() => bind(({ logprob }) => logprob.sumOfSequence(), [])).toThrow(/sum over a sequence/)
  })
})
