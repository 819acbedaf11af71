import { query } from 'bitecs'
import { describe, expect, test } from 'vitest'
import { RolloutCoordinator } from '../src/entries/compat.ts'
import {
  cartPole,
  createTrainer,
  createWorld,
  languageModel,
  mlp,
  pendulum,
  ppo,
  rl,
  textEnvironmentFactory,
  tick,
} from '../src/index.ts'

const policy = mlp({ hidden: [8] })

describe('createWorld', () => {
  test.each([0, -1, 1.5, Number.NaN, '4'])('refuses numLanes %s', async (numLanes) => {
    const options = { environment: cartPole(), policy, numLanes: numLanes as number }
    const shown = typeof numLanes === 'string' ? '"4"' : String(numLanes)
    await expect(createWorld(options)).rejects.toThrow(`numLanes: got ${shown}, expected a whole number ≥ 1`)
  })

  test('refuses a seed, an environment, a policy or an autoreset that is none', async () => {
    const good = { environment: cartPole(), policy, numLanes: 1 }
    await expect(createWorld({ ...good, seed: -1 })).rejects.toThrow('seed: got -1, expected a whole number from 0')
    await expect(createWorld({ ...good, environment: cartPole as never })).rejects.toThrow(
      'expected an environment, like cartPole()',
    )
    await expect(createWorld({ ...good, policy: {} as never })).rejects.toThrow('expected a policy, like mlp()')
    await expect(createWorld({ ...good, autoreset: 'same' as never })).rejects.toThrow('did you mean "same-step"?')
    await expect(createWorld({ cohorts: [] })).rejects.toThrow('cohorts: got none')
    await expect(createWorld({ cohorts: [good, good] })).rejects.toThrow('cohort name: got "mlp" twice')
  })

  test('refuses options that nothing knows: of a world, and of either kind of cohort', async () => {
    const cohort = { environment: cartPole(), policy: mlp(), numLanes: 2 }
    const wrong: [object, string][] = [
      [
        { ...cohort, numLane: 3 },
        'option of a cohort of episodes: got "numLane" (did you mean "numLanes"?), expected one of',
      ],
      [{ ...cohort, groupSize: 3 }, 'option of a cohort of episodes: got "groupSize"'],
      [
        { cohorts: [cohort], sed: 1 },
        'option of a world: got "sed" (did you mean "seed"?), expected one of cohorts, seed, kernels',
      ],
      [{ cohorts: [{ ...cohort, kernels: 'simd' }] }, 'option of a cohort of episodes: got "kernels"'],
      [{ cohorts: [cohort], numLanes: 4 }, 'option of a world: got "numLanes"'],
      [
        {
          environment: textEnvironmentFactory('text/reverse')(),
          policy: languageModel(),
          numLanes: 2,
          autoreset: 'next-step',
        },
        'option of a cohort of conversations: got "autoreset"',
      ],
      [{ cohorts: [null] }, 'cohort: got null, expected an object with environment, policy and numLanes'],
    ]
    for (const [options, message] of wrong) await expect(createWorld(options as never)).rejects.toThrow(message)
  })

  test('is planned before it is taken: the plan lists every column with its bytes', async () => {
    const world = await createWorld({ environment: cartPole(), policy, numLanes: 100 })
    const before = world.plan()
    const find = (name: string) => before.find((column) => column.name === name)!
    expect(find('mlp.state.position')).toMatchObject({ type: 'f32', rows: 100, width: 1, bytes: 400, saved: true })
    expect(find('mlp.carried.observation')).toMatchObject({ rows: 100, width: 4, bytes: 1600 })
    createTrainer(world, ppo({ numSteps: 16 }))
    const observation = world.plan().find(({ name }) => name === 'mlp.rollout.observation')!
    expect(observation.bytes).toBe(16 * 100 * 4 * 4)
    expect(world.plan().reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThanOrEqual(world.arena.bytes)
  })

  test('more memory than can be had says how much, for what, and how much there is', async () => {
    const world = await createWorld({ environment: cartPole(), policy, numLanes: 200_000_000 })
    expect(() => world.cohorts).toThrow(
      /memory: got a plan of \d+\.\d+ GiB \(most of it for mlp\..* = .*\), expected at most/,
    )
  })

  test('every column of every cohort lies in the one shared memory', async () => {
    const world = await createWorld({ environment: cartPole(), policy, numLanes: 5 })
    expect(world.columns().every(({ column }) => column.buffer === world.arena.buffer)).toBe(true)
    expect(world.arena.buffer).toBeInstanceOf(SharedArrayBuffer)
  })

  test('lanes are entities, and a query for the components of a cohort finds its lanes', async () => {
    const world = await createWorld({
      cohorts: [
        { name: 'left', environment: cartPole(), policy, numLanes: 3 },
        { name: 'right', environment: pendulum(), policy, numLanes: 2 },
      ],
    })
    const [left, right] = world.cohorts
    expect([...left!.lanes]).toEqual([0, 1, 2])
    expect([...right!.lanes]).toEqual([3, 4])
    expect([...query(world.ecs, [right!.observation])]).toEqual([3, 4])
    expect([...query(world.ecs, [left!.action, left!.state])]).toEqual([0, 1, 2])
    expect([...left!.episode.lane]).toEqual([0, 1, 2])
    expect([...right!.episode.lane]).toEqual([3, 4])
    tick(world)
    expect([...left!.episode.step, ...right!.episode.step]).toEqual([1, 1, 1, 1, 1])
  })

  test('of one kind says so where the other is asked for; a cohort is told by its name, or is the only one', async () => {
    const talking = await createWorld({
      environment: textEnvironmentFactory('text/reverse')(),
      policy: languageModel({ width: 8 }),
      numLanes: 1,
    })
    expect(() => talking.cohort('mlp')).toThrow('cohort: got "mlp", expected one of languageModel')
    expect(talking.cohort().kind).toBe('conversations')
    expect(talking.cohort('languageModel')).toBe(talking.cohort())
    expect(() => createTrainer(talking, ppo())).toThrow(/^algorithm of languageModel: got .+, expected sft\(\), rl\(\)/)
    const acting = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: 1 })
    expect(() => createTrainer(acting, rl())).toThrow(
      /^algorithm of mlp: got .+, expected an algorithm for episodes, like ppo/,
    )
    expect(() => new RolloutCoordinator(acting, { episodes: 1 })).toThrow(
      /got cohort mlp of episodes, expected a cohort of/,
    )
    const one = { environment: cartPole(), policy: mlp(), numLanes: 1 }
    const two = await createWorld({
      cohorts: [
        { ...one, name: 'a' },
        { ...one, name: 'b' },
      ],
    })
    expect(() => two.cohort()).toThrow('cohort: got no name for one of 2 cohorts, expected one of a, b')
    expect(two.cohorts).toEqual([two.cohort('a'), two.cohort('b')])
    // @ts-expect-error: no cohort has that name.
    expect(() => two.cohort('c')).toThrow('cohort: got "c", expected one of a, b')
  })

  test('a policy whose shape does not fit is refused before memory is taken', async () => {
    const misfit = { ...mlp(), build: () => mlp().build({ kind: 'discrete', n: 3 }, { kind: 'discrete', n: 2 }) }
    await expect(createWorld({ environment: cartPole(), policy: misfit, numLanes: 1 })).rejects.toThrow(
      'mlp observation space: got {"kind":"discrete","n":3}, expected a box',
    )
  })
})

