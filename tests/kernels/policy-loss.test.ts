import { describe, expect, test } from 'vitest'
import {
  type KlEstimator,
  type PolicyLossInputs,
  type PolicyLossSettings,
  PolicySum,
  policyLoss,
  type Ratio,
  type Surrogate,
} from '../../src/kernels/loss/policy.ts'
import { spansOf } from '../../src/kernels/spans.ts'
import { Numbers, strict } from './calls.ts'

const plainSettings: PolicyLossSettings = {
  surrogate: 'clip',
  ratio: 'token',
  sequencePart: 0.3,
  tokenPart: 0.6,
  clipLow: 0.2,
  clipHigh: 0.28,
  dualClip: null,
  ratioMax: null,
  tauPositive: 1,
  tauNegative: 1.05,
  logRatioMax: null,
  kl: 'k3',
  klCoef: 0,
  klCorrected: false,
  klMax: null,
  entropyCoef: 0,
}

/** Sequences of 1 to 9 tokens, one of them without any that counts. */
function makeInputs(seed: number, numSequences = 6): Inputs {
  const numbers = new Numbers(seed)
  const offsets = new Int32Array(numSequences + 1)
  for (let i = 0; i < numSequences; i++) offsets[i + 1] = offsets[i]! + numbers.whole(1, 9)
  const n = offsets[numSequences]!
  const counted = numbers.flags(n, 0.7)
  counted.fill(0, offsets[1], offsets[2])
  const logprob = numbers.floats(n, -3, 0)
  const near = (width: number) => logprob.map((l) => l + numbers.uniform(-width, width))
  return {
    logprob,
    entropy: numbers.floats(n, 0, 3),
    oldLogprob: near(0.8),
    advantage: numbers.floats(n, -2, 2).map((a) => (Math.abs(a) < 0.1 ? 0 : a)),
    weight: numbers.floats(n, 0, 2).map((w) => (w < 0.2 ? 0 : w)),
    referenceLogprob: near(1),
    counted,
    offsets,
    wholeTokens: null,
  }
}

/** With offsets in place of spans, for sequences that follow one another. */
type Inputs = Omit<PolicyLossInputs, 'spans'> & { readonly offsets: Int32Array }

function run(
  { offsets, ...inputs }: Inputs,
  given: Partial<PolicyLossSettings>,
  perSequence = false,
  denominator = 1,
  [from, to] = [0, offsets.length - 1],
) {
  const n = inputs.logprob.length
  const [dLogprob, dEntropy] = [new Float32Array(n).fill(9), new Float32Array(n).fill(9)]
  const sums = new Float64Array(PolicySum.length)
  const some = { ...inputs, spans: spansOf(offsets) }
  const outputs = { dLogprob, dEntropy, sums }
  strict(policyLoss)(outputs, some, { ...plainSettings, ...given }, perSequence, denominator, from, to)
  return { dLogprob, dEntropy, sums, loss: sums[PolicySum.loss]! }
}

const clamp = (x: number, low: number, high: number) => Math.min(Math.max(x, low), high)

/**
 * The loss by its formulas, sequence by sequence. What carries a gradient reads `live`; what is a number reads `fixed`, which
 * has the same values: so a difference by `live` is the derivative that is meant.
 */
