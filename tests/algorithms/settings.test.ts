import { describe, expect, test } from 'vitest'
import { lossSettings } from '../../src/algorithms/losses/loss-settings.ts'
import { describeLoss } from '../../src/algorithms/losses/losses.ts'
import { ppo } from '../../src/algorithms/on-policy/ppo.ts'
import {
  checkOptimizer,
  decayingParts,
  learningRateOf,
  type OptimizerSettings,
} from '../../src/algorithms/optimizers/optimizer.ts'
import { algorithmFactory, algorithms } from '../../src/algorithms/registry.ts'
import { rl, rlRates, rlSettings } from '../../src/algorithms/tokens/rl.ts'
import { sft, sftSettings } from '../../src/algorithms/tokens/sft.ts'
import { above0, type Bounds, count, countOrNone, expectBounds, from0, from0to1, orNull } from '../support/bounds.ts'

const above1: Bounds = [[1.001, 1e9], [1]]
const below1: Bounds = [
  [0, 0.9999],
  [-1e-9, 1],
]
const optimizer = { momentum: from0to1, beta1: below1, beta2: below1, epsilon: above0, weightDecay: from0 }

describe('the ranges of settings', () => {
  test('of ppo', () => {
    expectBounds(ppo.settings, {
      ...optimizer,
      ...{ numSteps: count, updateEpochs: count, numMinibatches: count },
      ...{ learningRate: above0, warmupFraction: from0to1, gamma: from0to1, gaeLambda: from0to1 },
      ...{ clipCoef: above0, clipValue: orNull(above0), entropyCoef: from0, valueCoef: from0 },
      ...{ maxGradNorm: above0, targetKl: orNull(above0) },
      ...{ rhoMax: above0, cMax: above0 },
      maxStaleness: [
        [0, 15],
        [-1, 1.5, 16],
      ],
    })
  })

  test('of supervised fine-tuning', () => {
    expectBounds(sftSettings, {
      ...optimizer,
      ...{ updates: countOrNone, batchSize: count, learningRate: orNull(above0) },
      ...{ warmupFraction: from0to1, maxGradNorm: above0 },
    })
  })

  test('of reinforcement learning', () => {
    expectBounds(rlSettings, {
      ...optimizer,
      ...{ updates: countOrNone, groupsPerUpdate: count, groupSize: count, dropsMax: countOrNone },
      ...{ updateEpochs: count, numMinibatches: count, learningRate: orNull(above0), warmupFraction: from0to1 },
      ...{ maxGradNorm: above0, temperature: above0, topK: countOrNone, minP: from0to1 },
      ...{
        maxStaleness: countOrNone,
        overSampling: [
          [1, 1.5, 1e9],
          [0.999, -1],
        ],
      },
      topP: [
        [1e-9, 1],
        [0, 1.001],
      ],
    })
  })

  test('of losses', () => {
    expectBounds(lossSettings, {
      ...{ epsilon: from0, gamma: from0to1, gaeLambda: from0to1, rewardCoef: from0, rewardKlCoef: from0 },
      ...{ overlongCache: orNull(above0), overlongFactor: from0, sequencePart: from0, tokenPart: from0 },
      ...{ clipLow: orNull(from0to1), clipHigh: orNull(from0), dualClip: orNull(above1), ratioMax: orNull(above1) },
      ...{ tauPositive: above0, tauNegative: above0, logRatioMax: orNull(above0) },
      ...{ klCoef: from0, klMax: orNull(above0), entropyCoef: from0 },
      ...{ correctionLow: from0, correctionHigh: orNull(above0), maxLength: orNull(count) },
      ...{ valueCoef: from0, clipValue: orNull(above0) },
    })
  })
})

describe('what no range says', () => {
  test('an algorithm is found by its id, or the nearest is named', () => {
    for (const factory of algorithms) expect(algorithmFactory(factory.id)).toBe(factory)
    expect(() => algorithmFactory('pppo')).toThrow(/algorithm: got "pppo".*did you mean "ppo"/)
  })

  test('what is no object of settings is refused', () => {
    for (const given of [null, 'grpo', 3]) {
      expect(() => rl(given as never)).toThrow(/^rl: got .*, expected an object of settings$/)
      expect(() => describeLoss('dapo', 'paper', given as never)).toThrow(
        /^settings of dapo: .* an object of settings$/,
      )
    }
  })

  test('a group of one is refused where its reward would be compared with none', () => {
    expect(() => rl({ groupSize: 1 })).toThrow('rl.groupSize: got 1, expected at least 2: grpo compares')
    expect(rl({ groupSize: 2 }).settings.groupSize).toBe(2)
    expect(rl({ groupSize: 1, preset: 'verl' }).loss.settings.lone).toBe('reward')
    expect(rl({ groupSize: 1, loss: 'reinforce++' }).loss.settings.advantage).toBe('returns')
  })

  test('there are at most as many minibatches as conversations', () => {
    const six = { groupsPerUpdate: 3, groupSize: 2 }
    expect(rl({ ...six, numMinibatches: 6 }).settings.numMinibatches).toBe(6)
    expect(() => rl({ ...six, numMinibatches: 7 })).toThrow('rl.numMinibatches: got 7, expected at most 6, the conv')
  })

  test('an optimizer is told nothing that it has no use for', () => {
    const given = { optimizer: 'sgd', momentum: 0.9, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0 } as const
    const check = (others: Partial<OptimizerSettings>) => () => checkOptimizer('sft', { ...given, ...others })
    expect(check({})).not.toThrow()
    expect(check({ optimizer: 'rmsprop' })).not.toThrow()
    expect(check({ optimizer: 'adam', momentum: 0, beta1: 0.5, beta2: 0.5 })).not.toThrow()
    expect(check({ optimizer: 'adam' })).toThrow('sft.momentum: got 0.9, expected 0: adam accepts beta1 and beta2')
    expect(check({ beta1: 0.8 })).toThrow('sft.beta1: got 0.8, expected 0.9: sgd accepts momentum')
    expect(check({ optimizer: 'rmsprop', beta2: 0.9 })).toThrow(
      'sft.beta2: got 0.9, expected 0.999: rmsprop accepts momentum',
    )
    expect(() => sft({ optimizer: 'sgd', beta1: 0.5 })).toThrow('sft.beta1')
    expect(() => rl({ momentum: 0.5 })).toThrow('rl.momentum')
  })

  test('a learning rate that is not given goes by what is trained', () => {
    const rateOf = (isLoaded: boolean, adapter: object | null, given: number | null = null) =>
      learningRateOf(given, rlRates, { isLoaded, adapter })
    expect([rateOf(false, null), rateOf(false, {}), rateOf(true, null), rateOf(true, {})]).toEqual([
      ...[rlRates.made, rlRates.made],
      ...[rlRates.loaded, rlRates.adapter],
    ])
    expect(rateOf(true, {}, 0.25)).toBe(0.25)
  })

  test('matrices decay, and what has one side does not; neighbors of a kind are one part', () => {
    const parameters = [
      { name: 'a', offset: 0, shape: [2, 3] },
      { name: 'b', offset: 6, shape: [4, 1] },
      { name: 'c', offset: 10, shape: [5] },
      { name: 'd', offset: 15, shape: [2, 2, 2] },
    ]
    expect(decayingParts(parameters)).toEqual([
      { from: 0, to: 10, decays: true },
      { from: 10, to: 15, decays: false },
      { from: 15, to: 23, decays: true },
    ])
  })
})
