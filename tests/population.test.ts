/** Lanes that come and go: who is there, in which row, with which numbers, and what is learned from. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { tableFromIPC } from 'apache-arrow'
import { addComponents, addEntity, getEntityComponents, query, removeComponent, removeEntity } from 'bitecs'
import { describe, expect, test } from 'vitest'
import { colony } from '../examples/colony.ts'
import { dqn, qNetwork } from '../src/entries/algorithms.ts'
import { ticTacToeDuel } from '../src/environments/suite.ts'
import {
  box,
  cartPole,
  collect,
  createTrainer,
  createWorld,
  defineEnvironment,
  despawn,
  discrete,
  type EpisodeCohort,
  type EpisodeCohortOptions,
  evaluate,
  InputError,
  mlp,
  Phase,
  Present,
  ppo,
  recordEpisodes,
  recurrent,
  restart,
  spawn,
  type Trainer,
  tick,
  writeArrow,
} from '../src/index.ts'
import { colonyTrainer } from './support/colony.ts'
import { advanceTo, columnsOf } from './support/small-training.ts'
import { temporaryFolder } from './support/temporary.ts'

const policy = mlp({ hidden: [8] })

/** Each lane lives as long as its number says, and has a child in every third step. Its state says of whom it is the child. */
const clockwork = defineEnvironment({
  id: 'Clockwork-v0',
  settings: {},
  state: () => ({ own: 'u32', parent: 'u32', pair: ['u32', 2] }),
  make: () => ({
    observationSpace: box({ low: -1, high: 1e9, shape: [1] }),
    actionSpace: discrete(2),
    population: true,
    maxEpisodeSteps: 12,
    returnThreshold: null,
    reset({ state, observation, lane, episode }, rows, count) {
      for (let i = 0; i < count; i++) {
        const n = rows[i]!
        if (episode[n] === 0) state.parent[n] = state.own[n]!
        state.own[n] = lane[n]! + 1
        state.pair.fill(lane[n]! + 1, 2 * n, 2 * n + 2)
        observation[n] = lane[n]!
      }
    },
    step({ reward, terminated, died, births, lane, step, observation }, from, to) {
      for (let n = from; n < to; n++) {
        reward[n] = 1
        observation[n] = lane[n]!
        died[n] = terminated[n] = lane[n]! % 2 === 1 && step[n] === (lane[n]! % 7) + 1 ? 1 : 0
        // Lane 1 has died before its step 3: what is written of it then is of nobody.
        births[n] = step[n] === 2 || (lane[n] === 1 && step[n] === 3) ? 1 : 0
      }
    },
  }),
})

type Options = Partial<EpisodeCohortOptions>