function twin(inputs: Inputs, s: PolicyLossSettings, perSequence: boolean, D: number, live: number[]): number {
  const fixed = [...inputs.logprob]
  const { oldLogprob, referenceLogprob, weight, counted, offsets, advantage, entropy } = inputs
  const low = s.clipLow === null ? 0 : 1 - s.clipLow
  const high = s.clipHigh === null ? Number.POSITIVE_INFINITY : 1 + s.clipHigh
  const far = s.logRatioMax ?? Number.POSITIVE_INFINITY
  let total = 0
  for (let i = 0; i < offsets.length - 1; i++) {
    const tokens: number[] = []
    for (let t = offsets[i]!; t < offsets[i + 1]!; t++) if (counted[t]) tokens.push(t)
    const sum = (x: number[]) => tokens.reduce((all, t) => all + x[t]! - oldLogprob[t]!, 0)
    const ratioOf = (t: number, x: number[]) => {
      const z = {
        token: x[t]! - oldLogprob[t]!,
        sequence: sum(x) / tokens.length,
        'sequence-token': sum(fixed) / tokens.length + x[t]! - fixed[t]!,
        hybrid: (s.sequencePart * sum(x)) / tokens.length + s.tokenPart * (x[t]! - oldLogprob[t]!),
        product: sum(x),
      }[s.ratio]
      return Math.exp(clamp(z, -far, far))
    }
    for (const t of tokens) {
      const ratio = ratioOf(t, live)
      const A = advantage[t]!
      let loss = 0
      if (s.surrogate === 'clip') {
        const first = Math.min(ratio, s.ratioMax ?? Number.POSITIVE_INFINITY) * A
        loss = -Math.min(first, clamp(ratio, low, high) * A)
        if (A < 0 && s.dualClip !== null) loss = Math.min(loss, -s.dualClip * A)
      } else if (s.surrogate === 'cispo') {
        loss = -clamp(ratioOf(t, fixed), low, high) * A * live[t]!
      } else {
        const tau = A > 0 ? s.tauPositive : s.tauNegative
        loss = ((-4 / tau) * A) / (1 + Math.exp(-tau * (ratio - 1)))
      }
      let kl = 0
      if (referenceLogprob !== null) {
        const bound = s.klMax ?? Number.POSITIVE_INFINITY
        const estimate = (kind: KlEstimator, logprob: number): number => {
          const k = clamp(logprob - referenceLogprob[t]!, -far, far)
          const value = { k1: k, k2: k ** 2 / 2, k3: Math.exp(-k) - 1 + k, 'k3+': 0 }[kind]
          return clamp(value, -bound, bound)
        }
        kl = estimate(s.kl, live[t]!)
        if (s.kl === 'k3+') kl = estimate('k3', fixed[t]!) + estimate('k2', live[t]!) - estimate('k2', fixed[t]!)
        if (s.klCorrected) kl *= ratio
      }
      const term = (weight?.[t] ?? 1) * loss + s.klCoef * kl - s.entropyCoef * entropy[t]!
      total += term / (D * (perSequence ? tokens.length : 1))
    }
  }
  return total
}

function expectTwin(inputs: Inputs, given: Partial<PolicyLossSettings>, perSequence = false): void {
  const settings = { ...plainSettings, ...given }
  const { dLogprob, loss } = run(inputs, given, perSequence, 7)
  const live = [...inputs.logprob]
  const at = (t: number, step: number) => twin(inputs, settings, perSequence, 7, live.with(t, live[t]! + step))
  expect(loss).toBeCloseTo(at(0, 0), 10)
  const step = 1e-6
  for (let t = 0; t < live.length; t++) {
    const slope = (at(t, step) - at(t, -step)) / (2 * step)
    const error = Math.abs(dLogprob[t]! - slope)
    if (error > 1e-6 * Math.max(1, Math.abs(slope))) {
      throw new Error(`token ${t}: dLogprob ${dLogprob[t]}, by differences ${slope}, with ${JSON.stringify(given)}`)
    }
  }
}

const surrogates: Surrogate[] = ['clip', 'cispo', 'sapo']
const ratios: Ratio[] = ['token', 'sequence', 'sequence-token', 'hybrid', 'product']
const estimators: KlEstimator[] = ['k1', 'k2', 'k3', 'k3+']

