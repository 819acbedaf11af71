import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { algorithmPresets, corrections, type LossId, type Preset } from '../../src/algorithms/losses/loss-presets.ts'
import type { LossSettings } from '../../src/algorithms/losses/loss-settings.ts'
import {
  describeLoss,
  differentiateLoss,
  type LossBatch,
  type LossDescriptor,
  type LossTotals,
  type PreparedLoss,
  preparedLossPlan,
  prepareLoss,
} from '../../src/algorithms/losses/losses.ts'
import { grpo as namedGrpo, gspo as namedGspo } from '../../src/compat/named-losses.ts'
import { takeArena } from '../../src/components/arena.ts'
import { createKernels, type PolicyLossInputs, PolicySum, Standing, spansOf } from '../../src/kernels/bind.ts'
import { Numbers, strict } from '../kernels/calls.ts'
import * as fc from '../support/properties.ts'

// Recorded by tests/golden/record_trl.py, which says how.
const recorded = JSON.parse(readFileSync(new URL('../golden/trl-losses.json', import.meta.url), 'utf8'))

const kernels = createKernels(new WebAssembly.Memory({ initial: 1 }), 'plain')

interface Evaluation {
  readonly logprob: Float32Array
  readonly entropy: Float32Array
}
/** With offsets, of which its spans are views. */
type Batch = Required<LossBatch> & { readonly offsets: Int32Array }

/** Groups of up to four, in no order; prompts, tool tokens, an unknown reward now and then. */
function makeBatch(seed: number, count = 12): { batch: Batch; evaluation: Evaluation } {
  const numbers = new Numbers(seed)
  const offsets = new Int32Array(count + 1)
  for (let i = 0; i < count; i++) offsets[i + 1] = offsets[i]! + numbers.whole(2, 12)
  const n = offsets[count]!
  const oldLogprob = numbers.floats(n, -3, 0)
  const near = (width: number) => oldLogprob.map((l) => l + numbers.uniform(-width, width))
  const batch = {
    offsets,
    spans: spansOf(offsets),
    lossMask: numbers.flags(n, 0.7),
    reward: Float64Array.from({ length: count }, () => numbers.whole(0, 4) / 4),
    known: numbers.flags(count, 0.85),
    group: numbers.wholes(count, 0, 3),
    oldLogprob,
    behaviorLogprob: near(0.5),
    referenceLogprob: near(0.5),
    value: numbers.floats(n),
  }
  return { batch, evaluation: { logprob: near(0.6), entropy: numbers.floats(n, 0, 3) } }
}

function prepare(descriptor: LossDescriptor, batch: LossBatch, numGroups = 4) {
  const { end } = batch.spans
  const prepared = takeArena(preparedLossPlan(end.length, end.at(-1)!, numGroups)).columns as PreparedLoss
  return { prepared, totals: strict(prepareLoss)(descriptor, batch, prepared, kernels) }
}

/** The loss and derivatives of the sequences `first` to `end` of a prepared batch, as one micro-batch. */
function differentiate(
  descriptor: LossDescriptor,
  { oldLogprob, referenceLogprob, offsets }: Batch,
  { logprob, entropy }: Evaluation,
  prepared: PreparedLoss,
  totals: LossTotals,
  [first, end]: readonly [number, number] = [0, offsets.length - 1],
) {
  const [dLogprob, dEntropy] = [new Float32Array(logprob.length), new Float32Array(logprob.length)]
  const sums = new Float64Array(PolicySum.length)
  const inputs: PolicyLossInputs = {
    logprob,
    entropy,
    oldLogprob,
    advantage: prepared.tokenAdvantage,
    weight: descriptor.columns.includes('behaviorLogprob') ? prepared.weight : null,
    referenceLogprob: descriptor.settings.klCoef > 0 ? referenceLogprob : null,
    counted: prepared.counted,
    spans: spansOf(offsets),
    wholeTokens: null,
  }
  differentiateLoss(descriptor, { dLogprob, dEntropy, sums }, inputs, totals, first, end, kernels)
  return { dLogprob, dEntropy, sums, loss: sums[PolicySum.loss]! }
}

function whole(descriptor: LossDescriptor, batch: Batch, evaluation: Evaluation) {
  const { prepared, totals } = prepare(descriptor, batch)
  return { ...differentiate(descriptor, batch, evaluation, prepared, totals), prepared, totals }
}

