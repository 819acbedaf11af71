/** Observations at mean 0 and deviation 1: what the moments are, and what a network does with them. */
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { takeArena } from '../../src/components/arena.ts'
import { type Columns, column, type Plan } from '../../src/components/column.ts'
import {
  box,
  cartPole,
  createTrainer,
  createWorld,
  defineEnvironment,
  discrete,
  type EpisodeCohort,
  evaluate,
  loadPolicy,
  mlp,
  ppo,
  resumeRun,
  startRun,
} from '../../src/index.ts'
import { createKernels } from '../../src/kernels/bind.ts'
import type { Evaluated, LossOf, Rows } from '../../src/policies/policy.ts'
import { Random } from '../../src/random.ts'
import { Numbers } from '../kernels/calls.ts'
import { fingerprint, smallRun } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

const WIDTH = 3

/** What is seen has sizes far apart, and one number of it never changes. */
const uneven = defineEnvironment({
  id: 'Uneven-v0',
  settings: {},
  state: () => ({ seen: 'f32' }),
  make: () => {
    const look = (observation: Float32Array, n: number, seen: number) => {
      observation[WIDTH * n] = 1000 + 20 * Math.sin(seen)
      observation[WIDTH * n + 1] = 0.01 * Math.cos(2 * seen)
      observation[WIDTH * n + 2] = 5
    }
    return {
      observationSpace: box({ low: -2000, high: 2000, shape: [WIDTH] }),
      actionSpace: discrete(2),
      maxEpisodeSteps: 9,
      returnThreshold: null,
      reset({ state, observation, lane, episode }, rows, count) {
        for (const n of rows.subarray(0, count)) {
          state.seen[n] = lane[n]! + 7 * episode[n]!
          look(observation, n, state.seen[n]!)
        }
      },
      step({ state, observation, action, reward }, from, to) {
        for (let n = from; n < to; n++) {
          reward[n] = action[n] === Number(Math.sin(state.seen[n]!) > 0) ? 1 : 0
          state.seen[n] = state.seen[n]! + 1
          look(observation, n, state.seen[n]!)
        }
      },
    }
  },
})

describe('a training', () => {
  test('gives the policy mean and deviation of all that was seen, after each update', async () => {
    const seen: number[][] = Array.from({ length: WIDTH }, () => [])
    const policy = mlp({ hidden: [8], normalizeObservations: true })
    const world = await createWorld({ environment: uneven(), policy, numLanes: 4, seed: 5 })
    const trainer = await createTrainer(world, ppo({ numSteps: 16, numMinibatches: 2, weightDecay: 0.1 }))
    for await (const { update: updates } of trainer.updates({ totalSteps: 3 * 64 })) {
      const { rollout, weights } = world.cohort() as EpisodeCohort
      for (const [i, value] of rollout.observation.entries()) seen[i % WIDTH]!.push(value)
      for (const [k, values] of seen.entries()) {
        expect(values).toHaveLength(64 * updates)
        const mean = values.reduce((sum, value) => sum + value, 0) / values.length
        const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length
        const [center, deviation] = [weights.at(k - 2 * WIDTH)!, weights.at(k - WIDTH)!]
        expect(center / mean).toBeCloseTo(1, 5)
        expect(deviation / Math.sqrt(variance + 1e-8)).toBeCloseTo(1, 5)
      }
    }
    expect(seen[0]).toHaveLength(192)
  })

  test('learns from a rollout with the moments by which its actions were chosen', async () => {
    const policy = mlp({ hidden: [8], normalizeObservations: true })
    const world = await createWorld({ environment: uneven(), policy, numLanes: 4, seed: 5 })
    const learner = ppo({ numSteps: 16, numMinibatches: 1, updateEpochs: 1, learningRate: 0.05 })
    const trainer = await createTrainer(world, learner)
    const centers = new Set<number>()
    for await (const { approxKl, clipFraction } of trainer.updates({ totalSteps: 64 * 5 })) {
      expect([approxKl, clipFraction]).toEqual([0, 0]) // The policy that learns is the one that chose.
      centers.add(world.cohort().weights.at(-2 * WIDTH)!)
    }
    expect(centers.size).toBe(5)
  })

  test('has an optimizer that touches neither: until there are moments, the weights are those of numbers as they are', async () => {
    const trained = async (normalizeObservations: boolean) => {
      const policy = mlp({ hidden: [8], normalizeObservations })
      const world = await createWorld({ environment: cartPole(), policy, numLanes: 4 })
      const learner = ppo({ numSteps: 16, weightDecay: 0.1, learningRate: 0.01 })
      const trainer = await createTrainer(world, learner)
      for await (const { approxKl } of trainer.updates({ totalSteps: 64 })) expect(approxKl).toBeGreaterThan(0)
      return world.cohort().weights
    }
    const [raw, normalized] = [await trained(false), await trained(true)]
    expect(normalized.length).toBe(raw.length + 8)
    expect(normalized.subarray(0, raw.length)).toEqual(raw)
  })
})

