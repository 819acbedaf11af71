import { describe, expect, test } from 'vitest'
import {
  type GroupBaseline,
  type GroupScale,
  groupAdvantage,
  type LoneAdvantage,
  Standing,
  spreadAdvantage,
} from '../../src/kernels/advantage/group.ts'
import { spansOf } from '../../src/kernels/spans.ts'
import * as fc from '../support/properties.ts'
import { Numbers, strict } from './calls.ts'

interface Choices {
  baseline?: GroupBaseline
  scale?: GroupScale
  unbiased?: boolean
  epsilon?: number
  lone?: LoneAdvantage
}

function run(rewards: (number | null)[], group: number[], choices: Choices = {}) {
  const { baseline = 'mean', scale = 'none', unbiased = true, epsilon = 0, lone = 'mask' } = choices
  const [n, numGroups] = [rewards.length, Math.max(...group) + 1]
  const advantage = new Float64Array(n).fill(Number.NaN)
  const standing = new Uint8Array(n).fill(9)
  const size = new Uint32Array(numGroups).fill(9)
  const [mean, deviation] = [new Float64Array(numGroups).fill(9), new Float64Array(numGroups).fill(9)]
  // What stands in the place of an unknown reward may not matter.
  const reward = Float64Array.from(rewards, (r) => r ?? 1e9)
  const known = Uint8Array.from(rewards, (r) => (r === null ? 0 : 1))
  const outputs = { advantage, standing, groupSize: size, groupMean: mean, groupDeviation: deviation }
  const settings = { baseline, scale, unbiased, epsilon, lone }
  strict(groupAdvantage)(outputs, reward, known, Int32Array.from(group), settings, n, numGroups)
  return {
    advantage: [...advantage],
    standing: [...standing],
    size: [...size],
    mean: [...mean],
    deviation: [...deviation],
  }
}

const meanOf = (x: number[]) => x.reduce((a, b) => a + b, 0) / x.length
const deviationOf = (x: number[], freedom: number) =>
  Math.sqrt(x.reduce((sum, value) => sum + (value - meanOf(x)) ** 2, 0) / (x.length - freedom))

/** The advantage of trajectory i by the formulas, one list at a time. */
function twin(rewards: (number | null)[], group: number[], i: number, choices: Required<Choices>): number {
  const mine = rewards[i]!
  const others = rewards.filter((r, j) => r !== null && j !== i && group[j] === group[i]) as number[]
  const all = [...others, mine]
  const freedom = choices.unbiased ? 1 : 0
  const centered = mine - meanOf(choices.baseline === 'mean' ? all : others)
  if (choices.scale === 'none') return centered
  if (choices.scale === 'group') return centered / (deviationOf(all, freedom) + choices.epsilon)
  if (choices.scale === 'mean') return centered / (meanOf(all) + choices.epsilon)
  return centered / (deviationOf(rewards.filter((r) => r !== null) as number[], freedom) + choices.epsilon)
}

const cases = fc
  .record({
    seed: fc.nat(),
    baseline: fc.constantFrom<GroupBaseline>('mean', 'leave-one-out'),
    scale: fc.constantFrom<GroupScale>('none', 'group', 'batch', 'mean'),
    unbiased: fc.boolean(),
  })
  .map(({ seed, ...choices }) => {
    const numbers = new Numbers(seed)
    const n = numbers.whole(2, 24)
    const group = Array.from({ length: n }, () => numbers.whole(0, 4))
    const rewards = Array.from({ length: n }, () => (numbers.uniform() < 0.2 ? null : numbers.uniform(0.1, 3)))
    return { group, rewards, choices: { ...choices, epsilon: 1e-4, lone: 'mask' as const } }
  })

