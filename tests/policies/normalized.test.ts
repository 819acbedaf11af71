/** Observations at mean 0 and deviation 1: what the moments are, and what a network does with them. */
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { dqn } from '../../src/algorithms/off-policy/dqn.ts'
import { sac } from '../../src/algorithms/off-policy/sac.ts'
import { td3 } from '../../src/algorithms/off-policy/td3.ts'
import { Random } from '../../src/base/random.ts'
import { boolean } from '../../src/base/settings.ts'
import type { Space } from '../../src/base/space.ts'
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
import type {
  ActionValuePolicy,
  Evaluated,
  LossOf,
  Policy,
  PolicyDefinition,
  Rows,
  SoftPolicy,
} from '../../src/policies/policy.ts'
import { qNetwork } from '../../src/policies/q-network.ts'
import { sacNetwork } from '../../src/policies/sac-network.ts'
import { td3Network } from '../../src/policies/td3-network.ts'
import { Numbers } from '../kernels/calls.ts'
import { fingerprint, smallRun } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

const WIDTH = 3

/** What is seen has sizes far apart, and one number of it never changes. */
const uneven = defineEnvironment({
  id: 'Uneven-v0',
  settings: { choices: boolean(true, 'whether an action is one of two, else a number') },
  state: () => ({ seen: 'f32' }),
  make: ({ choices }) => {
    const look = (observation: Float32Array, n: number, seen: number) => {
      observation[WIDTH * n] = 1000 + 20 * Math.sin(seen)
      observation[WIDTH * n + 1] = 0.01 * Math.cos(2 * seen)
      observation[WIDTH * n + 2] = 5
    }
    return {
      observationSpace: box({ low: -2000, high: 2000, shape: [WIDTH] }),
      actionSpace: choices ? discrete(2) : box({ low: -1, high: 1 }),
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
          reward[n] = action[n]! > 0 === Math.sin(state.seen[n]!) > 0 ? 1 : 0
          state.seen[n] = state.seen[n]! + 1
          look(observation, n, state.seen[n]!)
        }
      },
    }
  },
})

/** Each network that puts observations at mean 0 and deviation 1, with an algorithm that trains it. */
const trainings = [
  {
    name: 'ppo',
    choices: true,
    policy: mlp({ hidden: [8], normalizeObservations: true }),
    learner: ppo({ numSteps: 16, numMinibatches: 2, weightDecay: 0.1 }),
  },
  {
    name: 'dqn',
    choices: true,
    policy: qNetwork({ hidden: [8], normalizeObservations: true }),
    learner: dqn({ numSteps: 16, learningStarts: 64, batchSize: 32, weightDecay: 0.1, targetInterval: 1000 }),
  },
  {
    name: 'sac',
    choices: false,
    policy: sacNetwork({ hidden: [8], normalizeObservations: true }),
    learner: sac({ numSteps: 16, learningStarts: 64, batchSize: 32, weightDecay: 0.1 }),
  },
  {
    name: 'td3',
    choices: false,
    policy: td3Network({ hidden: [8], normalizeObservations: true }),
    learner: td3({ numSteps: 16, learningStarts: 64, batchSize: 32, weightDecay: 0.1 }),
  },
]