describe('results never depend on company', () => {
  test.each([
    ['CartPole-v1', cartPole()],
    ['Pendulum-v1', pendulum()],
  ])('in %s a lane alone equals the lane among 1,000', async (_, environment) => {
    const many = await createWorld({ environment, policy: mlp({ hidden: [33, 7] }), numLanes: 1000, seed: 9 })
    const alone = await Promise.all(
      [0, 1, 255, 256, 257, 999].map(async (firstLane) => ({
        lane: firstLane,
        world: await createWorld({ environment, policy: mlp({ hidden: [33, 7] }), numLanes: 1, seed: 9, firstLane }),
      })),
    )
    const crowd = many.cohorts[0]!
    const width = crowd.observation.next.length / 1000
    for (let t = 0; t < 60; t++) {
      tick(many)
      for (const { lane, world } of alone) {
        tick(world)
        const { action, transition, observation, episode } = world.cohorts[0]!
        expect(action.chosen[0]).toBe(crowd.action.chosen[lane])
        expect(action.logprob[0]).toBe(crowd.action.logprob[lane])
        expect(action.value[0]).toBe(crowd.action.value[lane])
        expect(transition.reward[0]).toBe(crowd.transition.reward[lane])
        expect(episode.episode[0]).toBe(crowd.episode.episode[lane])
        expect([...observation.next]).toEqual([...crowd.observation.next.subarray(lane * width, (lane + 1) * width)])
      }
    }
  })
})