describe('births and deaths in the environment', () => {
  test('are values in the rollout, and entities and rows in the next one', async () => {
    const world = await createWorld({ environment: clockwork(), policy, numLanes: 9, present: 5, seed: 1 })
    world.reserve(world.draft(), { numSteps: 6, learner: {} })
    const cohort = world.cohort()
    expect([...cohort.episode.phase]).toEqual([...Array(5).fill(Phase.fresh), ...Array(4).fill(Phase.absent)])
    await collect(world, 6)
    // Lanes 1 and 3 live for 3 and 5 steps; all have a child in their third.
    const { valid, step, lane } = cohort.rollout
    const rows = (t: number) => [...valid.subarray(9 * t, 9 * (t + 1))]
    const all = [1, 1, 1, 1, 1, 0, 0, 0, 0]
    const without = (...gone: number[]) => all.map((flag, n) => (gone.includes(n) ? 0 : flag))
    expect([0, 1, 2, 3, 4, 5].map(rows)).toEqual([all, all, all, without(1), without(1), without(1, 3)])
    expect([...step.subarray(45, 54)]).toEqual([5, -1, 5, -1, 5, -1, -1, -1, -1])
    expect([...cohort.episode.phase.subarray(0, 5)]).toEqual([0, Phase.absent, 0, Phase.absent, 0])

    await collect(world, 1) // Its beginning settles who is there: one row for each who stayed, and one for each child.
    expect([...cohort.episode.lane.subarray(0, 8)]).toEqual([0, 2, 4, 5, 6, 7, 8, 9])
    const { own, parent } = cohort.state as unknown as { own: Uint32Array; parent: Uint32Array }
    expect([...own.subarray(0, 8)]).toEqual([1, 3, 5, 6, 7, 8, 9, 10])
    expect([...parent.subarray(0, 8)]).toEqual([0, 0, 0, 1, 2, 3, 4, 5])
    expect([...cohort.episode.episode.subarray(0, 8)]).toEqual([0, 0, 0, 0, 0, 0, 0, 0])
    expect([...cohort.episode.step.subarray(0, 8)]).toEqual([7, 7, 7, 1, 1, 1, 1, 1])
    expect(cohort.present).toBe(8)
    expect([...lane.subarray(0, 8)]).toEqual([0, 2, 4, 5, 6, 7, 8, 9])
    expect([...query(world.ecs, [cohort.episode, Present])].sort()).toEqual([...cohort.lanes].sort())
    expect(cohort.lanes).toHaveLength(8)
  })

  test('beyond what there is room for are refused, and counted', async () => {
    const trainer = await colonyTrainer({ environment: clockwork(), numLanes: 6, present: 5 }, { numSteps: 6 })
    await advanceTo(trainer, 1)
    // Of five births in the first rollout there was room for three: two lanes had died, one was free.
    expect(trainer.progress().population).toEqual({ present: 6, born: 3, died: 2, refused: 2 })
  })

  test('of a lane that the program has removed already take none from whoever has the number of its entity now', async () => {
    const world = await createWorld({ environment: clockwork(), policy, numLanes: 9, present: 5, seed: 1 })
    world.reserve(world.draft(), { numSteps: 6, learner: {} })
    const cohort = world.cohort()
    tick(world)
    const removed = cohort.lanes[1]! // Its lane dies two steps later.
    despawn(cohort, [removed])
    expect(spawn(cohort)).toEqual([removed])
    for (let t = 1; t < 7; t++) tick(world)
    expect([...cohort.lanes]).toContain(removed)
    expect([...cohort.episode.lane]).toEqual([0, 2, 4, 5, 6, 7, 8, 9, 10])
  })

  test('leave nothing behind: a stranger does not begin with the state of whoever was in its row', async () => {
    const world = await createWorld({ environment: clockwork(), policy, numLanes: 6, present: 5, seed: 1 })
    const cohort = world.cohort()
    const { own, parent, pair } = cohort.state as unknown as Record<'own' | 'parent' | 'pair', Uint32Array>
    tick(world)
    despawn(cohort, [cohort.lanes[0]!, cohort.lanes[3]!])
    tick(world)
    expect([...own]).toEqual([2, 3, 5, 0, 0, 0])
    expect([...pair]).toEqual([2, 2, 3, 3, 5, 5, 0, 0, 0, 0, 0, 0])
    spawn(cohort, 2)
    tick(world)
    expect([...own]).toEqual([2, 3, 5, 6, 7, 0])
    expect([...parent]).toEqual([0, 0, 0, 0, 0, 0]) // What its row held when it began.
  })

  test('leave nobody at last where nobody eats: it is said, and the training goes on with whom the program adds', async () => {
    const trainer = await colonyTrainer({ environment: colony({ meals: 0 }) })
    await expect(advanceTo(trainer, 10)).rejects.toThrow(
      'cohort mlp: got no present lane, expected at least one to train on: spawn(cohort)',
    )
    expect(trainer.progress().population).toEqual({ present: 0, born: 0, died: 24, refused: 0 })
    spawn(trainer.world.cohort(), 3)
    const { update } = trainer
    await advanceTo(trainer, update + 1)
    expect(trainer.progress().population).toEqual({ present: 0, born: 0, died: 27, refused: 0 })
  })

  test.each([
    ['died without the end of an episode', { died: 1 }, '1 in died of lane 0 (episode 0, step 0) from step'],
    ['a flag that is none', { died: 2, terminated: 1 }, '2 in died of lane 0'],
  ])('refuse %s', async (_, written, message) => {
    const broken = {
      ...clockwork(),
      step(lanes: never) {
        for (const [name, value] of Object.entries(written)) (lanes as Record<string, Uint8Array>)[name]![0] = value
      },
    }
    const world = await createWorld({ environment: broken as never, policy, numLanes: 3 })
    expect(() => tick(world)).toThrow(message)
  })

  test.each(['population', 'allocates'])('an environment that says neither true nor false of %s is refused', (name) => {
    const make = () => ({ ...clockwork(), [name]: 1 as never })
    const wrong = defineEnvironment({ id: 'Wrong', settings: {}, state: () => ({}), make })
    expect(() => wrong()).toThrow(`Wrong ${name}: got 1, expected true or false`)
  })
})

