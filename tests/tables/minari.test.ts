/** Episodes as datasets of Minari, read by apache-arrow and as JSON; `tests/outside/minari.test.ts` asks Minari itself. */
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { tableFromIPC } from 'apache-arrow'
import { expect, test } from 'vitest'
import { Random } from '../../src/base/random.ts'
import { writeMinari } from '../../src/entries/data.ts'
import { cartPole, mlp, pendulum, recordEpisodes } from '../../src/index.ts'
import type { Table } from '../../src/tables/table.ts'
import { temporaryFolder } from '../support/temporary.ts'

/** Three short episodes by weights that the seed has drawn. */
async function episodes(environment: ReturnType<typeof cartPole> | ReturnType<typeof pendulum>) {
  const policy = mlp({ hidden: [4] })
  const model = policy.build(environment.observationSpace, environment.actionSpace)
  const weights = new Float32Array(model.numParameters)
  model.initialize(weights, new Random(1), 0)
  return recordEpisodes({ environment, policy, weights, episodes: 3, seed: 5 })
}
const columnOf = ({ fields }: Table, name: string) => fields.find((field) => field.name === name)!
const json = async (path: string) => JSON.parse(await readFile(path, 'utf8'))
const read = async (path: string) => tableFromIPC(await readFile(path))

test('each episode has its steps, and one observation more: the one after its last step', async () => {
  const environment = cartPole({ maxEpisodeSteps: 12 })
  const table = await episodes(environment)
  const folder = join(await temporaryFolder(), 'cartpole-test-v0')
  const written = await writeMinari(folder, table, environment)
  expect(written).toEqual({ datasetId: 'cartpole-test-v0', episodes: 3, steps: table.numRows })
  const finals = columnOf(table, 'finalObservation')
  const ends = [...table.fields.find(({ name }) => name === 'terminated')!.column].map(
    (flag, row) => flag !== 0 || columnOf(table, 'truncated').column[row] !== 0,
  )
  let from = 0
  for (let id = 0; id < 3; id++) {
    const to = ends.indexOf(true, from) + 1
    const rows = (await read(join(folder, 'data', String(id), 'part-0.arrow'))).toArray().map((row) => row!.toJSON())
    expect(await json(join(folder, 'data', String(id), 'metadata.json'))).toEqual({ id, total_steps: to - from })
    expect(rows).toHaveLength(to - from + 1)
    const observations = rows.map(({ observations: seen }) => [...seen])
    const observed = columnOf(table, 'observation').column
    for (let t = 0; t < to - from; t++) {
      expect(observations[t]).toEqual([...observed.subarray((from + t) * 4, (from + t + 1) * 4)])
      expect(rows[t]).toMatchObject({
        actions: BigInt(columnOf(table, 'action').column[from + t]!),
        rewards: 1,
        terminations: columnOf(table, 'terminated').column[from + t] !== 0,
        truncations: columnOf(table, 'truncated').column[from + t] !== 0,
      })
    }
    expect(observations.at(-1)).toEqual([...finals.column.subarray(id * 4, (id + 1) * 4)])
    // The cart goes on by its velocity, 0.02 s a step.
    expect(observations.at(-1)![0]).toBeCloseTo(observations.at(-2)![0] + 0.02 * observations.at(-2)![1], 5)
    expect(rows.at(-1)).toMatchObject({ actions: 0n, rewards: 0, terminations: false, truncations: false })
    from = to
  }
  const text = await readFile(join(folder, 'data', 'metadata.json'), 'utf8')
  expect(text).toContain('\\"low\\":[-4.8')
  expect(text).toContain('-Infinity')
  expect(JSON.parse(text)).toMatchObject({
    ...{ total_episodes: 3, total_steps: table.numRows, data_format: 'arrow', dataset_id: 'cartpole-test-v0' },
    action_space: '{"type":"Discrete","dtype":"int64","start":0,"n":2}',
  })
  expect(await readFile(join(folder, 'README.md'), 'utf8')).toMatch(/^---\ntags:\n[\s\S]*\| episodes \| 3 \|/)
})

test('actions of a box are those that were applied, within its bounds', async () => {
  const environment = pendulum({ maxEpisodeSteps: 5 })
  const table = await episodes(environment)
  const folder = join(await temporaryFolder(), 'pendulum-v1')
  await writeMinari(folder, table, environment)
  const first = (await read(join(folder, 'data', '0', 'part-0.arrow'))).toArray().map((row) => row!.toJSON())
  expect(first.map(({ actions }) => [...actions][0]).slice(0, 5)).toEqual([
    ...columnOf(table, 'appliedAction').column.subarray(0, 5),
  ])
  expect(first.map(({ truncations }) => truncations)).toEqual([false, false, false, false, true, false])
})

test('anything else is refused', async () => {
  const environment = cartPole({ maxEpisodeSteps: 5 })
  const table = await episodes(environment)
  const folder = await temporaryFolder()
  await expect(writeMinari(join(folder, 'episodes'), table, environment)).rejects.toThrow(
    'out: got episodes, expected a folder whose name',
  )
  await mkdir(join(folder, 'full-v0', 'data'), { recursive: true })
  await expect(writeMinari(join(folder, 'full-v0'), table, environment)).rejects.toThrow('which is not empty')
  const { layout, ...metadata } = table.metadata
  await expect(writeMinari(join(folder, 'new-v0'), { ...table, metadata }, environment)).rejects.toThrow(
    'no whole episodes',
  )
})
