import { addComponent, addEntity, createWorld as createGame, query } from 'bitecs'
import { describe, expect, test } from 'vitest'
import {
  Basket,
  createOrchard,
  Position,
  Sight,
  Steering,
  systems,
  Velocity,
} from '../../dist/examples/orchard/game.js'
import { orchard } from '../../dist/examples/orchard/train.js'
import { checkEnvironment, fromBitecs } from '../../dist/src/entries/environments.js'
// Workers load compiled files, and what they make must be made of the same ones here.
import { box, collect, createTrainer, createWorld, discrete, mlp, ppo, Random, Stream } from '../../dist/src/index.js'
import { listCheckpoints } from '../../src/training/folder/checkpoint.ts'
import { temporaryFolder } from '../support/temporary.ts'

const policy = mlp({ hidden: [8] })

async function recorded(numLanes: number, numSteps: number) {
  const world = await createWorld({ environment: orchard(), policy, numLanes, seed: 3 })
  world.reserve(world.draft(), { numSteps, learner: {} })
  await collect(world, numSteps)
  const cohort = world.cohorts[0]!
  if (cohort.kind !== 'episodes') throw new Error('a cohort of episodes')
  return { world, cohort }
}

test('a lane is the game as it runs by itself: what it sees, and what it earns', async () => {
  const { world, cohort } = await recorded(3, 120)
  const { observation, action, reward } = cohort.rollout
  const random = new Random(3)
  let earned = 0
  for (let n = 0; n < 3; n++) {
    random.draw(Stream.reset, n, 0, 0)
    const game = createOrchard(random.words[0]!)
    const { player } = game
    for (let t = 0; t < 120; t++) {
      const row = t * 3 + n
      const seen = [
        Position.x,
        Position.y,
        Velocity.x,
        Velocity.y,
        Sight.appleX,
        Sight.appleY,
        Sight.waspX,
        Sight.waspY,
      ]
      expect([...observation.subarray(8 * row, 8 * row + 8)]).toEqual(seen.map((column) => column[player]))
      Steering.direction[player] = action[row]!
      for (const system of systems) system(game)
      expect(reward[row]).toBe(Basket.gained[player])
      earned += Math.abs(reward[row]!)
    }
  }
  expect(earned).toBeGreaterThan(0)
  world.close()
})

test('the columns of a game are those of the training’s memory while it runs, and its own again afterwards', async () => {
  const own = new Float32Array(4)
  const Place = { x: own, name: ['nobody'] as unknown as number[] }
  const buffers = new Set<unknown>()
  const places = new Set<unknown>()
  const walk = fromBitecs({
    id: 'Walk-v0',
    components: { Place },
    createGame: () => {
      const world = createGame({ walker: 0 })
      world.walker = addEntity(world)
      addComponent(world, world.walker, Place)
      return world
    },
    systems: [
      (world) => {
        buffers.add(Place.x.buffer)
        places.add(Place.x.byteOffset)
        expect(Place.name[0]).toBe('nobody')
        for (const e of query(world, [Place])) Place.x[e]! += 0.01 * Place.name.push(e)
      },
    ],
    observation: [{ entities: ({ walker }) => walker, columns: ['Place.x'], low: -9, high: 9 }],
    action: { entity: ({ walker }) => walker, columns: ['Place.name'], space: discrete(2) },
    reward: () => 0,
    maxEpisodeSteps: 5,
  })
  expect(walk.memory).toEqual({ adopted: ['Place.x'], adoptedBytes: 16, kept: ['Place.name'], copiedBytes: 8 })
  const world = await createWorld({ environment: walk(), policy, numLanes: 3, seed: 1 })
  await collect(world, 4)
  const cohort = world.cohorts[0]!
  if (cohort.kind !== 'episodes') throw new Error('a cohort of episodes')
  const state = (cohort.state as unknown as Record<string, Float32Array>)['Place.x']!
  expect([...buffers]).toEqual([state.buffer])
  expect([...places]).toEqual([0, 1, 2].map((n) => state.byteOffset + 16 * n))
  // Entity 1 of each lane: four steps, and a list that grew by one each time and began with two (the action stands in place 1).
  for (let n = 0; n < 3; n++) expect(state[4 * n + 1]).toBeCloseTo(0.01 * (3 + 4 + 5 + 6))
  expect(Place.x).toBe(own)
  expect([...own]).toEqual([0, 0, 0, 0])
  expect(Place.name).toEqual(['nobody'])
  world.close()
})

test('worlds that are made anew in threads and after a resume come to the same bits', async () => {
  const algorithm = ppo({ numSteps: 16, numMinibatches: 2, updateEpochs: 2, learningRate: 1e-3 })
  const trained = async (updates: number, threads: number, folder?: string): Promise<Float32Array> => {
    const world = await createWorld({ environment: orchard(), policy, numLanes: 6, seed: 3 })
    const trainer = createTrainer(world, algorithm, { threads, ...(folder === undefined ? {} : { folder }) })
    try {
      if (folder !== undefined && (await listCheckpoints(folder)).length > 0) await trainer.restore()
      for await (const { update } of trainer.updates({ totalSteps: 20 * 96 })) if (update === updates) break
      if (folder !== undefined) await trainer.save()
      return world.cohorts[0]!.weights.slice()
    } finally {
      trainer.close()
    }
  }
  const whole = await trained(4, 1)
  const folder = await temporaryFolder()
  expect(await trained(2, 2, folder)).not.toEqual(whole)
  expect(await trained(4, 1, folder)).toEqual(whole)
})

