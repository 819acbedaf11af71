/** One world trains cohorts of both kinds side by side, each with its own algorithm and horizon, and each learns as alone. */
import { describe, expect, test } from 'vitest'
// Workers load compiled files, and what they share must be made by the same ones here.
import {
  type Algorithms,
  a2c,
  type Cohort,
  type CohortOptions,
  cartPole,
  createTrainer,
  createWorld,
  languageModel,
  mlp,
  pendulum,
  ppo,
  rl,
  sft,
  textEnvironmentFactory,
  tick,
  type World,
  type WorldOptions,
} from '../../dist/src/index.js'
import { temporaryFolder } from '../support/temporary.ts'

const UPDATES = 4
const LANES = { balancer: 5, swinger: 3 }
const STEPS = { balancer: 16, swinger: 40 }

const cohorts = {
  balancer: { environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: LANES.balancer },
  talker: {
    environment: textEnvironmentFactory('text/reverse')({ maxLength: 3 } as never),
    policy: languageModel({ width: 16, layers: 1, heads: 2 } as never),
    numLanes: 6,
    groupSize: 4,
  },
  // Its lanes have the numbers that they have among the others.
  swinger: {
    environment: pendulum(),
    policy: mlp({ hidden: [6] }),
    numLanes: LANES.swinger,
    firstLane: LANES.balancer,
  },
} as const

const algorithms: Record<keyof typeof cohorts, Algorithms> = {
  balancer: ppo({ numSteps: STEPS.balancer, numMinibatches: 2, learningRateSchedule: 'linear' }),
  swinger: a2c({ numSteps: STEPS.swinger, gamma: 0.9 }),
  talker: [sft({ updates: 2, batchSize: 8 }), rl({ updates: UPDATES, groupsPerUpdate: 3, groupSize: 4 })],
}
const names = Object.keys(cohorts) as (keyof typeof cohorts)[]

async function together(): Promise<World<Cohort, keyof typeof cohorts>> {
  return createWorld({
    seed: 7,
    cohorts: names.map((name): CohortOptions & { name: typeof name } => ({ ...cohorts[name], name })),
  })
}

/** So many environment steps are `updates` updates of both cohorts of episodes. */
const stepsOf = (updates: number) => updates * (LANES.balancer * STEPS.balancer + LANES.swinger * STEPS.swinger)

/** The weights of a cohort that learns in a world of its own, from the weights that it begins with among the others. */
async function alone(name: keyof typeof cohorts): Promise<Float32Array> {
  const world: World = await createWorld({ ...cohorts[name], name, seed: 7 } as WorldOptions)
  const trainer = createTrainer(world, algorithms[name])
  world.cohort().weights.set((await together()).cohort(name).weights)
  const own = name === 'talker' ? {} : { totalSteps: UPDATES * LANES[name] * STEPS[name] }
  for await (const _ of trainer.updates(own));
  return world.cohort().weights.slice()
}

describe('cohorts of episodes and of conversations in one world', () => {
  test.each([1, 3])('learn at once what each learns alone, bit for bit, with %d threads', async (threads) => {
    const world = await together()
    const trainer = createTrainer(world, algorithms, { threads })
    const begun = Object.fromEntries(names.map((name) => [name, world.cohort(name).weights.slice()]))
    const told: string[] = []
    for await (const metrics of trainer.updates({ totalSteps: stepsOf(UPDATES) })) {
      told.push('cohorts' in metrics ? Object.keys(metrics.cohorts).join(' ') : metrics.phase)
    }
    const episodes = 'balancer swinger'
    // They take turns; the supervised steps of the one are beside the first updates of the others.
    expect(told).toEqual([episodes, 'sft', episodes, 'sft', episodes, 'rl', episodes, 'rl', 'rl', 'rl'])
    expect(trainer.steps - stepsOf(UPDATES)).toBeGreaterThan(0) // Ticks of conversations.
    for (const name of names) {
      expect(world.cohort(name).weights, name).not.toEqual(begun[name])
      expect(world.cohort(name).weights, name).toEqual(await alone(name))
    }
    expect(trainer.rollouts.swinger!.table.numRows).toBe(LANES.swinger * STEPS.swinger)
    expect(trainer.progress('talker')).toMatchObject({ sftSteps: 2, rlUpdates: UPDATES })
    expect(() => trainer.progress()).toThrow('expected one of balancer, swinger, talker')
    trainer.close()
  })

  test('are saved and taken up together, to the same bits', async () => {
    const folder = await temporaryFolder()
    const goal = { totalSteps: stepsOf(UPDATES) }
    const whole = createTrainer(await together(), algorithms)
    for await (const _ of whole.updates(goal));
    const first = createTrainer(await together(), algorithms, { folder })
    let updates = 0
    for await (const _ of first.updates(goal)) if (++updates === 5) break
    await first.save()
    const second = createTrainer(await together(), algorithms, { folder })
    expect((await second.restore()).warnings).toEqual([])
    expect(second.checkpointNumber).toBe(first.checkpointNumber)
    for await (const _ of second.updates(goal));
    for (const name of names) {
      expect(second.world.cohort(name).weights, name).toEqual(whole.world.cohort(name).weights)
    }
    const others = { ...algorithms, swinger: a2c({ numSteps: STEPS.swinger, gamma: 0.8 }) }
    const third = createTrainer(await together(), others)
    await expect(third.restore(folder)).rejects.toThrow(/algorithm, gamma: got 0\.9, expected 0\.8/)
  })

  test('cohorts without an algorithm act beside those that learn, and conversations stay as they are', async () => {
    const world = await together()
    const trainer = createTrainer(world, { swinger: algorithms.swinger })
    for await (const _ of trainer.updates({ totalSteps: 1 }));
    const [balancer, talker] = [world.cohort('balancer'), world.cohort('talker')]
    if (balancer.kind !== 'episodes' || talker.kind !== 'conversations') throw new Error('of another kind')
    expect(
      balancer.episode.episode.every((episode, n) => episode > 0 || balancer.episode.step[n] === STEPS.swinger),
    ).toBe(true)
    expect(talker.conversation.begun[0]).toBe(0)
  })
})