describe('a training', () => {
  test.each(trainings)(
    'by $name gives the policy mean and deviation of all that was seen, after each update',
    async (given) => {
      const seen: number[][] = Array.from({ length: WIDTH }, () => [])
      const { choices, policy, learner } = given
      const world = await createWorld({ environment: uneven({ choices }), policy, numLanes: 4, seed: 5 })
      const trainer = await createTrainer(world, learner)
      const born = world.cohort().weights.slice(-2 * WIDTH)
      expect(born).toEqual(Float32Array.of(0, 0, 0, 1, 1, 1))
      let before = born
      for await (const { update: updates } of trainer.updates({ totalSteps: 3 * 64 })) {
        const { rollout, weights, learner } = world.cohort() as EpisodeCohort
        for (const [i, value] of rollout.observation.entries()) seen[i % WIDTH]!.push(value)
        for (const [k, values] of seen.entries()) {
          expect(values).toHaveLength(64 * updates)
          const mean = values.reduce((sum, value) => sum + value, 0) / values.length
          const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length
          const [center, deviation] = [weights.at(k - 2 * WIDTH)!, weights.at(k - WIDTH)!]
          expect(center / mean).toBeCloseTo(1, 5)
          expect(deviation / Math.sqrt(variance + 1e-8)).toBeCloseTo(1, 5)
        }
        // A target has learned with the moments of the policy.
        const { target } = learner.algorithm as { target?: Float32Array }
        if (target !== undefined) expect(target.slice(-2 * WIDTH)).toEqual(before)
        before = weights.slice(-2 * WIDTH)
      }
      expect(seen[0]).toHaveLength(192)
    },
  )

  test('gives each set of weights of a league what was seen where it acted', async () => {
    const policy = mlp({ hidden: [8], normalizeObservations: true })
    const options = { environment: uneven(), policy, numLanes: 5, seed: 5, weightSets: 3, learningSets: 2 }
    const world = await createWorld(options)
    const trainer = createTrainer(world, ppo({ numSteps: 16, numMinibatches: 2 }))
    const { league } = world.cohort() as EpisodeCohort
    league!.lanes.policy.set([0, 1, 1, 2, 0])
    const untouched = league!.weights[2]!.slice()
    const seen: number[][] = [[], []]
    for await (const _ of trainer.updates({ totalSteps: 3 * 80 })) {
      const { rollout } = world.cohort() as EpisodeCohort
      for (let row = 0; row < 80; row++) {
        const set = [0, 1, 1, 2, 0][row % 5]!
        seen[set]?.push(rollout.observation[WIDTH * row]!)
      }
      for (const [set, values] of seen.entries()) {
        const mean = values.reduce((sum, value) => sum + value, 0) / values.length
        const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length
        expect(league!.weights[set]!.at(-2 * WIDTH)! / mean).toBeCloseTo(1, 6)
        expect(league!.weights[set]!.at(-WIDTH)! / Math.sqrt(variance)).toBeCloseTo(1, 4)
      }
    }
    expect(seen.map((values) => values.length)).toEqual([96, 96]) // Of three rollouts of 16 steps in two lanes each.
    expect(league!.weights[2]).toEqual(untouched)
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

describe('networks of values', () => {
  const [count, center, deviation] = [40, [4, -2, 0.5], [0.25, 3, 0.01]]
  const space = box({ low: -1e9, high: 1e9, shape: [WIDTH] })
  const numbers = new Numbers(4)
  const observation = numbers.floats(count * WIDTH, -6, 6)
  /** The same, of numbers that were normalized before. */
  const normalized = observation.map((value, i) => {
    const [c, d] = [Math.fround(center[i % WIDTH]!), Math.fround(deviation[i % WIDTH]!)]
    return Math.min(Math.max((value - c) / d, -10), 10)
  })

  /** A network at work with weights that differ in the moments alone. */
  function bind<P extends Policy>(
    define: (isNormalized: boolean) => PolicyDefinition,
    isNormalized: boolean,
    actions: Space,
  ) {
    const model = define(isNormalized).build(space, actions)
    const numWeights = define(false).build(space, actions).numParameters
    const plan = { weights: column('f32', model.numParameters), gradient: column('f32', model.numParameters) }
    const { arena, columns } = takeArena({ ...plan, workspace: model.workspace() })
    columns.weights.set(new Numbers(7).floats(numWeights, -0.5, 0.5))
    if (isNormalized) columns.weights.set([...center, ...deviation], numWeights)
    const kernels = createKernels(arena.memory, 'plain')
    const policy = model.bind(columns.weights, columns.workspace as Columns<Plan>, kernels, new Random(1)) as P
    return { policy, gradient: () => columns.gradient.slice(0, numWeights), views: policy.view(columns.gradient) }
  }

  test.each([false, true])(
    'are those of numbers that were normalized before: values of actions (dueling: %s)',
    (dueling) => {
      const define = (normalizeObservations: boolean) => qNetwork({ hidden: [6, 5], dueling, normalizeObservations })
      const told = (isNormalized: boolean, seen: Float32Array) => {
        const { policy, gradient, views } = bind<ActionValuePolicy>(define, isNormalized, discrete(3))
        const values = policy.actionValues(seen, 8, 30).slice(0, 90)
        const rows = {
          observation: seen,
          memory: new Float32Array(0),
          action: Int32Array.from({ length: count }, (_, i) => i % 3),
          actionMask: new Uint8Array(0),
          continues: new Uint8Array(0),
        }
        const lossOf: LossOf = (_, { dValue }, from, rows) => {
          for (let row = 0; row < rows; row++) dValue[row] = Math.sin(from + row)
        }
        policy.differentiate(rows, 8, 30, lossOf, views)
        return { values, gradient: gradient() }
      }
      const { values, gradient } = told(true, observation)
      expect({ values, gradient }).toEqual(told(false, normalized))
      expect(values).not.toEqual(told(true, normalized).values)
      expect(gradient.some((value) => value !== 0)).toBe(true)
    },
  )

  test('are those of numbers that were normalized before: an actor and its critics', () => {
    const define = (normalizeObservations: boolean) => sacNetwork({ hidden: [6, 5], normalizeObservations })
    const told = (isNormalized: boolean, seen: Float32Array) => {
      const { policy, gradient, views } = bind<SoftPolicy>(define, isNormalized, box({ low: -2, high: 2, shape: [2] }))
      const normal = new Numbers(9).floats(2 * count, -1, 1)
      const logprob = new Float32Array(count)
      const drawn = policy.draw(seen, 8, normal, logprob, 30).slice(0, 60)
      const least = policy.judge(seen, 8, drawn, 30).slice(0, 30)
      policy.differentiateActor(seen, 8, normal, 0.2, 1, 30, views)
      policy.differentiateCritic(1, Float32Array.from({ length: 30 }, Math.sin), 30, views)
      return { drawn, logprob, least, gradient: gradient() }
    }
    const got = told(true, observation)
    expect(got).toEqual(told(false, normalized))
    expect(got.least).not.toEqual(told(true, normalized).least)
    expect(got.gradient.some((value) => value !== 0)).toBe(true)
  })
})

describe('a run', () => {
  const words = ['mlp.normalizeObservations=true']

  test('goes on to the same bits after a stop, also on two threads, and is evaluated with what it has seen', async () => {
    const folder = await temporaryFolder()
    const [whole, stopped] = [join(folder, 'whole'), join(folder, 'stopped')]
    await (await startRun(await smallRun(...words), whole)).train()
    const run = await startRun(await smallRun(...words, 'threads=2'), stopped)
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