describe('the network', () => {
  /** A policy at work in an arena of its own, with these weights. */
  function bind(normalizeObservations: boolean, weights: Float32Array, sharedTrunk: boolean) {
    const settings = { hidden: [6, 5], sharedTrunk, normalizeObservations }
    const space = box({ low: -1e9, high: 1e9, shape: [WIDTH] })
    const model = mlp(settings).build(space, discrete(3))
    const plan = { weights: column('f32', model.numParameters), gradient: column('f32', model.numParameters) }
    const { arena, columns } = takeArena({ ...plan, workspace: model.workspace() })
    columns.weights.set(weights.subarray(0, model.numParameters))
    const kernels = createKernels(arena.memory, 'plain')
    const policy = model.bind(columns.weights, columns.workspace as Columns<Plan>, kernels, new Random(1))
    return { model, policy, gradient: columns.gradient }
  }

  test.each([false, true])('is that of numbers that were normalized before (shared trunk: %s)', async (sharedTrunk) => {
    const numbers = new Numbers(3)
    const space = box({ low: -1e9, high: 1e9, shape: [WIDTH] })
    const settings = { hidden: [6, 5], sharedTrunk, normalizeObservations: true }
    const { numParameters, normalizedInputs } = mlp(settings).build(space, discrete(3))
    expect(normalizedInputs).toBe(WIDTH)
    const weights = numbers.floats(numParameters, -0.5, 0.5)
    const [center, deviation] = [
      [4, -2, 0.5],
      [0.25, 3, 0.01],
    ]
    weights.set([...center!, ...deviation!], numParameters - 2 * WIDTH)
    const count = 300
    const observation = numbers.floats(count * WIDTH, -6, 6)
    const before = observation.map((value, i) => {
      const [c, d] = [Math.fround(center![i % WIDTH]!), Math.fround(deviation![i % WIDTH]!)]
      return Math.min(Math.max((value - c) / d, -10), 10)
    })
    expect(before.filter((value) => Math.abs(value) === 10).length).toBeGreaterThan(100)
    const rowsOf = (observation: Float32Array): Rows => ({
      observation,
      memory: new Float32Array(0),
      action: Int32Array.from({ length: count }, (_, i) => i % 3),
      actionMask: new Uint8Array(0),
      continues: new Uint8Array(0),
    })
    const [normalizing, plain] = [bind(true, weights, sharedTrunk), bind(false, weights, sharedTrunk)]
    const lossOf: LossOf = (_, { dLogprob, dEntropy, dValue }, from, rows) => {
      for (let row = 0; row < rows; row++) {
        dLogprob[row] = 0.1 * Math.sin(from + row)
        dEntropy[row] = 0.01
        dValue[row] = 0.3 * Math.cos(from + row)
      }
    }
    for (const [from, rows] of [
      [0, 256],
      [256, 44],
    ] as const) {
      const said = ({ policy, gradient }: typeof plain, seen: Float32Array) => {
        const evaluated = policy.evaluate(rowsOf(seen), from, rows) as Evaluated
        const copy = { ...evaluated, logprob: evaluated.logprob.slice(0, rows), value: evaluated.value.slice(0, rows) }
        policy.differentiate(rowsOf(seen), from, rows, lossOf, policy.view(gradient))
        return [copy.logprob, copy.value, gradient.slice(0, plain.gradient.length)]
      }
      expect(said(normalizing, observation)).toEqual(said(plain, before))
    }
    const [value, expected] = [new Float32Array(count), new Float32Array(count)]
    normalizing.policy.values(value, { observation, memory: new Float32Array(0), actionMask: new Uint8Array(0) }, count)
    plain.policy.values(
      expected,
      { observation: before, memory: new Float32Array(0), actionMask: new Uint8Array(0) },
      count,
    )
    expect(value).toEqual(expected)
    expect(normalizing.gradient.subarray(-2 * WIDTH)).toEqual(new Float32Array(2 * WIDTH))
  })
})

describe('a run', () => {
  const words = ['mlp.normalizeObservations=true']

  test('goes on to the same bits after a stop, also on three threads, and is evaluated with what it has seen', async () => {
    const folder = await temporaryFolder()
    const [whole, stopped] = [join(folder, 'whole'), join(folder, 'stopped')]
    await (await startRun(await smallRun(...words), whole)).train()
    const run = await startRun(await smallRun(...words, 'threads=3'), stopped)
    const stop = new AbortController()
    await run.train({ onUpdate: ({ update }) => update === 3 && stop.abort(), signal: stop.signal })
    await (await resumeRun(stopped)).train()
    expect(await fingerprint(stopped)).toEqual(await fingerprint(whole))
    const trained = await loadPolicy(whole)
    const { episodeReturn } = await evaluate({ ...trained, episodes: 20 })
    const asBorn = trained.weights.slice()
    asBorn.fill(0, -8, -4).fill(1, -4)
    expect((await evaluate({ ...trained, weights: asBorn, episodes: 20 })).episodeReturn).not.toEqual(episodeReturn)
  })
})