const everyLoss = Object.entries(algorithmPresets).flatMap(([id, { presets }]) =>
  Object.keys(presets).map((preset) => ({ id: id as LossId, preset: preset as Preset })),
)
const maxLength = 12

function expectClose(got: Float32Array, wanted: ArrayLike<number>, relative: number): void {
  const largest = Math.max(...Array.from(wanted, Math.abs))
  got.forEach((value, t) => {
    const error = Math.abs(value - wanted[t]!)
    if (error > relative * Math.max(Math.abs(wanted[t]!), 1e-3 * largest)) {
      throw new Error(`token ${t}: ${value}, not ${wanted[t]}`)
    }
  })
}

describe('against TRL', () => {
  const { offsets } = recorded.batch
  const n = offsets.at(-1)
  const floats = (name: string) => Float32Array.from(recorded.batch[name])
  const batchOf = (reward: (number | null)[]): Batch => ({
    offsets: Int32Array.from(offsets),
    spans: spansOf(offsets),
    lossMask: new Uint8Array(n).fill(1),
    reward: Float64Array.from(reward, (r) => r ?? Number.NaN),
    known: Uint8Array.from(reward, (r) => (r === null ? 0 : 1)),
    group: Int32Array.from(reward, (_, i) => Math.floor(i / recorded.group_size)),
    oldLogprob: floats('oldLogprob'),
    behaviorLogprob: floats('behaviorLogprob'),
    referenceLogprob: floats('referenceLogprob'),
    value: new Float32Array(n),
  })
  const evaluation = { logprob: floats('logprob'), entropy: floats('entropy') }

  test.each(['group', 'batch', 'none', 'rloo'] as const)('advantages scaled by %s are the same', (by) => {
    for (const { reward, [by]: expected } of recorded.advantages) {
      const [id, given] = by === 'rloo' ? (['rloo', { rewardKlCoef: 0 }] as const) : (['grpo', { scale: by }] as const)
      const { prepared } = prepare(describeLoss(id, 'trl', given), batchOf(reward))
      expected.forEach((a: number, i: number) => {
        expect(prepared.advantage[i]).toBeCloseTo(a, 7) // TRL's n / (n − 1) is a 32-bit float.
      })
    }
  })

  const alone = { correction: 'none' } as const // TRL corrects only for an engine of vLLM's.
  const cases: Record<string, [LossId, Partial<LossSettings>]> = {
    grpo: ['grpo', alone],
    'grpo with a KL penalty': ['grpo', { ...alone, klCoef: 0.04 }],
    'grpo with an uncorrected KL penalty': ['grpo', { ...alone, klCoef: 0.04, klCorrected: false }],
    'grpo with delta': ['grpo', { ...alone, ratioMax: 1.5 }],
    'grpo with sequence_mask': ['grpo', {}],
    dr_grpo: ['dr-grpo', { ...alone, maxLength: recorded.max_completion_length }],
    dapo: ['dapo', alone],
    cispo: ['cispo', alone],
    sapo: ['sapo', alone],
    gspo: ['gspo', alone],
    rloo: ['rloo', { rewardKlCoef: 0 }],
  }

  test('every recorded case has its loss here', () => {
    expect(Object.keys(cases).toSorted()).toEqual(Object.keys(recorded.cases).toSorted())
  })

  test.each(Object.entries(cases))('%s: loss and gradient are the same', (name, [id, given]) => {
    const descriptor = describeLoss(id, 'trl', given)
    const { loss, dLogprob } = whole(descriptor, batchOf(recorded.batch.reward), evaluation)
    expect(Math.abs(loss - recorded.cases[name].loss)).toBeLessThan(1e-6)
    expectClose(dLogprob, recorded.cases[name].gradient, 1e-5)
  })
})

