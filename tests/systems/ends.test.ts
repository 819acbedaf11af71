import { describe, expect, test } from 'vitest'
import {
  bootstrap,
  box,
  cartPole,
  createTrainer,
  createWorld,
  defineEnvironment,
  discrete,
  mlp,
  ppo,
  restart,
  tick,
} from '../../src/index.ts'
import { bestKernelBuild } from '../../src/kernels/bind.ts'
import type { KernelBuild } from '../../src/kernels/kernels.ts'
import type { EpisodeCohort } from '../../src/world/episodes/cohort.ts'
import { counter } from '../support/counter.ts'
import { later } from '../support/later.ts'

const GAMMA = 0.9
const LAMBDA = 0.8
const NUM_STEPS = 12
const NUM_LANES = 6

/** The critic's value of one observation, asked alone. */
function askedAlone(cohort: EpisodeCohort, observation: readonly [number, number]): number {
  cohort.observation.current.set(observation)
  const { observation: seen, memory } = cohort
  const rows = { observation: seen.current, actionMask: new Uint8Array(0), memory: memory.current }
  cohort.policy.values(cohort.rollout.value, rows, 1)
  return cohort.rollout.value[0]!
}

/**
 * Fills one rollout and learns from it with a step size too small to change anything; the values below are asked of a
 * twin world with the same weights.
 */
async function rolloutOf(maxEpisodeSteps: number) {
  const options = {
    environment: counter({ maxEpisodeSteps }),
    policy: mlp({ hidden: [8] }),
    numLanes: NUM_LANES,
    seed: 3,
  }
  const world = await createWorld(options)
  const settings = { numSteps: NUM_STEPS, gamma: GAMMA, gaeLambda: LAMBDA, updateEpochs: 1, learningRate: 1e-30 }
  const trainer = createTrainer(world, ppo(settings))
  for await (const _ of trainer.updates({ totalSteps: 1 })) break
  const cohort = world.cohorts[0]!
  const twin = (await createWorld(options)).cohorts[0]!
  return { rollout: cohort.rollout, value: (observation: readonly [number, number]) => askedAlone(twin, observation) }
}

