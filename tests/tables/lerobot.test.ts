/** Episodes as datasets of LeRobot, read by hyparquet and as JSON; `tests/outside/lerobot.test.ts` asks LeRobot itself. */
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects, parquetSchema } from 'hyparquet'
import { beforeAll, expect, test } from 'vitest'
import { Random } from '../../src/base/random.ts'
import { writeLeRobot } from '../../src/entries/data.ts'
import { rescaleAction, wrap } from '../../src/entries/environments.ts'
import { cartPole, mlp, pendulum, recordEpisodes, startRun } from '../../src/index.ts'
import type { Table } from '../../src/tables/table.ts'
import { inProcess } from '../support/command.ts'
import { smallRun } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

/** Three short episodes by weights that the seed has drawn. */
async function episodes(environment: ReturnType<typeof cartPole> | ReturnType<typeof pendulum>) {
  const policy = mlp({ hidden: [4] })
  const model = policy.build(environment.observationSpace, environment.actionSpace)
  const weights = new Float32Array(model.numParameters)
  model.initialize(weights, new Random(1), 0)
  return recordEpisodes({ environment, policy, weights, episodes: 3, seed: 5 })
}
const columnOf = ({ fields }: Table, name: string) => [...fields.find((field) => field.name === name)!.column]
const json = async (path: string) => JSON.parse(await readFile(path, 'utf8'))
const read = async (path: string) => parquetReadObjects({ file: await asyncBufferFromFile(path) })
const FILE = 'chunk-000/file-000.parquet'

const environment = cartPole({ maxEpisodeSteps: 12 })
let [table, folder, rows]: [Table, string, Record<string, unknown>[]] = [undefined as never, '', []]
/** The rows of each episode: from, and up to. */
const bounds: [number, number][] = []
beforeAll(async () => {
  table = await episodes(environment)
  folder = join(await temporaryFolder(), 'cart')
  expect(await writeLeRobot(folder, table, environment, { fps: 50 })).toEqual({ episodes: 3, steps: table.numRows })
  rows = await read(join(folder, 'data', FILE))
  const ended = columnOf(table, 'terminated').map((flag, row) => flag + columnOf(table, 'truncated')[row]! > 0)
  for (const [row, isOver] of ended.entries()) if (isOver) bounds.push([bounds.at(-1)?.[1] ?? 0, row + 1])
  expect(bounds).toHaveLength(3)
})

test('a row a step, with the times of its frames, in a row group an episode', async () => {
  expect(rows).toHaveLength(table.numRows)
  const [seen, actions, rewards] = ['observation', 'action', 'reward'].map((name) => columnOf(table, name))
  const [terminated, truncated] = ['terminated', 'truncated'].map((name) => columnOf(table, name))
  for (const [episode, [from, to]] of bounds.entries()) {
    for (let row = from; row < to; row++) {
      expect(rows[row]).toEqual({
        'observation.state': seen!.slice(4 * row, 4 * row + 4),
        action: BigInt(actions![row]!),
        'next.reward': rewards![row],
        'next.done': row === to - 1,
        'next.terminated': terminated![row] === 1,
        'next.truncated': truncated![row] === 1,
        timestamp: Math.fround((row - from) / 50),
        frame_index: BigInt(row - from),
        episode_index: BigInt(episode),
        index: BigInt(row),
        task_index: 0n,
      })
    }
  }
  const metadata = await parquetMetadataAsync(await asyncBufferFromFile(join(folder, 'data', FILE)))
  expect(metadata.row_groups.map((group) => Number(group.num_rows))).toEqual(bounds.map(([from, to]) => to - from))
  const types = parquetSchema(metadata).children.map(({ element }) => [element.name, element.type])
  expect(Object.fromEntries(types)).toMatchObject({ action: 'INT64', timestamp: 'FLOAT', 'next.done': 'BOOLEAN' })
})

test('says where each episode lies, what it is about, and what its numbers come to', async () => {
  const listed = await read(join(folder, 'meta/episodes', FILE))
  for (const [episode, [from, to]] of bounds.entries()) {
    expect(listed[episode]).toMatchObject({
      ...{ episode_index: BigInt(episode), tasks: ['CartPole-v1'], length: BigInt(to - from) },
      ...{ dataset_from_index: BigInt(from), dataset_to_index: BigInt(to) },
      ...{ 'data/chunk_index': 0n, 'data/file_index': 0n, 'meta/episodes/file_index': 0n },
      ...{ 'stats/frame_index/max': [to - from - 1], 'stats/frame_index/count': [BigInt(to - from)] },
    })
  }
  const info = await json(join(folder, 'meta/info.json'))
  expect(info).toMatchObject({
    ...{ codebase_version: 'v3.0', fps: 50, total_episodes: 3, total_frames: table.numRows, total_tasks: 1 },
    splits: { train: '0:3' },
  })
  expect(info.features['observation.state']).toEqual({ dtype: 'float32', shape: [4], names: null })
  expect(info.features.action).toEqual({ dtype: 'int64', shape: [1], names: null })
  expect(Object.keys(info.features)).toEqual(Object.keys(rows[0]!))
  const tasks = join(folder, 'meta/tasks.parquet')
  expect(await read(tasks)).toEqual([{ task_index: 0n, task: 'CartPole-v1' }])
  const { key_value_metadata: pairs } = await parquetMetadataAsync(await asyncBufferFromFile(tasks))
  expect(JSON.parse(pairs!.find(({ key }) => key === 'pandas')!.value!)).toMatchObject({ index_columns: ['task'] })
  expect(await readFile(join(folder, 'README.md'), 'utf8')).toMatch(/- LeRobot\n[\s\S]*data\/\*\/\*\.parquet/)
})