describe('groupAdvantage', () => {
  test('equals its scalar twin, in groups of any size and order', () => {
    fc.assert(
      fc.property(cases, ({ rewards, group, choices }) => {
        const { advantage, standing } = run(rewards, group, choices)
        rewards.forEach((reward, i) => {
          const numKnown = rewards.filter((r, j) => r !== null && group[j] === group[i]).length
          if (reward === null) expect([standing[i], advantage[i]]).toEqual([Standing.unknown, 0])
          else if (numKnown === 1) expect([standing[i], advantage[i]]).toEqual([Standing.alone, 0])
          else {
            expect(standing[i]).toBe(Standing.learns)
            expect(advantage[i]).toBeCloseTo(twin(rewards, group, i, choices), 9)
          }
        })
      }),
    )
  })

  test('golden figures: GRPO, Dr. GRPO, RLOO and MaxRL of two interleaved groups', () => {
    // r = torch.tensor([1., 0., 0., 0.25]); s = torch.tensor([4., 2., 3.])
    // (r - r.mean()) / r.std(), r - r.mean(), (r - r.mean()) * 4 / 3, (r - r.mean()) / r.mean()
    const [rewards, group] = [
      [1, 4, 0, 0, 2, 3, 0.25],
      [0, 1, 0, 0, 1, 1, 0],
    ]
    const rounded = (choices: Choices) => run(rewards, group, choices).advantage.map((a) => Number(a.toFixed(4)))
    expect(rounded({ scale: 'group' })).toEqual([1.4527, 1, -0.6603, -0.6603, -1, 0, -0.1321])
    expect(rounded({})).toEqual([0.6875, 1, -0.3125, -0.3125, -1, 0, -0.0625])
    expect(rounded({ baseline: 'leave-one-out' })).toEqual([0.9167, 1.5, -0.4167, -0.4167, -1.5, 0, -0.0833])
    expect(rounded({ scale: 'mean' })).toEqual([2.2, 0.3333, -1, -1, -0.3333, 0, -0.2])
  })

  test('RLOO is Dr. GRPO times G / (G − 1)', () => {
    const numbers = new Numbers(3)
    const rewards = [...numbers.floats(12)]
    const group = rewards.map((_, i) => (i < 4 ? 0 : 1))
    const [rloo, dr] = [run(rewards, group, { baseline: 'leave-one-out' }), run(rewards, group)]
    rloo.advantage.forEach((a, i) => {
      expect(a).toBeCloseTo((dr.advantage[i]! * (i < 4 ? 4 : 8)) / (i < 4 ? 3 : 7), 12)
    })
  })

  test('the baseline is the group’s: a constant added to one group’s rewards changes nothing', () => {
    const [rewards, group] = [
      [1, 0, 3, 5],
      [0, 0, 1, 1],
    ]
    const moved = rewards.map((r, i) => (group[i] === 1 ? r + 8 : r))
    for (const scale of ['none', 'group'] as const)
      expect(run(moved, group, { scale }).advantage).toEqual(run(rewards, group, { scale }).advantage)
  })

  test('a group has the same bits alone and in company, except for what the batch divides', () => {
    const numbers = new Numbers(5)
    const rewards = [...numbers.floats(8)]
    const group = [0, 1, 0, 2, 1, 0, 2, 1]
    for (const scale of ['none', 'group', 'mean'] as const) {
      const all = run(rewards, group, { scale }).advantage
      const alone = rewards.filter((_, i) => group[i] === 1)
      const expected = all.filter((_, i) => group[i] === 1)
      expect(run(alone, [0, 0, 0], { scale }).advantage).toEqual(expected)
    }
  })

  test('an order of rows is only an order', () => {
    const [rewards, group] = [
      [1, 0, 3, 5, 0.5, 2],
      [0, 0, 1, 1, 0, 1],
    ]
    const order = [4, 2, 0, 5, 1, 3]
    const forwards = run(rewards, group, { scale: 'group' }).advantage
    const mixed = run(
      order.map((i) => rewards[i]!),
      order.map((i) => group[i]!),
      { scale: 'group' },
    ).advantage
    mixed.forEach((a, place) => {
      expect(a).toBeCloseTo(forwards[order[place]!]!, 12)
    })
  })

  test('an unknown reward is not a reward of 0: the others’ mean is theirs', () => {
    const { advantage, standing, size, mean } = run([1, null, 3], [0, 0, 0])
    expect({ advantage, standing, size, mean }).toEqual({
      advantage: [-1, 0, 1],
      standing: [Standing.learns, Standing.unknown, Standing.learns],
      size: [2],
      mean: [2],
    })
  })

  test('rewards that are equal but for rounding have no advantage, whatever divides', () => {
    // 0.1 + 0.1 + 0.1 is not 0.3: the deviation computed is 1.7e-17, which is above 0.
    for (const r of [0.1, 1e9 + 0.1, -7.3e-5, 0]) {
      for (const scale of ['none', 'group', 'batch', 'mean'] as const) {
        const { advantage, standing } = run([r, r, r], [0, 0, 0], { scale })
        expect({ advantage, standing }).toEqual({ advantage: [0, 0, 0], standing: Array(3).fill(Standing.equal) })
      }
    }
    expect(run([1, 1.001], [0, 0], { scale: 'group' }).standing).toEqual([Standing.learns, Standing.learns])
  })

  test('how near rewards are is by their size: a millionth of a small one tells, one of a billion is rounding', () => {
    const { advantage, standing } = run([1e-9, 2e-9], [0, 0], { scale: 'group' })
    expect(standing).toEqual([Standing.learns, Standing.learns])
    expect(advantage[1]).toBeCloseTo(Math.SQRT1_2)
    expect(run([1e9, 1e9 + 1], [0, 0], { scale: 'group' }).standing).toEqual([Standing.equal, Standing.equal])
  })

  test('a trajectory alone with its prompt is left out, or learns from its reward', () => {
    const rewards = [2, 1, null]
    expect(run(rewards, [0, 1, 1], { scale: 'group' })).toMatchObject({
      advantage: [0, 0, 0],
      standing: [Standing.alone, Standing.alone, Standing.unknown],
    })
    for (const baseline of ['mean', 'leave-one-out'] as const) {
      expect(run(rewards, [0, 1, 1], { baseline, scale: 'group', lone: 'reward' })).toMatchObject({
        advantage: [2, 1, 0],
        standing: [Standing.learns, Standing.learns, Standing.unknown],
      })
    }
  })

  test('groups that nobody is in have neither mean nor deviation', () => {
    expect(run([1, 2], [0, 3], {})).toMatchObject({ size: [1, 0, 0, 1], mean: [1, 0, 0, 2], deviation: [0, 0, 0, 0] })
  })
})

describe('spreadAdvantage', () => {
  test('goes by true lengths, and leaves out masked tokens and whole trajectories that do not learn', () => {
    // Tokens divided evenly among trajectories (3 each) would give the third token of the first to the second.
    const spans = spansOf(Int32Array.of(0, 1, 6, 8, 9, 12))
    const lossMask = Uint8Array.of(1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 1)
    const standing = Uint8Array.of(Standing.learns, Standing.learns, Standing.unknown, Standing.alone, Standing.equal)
    const token = new Float32Array(12).fill(9)
    const counted = new Uint8Array(12).fill(9)
    strict(spreadAdvantage)(token, counted, Float64Array.of(1, -2, 3, 4, 0), standing, lossMask, spans, 5)
    expect([...token]).toEqual([1, 0, 0, -2, -2, -2, 0, 0, 0, 0, 0, 0])
    expect([...counted]).toEqual([1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1])
  })
})