describe('ends of episodes, from the environment to the advantage', () => {
  test('a truncated row is bootstrapped with the value of its final observation, a terminal one is not', async () => {
    const { rollout, value } = await rolloutOf(5)
    let terminals = 0
    let truncations = 0
    for (let row = 0; row < rollout.reward.length; row++) {
      const lane = rollout.lane[row]!
      const step = rollout.step[row]!
      expect(rollout.terminated[row]).toBe(lane % 2 === 1 && step === 2 ? 1 : 0)
      expect(rollout.truncated[row]).toBe(lane % 2 === 0 && step === 4 ? 1 : 0)
      expect(rollout.valid[row]).toBe(1)
      const led = value([step + 2, lane + 1]) // What the action led to: for an ended episode its final observation.
      expect(led).not.toBe(0)
      expect(rollout.nextValue[row]).toBe(rollout.terminated[row] ? 0 : led)
      terminals += rollout.terminated[row]!
      truncations += rollout.truncated[row]!
    }
    expect(terminals).toBeGreaterThan(0)
    expect(truncations).toBeGreaterThan(0)
  })

  test('the advantage is that of a slow twin that knows every final observation', async () => {
    const { rollout, value } = await rolloutOf(5)
    for (let lane = 0; lane < NUM_LANES; lane++) {
      let carry = 0
      for (let t = NUM_STEPS - 1; t >= 0; t--) {
        const row = t * NUM_LANES + lane
        const step = rollout.step[row]!
        const isTerminal = lane % 2 === 1 && step === 2
        const isCut = lane % 2 === 0 && step === 4
        const next = isTerminal ? 0 : value([step + 2, lane + 1])
        const delta = 1 + GAMMA * next - value([step + 1, lane + 1])
        carry = delta + (isTerminal || isCut ? 0 : GAMMA * LAMBDA * carry)
        expect(rollout.advantage[row]!).toBeCloseTo(carry, 5)
        expect(rollout.return[row]!).toBeCloseTo(carry + value([step + 1, lane + 1]), 5)
      }
    }
  })

  test('when every row is truncated the bootstrap list is valued as often as it fills', async () => {
    const { rollout, value } = await rolloutOf(1)
    for (let row = 0; row < rollout.reward.length; row++) {
      expect(rollout.truncated[row]).toBe(1)
      expect(rollout.nextValue[row]).toBe(value([2, rollout.lane[row]! + 1]))
    }
  })

  test('a row that is both terminal and at the time limit is not bootstrapped', async () => {
    const { rollout } = await rolloutOf(3)
    const both = [...rollout.nextValue].filter(
      (_, row) => rollout.terminated[row] === 1 && rollout.truncated[row] === 1,
    )
    expect(both.length).toBeGreaterThan(0)
    expect(both.every((next) => next === 0)).toBe(true)
  })

  test('the rollout records whose row it is, its step, its return so far and the version of the weights', async () => {
    const world = await createWorld({ environment: counter(), policy: mlp({ hidden: [4] }), numLanes: 2, seed: 1 })
    const trainer = createTrainer(world, ppo({ numSteps: 7, numMinibatches: 1 }))
    const seen: number[][] = []
    for await (const _ of trainer.updates({ totalSteps: 28 })) {
      const { rollout } = world.cohorts[0]!
      seen.push([...rollout.step], [...rollout.episode], [...rollout.episodeReturn], [...rollout.version])
    }
    // Lane 0 is truncated after 5 steps, lane 1 terminated after 3; time-major, two lanes.
    expect(seen[0]).toEqual([0, 0, 1, 1, 2, 2, 3, 0, 4, 1, 0, 2, 1, 0])
    expect(seen[1]).toEqual([0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 2])
    expect(seen[2]).toEqual([1, 1, 2, 2, 3, 3, 4, 1, 5, 2, 1, 3, 2, 1])
    expect(seen[3]).toEqual(new Array(14).fill(0))
    // The second rollout goes on where the first stopped, with the next weights.
    expect(seen[4]!.slice(0, 4)).toEqual([2, 1, 3, 2])
    expect(seen[7]).toEqual(new Array(14).fill(1))
  })
})

describe('autoreset', () => {
  test('next-step leaves a dead row that no one learns from, and begins the episode in it', async () => {
    const world = await createWorld({
      environment: counter(),
      policy: mlp({ hidden: [4] }),
      numLanes: 2,
      autoreset: 'next-step',
    })
    const trainer = createTrainer(world, ppo({ numSteps: 9, numMinibatches: 1 }))
    for await (const _ of trainer.updates({ totalSteps: 18 })) {
      const { rollout } = world.cohorts[0]!
      const lane1 = (column: ArrayLike<number>) => Array.from({ length: 9 }, (_, t) => column[2 * t + 1]!)
      expect(lane1(rollout.step)).toEqual([0, 1, 2, -1, 0, 1, 2, -1, 0])
      expect(lane1(rollout.valid)).toEqual([1, 1, 1, 0, 1, 1, 1, 0, 1])
      expect(lane1(rollout.reward)).toEqual([1, 1, 1, 0, 1, 1, 1, 0, 1])
      expect(lane1(rollout.advantage)[3]).toBe(0)
      const seen = Array.from({ length: 9 }, (_, t) => rollout.observation[2 * (2 * t + 1)]!)
      expect(seen).toEqual([1, 2, 3, 4, 1, 2, 3, 4, 1]) // In the dead row the final observation is seen.
    }
    expect(trainer.progress().episodes).toBe(3)
  })

  test('disabled holds an ended lane until it is restarted', async () => {
    const options = {
      environment: counter(),
      policy: mlp({ hidden: [4] }),
      numLanes: 2,
      autoreset: 'disabled',
    } as const
    const world = await createWorld(options)
    const cohort = world.cohorts[0]!
    for (let t = 0; t < 8; t++) tick(world)
    expect([...cohort.transition.valid]).toEqual([0, 0])
    expect([...cohort.observation.next]).toEqual([6, 1, 4, 2])
    restart(cohort, [1])
    tick(world)
    expect([...cohort.transition.valid]).toEqual([0, 1])
    expect([...cohort.observation.next]).toEqual([6, 1, 2, 2])
    expect([...cohort.episode.episode]).toEqual([0, 1])
  })
})

