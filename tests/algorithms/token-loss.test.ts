import { describe, expect, test } from 'vitest'
import {
  cispoExpression,
  grpoExpression,
  gspoExpression,
  sapoExpression,
  type TokenCoefficients,
} from '../../bench/kernels/expressions.ts'
import { defineTokenLoss } from '../../src/algorithms/losses/define-token-loss.ts'
import { type LossSettings, tokenLossSettings } from '../../src/algorithms/losses/loss-settings.ts'
import {
  describeLoss,
  differentiateLoss,
  type LossDescriptor,
  type LossTotals,
  type PreparedLoss,
  preparedLossPlan,
  prepareLoss,
  withAdvantages,
} from '../../src/algorithms/losses/losses.ts'
import type { GroupAdvantages } from '../../src/algorithms/tokens/group-advantages.ts'
import type { NamedTokenColumns } from '../../src/algorithms/tokens/token-loss.ts'
import { number } from '../../src/base/settings.ts'
import { takeArena } from '../../src/components/arena.ts'
import { createKernels, type PolicyLossInputs, PolicySum, spansOf } from '../../src/kernels/bind.ts'
import { Numbers } from '../kernels/calls.ts'
import * as fc from '../support/properties.ts'

const kernels = createKernels(new WebAssembly.Memory({ initial: 1 }), 'plain')

/** A micro-batch: short and long sequences, prompts, a sequence of which nothing is learned, segments of conversations. */
function makeInputs(seed: number, count: number, longest: number, isCorrected: boolean) {
  const numbers = new Numbers(seed)
  const offsets = new Int32Array(count + 1)
  for (let i = 0; i < count; i++) offsets[i + 1] = offsets[i]! + numbers.whole(1, longest)
  const n = offsets[count]!
  const oldLogprob = numbers.floats(n, -3, 0)
  const near = (width: number) => oldLogprob.map((l) => l + numbers.uniform(-width, width))
  const counted = numbers.flags(n, 0.7)
  if (count > 2) counted.fill(0, offsets[1], offsets[2])
  const advantage = numbers.floats(n, -2, 2)
  for (let t = 0; t < n; t += 5) advantage[t] = 0
  for (let t = 0; t < n; t++) if (counted[t] === 0) oldLogprob[t] = Number.NaN // Nobody has chosen it.
  const inputs: PolicyLossInputs & { readonly offsets: Int32Array } = {
    offsets,
    logprob: near(0.6).map((value) => (Number.isNaN(value) ? -1 : value)),
    entropy: numbers.floats(n, 0, 3),
    oldLogprob,
    advantage,
    weight: isCorrected ? numbers.floats(n, 0, 2) : null,
    referenceLogprob: near(0.5),
    counted,
    spans: spansOf(offsets),
    wholeTokens: isCorrected ? Int32Array.from({ length: count }, () => numbers.whole(longest, 2 * longest)) : null,
  }
  return inputs
}

const totals = { denominator: 7 } as LossTotals

function differentiate(
  descriptor: LossDescriptor,
  inputs: PolicyLossInputs,
  [from, to]: readonly [number, number] = [0, inputs.spans.begin.length],
) {
  const column = () => new Float32Array(inputs.logprob.length).fill(Number.NaN)
  const out = { dLogprob: column(), dEntropy: column(), sums: new Float64Array(PolicySum.length).fill(0.5) }
  differentiateLoss(descriptor, out, inputs, totals, from, to, kernels)
  return out
}

/** A gradient may be the small difference of two large terms: what each of them is rounded by is allowed of the largest. */
function expectEqual(
  got: ReturnType<typeof differentiate>,
  wanted: ReturnType<typeof differentiate>,
  but: string[] = [],
) {
  for (const name of ['dLogprob', 'dEntropy'] as const) {
    const largest = Math.max(...Array.from(wanted[name], Math.abs))
    got[name].forEach((value, t) => {
      const error = Math.abs(value - wanted[name][t]!)
      if (!(error <= 1e-6 * Math.max(0.2 * largest, Math.abs(wanted[name][t]!)))) {
        throw new Error(`${name}[${t}]: ${value}, not ${wanted[name][t]}`)
      }
    })
  }
  for (const [name, sum] of Object.entries(PolicySum)) {
    if (name === 'length' || but.includes(name)) continue
    const [value, expected] = [got.sums[sum]!, wanted.sums[sum]!]
    if (!(Math.abs(value - expected) <= 1e-6 * Math.max(1, Math.abs(expected)))) {
      throw new Error(`${name}: ${value}, not ${expected}`)
    }
  }
}

const batches = fc.record({
  seed: fc.nat(),
  count: fc.integer({ min: 1, max: 9 }),
  longest: fc.constantFrom(3, 40, 700), // A sequence may be longer than what is computed at once.
  isCorrected: fc.boolean(),
})