describe('results never depend on company', () => {
  test('what a lane does depends on its number, not on its row or on who else is there', async () => {
    const world = await createWorld({ environment: cartPole(), policy, numLanes: 8, present: 6, seed: 3 })
    const alone = await createWorld({ environment: cartPole(), policy, numLanes: 1, firstLane: 5, seed: 3 })
    const [crowd, one] = [world.cohort(), alone.cohort()]
    const entity = crowd.lanes[5]!
    for (let t = 0; t < 40; t++) {
      if (t === 7) despawn(crowd, [crowd.lanes[0]!, crowd.lanes[3]!])
      if (t === 20) spawn(crowd, 4)
      tick(world)
      tick(alone)
      const row = crowd.lanes.indexOf(entity)
      expect(row).toBe(t < 7 ? 5 : 3)
      expect(crowd.action.logprob[row]).toBe(one.action.logprob[0])
      expect([...crowd.observation.next.subarray(4 * row, 4 * row + 4)]).toEqual([...one.observation.next])
    }
    expect([...crowd.episode.lane]).toEqual([1, 2, 4, 5, 6, 7, 8, 9])
  })

  test.each(['plain', 'simd'] as const)(
    'also in rollouts that are kept, where lanes come to more rows than there were at first: %s',
    async (kernels) => {
      const numSteps = 5
      const begin = async (options: Options) => {
        const world = await createWorld({
          environment: cartPole({ maxEpisodeSteps: 7 }),
          policy,
          numLanes: 1,
          seed: 3,
          kernels,
          ...options,
        })
        world.reserve(world.draft(), { numSteps, learner: {} })
        return world
      }
      const world = await begin({ numLanes: 9, present: 2 })
      const cohort = world.cohort()
      const alone = await Promise.all([0, 1, 2, 3, 4, 5, 6, 7].map((firstLane) => begin({ firstLane })))
      for (let rollout = 0; rollout < 6; rollout++) {
        if (rollout === 1) spawn(cohort, 6)
        if (rollout === 3) despawn(cohort, [cohort.lanes[0]!, cohort.lanes[4]!])
        const there = rollout < 1 ? [0, 1] : rollout < 3 ? [0, 1, 2, 3, 4, 5, 6, 7] : [1, 2, 3, 5, 6, 7]
        await collect(world, numSteps)
        for (const [n, number] of there.entries()) {
          await collect(alone[number]!, numSteps)
          const one = alone[number]!.cohort().rollout
          const many = cohort.rollout
          for (let t = 0; t < numSteps; t++) {
            const row = 9 * t + n
            expect([...many.observation.subarray(4 * row, 4 * row + 4)]).toEqual([
              ...one.observation.subarray(4 * t, 4 * t + 4),
            ])
            for (const name of ['lane', 'step', 'logprob', 'value', 'nextValue', 'reward', 'truncated'] as const) {
              expect(many[name][row], `${name} of lane ${number} in rollout ${rollout}, step ${t}`).toBe(one[name][t])
            }
          }
        }
      }
    },
  )

  test('a newborn has numbers of its own, in a world of two cohorts too', async () => {
    const one = { environment: cartPole(), policy, numLanes: 4 }
    const world = await createWorld({
      cohorts: [
        { ...one, name: 'a', present: 2 },
        { ...one, name: 'b', present: 3 },
        { ...one, name: 'c' },
      ],
    })
    const [a, b, c] = world.cohorts
    for (const cohort of [a!, b!]) despawn(cohort, [cohort.lanes[0]!])
    spawn(a!, 3)
    spawn(b!, 2)
    tick(world)
    const numbers = [a!, b!, c!].map(({ episode }) => [...episode.lane])
    const second = 2 ** 27
    expect(numbers).toEqual([
      [1, 2, 3, 4],
      [second + 1, second + 2, second + 3, second + 4],
      [2 * second, 2 * second + 1, 2 * second + 2, 2 * second + 3],
    ])
  })
})