/** Two lanes that count to 100, with a recorder for `NUM_STEPS` steps. */
async function counting(policy = mlp({ hidden: [8] })) {
  const world = await createWorld({ environment: counter({ maxEpisodeSteps: 100 }), policy, numLanes: 4, seed: 3 })
  const trainer = createTrainer(world, ppo({ numSteps: NUM_STEPS, numMinibatches: 1 }))
  const cohort = world.cohorts[0]!
  const column = (name: 'step' | 'episode' | 'truncated' | 'valid' | 'nextValue' | 'value', lane: number) =>
    Array.from({ length: NUM_STEPS }, (_, t) => cohort.rollout[name][4 * t + lane]!)
  return { world, trainer, cohort, column }
}

describe('a restart in the middle of a rollout', () => {
  test('cuts the episodes that go on at their last row, with the value of what they saw since', async () => {
    const { world, trainer, cohort, column } = await counting()
    for (let t = 0; t < 5; t++) tick(world)
    restart(cohort, [2, 0, 2])
    while (cohort.t < NUM_STEPS) tick(world)
    bootstrap(world)
    const led = askedAlone((await counting()).cohort, [6, 3]) // Five steps on from 1; lane 2 says 3.
    const cut = (t: number) => Array.from({ length: NUM_STEPS }, (_, i) => (i === t ? 1 : 0))
    expect(column('truncated', 2)).toEqual(cut(4))
    expect(column('truncated', 0)).toEqual(cut(4))
    expect(column('step', 2)).toEqual([0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6])
    expect(column('episode', 2)).toEqual([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1])
    expect(column('valid', 2)).toEqual(new Array(NUM_STEPS).fill(1))
    expect(led).not.toBe(0)
    expect(column('nextValue', 2)[4]).toBe(led)
    expect(column('nextValue', 2)[4]).not.toBe(column('value', 2)[5])
    const { column: seen, rows } = trainer.rollout.table.fields.find(({ name }) => name === 'finalObservation')!
    // Lane 1 is over after every third step, lane 3 too; in the last row all are listed.
    const ends = [9, 11, 16, 18, 21, 23, 33, 35, 44, 45, 46, 47]
    expect([...rows!]).toEqual(ends)
    expect([...seen.subarray(4, 8)]).toEqual([6, 1, 6, 3])
  })

  test('leaves a row that is over already, and a lane that was told twice, as they are', async () => {
    const { world, cohort, column } = await counting()
    for (let t = 0; t < 3; t++) tick(world)
    restart(cohort, [1]) // Its episode has just reached its terminal state.
    restart(cohort, [0])
    restart(cohort, [0])
    expect(cohort.bootstrap.length).toBe(1)
    while (cohort.t < NUM_STEPS) tick(world)
    expect(column('truncated', 1)).toEqual(new Array(NUM_STEPS).fill(0))
    expect(column('truncated', 0).indexOf(1)).toBe(2)
  })

  test('counts the episode that it cuts', async () => {
    const { world, trainer, cohort } = await counting(later())
    const updates = trainer.updates({ totalSteps: 1 })
    const { infer } = cohort.policy
    cohort.policy.infer = async (...given) => {
      if (cohort.t === 5) restart(cohort, [0])
      await infer.apply(cohort.policy, given)
    }
    await updates.next()
    // Lanes 1 and 3 are over four times each; the step in which lane 0 was told is a dead one.
    expect(trainer.progress().episodes).toBe(9)
    const lane0 = (name: 'truncated' | 'valid' | 'step') =>
      Array.from({ length: NUM_STEPS }, (_, t) => world.cohorts[0]!.rollout[name][4 * t]!)
    expect(lane0('truncated')).toEqual([0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0])
    expect(lane0('valid')).toEqual([1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1])
    expect(lane0('step')).toEqual([0, 1, 2, 3, 4, -1, 0, 1, 2, 3, 4, 5])
  })

  test('in the tick in which an episode began leaves the row of the one before as it ended', async () => {
    const options = { environment: counter({ maxEpisodeSteps: 5 }), policy: later(), numLanes: 4, seed: 3 }
    const world = await createWorld(options)
    const trainer = createTrainer(world, ppo({ numSteps: NUM_STEPS, numMinibatches: 1 }))
    const cohort = world.cohorts[0]!
    const { infer } = cohort.policy
    // Odd lanes have come to their terminal state, the others to the time limit.
    const begun: Record<number, number[]> = { 3: [1, 3], 5: [0, 2] }
    const listed: number[] = []
    cohort.policy.infer = async (...given) => {
      const lanes = begun[cohort.t]
      if (lanes !== undefined) {
        const before = cohort.bootstrap.length
        restart(cohort, lanes)
        listed.push(before, cohort.bootstrap.length)
      }
      await infer.apply(cohort.policy, given)
    }
    await trainer.updates({ totalSteps: 1 }).next()
    expect(listed).toEqual([0, 0, 2, 2])
    const flags = (t: number) => {
      const { terminated, truncated } = cohort.windows.transition[t]!
      return [[...terminated], [...truncated]]
    }
    expect(flags(2)).toEqual([
      [0, 1, 0, 1],
      [0, 0, 0, 0],
    ])
    expect(flags(4)[1]).toEqual([1, 0, 1, 0])
  })

  test('after the last tick leaves the rollout as it is, and nothing for the next one to value', async () => {
    const { world, cohort, column } = await counting()
    for (let t = 0; t < NUM_STEPS; t++) tick(world)
    restart(cohort)
    bootstrap(world)
    expect(column('truncated', 0)).toEqual(new Array(NUM_STEPS).fill(0))
    expect(column('nextValue', 0)[NUM_STEPS - 1]).not.toBe(0)
    expect(cohort.bootstrap.length).toBe(0)
    tick(world)
    expect([...cohort.episode.episode]).toEqual([1, 4, 1, 4])
  })

  test('of a lane that there is not tells none', async () => {
    const { cohort } = await counting()
    tick((await counting()).world)
    cohort.episode.phase.fill(0)
    expect(() => restart(cohort, [0, 4])).toThrow('got 4, expected a whole number from 0 to 3')
    expect([...cohort.episode.phase]).toEqual([0, 0, 0, 0])
  })
})