describe('cohorts that share a policy by its name', () => {
  const one = { environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 5, name: 'one' } as const
  const other = { environment: cartPole({ maxEpisodeSteps: 20 }), numLanes: 3, name: 'other' } as const
  const shared = () => createWorld({ seed: 4, cohorts: [one, { ...other, policy: 'one' }] })
  const both = { one: ppo({ numSteps: 16, numMinibatches: 1 }), other: a2c({ numSteps: 8 }) }

  test('act by the same weights, as one whose weights were copied would', async () => {
    const world = await shared()
    const apart = await createWorld({ seed: 4, cohorts: [one, { ...other, policy: one.policy }] })
    expect(world.cohort('other').weights).toBe(world.cohort('one').weights)
    const drawn = apart.cohort('other').weights.slice()
    apart.cohort('other').weights.set(apart.cohort('one').weights)
    expect(apart.cohort('other').weights).not.toEqual(drawn)
    for (let i = 0; i < 30; i++) {
      tick(world)
      tick(apart)
      expect(world.cohort('other').action.chosen).toEqual(apart.cohort('other').action.chosen)
    }
  })

  test('learn one after the other, to the same bits on one thread and on three, and after a resume', async () => {
    const trained = async (threads: number, stop = Number.POSITIVE_INFINITY) => {
      const folder = await temporaryFolder()
      const goal = { totalSteps: 6 * (5 * 16 + 3 * 8) }
      let trainer = createTrainer(await shared(), both, { threads })
      const begun = trainer.world.cohort('one').weights.slice()
      for await (const { update } of trainer.updates(goal)) if (update === stop) break
      if (stop < 6) {
        await trainer.save(folder)
        trainer = createTrainer(await shared(), both, { threads })
        await trainer.restore(folder)
        for await (const _ of trainer.updates(goal));
      }
      trainer.close()
      expect(trainer.world.cohort('one').weights).not.toEqual(begun)
      return trainer.world.cohort('one').weights.slice()
    }
    const weights = await trained(1)
    expect(await trained(3)).toEqual(weights)
    expect(await trained(1, 2)).toEqual(weights)
    const alone = createTrainer(await shared(), { one: both.one })
    for await (const _ of alone.updates({ totalSteps: 6 * 5 * 16 }));
    expect(alone.world.cohort('one').weights).not.toEqual(weights) // The other one learned too.
  })

  test('are refused by a name that there is not, and where the networks would differ', async () => {
    await expect(createWorld({ cohorts: [one, { ...other, policy: 'won' }] })).rejects.toThrow(
      'policy: got "won" (did you mean "one"?), expected one of one',
    )
    await expect(createWorld({ cohorts: [one, { ...other, environment: pendulum(), policy: 'one' }] })).rejects.toThrow(
      'policy: got one, whose network has other shapes than this environment requires',
    )
    await expect(createWorld({ ...other, policy: 'one' })).rejects.toThrow('policy: got "one", expected a policy')
  })
})