const coefficients = {
  clipLow: number(0.2, 'how far the ratio may fall below 1', { min: 0 }),
  clipHigh: number(0.2, 'how far the ratio may rise above 1', { min: 0 }),
  klCoef: number(0, 'weight of the KL to the reference', { min: 0 }),
  entropyCoef: number(0, 'weight of the entropy', { min: 0 }),
}
const own = (loss: (columns: NamedTokenColumns, settings: TokenCoefficients) => ReturnType<typeof grpoExpression>) =>
  defineTokenLoss({ id: 'own', settings: { ...tokenLossSettings(), ...coefficients }, loss })

describe('a loss over tokens as an expression equals the kernel', () => {
  const cases: Record<string, [ReturnType<typeof own>, 'grpo' | 'dapo' | 'gspo', Partial<LossSettings>]> = {
    GRPO: [own(grpoExpression), 'grpo', { aggregation: 'sequence-mean', klCoef: 0.04 }],
    'GRPO with a bonus for entropy': [own(grpoExpression), 'grpo', { klCoef: 0, entropyCoef: 0.03 }],
    DAPO: [own(grpoExpression), 'dapo', { clipHigh: 0.28 }],
    'GSPO, whose ratio is of a sequence': [own(gspoExpression), 'gspo', { clipLow: 0.05, clipHigh: 0.07 }],
    'GSPO with a KL penalty': [own(gspoExpression), 'gspo', { aggregation: 'sequence-sum', klCoef: 0.1 }],
  }
  test.each(Object.entries(cases))('%s', (_, [factory, id, given]) => {
    fc.assert(
      fc.property(batches, ({ seed, count, longest, isCorrected }) => {
        const inputs = makeInputs(seed, count, longest, isCorrected)
        const correction = isCorrected ? ({ correction: 'token-truncate' } as const) : {}
        const wanted = describeLoss(id, 'paper', { ...given, ...correction })
        const { aggregation, clipLow, clipHigh, klCoef, entropyCoef } = wanted.settings
        const settings = { aggregation, clipLow: clipLow!, clipHigh: clipHigh!, klCoef, entropyCoef, ...correction }
        const reference = klCoef > 0 ? inputs.referenceLogprob : null
        const all = { ...inputs, referenceLogprob: reference }
        expectEqual(differentiate(factory(settings), all), differentiate(wanted, all))
      }),
      { numRuns: 40, examples: [[{ seed: 2147483625, count: 2, longest: 40, isCorrected: true }]] },
    )
  })

  test('CISPO, and SAPO, which tells of no clip', () => {
    const cispo = defineTokenLoss({
      id: 'own',
      settings: { ...tokenLossSettings(), clipHigh: number(4, 'how far the ratio may rise above 1') },
      loss: cispoExpression,
    })
    const sapo = defineTokenLoss({
      id: 'own',
      settings: {
        ...tokenLossSettings({ aggregation: 'sequence-mean' }),
        tauPositive: number(1, 'τ'),
        tauNegative: number(1.05, 'τ'),
      },
      loss: sapoExpression,
    })
    fc.assert(
      fc.property(batches, ({ seed, count, longest, isCorrected }) => {
        const inputs = makeInputs(seed, count, longest, isCorrected)
        const correction = isCorrected ? ({ correction: 'token-truncate' } as const) : {}
        const all = { ...inputs, referenceLogprob: null }
        const clipped = { clipHigh: 0.3, ...correction }
        const but = ['klPenalty'] // It is not told.
        expectEqual(
          differentiate(cispo(clipped), all),
          differentiate(describeLoss('cispo', 'paper', clipped), all),
          but,
        )
        const got = differentiate(sapo(correction), all)
        const counts = ['clippedLow', 'clippedHigh', 'capped']
        expectEqual(got, differentiate(describeLoss('sapo', 'paper', correction), all), [...but, ...counts])
        for (const name of counts) expect(got.sums[PolicySum[name as 'capped']]).toBeNaN()
      }),
      { numRuns: 40 },
    )
  })

  test('cut into micro-batches, its losses and derivatives are those of the whole', () => {
    const inputs = { ...makeInputs(3, 9, 40, true) }
    const loss = own(gspoExpression)({ correction: 'token-mask', aggregation: 'sequence-mean' })
    const whole = differentiate(loss, inputs)
    const parts = [0, 4, 5, 9].slice(0, 3).map((from, i) => {
      const to = [4, 5, 9][i]!
      return { ...differentiate(loss, inputs, [from, to]), from: inputs.offsets[from]!, to: inputs.offsets[to]! }
    })
    for (const { dLogprob, from, to } of parts) {
      expect(dLogprob.subarray(from, to)).toEqual(whole.dLogprob.subarray(from, to))
    }
    const total = parts.reduce((sum, { sums }) => sum + sums[PolicySum.loss]! - 0.5, 0.5)
    expect(total).toBeCloseTo(whole.sums[PolicySum.loss]!, 12)
  })
})