describe('who is there is what bitecs says', () => {
  test('entities that the program adds and removes itself act, and do not', async () => {
    const world = await createWorld({ environment: cartPole(), policy, numLanes: 6, present: 4 })
    const cohort = world.cohort()
    const [first, second, third] = cohort.lanes as unknown as [number, number, number]
    tick(world)
    removeEntity(world.ecs, second)
    removeComponent(world.ecs, third, Present)
    const components = getEntityComponents(world.ecs, first)
    const added = [addEntity(world.ecs), addEntity(world.ecs)]
    for (const entity of added) addComponents(world.ecs, entity, components as object[])
    expect(added[0]).toBe(second) // The number is used again.
    tick(world)
    expect([...cohort.lanes]).toEqual([first, 3, ...added])
    expect([...cohort.episode.lane.subarray(0, 4)]).toEqual([0, 3, 4, 5])
    expect([...cohort.episode.step.subarray(0, 4)]).toEqual([2, 2, 1, 1])
    expect([...cohort.episode.phase]).toEqual([0, 0, 0, 0, Phase.absent, Phase.absent])
    addComponents(world.ecs, third, [Present]) // It comes back as another.
    tick(world)
    expect([...cohort.lanes]).toEqual([first, 3, ...added, third])
    expect(cohort.episode.lane[4]).toBe(6)
    for (let i = 0; i < 2; i++) addComponents(world.ecs, addEntity(world.ecs), components as object[])
    expect(() => tick(world)).toThrow('cohort mlp: got 7 present lanes, expected at most its numLanes, 6')
  })

  test('and take effect at the next rollout, not in the middle of one', async () => {
    const world = await createWorld({ environment: cartPole(), policy, numLanes: 6, present: 2 })
    createTrainer(world, ppo({ numSteps: 4, numMinibatches: 1 }))
    const cohort = world.cohort()
    tick(world)
    const [stranger] = spawn(cohort)
    for (let t = 1; t < 4; t++) {
      tick(world)
      expect(cohort.present).toBe(2)
    }
    tick(world)
    expect(cohort.present).toBe(3)
    expect(cohort.lanes[2]).toBe(stranger)
  })

  test('lanes go from any cohort, and come to one with the option `present`', async () => {
    const world = await createWorld({ environment: cartPole(), policy, numLanes: 3 })
    const cohort = world.cohort()
    tick(world)
    const components = getEntityComponents(world.ecs, cohort.lanes[0]!)
    removeEntity(world.ecs, cohort.lanes[1]!)
    tick(world)
    expect([cohort.present, ...cohort.episode.lane.subarray(0, 2)]).toEqual([2, 0, 2])
    addComponents(world.ecs, addEntity(world.ecs), components as object[])
    const message = 'cohort mlp: got 1 new lanes, expected no new lanes without the option `present`'
    expect(() => tick(world)).toThrow(message)
    expect(() => tick(world)).toThrow(message)
  })
})

describe('games', () => {
  test('go as a whole, or not at all', async () => {
    const world = await createWorld({ environment: ticTacToeDuel(), policy, numLanes: 8, seed: 1 })
    const cohort = world.cohort()
    tick(world)
    despawn(cohort, [cohort.lanes[2]!, cohort.lanes[3]!])
    tick(world)
    expect([...cohort.episode.lane.subarray(0, cohort.present)]).toEqual([0, 1, 4, 5, 6, 7])
    despawn(cohort, [cohort.lanes[1]!])
    expect(() => tick(world)).toThrow(
      'cohort mlp: got lane 0 without the other players of its game, expected all 2 players of a game, or none',
    )
  })
})