describe('policyLoss', () => {
  test.each(surrogates.flatMap((surrogate) => ratios.map((ratio) => ({ surrogate, ratio }))))(
    '$surrogate on the ratio of the $ratio: loss and derivative are those of the scalar twin',
    (given) => {
      for (let seed = 0; seed < 8; seed++) {
        const inputs = makeInputs(seed)
        for (const perSequence of [false, true]) {
          expectTwin(inputs, given, perSequence)
          expectTwin(inputs, { ...given, clipLow: null, clipHigh: 0.5, logRatioMax: 0.3 }, perSequence)
        }
        expectTwin({ ...inputs, weight: null, referenceLogprob: null }, given)
        for (const klCorrected of [false, true]) expectTwin(inputs, { ...given, klCoef: 0.1, klCorrected })
      }
    },
  )

  test.each(estimators)('the KL penalty by %s: loss and derivative are those of the scalar twin', (kl) => {
    for (let seed = 0; seed < 8; seed++) {
      for (const klCorrected of [false, true]) {
        expectTwin(makeInputs(seed), { kl, klCoef: 0.5, klCorrected })
        if (kl !== 'k3+') expectTwin(makeInputs(seed), { kl, klCoef: 0.5, klCorrected, klMax: 0.2, logRatioMax: 0.6 })
      }
    }
  })

  test('bounds beyond the clip: dual clip, δ and both', () => {
    for (let seed = 0; seed < 8; seed++) {
      for (const ratio of ratios) {
        expectTwin(makeInputs(seed), { ratio, dualClip: 1.3 })
        expectTwin(makeInputs(seed), { ratio, ratioMax: 1.4 })
        expectTwin(makeInputs(seed), { ratio, dualClip: 1.6, ratioMax: 1.7, clipLow: null, clipHigh: null })
      }
    }
  })

  test('the entropy is of the whole distribution, not the logprob of what was drawn', () => {
    const inputs = makeInputs(3)
    const { dEntropy, sums, loss } = run(inputs, { entropyCoef: 0.5 }, false, 4)
    const without = run(inputs, {}, false, 4)
    const total = inputs.entropy.reduce((sum, h, t) => sum + (inputs.counted[t] ? h : 0), 0)
    expect(sums[PolicySum.entropy]).toBeCloseTo(total, 6)
    expect(loss - without.loss).toBeCloseTo((-0.5 * total) / 4, 6)
    dEntropy.forEach((d, t) => {
      expect(d).toBe(inputs.counted[t] ? -0.125 : 0)
    })
  })

  test('on-policy, every surrogate has the gradient −A', () => {
    const inputs = makeInputs(5)
    const onPolicy = { ...inputs, oldLogprob: inputs.logprob, weight: null, referenceLogprob: null }
    for (const surrogate of surrogates) {
      for (const ratio of ['token', 'sequence-token'] as const) {
        const { dLogprob } = run(onPolicy, { surrogate, ratio })
        dLogprob.forEach((d, t) => {
          expect(d).toBeCloseTo(inputs.counted[t] ? -inputs.advantage[t]! : 0, 6)
        })
      }
    }
  })

  test('on-policy, a ratio of the whole sequence has the gradient −A too, whichever surrogate it goes through', () => {
    const inputs = makeInputs(15)
    for (let i = 0; i < 6; i++) inputs.advantage.fill(i % 2 ? 0.7 : -1.1, inputs.offsets[i], inputs.offsets[i + 1])
    const onPolicy = { ...inputs, oldLogprob: inputs.logprob, weight: null, referenceLogprob: null }
    for (const surrogate of ['clip', 'sapo'] as const) {
      const { dLogprob } = run(onPolicy, { surrogate, ratio: 'sequence' })
      dLogprob.forEach((d, t) => {
        expect(d).toBeCloseTo(inputs.counted[t] ? -inputs.advantage[t]! : 0, 6)
      })
    }
  })

  test('GSPO’s gradient is GSPO-token’s where the advantage is that of the sequence', () => {
    const inputs = makeInputs(6)
    const { offsets } = inputs
    for (let i = 0; i < 6; i++) inputs.advantage.fill(i % 2 ? 0.7 : -1.1, offsets[i], offsets[i + 1])
    const given = { ...inputs, weight: null, referenceLogprob: null }
    const whole = run(given, { ratio: 'sequence', clipLow: 0.05, clipHigh: 0.05 }, true, 6)
    const tokens = run(given, { ratio: 'sequence-token', clipLow: 0.05, clipHigh: 0.05 }, true, 6)
    expect(tokens.loss).toBe(whole.loss)
    expect(whole.sums[PolicySum.clippedHigh]! + whole.sums[PolicySum.clippedLow]!).toBeGreaterThan(0)
    whole.dLogprob.forEach((d, t) => {
      expect(d).toBeCloseTo(tokens.dLogprob[t]!, 6)
    })
  })

  /** One sequence of two tokens, all with one advantage and one log-ratio. */
  const pair = (logRatio: number, advantage: number): Inputs => ({
    logprob: Float32Array.of(-1, -1),
    entropy: new Float32Array(2),
    oldLogprob: Float32Array.of(-1 - logRatio, -1 - logRatio),
    advantage: Float32Array.of(advantage, advantage),
    weight: null,
    referenceLogprob: null,
    counted: Uint8Array.of(1, 1),
    offsets: Int32Array.of(0, 2),
    wholeTokens: null,
  })
  const ends = (logRatio: number, advantage: number, given: Partial<PolicyLossSettings>) => {
    const { sums, dLogprob } = run(pair(logRatio, advantage), given)
    const [low, high, capped] = [PolicySum.clippedLow, PolicySum.clippedHigh, PolicySum.capped].map((at) => sums[at])
    return { low, high, capped, moves: dLogprob[0] !== 0 }
  }

  test('a ratio is not clipped before the minimum: beyond the clip it still learns where that leads back', () => {
    for (const ratio of ['token', 'sequence'] as const) {
      expect(ends(0.5, 1, { ratio })).toEqual({ low: 0, high: 2, capped: 0, moves: false })
      expect(ends(-0.5, -1, { ratio })).toEqual({ low: 2, high: 0, capped: 0, moves: false })
      expect(ends(-0.5, 1, { ratio })).toEqual({ low: 0, high: 0, capped: 0, moves: true })
      expect(ends(0.5, -1, { ratio })).toEqual({ low: 0, high: 0, capped: 0, moves: true })
      expect(ends(0, 1, { ratio })).toEqual({ low: 0, high: 0, capped: 0, moves: true })
    }
  })

  test('clip-higher moves the upper bound only', () => {
    expect(ends(Math.log(1.25), 1, { clipHigh: 0.28 }).high).toBe(0)
    expect(ends(Math.log(1.25), 1, { clipHigh: 0.2 }).high).toBe(2)
    expect(ends(Math.log(0.75), -1, { clipHigh: 0.28 }).low).toBe(2)
  })

  test('the dual clip and δ bound what a negative advantage costs', () => {
    expect(ends(2, -1, { dualClip: 3 })).toEqual({ low: 0, high: 0, capped: 2, moves: false })
    expect(ends(1, -1, { dualClip: 3 })).toMatchObject({ capped: 0, moves: true })
    expect(ends(2, -1, { ratioMax: 3 })).toEqual({ low: 0, high: 0, capped: 2, moves: false })
    expect(run(pair(2, -1), { dualClip: 3 }).sums[PolicySum.policyLoss]).toBe(6)
  })

  test('CISPO goes on learning from tokens whose ratio it clips', () => {
    expect(ends(2, 1, { surrogate: 'cispo' })).toEqual({ low: 0, high: 2, capped: 0, moves: true })
    expect(run(pair(2, 1), { surrogate: 'cispo' }).dLogprob[0]).toBeCloseTo(-1.28, 6)
  })

  test('without advantage there is no loss, however large the ratio', () => {
    for (const surrogate of surrogates) {
      const { loss, dLogprob } = run(pair(1000, 0), { surrogate, clipHigh: null })
      expect([loss, ...dLogprob]).toEqual([0, 0, 0])
    }
  })

  test('a token of weight 0 is no loss, however large the ratio, and still counts', () => {
    const { sums, dLogprob } = run({ ...pair(1000, -1), weight: new Float32Array(2) }, {})
    expect([sums[PolicySum.loss], sums[PolicySum.tokens], ...dLogprob]).toEqual([0, 2, 0, 0])
  })

  test('what is not a number stays so: no loss is made up for it', () => {
    const inputs = { ...pair(0, 1), logprob: Float32Array.of(Number.NaN, -1) }
    expect(run(inputs, {}).loss).toBeNaN()
    expect(run(inputs, { ratio: 'sequence' }).dLogprob).toEqual(Float32Array.of(Number.NaN, Number.NaN))
    const reference = { ...pair(0, 1), referenceLogprob: Float32Array.of(Number.NaN, -1) }
    expect(run(reference, { klCoef: 0.1 }).dLogprob[0]).toBeNaN()
  })

  test('the three KL estimates have their signs, both from the old policy and to the reference', () => {
    const inputs = { ...pair(0.5, 1), referenceLogprob: Float32Array.of(-0.75, -0.75) }
    const { sums } = run(inputs, {})
    const half = [PolicySum.k1, PolicySum.k2, PolicySum.k3].map((at) => sums[at]! / 2)
    const reference = [PolicySum.referenceK1, PolicySum.referenceK2, PolicySum.referenceK3].map((at) => sums[at]! / 2)
    // d = 0.5; [-d, d**2 / 2, d.exp() - 1 - d];   k = -0.25; [k, k**2 / 2, (-k).exp() - 1 + k]
    const expected = [-0.5, 0.125, 0.1487212707, -0.25, 0.03125, 0.0340254167]
    for (const [place, value] of [...half, ...reference].entries()) expect(value).toBeCloseTo(expected[place]!, 8)
  })

  test('a sequence has the same bits alone and in company, in any place', () => {
    const inputs = makeInputs(11)
    for (const ratio of ratios) {
      const given = { ratio, klCoef: 0.1, klCorrected: true, entropyCoef: 0.01 }
      const all = run(inputs, given, true, 5)
      for (let i = 0; i < 6; i++) {
        const [first, end] = [inputs.offsets[i]!, inputs.offsets[i + 1]!]
        const part = Object.fromEntries(
          Object.entries(inputs).map(([name, column]) => [name, column?.slice(first, end)]),
        ) as unknown as Inputs
        const alone = run({ ...part, offsets: Int32Array.of(0, end - first) }, given, true, 5)
        expect(alone.dLogprob).toEqual(all.dLogprob.slice(first, end))
        expect(alone.dEntropy).toEqual(all.dEntropy.slice(first, end))
        // The batch's own columns with one of its sequences are a micro-batch too.
        const there = run(inputs, given, true, 5, [i, i + 1])
        expect(there.dLogprob.slice(first, end)).toEqual(alone.dLogprob)
        expect(there.sums).toEqual(alone.sums)
      }
    }
  })

  test('padding is not part of a sequence: packed or padded, the loss is the same', () => {
    const inputs = makeInputs(12)
    const width = 12
    const pad = <T extends Float32Array | Uint8Array>(column: T): T => {
      const rows = new (column.constructor as new (length: number) => T)(6 * width)
      for (let i = 0; i < 6; i++) {
        const [first, end] = [inputs.offsets[i]!, inputs.offsets[i + 1]!]
        for (let t = first; t < end; t++) rows[i * width + t - first] = column[t]!
      }
      return rows
    }
    const padded = {
      logprob: pad(inputs.logprob),
      entropy: pad(inputs.entropy),
      oldLogprob: pad(inputs.oldLogprob),
      advantage: pad(inputs.advantage),
      weight: pad(inputs.weight!),
      referenceLogprob: pad(inputs.referenceLogprob!),
      counted: pad(inputs.counted),
      offsets: Int32Array.from({ length: 7 }, (_, i) => i * width),
      wholeTokens: null,
    }
    for (const ratio of ratios) {
      const [packed, wide] = [
        run(inputs, { ratio, klCoef: 0.1 }, true, 5),
        run(padded, { ratio, klCoef: 0.1 }, true, 5),
      ]
      expect(wide.sums).toEqual(packed.sums)
      expect(wide.dLogprob).toEqual(pad(packed.dLogprob))
    }
  })
})