test("figures are numpy's", async () => {
  const stats = (await json(join(folder, 'meta/stats.json')))['observation.state']
  for (let k = 0; k < 4; k++) {
    const values = columnOf(table, 'observation').filter((_, i) => i % 4 === k)
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length
    const squares = values.reduce((sum, value) => sum + value * value, 0) / values.length
    expect([stats.min[k], stats.max[k]]).toEqual([Math.min(...values), Math.max(...values)])
    expect(stats.mean[k]).toBeCloseTo(mean, 9)
    expect(stats.std[k]).toBeCloseTo(Math.sqrt(squares - mean * mean), 6)
  }
  expect(stats.count).toEqual([table.numRows])
  // numpy.quantile(range(n), q) is q (n − 1).
  const { index } = await json(join(folder, 'meta/stats.json'))
  expect(index.q10[0]).toBeCloseTo(0.1 * (table.numRows - 1), 9)
  expect(index.q99[0]).toBeCloseTo(0.99 * (table.numRows - 1), 9)
})

test('actions of a box are those that were applied, and a single number is no list', async () => {
  const swing = wrap(pendulum({ maxEpisodeSteps: 5 }), rescaleAction({ low: -0.5, high: 0.5 }))
  const swings = await episodes(swing)
  const out = join(await temporaryFolder(), 'swing')
  await writeLeRobot(out, swings, swing)
  const written = await read(join(out, 'data', FILE))
  const applied = columnOf(swings, 'appliedAction')
  expect(written.map(({ action }) => action)).toEqual(applied)
  expect(applied).toEqual(columnOf(swings, 'action').map((action) => Math.min(Math.max(action, -0.5), 0.5)))
  expect(applied).not.toEqual(columnOf(swings, 'action'))
  expect(written.slice(0, 5).map((row) => [row['next.terminated'], row['next.truncated']])).toEqual(
    [0, 1, 2, 3, 4].map((step) => [false, step === 4]),
  )
  expect((await json(join(out, 'meta/info.json'))).features.action).toEqual({
    ...{ dtype: 'float32', shape: [1], names: null },
  })
})

test('colonnade export format=lerobot writes it of fresh episodes, and anything else is refused', async () => {
  const home = await temporaryFolder()
  await (await startRun(await smallRun(), join(home, 'run'))).train()
  const exported = (...words: string[]) => inProcess(['export', 'run', 'out=set', 'format=lerobot', ...words], home)
  expect((await exported()).stderr).toContain('episodes: got 0, expected a number above 0 with format=lerobot')
  expect((await exported('episodes=2', 'fps=20')).stdout).toMatch(/^2 episodes, \d+ steps → set$/m)
  expect(await json(join(home, 'set/meta/info.json'))).toMatchObject({ fps: 20, total_episodes: 2 })
  expect((await exported('episodes=2')).stderr).toContain('set, which is not empty')
  const other = await inProcess(['export', 'run', 'out=a.arrow', 'fps=20'], home)
  expect(other.stderr).toContain('fps: got "20", expected no such key with format=file')
  const { layout, ...metadata } = table.metadata
  const next = join(home, 'next')
  await expect(writeLeRobot(next, { ...table, metadata }, environment)).rejects.toThrow('no whole episodes')
  const fields = table.fields.map((field) => {
    const isEnd = field.name === 'terminated' || field.name === 'truncated'
    return isEnd ? { ...field, column: field.column.slice().fill(0, bounds[2]![0]) } : field
  })
  await expect(writeLeRobot(next, { ...table, fields }, environment)).rejects.toThrow('an unfinished episode')
  await expect(writeLeRobot(next, table, environment, { fps: 0.5 })).rejects.toThrow('fps: got 0.5')
  await mkdir(next)
  await writeFile(join(next, 'a'), '')
  await expect(writeLeRobot(next, table, environment)).rejects.toThrow('which is not empty')
})
