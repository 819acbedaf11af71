/** Episodes of others: what is read of them is what was written, and teaches the same. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { bc } from '../../src/algorithms/on-policy/bc.ts'
import { Random } from '../../src/base/random.ts'
import { readEpisodes, writeMinari } from '../../src/entries/data.ts'
import {
  cartPole,
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  mlp,
  pendulum,
  ppo,
  recordEpisodes,
  type Table,
} from '../../src/index.ts'
import { temporaryFolder } from '../support/temporary.ts'

const cart = () => cartPole({ maxEpisodeSteps: 12 })

async function recorded(environment: EnvironmentDefinition) {
  const policy = mlp({ hidden: [4] })
  const model = policy.build(environment.observationSpace, environment.actionSpace)
  const weights = new Float32Array(model.numParameters)
  model.initialize(weights, new Random(1), 0)
  return recordEpisodes({ environment, policy, weights, episodes: 5, seed: 5 })
}

const columnOf = ({ fields }: Table, name: string) => fields.find((field) => field.name === name)!

async function learned(table: Table, environment = cart()) {
  const world = await createWorld({ environment, policy: mlp({ hidden: [3] }), numLanes: 4, seed: 1 })
  const trainer = createTrainer(world, bc({ numSteps: 8, numMinibatches: 2, beta: 0.5 }))
  try {
    for await (const _ of trainer.learn(table));
    return trainer.world.cohort().weights.slice()
  } finally {
    trainer.close()
  }
}

/** The lines of a table's episodes; the last observation is left out of those that have terminated where `isShort`. */
function linesOf(table: Table, isShort: boolean): string {
  const [observation, action, reward, final] = ['observation', 'action', 'reward', 'finalObservation'].map((name) =>
    columnOf(table, name),
  ) as [...ReturnType<typeof columnOf>[]] & { length: 4 }
  const step = columnOf(table, 'step').column
  const begins = [...step].flatMap((number, row) => (number === 0 ? [row] : []))
  return begins
    .map((from, i) => {
      const to = begins[i + 1] ?? table.numRows
      const terminated = columnOf(table, 'terminated').column[to - 1] === 1
      const seen = Array.from({ length: to - from }, (_, t) => [
        ...observation!.column.subarray((from + t) * 4, (from + t + 1) * 4),
      ])
      const last = isShort && terminated ? [] : [[...final!.column.subarray(i * 4, (i + 1) * 4)]]
      const [actions, rewards] = [action!, reward!].map(({ column }) => [...column.subarray(from, to)])
      return JSON.stringify({ observations: [...seen, ...last], actions, rewards, terminated })
    })
    .join('\n')
}

test('a dataset of Minari that we wrote has the same columns, and teaches the same', async () => {
  const table = await recorded(cart())
  const folder = join(await temporaryFolder(), 'cartpole-v0')
  await writeMinari(folder, table, cart())
  const read = await readEpisodes(folder, cart())
  for (const name of ['observation', 'action', 'reward', 'terminated', 'truncated', 'step', 'episodeReturn'])
    expect(columnOf(read, name).column, name).toEqual(columnOf(table, name).column)
  expect(columnOf(read, 'finalObservation')).toEqual(columnOf(table, 'finalObservation'))
  expect(new Set(columnOf(read, 'truncated').column)).toEqual(new Set([0, 1])) // Episodes of both kinds.
  expect(new Set(columnOf(read, 'terminated').column)).toEqual(new Set([0, 1]))
  expect(await learned(read)).toEqual(await learned(table))
})

test('actions of a box are numbers of their width', async () => {
  const environment = pendulum({ maxEpisodeSteps: 6 })
  const table = await recorded(environment)
  const folder = join(await temporaryFolder(), 'pendulum-v0')
  await writeMinari(folder, table, environment)
  const read = await readEpisodes(folder, environment)
  expect(columnOf(read, 'action')).toMatchObject({ width: 1, column: columnOf(table, 'appliedAction').column })
})

test.each([false, true])('lines have the same columns too (without last observations: %s)', async (isShort) => {
  const table = await recorded(cart())
  const path = join(await temporaryFolder(), 'episodes.jsonl')
  await writeFile(path, linesOf(table, isShort))
  const read = await readEpisodes(path, cart())
  expect(columnOf(read, 'observation').column).toEqual(columnOf(table, 'observation').column)
  const ends = [...columnOf(table, 'truncated').column].filter((flag) => flag === 1).length
  expect(columnOf(read, 'finalObservation').rows).toHaveLength(isShort ? ends : 5)
  expect(await learned(read)).toEqual(await learned(table))
})

