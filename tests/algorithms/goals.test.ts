import { describe, expect, test } from 'vitest'
import { dqn, qNetwork } from '../../src/entries/algorithms.ts'
import { actionRepeat, bitFlip, pointReach, timeLimit, wrap } from '../../src/entries/environments.ts'
import { checkEnvironment } from '../../src/environments/checks/check.ts'
import { defineEnvironment } from '../../src/environments/environment.ts'
import { cartPole, createTrainer, createWorld, type EnvironmentDefinition } from '../../src/index.ts'
import { type GoalPlace, refusedReward } from '../../src/kernels/bind.ts'

const sizes = { numSteps: 6, batchSize: 32, gradientSteps: 2, replayRows: 200, learningStarts: 20 }

async function trained(environment: EnvironmentDefinition, options: Parameters<typeof dqn>[0] = {}) {
  const world = await createWorld({
    environment,
    policy: qNetwork({ hidden: [8] }),
    numLanes: 4,
    seed: 3 * 2 ** 32 + 2,
    kernels: 'plain',
  })
  const trainer = createTrainer(world, dqn({ ...sizes, ...options }))
  const { kernels } = world as unknown as { kernels: Record<string, unknown> }
  const seen: { from: number[]; to: number[]; goal: GoalPlace; reward: number; fraction: number; keys: unknown[] }[] =
    []
  const relabel = kernels.relabelGoals as (...given: unknown[]) => void
  kernels.relabelGoals = (...given: unknown[]) => {
    const [block, , goal, , , , count, fraction] = given as [
      { observation: Float32Array; nextObservation: Float32Array; return: Float32Array },
      ...[object, GoalPlace, object, object, number, number, number],
    ]
    const width = 2 * goal.desired
    const goals = () =>
      Array.from({ length: count }, (_, i) => [...block.observation.slice(i * width + goal.desired, (i + 1) * width)])
    const before = goals()
    relabel(...given)
    for (const [i, to] of goals().entries())
      seen.push({ from: before[i]!, to, goal, reward: block.return[i]!, fraction, keys: given.slice(-2) })
  }
  for await (const _ of trainer.updates({ totalSteps: 24 * 20 }));
  return { seen, weights: [...world.cohort().weights] }
}

describe('rows are learned from', () => {
  test('with a goal that its episode reached, four of five of them', async () => {
    const { seen, weights } = await trained(bitFlip({ bits: 6 }))
    const changed = seen.filter(({ from, to }) => `${from}` !== `${to}`)
    expect(seen.length).toBeGreaterThan(800)
    expect(Math.abs(changed.length / seen.length - 0.8)).toBeLessThan(0.1)
    const earned = seen.filter(({ reward }) => reward === 0).length / seen.length
    expect(earned).toBeGreaterThan(0.1) // The wanted goals are reached far less often.
    const plain = await trained(bitFlip({ bits: 6 }), { relabelFraction: 0 })
    expect(plain.seen).toEqual([])
    expect(plain.weights).not.toEqual(weights)
    expect((await trained(bitFlip({ bits: 6 }), { relabelFraction: 0.5 })).seen[0]!.fraction).toBe(0.5)
  })

  test('with goals that are drawn by the run’s seed', async () => {
    for (const { keys } of (await trained(bitFlip({ bits: 6 }))).seen) expect(keys).toEqual([2, 3])
  })

  test('as they are where the environment has no goals, or a wrapper changes what they say', async () => {
    expect((await trained(cartPole())).seen).toEqual([])
    expect(wrap(bitFlip(), timeLimit({ maxEpisodeSteps: 3 })).goal).toEqual(bitFlip().goal)
    expect(wrap(bitFlip(), actionRepeat({ times: 2 })).goal).toBeUndefined()
  })
})

describe('what goals cannot be learned with is refused', () => {
  test.each([
    [bitFlip(), { nStep: 2 }, 'dqn nStep: got 2, and goals that are replaced, expected 1, or relabelFraction 0'],
    [cartPole(), { relabelFraction: 0.5 }, 'dqn relabelFraction: got 0.5, and an environment without goals'],
  ])('%#', async (environment, options, message) => {
    await expect(trained(environment, options)).rejects.toThrow(message)
  })
})