describe('describeLoss', () => {
  test('every preset of every loss has settings that are allowed', () => {
    expect(everyLoss.length).toBeGreaterThan(35)
    for (const { id, preset } of everyLoss) {
      const descriptor = describeLoss(id, preset, { maxLength })
      expect(descriptor).toMatchObject({ id, preset, aggregation: descriptor.settings.aggregation })
    }
  })

  test('the level is what the ratio is taken of, whatever the loss is called', () => {
    expect(describeLoss('grpo').level).toBe('token')
    expect(describeLoss('gspo').level).toBe('sequence')
    expect(describeLoss('grpo', 'paper', { ratio: 'sequence' }).level).toBe('sequence')
    expect(describeLoss('gspo', 'paper', { ratio: 'token' }).level).toBe('token')
  })

  test('names the columns that it reads', () => {
    const columns = (id: LossId, preset?: Preset, given?: Partial<LossSettings>) =>
      describeLoss(id, preset, given).columns
    expect(columns('sft')).toEqual([])
    expect(columns('dapo')).toEqual(['reward', 'known', 'group', 'oldLogprob'])
    expect(columns('grpo')).toEqual(['reward', 'known', 'group', 'oldLogprob', 'referenceLogprob'])
    expect(columns('decoupled-ppo')).toEqual(['reward', 'known', 'group', 'oldLogprob', 'behaviorLogprob'])
    expect(columns('ppo')).toEqual(['reward', 'known', 'oldLogprob', 'value'])
    expect(columns('dapo', 'verl', corrections.icePop)).toContain('behaviorLogprob')
  })

  test('clip-higher, dual clip, clamps and aggregations are as each project has them', () => {
    const of = (id: LossId, preset: Preset) => describeLoss(id, preset, { maxLength }).settings
    expect(of('dapo', 'paper')).toMatchObject({ clipLow: 0.2, clipHigh: 0.28, klCoef: 0, aggregation: 'token-mean' })
    expect(of('grpo', 'verl')).toMatchObject({ dualClip: 3, logRatioMax: 20, klMax: 10, epsilon: 1e-6, lone: 'reward' })
    expect(of('grpo', 'trl')).toMatchObject({ epsilon: 1e-4, dualClip: null, aggregation: 'sequence-mean' })
    expect(of('grpo', 'areal')).toMatchObject({ epsilon: 1e-5, correction: 'token-mask', countsRejected: true })
    expect(of('dr-grpo', 'verl').aggregation).toBe('constant-length-sum')
    expect(of('dr-grpo', 'trl').aggregation).toBe('constant-length')
    expect(of('gspo', 'verl').ratio).toBe('sequence-token')
    expect(of('cispo', 'trl')).toMatchObject({ clipLow: null, clipHigh: 4 })
  })

  test('what a project has for all of its losses, where neither the loss nor its preset says otherwise', () => {
    const none = { correction: 'none', correctionHigh: null, dualClip: null, logRatioMax: null, klMax: null } as const
    const plain = { ...none, lone: 'mask', klCorrected: false, countsEmpty: false, aggregation: 'token-mean' } as const
    const projects: Record<Preset, Partial<LossSettings>> = {
      paper: { ...plain, epsilon: 0 },
      trl: {
        ...{ ...plain, epsilon: 1e-4, klCorrected: true, countsEmpty: true },
        ...{ correction: 'sequence-mask', correctionHigh: 3 },
      },
      verl: { ...plain, epsilon: 1e-6, lone: 'reward', dualClip: 3, logRatioMax: 20, klMax: 10 },
      areal: { ...plain, epsilon: 1e-5, correction: 'token-mask', correctionHigh: 5 },
      slime: { ...plain, epsilon: 1e-6, aggregation: 'sequence-mean' },
    }
    for (const [preset, wanted] of Object.entries(projects)) {
      // The others change nothing of these but the aggregation.
      expect(describeLoss('dapo', preset as Preset).settings).toMatchObject({ ...wanted, aggregation: 'token-mean' })
    }
    for (const preset of ['verl', 'areal', 'slime'] as const) {
      expect(describeLoss('grpo', preset).settings).toMatchObject(projects[preset])
    }
  })

  test('what is not there, or lacks what it needs, is refused by name', () => {
    expect(() => describeLoss('gpro' as LossId)).toThrow('did you mean "grpo"')
    expect(() => describeLoss('dr-grpo', 'slime')).toThrow('preset of dr-grpo: got "slime", expected one of paper')
    expect(() => describeLoss('grpo', 'paper', { clipHihg: 0.3 } as object)).toThrow('grpo setting: got "clipHihg"')
    expect(() => describeLoss('grpo', 'paper', { clipHigh: -1 })).toThrow('grpo.clipHigh: got -1')
    expect(() => describeLoss('dr-grpo')).toThrow('dr-grpo.maxLength: got null')
    expect(() => describeLoss('dapo', 'paper', { overlongCache: 4 })).toThrow('for overlongCache')
    expect(() => describeLoss('dapo', 'paper', { overlongCache: 9, maxLength: 8 })).toThrow('dapo.overlongCache: got 9')
    expect(() => describeLoss('dapo', 'paper', { ...corrections.icePop, correctionHigh: 0.1 })).toThrow('at least')
    // What is equal fits.
    expect(() => describeLoss('dapo', 'paper', { ...corrections.icePop, correctionHigh: 0.5 })).not.toThrow()
    expect(() => describeLoss('dapo', 'paper', { overlongCache: 8, maxLength: 8 })).not.toThrow()
  })
})