test('only what imitates learns from actions whose log-probabilities nobody knows', async () => {
  const path = join(await temporaryFolder(), 'episodes.jsonl')
  await writeFile(path, linesOf(await recorded(cart()), false))
  const read = await readEpisodes(path, cart())
  const world = await createWorld({ environment: cart(), policy: mlp({ hidden: [3] }), numLanes: 4, seed: 1 })
  const trainer = createTrainer(world, ppo({ numSteps: 8, numMinibatches: 2 }))
  await expect(trainer.learn(read).next()).rejects.toThrow(
    'table: got episodes whose actions have no log-probabilities, for the algorithm ppo, expected an algorithm that imitates',
  )
  trainer.close()
  const imitator = createTrainer(
    await createWorld({ environment: cart(), policy: mlp({ hidden: [3] }), numLanes: 4, seed: 1 }),
    bc({ numSteps: 8, numMinibatches: 2 }),
  )
  await expect(imitator.learn(read, { correction: 'vtrace' }).next()).rejects.toThrow('for the correction vtrace')
  imitator.close()
})

const line = {
  observations: [
    [0, 0, 0, 0],
    [1, 1, 1, 1],
  ],
  actions: [1],
  rewards: [1],
  terminated: false,
}
test.each([
  ['{"a"', /episodes\.jsonl:1: got "\{/],
  ['[1]', /:1: got \[1\], expected an episode, as an object/],
  [{ ...line, infos: {} }, /:1, column: got "infos"/],
  [{ ...line, rewards: undefined }, /:1, rewards: got undefined, expected a list/],
  [{ ...line, rewards: [] }, /:1, rewards: got none, expected at least one/],
  [{ ...line, terminated: 1 }, /:1, terminated: got 1, expected true or false/],
  [{ ...line, actions: [1, 0] }, /:1, actions: got 2, expected 1, one a reward/],
  [{ ...line, observations: [[0, 0, 0, 0]] }, /:1, observations: got 1, expected 2: one more than rewards/],
  [
    {
      ...line,
      observations: [
        [0, 0, 0],
        [1, 1, 1],
      ],
    },
    /:1, observations\[0\]: got \[0,0,0\], expected 4 numbers/,
  ],
  [{ ...line, actions: ['left'] }, /:1, actions\[0\]: got "left", expected a number/],
  [{ ...line, actions: [0.5] }, /:1, actions\[0\]: got 0\.5, expected a choice: a whole number/],
  [{ ...line, actions: [2 ** 32 + 1] }, /:1, actions\[0\]: got 4294967297, expected a choice/],
  [{ ...line, truncated: 'no' }, /:1, truncated: got "no", expected true or false/],
  [{ ...line, truncated: false }, /:1, terminated and truncated: got false and false, expected one of them true/],
  ['', /episodes\.jsonl: got no episode, expected at least one/],
])('a line that is no episode is told by its number: %j', async (given, message) => {
  const path = join(await temporaryFolder(), 'episodes.jsonl')
  await writeFile(path, typeof given === 'string' ? given : JSON.stringify(given))
  await expect(readEpisodes(path, cart())).rejects.toThrow(message)
})

test('a dataset of another format, without an episode or with another first action is refused', async () => {
  const folder = join(await temporaryFolder(), 'cartpole-v0')
  await writeMinari(folder, await recorded(cart()), cart())
  const path = join(folder, 'data', 'metadata.json')
  const metadata = JSON.parse(await readFile(path, 'utf8'))
  for (const [change, message] of [
    [{ data_format: 'hdf5' }, /data_format of .*: got "hdf5", expected "arrow"/],
    [{ total_episodes: 0 }, /total_episodes of .*: got 0/],
    [{ total_episodes: 6 }, /5.part-0\.arrow: got ENOENT/],
    [{ action_space: '{"type": "Discrete", "start": -1, "n": 2}' }, /got a first action of -1, expected 0/],
  ] as const) {
    await writeFile(path, JSON.stringify({ ...metadata, ...change }))
    await expect(readEpisodes(folder, cart())).rejects.toThrow(message)
  }
})