/** What can be wrong with what an environment writes: in the third step of lane 1's first episode, or in its second reset. */
type Fault = (lanes: {
  observation: Float32Array
  reward: Float32Array
  terminated: Uint8Array
  truncated: Uint8Array
}) => unknown

function faulty({ inStep, inReset }: { inStep?: Fault; inReset?: Fault }) {
  return defineEnvironment({
    id: 'Faulty-v0',
    settings: {},
    state: () => ({}),
    make: () => ({
      observationSpace: box({ low: [-1, -2, -3], high: [1, 2, Number.POSITIVE_INFINITY] }),
      actionSpace: discrete(2),
      maxEpisodeSteps: 4,
      returnThreshold: null,
      reset(lanes, rows, count) {
        for (let i = 0; i < count; i++) {
          lanes.observation.fill(0, 3 * rows[i]!, 3 * rows[i]! + 3)
          if (rows[i] === 1 && lanes.episode[1] === 1) return inReset?.(lanes) as undefined
        }
      },
      step(lanes, from, to) {
        lanes.observation.fill(0, 3 * from, 3 * to)
        lanes.reward.fill(1, from, to)
        if (lanes.step[1] === 2 && lanes.episode[1] === 0) return inStep?.(lanes) as undefined
      },
    }),
  })()
}

