import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  cartPole,
  createTrainer,
  createWorld,
  mlp,
  pendulum,
  ppo,
  readArrow,
  toArrow,
  writeArrow,
} from '../../src/index.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'colonnade-arrow-'))
})
afterAll(() => rm(folder, { recursive: true }))

async function trained(environment = cartPole()) {
  const world = await createWorld({ environment, policy: mlp({ hidden: [8] }), numLanes: 6, seed: 2 })
  const trainer = createTrainer(world, ppo({ numSteps: 20, gamma: 0.97 }))
  for await (const _ of trainer.updates({ totalSteps: 1 }));
  return { world, trainer, table: trainer.rollout.table }
}

test('the Arrow table is the columns: its buffers are the arena, and a write to a column is seen in it', async () => {
  const { world, table } = await trained()
  const arrow = await toArrow(table)
  for (const { name, column, width } of table.fields) {
    const data = arrow.getChild(name)!.data[0]!
    const values = (width === 1 ? data : data.children[0]!).values as Float32Array
    expect(values.buffer, name).toBe(world.arena.buffer)
    expect(values.byteOffset, name).toBe(column.byteOffset)
    expect(values.length, name).toBe(column.length)
  }
  world.cohorts[0]!.rollout.reward[7] = 123
  expect(arrow.getChild('reward')!.get(7)).toBe(123)
})

test.each(['file', 'stream'] as const)(
  'a written %s reads back equal to the columns, with types and metadata',
  async (format) => {
    for (const environment of [cartPole(), pendulum()]) {
      const { table } = await trained(environment)
      const path = join(folder, `${environment.id}.${format}`)
      await writeArrow(path, table, { format })
      const read = await readArrow(path)
      expect(read.numRows).toBe(120)
      expect(read.schema.fields.map(({ name }) => name)).toEqual([
        ...['step', 'lane', 'episode', 'observation', 'action', 'reward', 'terminated', 'truncated', 'valid'],
        ...['logprob', 'value', 'nextValue', 'advantage', 'return', 'episodeReturn', 'version'],
      ])
      for (const { name, column, width } of table.fields) {
        const data = read.getChild(name)!.data[0]!
        expect([...((width === 1 ? data : data.children[0]!).values as Float32Array)], name).toEqual([...column])
      }
      const width = environment.observationSpace.kind === 'box' ? environment.observationSpace.shape[0] : 0
      expect(String(read.schema.fields[3]!.type)).toBe(`FixedSizeList[${width}]<Float32>`)
      const metadata = Object.fromEntries(read.schema.metadata)
      expect(metadata).toMatchObject({ environment: environment.id, seed: '2', gamma: '0.97', numLanes: '6' })
      expect(JSON.parse(metadata.actionSpace!)).toEqual(environment.actionSpace)
      expect(metadata.colonnade).toMatch(/^\d+\.\d+\.\d+$/)
    }
  },
)

test('what is not an Arrow file, and a path that cannot be written, are named', async () => {
  const { table } = await trained()
  await expect(readArrow(join(folder, 'missing.arrow'))).rejects.toThrow('expected an Arrow file that can be read')
  await expect(readArrow('package.json')).rejects.toThrow('package.json: got bytes that are not Arrow')
  await expect(writeArrow('/proc/nowhere/x.arrow', table)).rejects.toThrow('expected a place that can be written')
  await expect(writeArrow(join(folder, 'x'), table, { format: 'parquet' as never })).rejects.toThrow(
    'expected file or stream',
  )
})