describe('a definition of a loss over tokens', () => {
  const define = (loss: (columns: NamedTokenColumns) => unknown, given = {}) =>
    defineTokenLoss({ id: 'own', settings: tokenLossSettings(given), loss: loss as never })
  const plain = ({ logprob, advantage }: NamedTokenColumns) => logprob.times(advantage).negative()

  test('names the columns that it reads, its level, and how it is summed', () => {
    expect(own(grpoExpression)()).toMatchObject({
      id: 'own',
      preset: null,
      level: 'token',
      aggregation: 'token-mean',
      columns: ['reward', 'known', 'group', 'oldLogprob'],
      parameters: { clipLow: 0.2, aggregation: 'token-mean' },
    })
    expect(own(gspoExpression)({ klCoef: 0.1 })).toMatchObject({
      level: 'sequence',
      columns: ['reward', 'known', 'group', 'oldLogprob', 'referenceLogprob'],
    })
    // Plain data: threads are sent it.
    expect(structuredClone(own(gspoExpression)().program)).toEqual(own(gspoExpression)().program)
  })

  test('takes other advantages, and keeps what it reads', () => {
    const loss = own(grpoExpression)({ klCoef: 0.1 })
    expect(withAdvantages(loss, null).columns).toEqual(['oldLogprob', 'referenceLogprob'])
  })

  test('makes advantages by a function of each group, of the answers whose reward is known', () => {
    const seen: string[] = []
    const loss = defineTokenLoss({
      id: 'own',
      settings: tokenLossSettings({ overlongCache: 2, maxLength: 4 }),
      loss: plain,
      advantages(group) {
        seen.push(group.map(({ reward, numTokens }) => `${reward} of ${numTokens}`).join(', '))
        return group.map(({ reward }) => (reward < 0 ? Number.NaN : 10 * reward))
      },
    })
    const { begin, end } = spansOf(Int32Array.of(0, 3, 7, 9, 12, 14))
    const batch = {
      spans: { begin, end },
      lossMask: Uint8Array.of(0, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1),
      reward: Float64Array.of(1, 2, -1, 5, 3),
      known: Uint8Array.of(1, 1, 1, 0, 1),
      group: Int32Array.of(0, 1, 0, 0, 1),
      oldLogprob: new Float32Array(14),
    }
    const prepared = takeArena(preparedLossPlan(5, 14, 2)).columns as PreparedLoss
    const totals = prepareLoss(loss(), batch, prepared, kernels)
    expect(seen).toEqual(['1 of 2, -1 of 1', '1 of 4, 3 of 2']) // The answer of 4 tokens pays 1 for its length.
    expect(Array.from(prepared.advantage)).toEqual([10, 10, 0, 0, 30])
    const [out, ten, thirty] = [
      [0, 0],
      [10, 10, 10, 10],
      [30, 30],
    ]
    expect(Array.from(prepared.tokenAdvantage)).toEqual([0, 10, 10, ...ten, ...out, 0, 0, 0, ...thirty])
    expect(totals).toMatchObject({ numTokens: 8, numUnknown: 1, numAlone: 1, numEqual: 0 })
    const wrong = (advantages: GroupAdvantages) => () =>
      prepareLoss(
        defineTokenLoss({ id: 'own', settings: tokenLossSettings(), loss: plain, advantages })(),
        batch,
        prepared,
        kernels,
      )
    expect(wrong(() => [1])).toThrow(
      'advantages of own: got 1 numbers, expected 2 numbers, one per answer of the group',
    )
    expect(wrong(() => undefined as never)).toThrow('advantages of own: got undefined')
    expect(wrong((group) => group.map(() => Number.POSITIVE_INFINITY))).toThrow(/advantages of own: got Infinity/)
    expect(() => loss({ scale: 'none' })).toThrow(/own.scale: got "none", expected its default/)
    expect(() => loss({ advantage: 'returns' })).toThrow(/own.advantage: got returns, expected group/)
  })

  test('refuses settings that would not act, and those that do not go together', () => {
    expect(() => define(plain)({ klCoef: 1 } as never)).toThrow(/own setting: got "klCoef"/)
    expect(() => define(plain)({ correction: 'token-mask' })).toThrow(
      /own.correction: got token-mask, and a loss that does not read/,
    )
    expect(() => define(({ logprob }) => logprob)()).toThrow(
      /own.advantage: got group, and a loss that does not read adv/,
    )
    expect(() => define(plain, { advantage: 'none' })()).toThrow(/own.advantage: got none, and a loss that reads/)
    expect(() => define(plain)({ aggregation: 'constant-length' })).toThrow(/own.maxLength: got null/)
    expect(() => define(plain, { klCoef: 1 })).toThrow(/setting of every loss: got "klCoef"/)
    expect(() => define(plain, { gamma: 2 })).toThrow(/tokenLossSettings gamma: got 2/)
    expect(() => defineTokenLoss({ id: 'own', settings: {} as never, loss: plain })).toThrow(
      /own settings: got no advantage/,
    )
    expect(() => defineTokenLoss({ id: 'grpo', settings: tokenLossSettings(), loss: plain })).toThrow(
      /loss id: got grpo/,
    )
    expect(() => define(({ logprob }) => ({ loss: logprob, kl: logprob }))()).toThrow(/result of own: got "kl"/)
  })
})
