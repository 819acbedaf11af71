import { describe, expect, test } from 'vitest'
import { defineOnPolicyAlgorithm, onPolicySettings } from '../../src/entries/algorithms.ts'
import { integer } from '../../src/entries/settings.ts'
import { cartPole, createTrainer, createWorld, mlp } from '../../src/index.ts'

const rowMean = { unit: null, description: 'of a row', reduction: 'rowMean' } as const

interface Call {
  readonly numRows: number
  readonly from: number
  readonly sumsFrom: number
  readonly weight: number
  readonly advantage: number[]
}

/** An algorithm whose loss notes how it is called; its updates end when `stops` says so. */
function noting(settings: object, stops: (sums: Float64Array, numRows: number) => boolean = () => false) {
  const calls: Call[] = []
  const begun: [number, number][] = []
  const algorithm = defineOnPolicyAlgorithm({
    id: 'noting',
    settings: { ...onPolicySettings({ numSteps: 6, normalizeAdvantage: false }), ...settings },
    metrics: { ones: rowMean, twos: rowMean },
    loss: () => ({
      begin: (update, numUpdates) => void begun.push([update, numUpdates]),
      ofRows({ dLogprob, dEntropy, dValue }, sums, _, { advantage }, { weight }, numRows, from, sumsFrom) {
        for (const column of [dLogprob, dEntropy, dValue]) column.fill(0, 0, numRows)
        dLogprob.fill(weight, 0, numRows)
        sums[sumsFrom] = sums[sumsFrom]! + numRows
        sums[sumsFrom + 1] = sums[sumsFrom + 1]! + 2 * numRows
        calls.push({ numRows, from, sumsFrom, weight, advantage: [...advantage.subarray(from, from + numRows)] })
      },
      stopsAfter: stops,
    }),
  })
  return { algorithm, calls, begun }
}

async function firstUpdate(algorithm: ReturnType<typeof noting>['algorithm'], numLanes: number) {
  const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [4] }), numLanes, seed: 3 })
  const trainer = createTrainer(world, algorithm())
  for await (const metrics of trainer.updates({ totalSteps: 6 * numLanes * 3 })) {
    return { metrics, rollout: trainer.world.cohort().rollout }
  }
  throw new Error('no update')
}

describe('an algorithm by its loss', () => {
  test('takes its advantages from a function of its settings', async () => {
    const own = defineOnPolicyAlgorithm({
      id: 'noting',
      settings: {
        ...onPolicySettings({ numSteps: 6, normalizeAdvantage: false }),
        base: integer(0, 'taken from rewards'),
      },
      metrics: { ones: rowMean, twos: rowMean },
      loss: () => ({
        ofRows({ dLogprob, dEntropy, dValue }) {
          for (const column of [dLogprob, dEntropy, dValue]) column.fill(0)
        },
      }),
      advantages:
        ({ base }) =>
        ({ advantage, return: returns, reward, valid }, { gamma, numSteps, numLanes, carry }) => {
          for (let row = 0; row < numSteps * numLanes; row++) {
            advantage[row] = (reward[row]! - base) * gamma + carry.length * valid[row]!
            returns[row] = 7
          }
        },
    })
    const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [4] }), numLanes: 5, seed: 3 })
    const trainer = createTrainer(world, own({ base: 3, gamma: 0.5 }))
    for await (const _ of trainer.updates({ totalSteps: 30 }));
    const { rollout } = world.cohort()
    expect([...rollout.advantage]).toEqual(new Array(30).fill((1 - 3) * 0.5 + 5)) // CartPole pays 1 a step.
    expect([...rollout.return]).toEqual(new Array(30).fill(7))
  })

  test('learns from the whole rollout at once, in its order, where it declares no minibatches', async () => {
    const { algorithm, calls, begun } = noting({})
    const { metrics, rollout } = await firstUpdate(algorithm, 100)
    expect(begun).toEqual([[0, 3]])
    expect(calls.map(({ numRows }) => numRows)).toEqual([256, 256, 88]) // 600 rows, in blocks.
    expect(calls.map(({ sumsFrom }) => sumsFrom)).toEqual([0, 2, 4]) // Each in a slot of its own.
    expect(calls.every(({ weight }) => weight === 1 / 600)).toBe(true)
    expect(calls.flatMap(({ advantage }) => advantage)).toEqual([...rollout.advantage])
    expect(metrics).toMatchObject({ ones: 1, twos: 2, learningRate: 2.5e-4 })
    expect(Object.keys(algorithm.metrics)).toEqual(['ones', 'twos', 'explainedVariance', 'gradNorm', 'learningRate'])
  })

  test('learns from shuffled minibatches, pass after pass, until its loss has enough', async () => {
    const seen: [number[], number][] = []
    const { algorithm, calls } = noting(
      { updateEpochs: integer(4, 'passes'), numMinibatches: integer(3, 'parts') },
      (sums, n) => {
        seen.push([[...sums], n])
        return seen.length === 2
      },
    )
    const { rollout } = await firstUpdate(algorithm, 10)
    expect(seen).toEqual([
      [[60, 120], 60],
      [[60, 120], 60],
    ])
    expect(calls.map(({ numRows }) => numRows)).toEqual([20, 20, 20, 20, 20, 20])
    const passes = [calls.slice(0, 3), calls.slice(3)].map((pass) => pass.flatMap(({ advantage }) => advantage))
    const sorted = [...rollout.advantage].toSorted()
    for (const pass of passes) {
      expect(pass).not.toEqual([...rollout.advantage])
      expect(pass.toSorted()).toEqual(sorted)
    }
    expect(passes[0]).not.toEqual(passes[1])
  })

  const loss = () => ({ ofRows: () => {} })

  test.each([
    [{ settings: {} }, 'bad settings: got no numSteps, expected the settings of onPolicySettings and its own'],
    [
      { metrics: { gradNorm: rowMean } },
      'bad metrics: got gradNorm, expected another name: explainedVariance, gradNorm, learningRate are added automatically',
    ],
    [
      { metrics: { norm: { ...rowMean, reduction: 'last' } } },
      'bad metrics norm.reduction: got last, expected rowMean',
    ],
    [{ metrics: { norm: null } }, 'bad metrics norm: got null, expected { unit, description, reduction }'],
  ])('is refused where it cannot be one: %j', (changed, message) => {
    const options = { id: 'bad', settings: onPolicySettings(), metrics: { ones: rowMean }, loss, ...changed }
    expect(() => defineOnPolicyAlgorithm(options as never)).toThrow(message)
  })
})