describe('what an environment or a policy does wrong', () => {
  const at = 'of lane 1 (episode 0, step 2) from step'
  const faults: [string, Fault, string][] = [
    [
      'infinity',
      ({ observation }) => observation.fill(Infinity, 5, 6),
      `Infinity in observation[2] ${at}, expected finite`,
    ],
    [
      'too low',
      ({ observation }) => observation.fill(-3.5, 3, 6),
      `-3.5 in observation[0] ${at}, expected -1 to 1, the bounds`,
    ],
    [
      'too high',
      ({ observation }) => observation.fill(2.5, 4, 5),
      `2.5 in observation[1] ${at}, expected -2 to 2, the bounds`,
    ],
    [
      'a reward of 1e20',
      ({ reward }) => reward.fill(1e20, 1, 2),
      `in reward[0] ${at}, expected a number from −1125899906842624`,
    ],
    ['a reward of -1e16', ({ reward }) => reward.fill(-1e16, 1, 2), `in reward[0] ${at}, expected a number from`],
    ['no reward', ({ reward }) => reward.fill(Number.NaN, 1, 2), `NaN in reward[0] ${at}, expected finite numbers`],
    [
      'a flag of 2',
      ({ terminated }) => terminated.fill(2, 1, 2),
      `2 in terminated and 0 in truncated ${at}, expected 0 or 1`,
    ],
    ['a flag of 255', ({ truncated }) => truncated.fill(-1, 1, 2), `0 in terminated and 255 in truncated ${at}`],
    [
      'a promise',
      () => Promise.resolve(),
      'Faulty-v0: got a promise from step, expected a function that is done when it returns',
    ],
  ]
  const builds: KernelBuild[] = ['plain', bestKernelBuild()]
  test.each(faults)('%s in a step is found', async (_, inStep, message) => {
    for (const kernels of builds) {
      const options = { environment: faulty({ inStep }), policy: mlp({ hidden: [4] }), numLanes: 40, kernels }
      const world = await createWorld(options)
      tick(world)
      tick(world)
      expect(() => tick(world), kernels).toThrow(message)
    }
  })

  const resets: [string, Fault, string][] = [
    [
      'NaN',
      ({ observation }) => observation.fill(Number.NaN, 4, 5),
      'NaN in observation[1] of lane 1 (episode 1, step 0) from reset',
    ],
    [
      'what its space has not',
      ({ observation }) => observation.fill(9, 3, 4),
      '9 in observation[0] of lane 1 (episode 1, step 0) from reset, expected -1 to 1',
    ],
    ['a promise', () => Promise.resolve(), 'got a promise from reset'],
  ]
  test.each(resets)('%s from reset is said to be from reset', async (_, inReset, message) => {
    for (const autoreset of ['same-step', 'next-step'] as const) {
      const options = { environment: faulty({ inReset }), policy: mlp({ hidden: [4] }), numLanes: 3, autoreset }
      const world = await createWorld(options)
      for (let t = 0; t < 4; t++) tick(world)
      expect(() => tick(world)).toThrow(message)
    }
  })

  test('an element of a wide observation from reset is held to its own bounds, in the lanes that begin', async () => {
    const WIDTH = 19
    const high = Array.from({ length: WIDTH }, (_, k) => k + 1)
    const low = high.map((bound) => -2 * bound)
    /** Lane 1 is over after two steps; its second reset writes `value` at element `k`. */
    const wide = (value: number, k: number) =>
      defineEnvironment({
        id: 'Wide-v0',
        settings: {},
        state: () => ({}),
        make: () => ({
          observationSpace: box({ low, high }),
          actionSpace: discrete(2),
          maxEpisodeSteps: null,
          returnThreshold: null,
          reset(lanes, rows, count) {
            for (let i = 0; i < count; i++) {
              lanes.observation.set(high, WIDTH * rows[i]!)
              if (lanes.episode[rows[i]!] === 1) lanes.observation[WIDTH * rows[i]! + k] = value
            }
          },
          step(lanes, from, to) {
            for (let n = from; n < to; n++) lanes.observation.set(low, WIDTH * n)
            lanes.terminated[1] = lanes.step[1] === 1 ? 1 : 0
          },
        }),
      })()
    const cases = [
      [3, Number.NaN, 'NaN in observation[3]'],
      [18, 19.5, '19.5 in observation[18]'],
      [16, -34.5, '-34.5 in observation[16]'],
      [0, 1.5, '1.5 in observation[0]'],
      [18, -38, ''],
    ] as const
    for (const [k, value, said] of cases) {
      for (const kernels of builds) {
        const options = { environment: wide(value, k), policy: mlp({ hidden: [4] }), numLanes: 3, kernels }
        const world = await createWorld(options)
        tick(world)
        tick(world)
        const begin = () => tick(world)
        if (said === '') expect(begin, kernels).not.toThrow()
        else expect(begin, kernels).toThrow(`${said} of lane 1 (episode 1, step 0) from reset, expected`)
      }
    }
  })

  test('of a lane that goes on is said to be from step, though another begins anew in the same step', async () => {
    const WIDTH = 16
    const environment = defineEnvironment({
      id: 'Beside-v0',
      settings: {},
      state: () => ({}),
      make: () => ({
        observationSpace: box({ low: -1, high: 1, shape: [WIDTH] }),
        actionSpace: discrete(2),
        maxEpisodeSteps: null,
        returnThreshold: null,
        reset({ observation }, rows, count) {
          for (let i = 0; i < count; i++) observation.fill(0, WIDTH * rows[i]!, WIDTH * (rows[i]! + 1))
        },
        step({ observation, terminated, reward, step }, from, to) {
          observation.fill(0, WIDTH * from, WIDTH * to)
          reward.fill(1, from, to)
          if (step[1] === 0) terminated[2] = 1
          else observation[WIDTH] = 9
        },
      }),
    })()
    const options = { environment, policy: mlp({ hidden: [4] }), numLanes: 3, autoreset: 'next-step' } as const
    const world = await createWorld(options)
    tick(world)
    expect(() => tick(world)).toThrow('9 in observation[0] of lane 1 (episode 0, step 1) from step')
  })

  test('what lanes that are over write is nobody’s, and what fits is let pass', async () => {
    const inStep: Fault = ({ observation, reward, terminated }) => {
      observation.set([-1, -2, 3e38], 3)
      reward[1] = -(2 ** 50)
      terminated[1] = 1
    }
    const options = {
      environment: faulty({ inStep }),
      policy: mlp({ hidden: [4] }),
      numLanes: 3,
      autoreset: 'disabled',
    } as const
    const world = await createWorld(options)
    for (let t = 0; t < 6; t++) tick(world)
    expect([...world.cohorts[0]!.observation.next.subarray(3, 6)]).toEqual([-1, -2, Math.fround(3e38)])
  })

  test('an async step or reset is refused before there is a world', async () => {
    for (const name of ['reset', 'step'] as const) {
      const environment = { ...faulty({}), [name]: async () => {} }
      await expect(createWorld({ environment, policy: mlp(), numLanes: 1 })).rejects.toThrow(
        `environment Faulty-v0: got an async ${name}, expected a function that is done when it returns`,
      )
    }
  })

  test.each([
    ['an array', [0.5]],
    ['an object', { observation: 0.5, reward: 1 }],
  ])('%s from step or reset is refused: what they write counts, and nothing else', async (what, answer) => {
    for (const name of ['reset', 'step'] as const) {
      const environment = { ...faulty({}), [name]: () => answer as never }
      const world = await createWorld({ environment, policy: mlp({ hidden: [4] }), numLanes: 1 })
      expect(() => {
        tick(world)
        tick(world)
      }).toThrow(`environment Faulty-v0: got ${what} from ${name}, expected no result: it writes into its columns`)
    }
  })

  test('NaN in an observation names the environment, the lane, the episode and the step', async () => {
    const world = await createWorld({ environment: counter({ poison: 2 }), policy: mlp({ hidden: [4] }), numLanes: 3 })
    tick(world)
    tick(world)
    expect(() => tick(world)).toThrow(
      'environment Counter-v0: got NaN in observation[0] of lane 0 (episode 0, step 2) from step, expected finite numbers',
    )
  })

  test('an action outside its space names the policy, the lane and the choices', async () => {
    const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [4] }), numLanes: 3 })
    const cohort = world.cohorts[0]!
    const { infer } = cohort.policy
    cohort.policy.infer = (lanes, ...rest) => {
      infer.call(cohort.policy, lanes, ...rest)
      lanes.action.chosen[1] = 7
    }
    expect(() => tick(world)).toThrow(
      'policy mlp: got 7 in action[0] of lane 1 (episode 0, step 0), expected a whole number from 0 to 1',
    )
  })
})
