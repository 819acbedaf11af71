import { describe, expect, test } from 'vitest'
import type { Cohort } from '../../src/cohort.ts'
import { cartPole, createTrainer, createWorld, mlp, ppo, restart, tick } from '../../src/index.ts'
import { counter } from '../support/counter.ts'

const GAMMA = 0.9
const LAMBDA = 0.8
const NUM_STEPS = 12
const NUM_LANES = 6

/** The critic's value of one observation, asked alone. */
function askedAlone(cohort: Cohort, observation: readonly [number, number]): number {
  cohort.observation.current.set(observation)
  cohort.policy.values(
    cohort.rollout.value,
    { observation: cohort.observation.current, memory: cohort.memory.current },
    1,
  )
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

describe('what an environment or a policy does wrong', () => {
  test('NaN in an observation names the environment, the lane, the episode and the step', async () => {
    const world = await createWorld({ environment: counter({ poison: 2 }), policy: mlp({ hidden: [4] }), numLanes: 3 })
    tick(world)
    tick(world)
    expect(() => tick(world)).toThrow(
      'environment Counter-v0: got NaN in observation[0] of lane 0 (episode 0, step 2), expected finite numbers',
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