test('a game keeps the contract of environments, and may allocate objects', () => {
  const { checks, holds } = checkEnvironment(orchard(), { numLanes: 4, steps: 60 })
  expect(checks.filter(({ status }) => status !== 'held').map(({ name, status }) => `${name} ${status}`)).toEqual([
    'allocation unasked',
  ])
  expect(holds).toBe(true)
})

test('the bridge sees and steers a game that runs by itself', () => {
  const game = createOrchard(5)
  Position.x[game.player] = 0.25
  orchard.act(game, 3)
  expect(Steering.direction[game.player]).toBe(3)
  expect(orchard.observe(game)).toEqual(
    Float32Array.of(0.25, 0.5, 0, 0, ...Object.values(Sight).map((column) => column[game.player]!)),
  )
})

describe('a game is refused', () => {
  const player = () => 1
  const options = () => {
    const Place = { x: new Float32Array(4) }
    return {
      id: 'Wrong-v0',
      components: { Place },
      createGame: () => ({}),
      systems: [() => {}] as (() => void)[],
      observation: [{ entities: player as () => number | number[], columns: ['Place.x' as const], low: 0, high: 1 }],
      action: { entity: player, columns: ['Place.x' as const], space: box({ low: -1, high: 1 }) },
      reward: () => 0,
      maxEpisodeSteps: 5,
    }
  }
  type Options = ReturnType<typeof options>

  test.each<[string, (given: Options) => unknown, string]>([
    ['components', (given) => Object.freeze(given.components.Place), 'Place.x: got a read-only column'],
    ['columns', (given) => Object.assign(given.components.Place, { x: 3 }), 'Place.x: got 3, expected a typed array'],
    ['component', (given) => Object.assign(given.components, { Place: [] }), 'component Place: got an array'],
    ['systems', (given) => (given.systems = []), 'Wrong-v0 systems: got []'],
    ['reward', (given) => Object.assign(given, { reward: 1 }), 'Wrong-v0 reward: got 1'],
    ['terminated', (given) => Object.assign(given, { terminated: true }), 'Wrong-v0 terminated: got true'],
    ['option', (given) => Object.assign(given, { truncated: () => true }), 'option'],
    ['part', (given) => Object.assign(given.observation[0]!, { count: 3 }), 'observation[0]'],
    ['bound', (given) => Object.assign(given.observation[0]!, { low: [0, 0] }), 'low: got [0,0]'],
    [
      'action',
      (given) => Object.assign(given.action, { space: box({ low: [0, 0], high: 1 }) }),
      'action columns: got 1',
    ],
  ])('for its %s, when it is defined', (_, spoil, message) => {
    const given = options()
    spoil(given)
    expect(() => fromBitecs(given)).toThrow(message)
  })

  test.each<[string, (given: Options) => unknown, string]>([
    [
      'which keeps an array',
      (given) => {
        const { x } = given.components.Place
        given.systems = [() => void x[1]++]
      },
      'Wrong-v0 Place.x: got a game that wrote to a stored array',
    ],
    ['without a world', (given) => Object.assign(given, { createGame: () => 3 }), 'createGame: got 3'],
    ['entity', (given) => (given.observation[0]!.entities = () => 4), 'got entity 4, expected an entity from 0 to 3'],
    ['with too many', (given) => (given.observation[0]!.entities = () => [1, 2]), 'got 2 entities, expected at most 1'],
    [
      'that throws',
      (given) =>
        given.systems.push(() => {
          throw new Error('no apples left')
        }),
      'step in lane 0 (episode 0, step 0) threw: no apples left',
    ],
  ])('%s, when it runs', async (_, spoil, message) => {
    const given = options()
    const { x } = given.components.Place
    spoil(given)
    const world = await createWorld({ environment: fromBitecs(given)(), policy, numLanes: 2, seed: 1 })
    await expect((async () => collect(world, 2))()).rejects.toThrow(message)
    expect(given.components.Place.x).toBe(x)
    world.close()
  })

  test('by the compiler for columns and actions that are none of its own', () => {
    const given = options()
    const [part] = given.observation
    // @ts-expect-error There is no column Place.z.
    expect(() => fromBitecs({ ...given, observation: [{ ...part, columns: ['Place.z'] }] })).toThrow('Place.z')
    // @ts-expect-error There is no component Speed.
    expect(() => fromBitecs({ ...given, action: { ...given.action, columns: ['Speed.x'] } })).toThrow('Speed.x')
    // @ts-expect-error An orchard is played by one number.
    expect(() => orchard.act(createOrchard(1), [1])).not.toThrow()
  })
})