test('algorithms by name have their advantages and losses, and no reference', () => {
  const { computeAdvantages, computeAdvantagesDrGrpo, policyLoss } = namedGrpo
  expect([computeAdvantages.settings.scale, computeAdvantagesDrGrpo.settings.scale]).toEqual(['group', 'none'])
  expect(policyLoss.settings).toMatchObject({ klCoef: 0, aggregation: 'sequence-mean' })
  const losses = [namedGspo.policyLoss, namedGspo.policyLossHybrid, namedGspo.policyLossToken]
  expect(losses.map(({ settings }) => settings.ratio)).toEqual(['sequence', 'hybrid', 'sequence-token'])
})

describe('a batch and its micro-batches', () => {
  test.each(everyLoss)('$id as $preset has it: cut anywhere, the sums are the whole’s', ({ id, preset }) => {
    const descriptor = describeLoss(id, preset, { maxLength, klCoef: id === 'sft' ? 0 : 0.05, entropyCoef: 0.01 })
    fc.assert(
      fc.property(fc.nat(), fc.array(fc.integer({ min: 1, max: 11 }), { maxLength: 5 }), (seed, cuts) => {
        const { batch, evaluation } = makeBatch(seed)
        const { prepared, totals, ...all } = whole(descriptor, batch, evaluation)
        const ends = [0, ...new Set(cuts), 12].toSorted((a, b) => a - b)
        const sums = new Float64Array(PolicySum.length)
        ends.slice(1).forEach((end, k) => {
          const span: [number, number] = [ends[k]!, end]
          const part = differentiate(descriptor, batch, evaluation, prepared, totals, span)
          part.sums.forEach((value, place) => {
            sums[place]! += value
          })
          const [first, last] = span.map((i) => batch.offsets[i]!)
          for (const name of ['dLogprob', 'dEntropy'] as const)
            expect(part[name].subarray(first, last)).toEqual(all[name].subarray(first, last))
        })
        sums.forEach((value, place) => {
          expect(value).toBeCloseTo(all.sums[place]!, 9)
        })
      }),
      { numRuns: 15 },
    )
  })

  test.each(everyLoss)('$id as $preset has it: another order of trajectories is only an order', ({ id, preset }) => {
    const descriptor = describeLoss(id, preset, { maxLength })
    const { batch, evaluation } = makeBatch(3)
    const order = [7, 2, 11, 0, 5, 9, 1, 10, 3, 8, 4, 6]
    const tokens = order.flatMap((i) => {
      const [first, end] = [batch.offsets[i]!, batch.offsets[i + 1]!]
      return Array.from({ length: end - first }, (_, t) => first + t)
    })
    const lengths = order.map((i) => batch.offsets[i + 1]! - batch.offsets[i]!)
    const byToken = (column: Float32Array) => Float32Array.from(tokens, (t) => column[t]!)
    const offsets = Int32Array.from([0, ...lengths.map((_, i) => lengths.slice(0, i + 1).reduce((a, b) => a + b))])
    const mixed: Batch = {
      offsets,
      spans: spansOf(offsets),
      lossMask: Uint8Array.from(tokens, (t) => batch.lossMask[t]!),
      reward: Float64Array.from(order, (i) => batch.reward[i]!),
      known: Uint8Array.from(order, (i) => batch.known[i]!),
      group: Int32Array.from(order, (i) => batch.group[i]!),
      oldLogprob: byToken(batch.oldLogprob),
      behaviorLogprob: byToken(batch.behaviorLogprob),
      referenceLogprob: byToken(batch.referenceLogprob),
      value: byToken(batch.value),
    }
    const all = whole(descriptor, batch, evaluation)
    const other = whole(descriptor, mixed, {
      logprob: byToken(evaluation.logprob),
      entropy: byToken(evaluation.entropy),
    })
    expect(other.totals).toEqual(all.totals)
    expect(other.loss).toBeCloseTo(all.loss, 6)
    expectClose(other.dLogprob, byToken(all.dLogprob), 1e-4)
  })

  test('the denominator is of what the aggregation names', () => {
    const { batch } = makeBatch(4)
    batch.lossMask.fill(1)
    batch.lossMask.fill(0, batch.offsets[2], batch.offsets[3]) // A sequence without a token to learn from.
    batch.known.fill(1)
    batch.group.fill(0)
    const tokens = batch.lossMask.reduce((sum, flag) => sum + flag, 0)
    const of = (aggregation: LossSettings['aggregation'], countsEmpty = false) =>
      prepare(describeLoss('grpo', 'paper', { aggregation, maxLength, countsEmpty }), batch).totals.denominator
    expect(of('token-mean')).toBe(tokens)
    expect([of('sequence-mean'), of('sequence-mean', true)]).toEqual([11, 12])
    expect(of('sequence-sum')).toBe(11)
    expect([of('constant-length'), of('constant-length-sum')]).toEqual([132, 12])
  })

  test('tokens rejected by a correction stay in the denominator, or leave it', () => {
    const { batch } = makeBatch(5)
    const of = (given: Partial<LossSettings>) => prepare(describeLoss('dapo', 'paper', given), batch).totals
    const all = of({})
    const kept = of({ ...corrections.icePop, correctionLow: 0.8 })
    const left = of({ ...corrections.icePop, correctionLow: 0.8, countsRejected: false })
    expect(kept.numRejected).toBeGreaterThan(0)
    expect(kept.denominator).toBe(all.denominator)
    expect(left.denominator).toBe(all.denominator - left.numRejected)
  })

  test.each(['gspo', 'cispo', 'sapo', 'decoupled-ppo', 'dapo'] as const)(
    'on-policy, %s has the gradient of GRPO: −A, divided by what the aggregation says',
    (id) => {
      const { batch, evaluation } = makeBatch(8)
      batch.oldLogprob.set(evaluation.logprob)
      batch.behaviorLogprob.set(evaluation.logprob)
      const given = { aggregation: 'sequence-mean', advantage: 'group', klCoef: 0, maxLength } as const
      const { dLogprob, prepared, totals } = whole(describeLoss(id, undefined, given), batch, evaluation)
      expect(dLogprob.some((d) => d !== 0)).toBe(true)
      for (let i = 0; i < 12; i++) {
        const [first, end] = [batch.offsets[i]!, batch.offsets[i + 1]!]
        const length = prepared.counted.subarray(first, end).reduce((sum, flag) => sum + flag, 0)
        for (let t = first; t < end; t++) {
          const wanted = prepared.counted[t] ? -prepared.tokenAdvantage[t]! / (length * totals.denominator) : 0
          expect(dLogprob[t]).toBeCloseTo(wanted, 6)
        }
      }
    },
  )

  test('decoupled PPO is PPO where proximal and behavior policy are one', () => {
    const { batch, evaluation } = makeBatch(6)
    const same = { ...batch, behaviorLogprob: batch.oldLogprob }
    const decoupled = whole(describeLoss('decoupled-ppo'), same, evaluation)
    const plain = whole(describeLoss('decoupled-ppo', 'paper', { correction: 'none' }), same, evaluation)
    expect(decoupled.dLogprob).toEqual(plain.dLogprob)
    const apart = whole(describeLoss('decoupled-ppo'), batch, evaluation)
    expect(apart.dLogprob).not.toEqual(plain.dLogprob)
  })
})