describe('bad input', () => {
  test.each([-1, 5, 1.5, '2'])('present %s of 4 is refused', async (present) => {
    const options = { environment: cartPole(), policy, numLanes: 4, present: present as number }
    await expect(createWorld(options)).rejects.toThrow(
      /^present: got .+, expected a whole number from 0 to numLanes, 4/,
    )
  })

  test('spawn and despawn refuse what they cannot do, and then do nothing', async () => {
    const stays = (await createWorld({ environment: cartPole(), policy, numLanes: 4 })).cohort()
    const message = 'got cohort mlp, which accepts no new lanes, expected a cohort with the option `present`'
    expect(() => spawn(stays)).toThrow(`spawn(cohort, count): ${message}`)
    const open = (await createWorld({ environment: cartPole(), policy, numLanes: 4, present: 3 })).cohort()
    for (const count of [2, -1, 0.5]) {
      expect(() => spawn(open, count)).toThrow(/got .+, expected a whole number from 0 to 1, the room left/)
    }
    expect(spawn(open, 0)).toEqual([])
    expect(() => despawn(open, [open.lanes[0]!, 99])).toThrow('got entity 99, expected one of its lanes')
    expect(open.entities!.count).toBe(3)
    await expect(
      createWorld({ environment: clockwork(), policy, numLanes: 4, autoreset: 'next-step' }),
    ).rejects.toThrow(
      'autoreset: got "next-step", expected same-step for lanes of Clockwork-v0, which are born and die',
    )
  })

  test('restart tells those who are there', async () => {
    const world = await createWorld({ environment: clockwork(), policy, numLanes: 6, present: 5, seed: 1 })
    world.reserve(world.draft(), { numSteps: 8, learner: {} })
    const cohort = world.cohort()
    for (let t = 0; t < 3; t++) tick(world) // Lane 1 has died.
    expect(() => restart(cohort, [1])).toThrow('lane of cohort mlp: got 1, which has died, expected a present lane')
    expect(() => restart(cohort, [5])).toThrow('lane of cohort mlp: got 5, expected a whole number from 0 to 4')
    restart(cohort)
    expect([...cohort.episode.phase]).toEqual([2, 3, 2, 2, 2, 3])
  })
})