describe('the KL penalty in expectation, over a whole distribution', () => {
  const logits = { policy: [0.3, -1, 0.8, 0.1], reference: [-0.2, 0.5, 0.4, -0.6] }
  const logSoftmax = (z: number[]) => z.map((x) => x - Math.log(z.reduce((sum, y) => sum + Math.exp(y), 0)))
  const [policy, reference] = [logSoftmax(logits.policy), logSoftmax(logits.reference)]
  const p = policy.map(Math.exp)
  const kl = p.reduce((sum, x, j) => sum + x * (policy[j]! - reference[j]!), 0)
  const dKl = p.map((x, j) => x * (policy[j]! - reference[j]! - kl))

  /** E[k] and E[∂k/∂logits], each outcome being a token of its own. */
  function expectation(estimator: KlEstimator) {
    let value = 0
    const gradient = [0, 0, 0, 0]
    p.forEach((weight, outcome) => {
      const one = (x: number) => Float32Array.of(x)
      const inputs = {
        ...{ logprob: one(policy[outcome]!), oldLogprob: one(policy[outcome]!), entropy: one(0), advantage: one(0) },
        ...{ weight: null, referenceLogprob: one(reference[outcome]!) },
        ...{ counted: Uint8Array.of(1), offsets: Int32Array.of(0, 1), wholeTokens: null },
      }
      const { loss, dLogprob } = run(inputs, { kl: estimator, klCoef: 1 })
      value += weight * loss
      for (let j = 0; j < 4; j++) gradient[j]! += weight * dLogprob[0]! * ((j === outcome ? 1 : 0) - p[j]!)
    })
    return { value, gradient }
  }
  const apart = (a: number[], b: number[]) => Math.max(...a.map((x, j) => Math.abs(x - b[j]!)))

  test('k1 and k3 have the KL as their mean; k2 does not', () => {
    for (const estimator of ['k1', 'k3', 'k3+'] as const) expect(expectation(estimator).value).toBeCloseTo(kl, 6)
    expect(Math.abs(expectation('k2').value - kl)).toBeGreaterThan(0.01)
  })

  test('k2 and k3+ have its gradient; k1 has none, and k3 another', () => {
    for (const estimator of ['k2', 'k3+'] as const)
      expect(apart(expectation(estimator).gradient, dKl)).toBeLessThan(1e-6)
    expect(apart(expectation('k1').gradient, [0, 0, 0, 0])).toBeLessThan(1e-6)
    expect(apart(expectation('k3').gradient, dKl)).toBeGreaterThan(0.01)
  })
})