describe('prepareLoss', () => {
  test('what has no advantage is left out and counted: unknown, alone, equal', () => {
    const { batch, evaluation } = makeBatch(7)
    batch.lossMask.fill(1)
    batch.reward.set([1, 0, 0.25, 0.5, 0.5, 1, 0.1, 0.1, 0.1, Number.NaN, 1, 0])
    batch.known.set([1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1])
    batch.group.set([0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 0, 0])
    const { totals, prepared, dLogprob } = whole(describeLoss('dapo'), batch, evaluation)
    expect(totals).toMatchObject({ numUnknown: 1, numAlone: 1, numEqual: 5, numSequences: 10 })
    const moves = Array.from({ length: 12 }, (_, i) =>
      dLogprob.subarray(batch.offsets[i], batch.offsets[i + 1]).some((d) => d !== 0),
    )
    expect(moves).toEqual([...prepared.standing].map((s) => s === Standing.learns))
    expect(prepared.counted.slice(batch.offsets[9], batch.offsets[10]).every((flag) => flag === 0)).toBe(true)
  })

  test('a batch of which nothing is left has no loss, rather than one that is not a number', () => {
    const { batch, evaluation } = makeBatch(8)
    batch.known.fill(0)
    // Of distill, whose rewards do not count, all is left.
    for (const { id, preset } of everyLoss.filter(({ id }) => id !== 'sft' && id !== 'distill')) {
      const { loss, dLogprob, totals } = whole(describeLoss(id, preset, { maxLength }), batch, evaluation)
      expect({ loss, numTokens: totals.numTokens, numUnknown: totals.numUnknown }).toEqual({
        loss: 0,
        numTokens: 0,
        numUnknown: 12,
      })
      expect(dLogprob.every((d) => d === 0)).toBe(true)
    }
  })

  test('overlong answers lose reward before rewards are compared', () => {
    const { batch } = makeBatch(9, 2)
    batch.offsets.set([0, 2, 12])
    const long = { ...batch, lossMask: new Uint8Array(12).fill(1), reward: Float64Array.of(1, 1) }
    for (const name of ['oldLogprob', 'behaviorLogprob', 'referenceLogprob', 'value'] as const)
      long[name] = new Float32Array(12)
    long.known.fill(1)
    long.group.fill(0)
    const { prepared } = prepare(
      describeLoss('dapo', 'paper', { scale: 'none', overlongCache: 4, maxLength: 12 }),
      long,
    )
    expect([...prepared.shapedReward]).toEqual([1, 0.5])
    expect([...prepared.advantage]).toEqual([0.25, -0.25])
    expect([...long.reward]).toEqual([1, 1])
  })

  test('overlong answers lose reward before returns are taken of it', () => {
    const { batch } = makeBatch(9)
    batch.lossMask.fill(1)
    const given = { overlongCache: 8, overlongFactor: 0.5, maxLength: 12, whiten: false } as const
    const { prepared } = prepare(describeLoss('reinforce++', 'verl', given), batch)
    for (let i = 0; i < 12; i++) {
      const [first, end] = [batch.offsets[i]!, batch.offsets[i + 1]!]
      if (batch.known[i] === 0) continue
      const lost = 0.5 * Math.min(1, Math.max(0, (end - first - 4) / 8))
      expect(prepared.shapedReward[i]).toBeCloseTo(batch.reward[i]! - lost, 12)
      expect(prepared.tokenAdvantage[first]).toBeCloseTo(batch.reward[i]! - lost, 6)
    }
    expect([...prepared.shapedReward]).not.toEqual([...batch.reward])
  })

  test('PPO with a critic: rewards come last, values are targets’ baselines, advantages are whitened', () => {
    const { batch } = makeBatch(10)
    const { prepared, totals } = prepare(describeLoss('ppo', 'paper', { gaeLambda: 1 }), batch)
    let [sum, squares] = [0, 0]
    for (let i = 0; i < 12; i++) {
      for (let t = batch.offsets[i]!; t < batch.offsets[i + 1]!; t++) {
        const counts = batch.lossMask[t] === 1 && batch.known[i] === 1
        expect(prepared.counted[t]).toBe(counts ? 1 : 0)
        // With γ = λ = 1 the target is the reward itself, wherever in the answer.
        expect(prepared.returns[t]).toBeCloseTo(counts ? batch.reward[i]! : 0, 5)
        if (!counts) continue
        sum += prepared.tokenAdvantage[t]!
        squares += prepared.tokenAdvantage[t]! ** 2
      }
    }
    expect(sum / totals.numTokens).toBeCloseTo(0, 5)
    expect(squares / (totals.numTokens - 1)).toBeCloseTo(1, 4)
  })

  test('REINFORCE++ compares with the batch, its baseline variant with the group first', () => {
    const { batch } = makeBatch(11)
    batch.known.fill(1)
    batch.group.set([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    batch.reward.set([10, 11, 10, 11, 10, 11, 0, 1, 0, 1, 0, 1])
    const sign = (id: LossId) => {
      const { prepared } = prepare(describeLoss(id, 'verl'), batch)
      return Array.from({ length: 12 }, (_, i) => {
        const [first, end] = [batch.offsets[i]!, batch.offsets[i + 1]!]
        return Math.sign(prepared.tokenAdvantage.slice(first, end).find((a) => a !== 0) ?? 0)
      })
    }
    batch.lossMask.fill(1)
    expect(sign('reinforce++')).toEqual([1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1])
    expect(sign('reinforce++-baseline')).toEqual([-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1])
  })

  test('the KL of the reward is that of the policy before the update, by token or by answer', () => {
    const { batch } = makeBatch(12)
    batch.known.fill(1)
    const given = { rewardKlCoef: 0.5, whiten: false }
    const byToken = prepare(describeLoss('reinforce++', 'paper', given), batch).prepared
    const byAnswer = prepare(describeLoss('rloo', 'trl', given), batch).prepared
    for (let i = 0; i < 12; i++) {
      let penalty = 0
      let first = -1
      for (let t = batch.offsets[i]!; t < batch.offsets[i + 1]!; t++) {
        if (batch.lossMask[t] === 0) continue
        if (first < 0) first = t
        penalty += 0.5 * (batch.oldLogprob[t]! - batch.referenceLogprob[t]!)
      }
      expect(byAnswer.shapedReward[i]).toBeCloseTo(batch.reward[i]! - penalty, 5)
      if (first >= 0) expect(byToken.returns[first]).toBeCloseTo(batch.reward[i]! - penalty, 4)
    }
  })

  test('supervised fine-tuning takes what the loss mask names, of every token as much', () => {
    const { batch, evaluation } = makeBatch(13)
    const { spans, lossMask } = batch
    const { prepared, totals } = prepare(describeLoss('sft'), { spans, lossMask })
    const { loss, dLogprob } = differentiate(describeLoss('sft'), batch, evaluation, prepared, totals)
    const chosen = [...evaluation.logprob].filter((_, t) => lossMask[t])
    expect(loss).toBeCloseTo(-chosen.reduce((a, b) => a + b) / chosen.length, 6)
    dLogprob.forEach((d, t) => {
      expect(d).toBe(lossMask[t] ? Math.fround(-1 / chosen.length) : 0)
    })
  })

  test('an answer may have no token at all', () => {
    const { batch } = makeBatch(14)
    batch.offsets[5] = batch.offsets[4]!
    batch.known.fill(1)
    const { totals } = prepare(describeLoss('dapo'), batch)
    expect(totals.numSequences).toBeLessThan(12)
  })

  test('bad batches are refused before anything is learned from them', () => {
    const descriptor = describeLoss('grpo')
    const with_ = (given: Partial<Record<keyof LossBatch, unknown>>) => () =>
      prepare(descriptor, { ...makeBatch(1).batch, ...given } as LossBatch)
    const { batch } = makeBatch(1)
    const n = batch.offsets[12]
    expect(with_({ referenceLogprob: undefined })).toThrow(
      `grpo.referenceLogprob: got no column, expected a column of at least ${n} rows`,
    )
    expect(with_({ group: new Int32Array(3) })).toThrow('grpo.group: got 3 rows, expected a column of 12 rows')
    expect(with_({ oldLogprob: new Float32Array(3) })).toThrow('grpo.oldLogprob: got 3 rows')
    expect(with_({ spans: spansOf(Int32Array.of(0, 3, 2)) })).toThrow('grpo.spans: got 3 to 2, expected a begin ≥ 0')
    expect(with_({ known: new Uint8Array(12).fill(1), reward: new Float64Array(12).fill(Number.NaN) })).toThrow(
      'grpo.reward: got NaN of trajectory 0, expected a finite number, or known = 0',
    )
    expect(with_({ group: new Int32Array(12).fill(4) })).toThrow('grpo.group: got 4 of trajectory 0, expected 0 to 3')
  })
})