describe('rewards that are not the goal’s', () => {
  const bits = bitFlip({ bits: 6 })
  const WANTED = '0 where the goal is within its tolerance of 0, and -1 elsewhere'
  const otherwise = (change: (lanes: Parameters<typeof bits.step>[0], n: number) => void): EnvironmentDefinition => ({
    ...bits,
    step(lanes, from, to) {
      bits.step(lanes, from, to)
      for (let n = from; n < to; n++) change(lanes, n)
    },
  })
  const cases: [string, EnvironmentDefinition, RegExp, string][] = [
    [
      'by the distance',
      otherwise(({ reward }, n) => (reward[n]! *= 0.5)),
      /^-0.5 at a distance of [\d.]+ from the goal/,
      WANTED,
    ],
    ['0 everywhere', otherwise(({ reward }, n) => (reward[n] = 0)), /^0 at a distance of [\d.]+ from the goal/, WANTED],
    [
      'of an episode that goes on at its goal',
      otherwise(({ terminated }, n) => (terminated[n] = 0)),
      /^0 and an episode that goes on/,
      'an episode that terminates at its goal, or goal.ends false',
    ],
  ]

  test.each(cases)('end the training with one line: %s', async (_, environment, got, expected) => {
    const error = await trained(environment).catch((thrown: Error) => thrown)
    const [, before, after] = /^reward of an environment with goals: got (.*), expected (.*)$/.exec(
      (error as Error).message,
    )!
    expect(before).toMatch(got)
    expect(after).toBe(expected)
    await trained(environment, { relabelFraction: 0 })
  })

  test.each(cases)('are found by the check of environments: %s', (_, environment, got, expected) => {
    const { checks } = checkEnvironment(environment, { numLanes: 64, steps: 24 })
    const { got: found, expected: wanted } = checks.find(({ name }) => name === 'values')!
    expect(found).toMatch(got)
    expect(wanted).toBe(expected)
  })

  test('are not those that arithmetic in f64 rounds otherwise', () => {
    const goal = { achieved: 0, desired: 1, width: 1, tolerance: 0.1, ends: false }
    const edge = Float32Array.of(0.7, 0.6)
    for (const reward of [0, -1]) expect(refusedReward(edge, 0, goal, reward, false)).toBeNull()
    for (const [reward, place] of [
      [0, 0.702],
      [-1, 0.698],
      [-2, 0.8],
      [Number.NaN, 0.8],
    ] as const)
      expect(refusedReward(Float32Array.of(place, 0.6), 0, goal, reward, false)).not.toBeNull()
    expect(refusedReward(Float32Array.of(1, 1), 0, { ...goal, tolerance: 0 }, -1, false)).not.toBeNull()
  })
})

test.each([{ width: 7 }, { width: 1.5 }, { desired: 5 }, { tolerance: -1 }, { ends: undefined }])(
  'a goal that lies nowhere or says too little is refused: %o',
  (part) => {
    const model = {
      ...bitFlip({ bits: 6 }),
      goal: { achieved: 0, desired: 6, width: 6, tolerance: 0, ends: true, ...part },
    }
    const make = () => model as never
    expect(defineEnvironment({ id: 'Own-v0', settings: {}, state: () => ({}), make })).toThrow(
      'expected two parts of the 12 elements of observations, a tolerance ≥ 0, and ends true or false',
    )
  },
)

test('bits are flipped one by one until they are the goal', async () => {
  const environment = bitFlip({ bits: 3 })
  const world = await createWorld({ environment, policy: qNetwork({ hidden: [4] }), numLanes: 64, seed: 1 })
  const { environmentLanes: lanes } = world.cohort()
  const rows = Uint32Array.from({ length: 64 }, (_, n) => n)
  environment.reset(lanes, rows, 64)
  const bitsOf = (n: number, from: number) => [...lanes.observation.slice(6 * n + from, 6 * n + from + 3)]
  expect(new Set(Array.from(rows, (n) => `${bitsOf(n, 0)}`)).size).toBe(8)
  for (const n of rows) expect(bitsOf(n, 0)).not.toEqual(bitsOf(n, 3))
  const before = Array.from(rows, (n) => bitsOf(n, 0))
  for (const n of rows) lanes.action[n] = before[n]!.findIndex((bit, k) => bit !== bitsOf(n, 3)[k])
  environment.step(lanes, 0, 64)
  for (const n of rows) {
    const isThere = `${bitsOf(n, 0)}` === `${bitsOf(n, 3)}`
    expect(bitsOf(n, 0)).toEqual(before[n]!.map((bit, k) => (k === lanes.action[n] ? 1 - bit : bit)))
    expect([lanes.reward[n], lanes.terminated[n]]).toEqual(isThere ? [0, 1] : [-1, 0])
  }
  expect(new Set(lanes.terminated)).toEqual(new Set([0, 1]))
})

test('a point moves by a tenth at most, within the square, and is told whether it is there', () => {
  const environment = pointReach()
  const lanes = {
    state: { place: Float32Array.of(0.95, -0.5), goal: Float32Array.of(1, -0.53) },
    observation: new Float32Array(4),
    reward: new Float32Array(1),
    action: Float32Array.of(7, 0.3),
  }
  environment.step(lanes as never, 0, 1)
  const observed = [1, -0.47, 1, -0.53]
  for (const [k, wanted] of observed.entries()) expect(lanes.observation[k]).toBeCloseTo(wanted, 6)
  expect(lanes.reward[0]).toBe(-1)
  lanes.action.set([0, -1])
  lanes.state.goal[1] = -0.6
  environment.step(lanes as never, 0, 1)
  expect(lanes.reward[0]).toBe(0)
})