describe('a training of a population', () => {
  test.each([
    ['mlp', policy],
    ['recurrent', recurrent({ units: 4, hidden: [4], sequenceLength: 4, burnIn: 2 })],
  ] as const)('of a policy %s goes on exactly after a checkpoint', async (_, policy) => {
    const folder = await temporaryFolder()
    const whole = await colonyTrainer({ policy })
    const act = (trainer: Trainer<EpisodeCohort>) => (update: number) => {
      if (update === 5) spawn(trainer.world.cohort(), 7)
    }
    await advanceTo(whole, 12, act(whole))
    const first = await colonyTrainer({ policy })
    await advanceTo(first, 5, act(first))
    await first.save(folder) // What the program has asked for is in it.
    const again = await colonyTrainer({ policy })
    await advanceTo(again, 2)
    await again.restore(folder)
    const { population } = again.progress()
    expect(population).toEqual(first.progress().population)
    const cohort = again.world.cohort()
    expect(query(again.world.ecs, [cohort.episode, Present])).toHaveLength(population!.present)
    await advanceTo(again, 12)
    expect(columnsOf(again)).toEqual(columnsOf(whole))
    expect(again.steps).toBe(whole.steps)
  })

  test('that is full is taken up full from a checkpoint', async () => {
    const folder = await temporaryFolder()
    const full = () => colonyTrainer({ environment: cartPole(), numLanes: 5, present: 5 })
    const first = await full()
    await advanceTo(first, 1)
    await first.save(folder)
    const again = await full()
    await again.restore(folder)
    const cohort = again.world.cohort()
    expect([cohort.population!.present[0], cohort.lanes.length]).toEqual([5, 5])
    expect(query(again.world.ecs, [cohort.episode, Present])).toHaveLength(5)
    await advanceTo(again, 2)
    await advanceTo(first, 2)
    expect(columnsOf(again)).toEqual(columnsOf(first))
  })

  test('learns from the rows of those who lived alone, and counts their steps', async () => {
    // The sizes of what a loss is handed, from a rollout of which the table says who acted.
    const trainer = await colonyTrainer({}, { numMinibatches: 1, updateEpochs: 1 })
    let steps = 0
    for await (const update of trainer.updates({ totalSteps: 1e6 })) {
      const { valid, step, lane, episode } = trainer.world.cohort().rollout
      const living = valid.reduce((sum, flag) => sum + flag, 0)
      const seen = new Set<string>()
      for (const [row, flag] of valid.entries()) {
        if (flag === 0) expect(step[row]).toBe(-1)
        else seen.add(`${lane[row]} ${episode[row]} ${step[row]}`)
      }
      expect(seen.size).toBe(living) // No step of no lane is there twice.
      const { present, rollout } = trainer.world.cohort()
      for (let n = 0; n < present; n++) {
        // What an agent sees of its chance of a meal goes by how many were there when the rollout began.
        expect(rollout.observation[2 * (96 + n) + 1]).toBe(Math.fround(Math.min(1, 10 / present)))
      }
      expect(living).toBeLessThanOrEqual(16 * present)
      steps += 16 * present
      expect(update.steps).toBe(steps)
      if (update.update === 6) break
    }
    const path = join(await temporaryFolder(), 'rollout.arrow')
    await writeArrow(path, trainer.rollout.table)
    const table = tableFromIPC(await readFile(path))
    expect(table.numRows).toBe(16 * 96)
    expect([...table.getChild('valid')!].filter(Boolean).length).toBeLessThan(16 * 96)
  })

  test('of lanes that the program has removed goes on exactly after a checkpoint, with 2 threads as with 1', async () => {
    const folder = await temporaryFolder()
    const made = async (threads: number) => {
      const world = await createWorld({ environment: cartPole(), policy, numLanes: 12, seed: 4 })
      return createTrainer(world, ppo({ numSteps: 16, numMinibatches: 2 }), { threads }) as Trainer<EpisodeCohort>
    }
    const remove = (trainer: Trainer<EpisodeCohort>) => (update: number) => {
      const cohort = trainer.world.cohort()
      if (update === 2)
        despawn(
          cohort,
          [1, 4, 5, 11].map((row) => cohort.lanes[row]!),
        )
    }
    const whole = await made(1)
    await advanceTo(whole, 5, remove(whole))
    expect(whole.steps).toBe((2 * 12 + 3 * 8) * 16)
    expect(whole.progress().population).toEqual({ present: 8, born: 0, died: 0, refused: 0 })
    const first = await made(2)
    await advanceTo(first, 3, remove(first))
    await first.save(folder)
    first.close()
    const again = await made(2)
    await again.restore(folder)
    expect(again.world.cohort().lanes).toHaveLength(8)
    await advanceTo(again, 5)
    again.close()
    expect(columnsOf(again)).toEqual(columnsOf(whole))
    expect([...again.world.cohort().episode.lane.subarray(0, 8)]).toEqual([0, 2, 3, 6, 7, 8, 9, 10])
  })

  test('of off-policy learners draws from the rows of present lanes', async () => {
    const world = await createWorld({
      environment: cartPole(),
      policy: qNetwork({ hidden: [8] }),
      numLanes: 6,
      seed: 4,
    })
    const learner = dqn({ numSteps: 4, replayRows: 96, batchSize: 16, learningStarts: 32 })
    const trainer = createTrainer(world, learner) as Trainer<EpisodeCohort>
    const cohort = trainer.world.cohort()
    await advanceTo(trainer, 2, () => cohort.present === 6 && despawn(cohort, cohort.lanes.slice(0, 3)))
    await advanceTo(trainer, 8)
    expect(trainer.steps).toBe(4 * (6 + 3 * 7))
  })

  test('judges and records lives one by one', async () => {
    const environment = colony({ meals: 10, lifespan: 40 })
    const { numParameters } = policy.build(environment.observationSpace, environment.actionSpace)
    const options = {
      environment,
      policy,
      weights: new Float32Array(numParameters),
      episodes: 20,
      seed: 2,
      explore: true,
    }
    const { episodes, episodeLength } = await evaluate(options)
    expect(episodes).toBe(20)
    const table = await recordEpisodes(options)
    expect(table.numRows).toBeCloseTo(20 * episodeLength.mean, 6)
  })
})

test('numbers are never given twice: a cohort that has used all that are kept for it says so', async () => {
  const world = await createWorld({ environment: cartPole(), policy, numLanes: 4, present: 2 })
  const cohort = world.cohort()
  cohort.population!.numbered[0] = 2 ** 27 - 1
  spawn(cohort, 1)
  tick(world)
  expect(cohort.episode.lane[2]).toBe(2 ** 27 - 1)
  spawn(cohort, 1)
  expect(() => tick(world)).toThrow(InputError)
})
