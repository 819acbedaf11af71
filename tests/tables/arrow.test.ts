import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
// Workers load compiled files, and what they make must be made of the same ones here.
import * as built from '../../dist/src/index.js'
import { rolloutTable } from '../../src/entries/data.ts'
import {
  bootstrap,
  cartPole,
  createTrainer,
  createWorld,
  mlp,
  pendulum,
  ppo,
  readArrow,
  recordEpisodes,
  type Table,
  tick,
  toArrow,
  writeArrow,
} from '../../src/index.ts'
import { counter } from '../support/counter.ts'
import { temporaryFolder } from '../support/temporary.ts'

let folder: string
beforeAll(async () => {
  folder = await temporaryFolder()
})

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
      const isBox = environment.actionSpace.kind === 'box'
      expect(read.schema.fields.map(({ name }) => name)).toEqual([
        ...[
          'step',
          'lane',
          'episode',
          'observation',
          'finalObservation',
          'action',
          ...(isBox ? ['appliedAction'] : []),
        ],
        ...['reward', 'terminated', 'truncated', 'valid', 'logprob', 'value', 'nextValue', 'advantage', 'return'],
        ...['episodeReturn', 'version'],
      ])
      for (const { name, column, width } of table.fields) {
        const data = read.getChild(name)!.data[0]!
        expect([...((width === 1 ? data : data.children[0]!).values as Float32Array)], name).toEqual([...column])
      }
      const width = environment.observationSpace.kind === 'box' ? environment.observationSpace.shape[0] : 0
      expect(String(read.schema.fields[3]!.type)).toBe(`FixedSizeList[${width}]<Float32>`)
      const metadata = Object.fromEntries(read.schema.metadata)
      expect(metadata).toMatchObject({
        environment: environment.id,
        seed: '2',
        gamma: '0.97',
        numLanes: '6',
        numSteps: '20',
      })
      expect(JSON.parse(metadata.actionSpace!)).toEqual(environment.actionSpace)
      expect(metadata).toMatchObject({ update: '0', checkpoint: 'null' })
      expect(JSON.parse(metadata.policy!)).toMatchObject({ id: 'mlp', parameters: { hidden: [8] } })
      expect(metadata.colonnade).toMatch(/^\d+\.\d+\.\d+$/)
    }
  },
)

test('finalObservation is what came after a row that no later row shows, and null elsewhere', async () => {
  const world = await createWorld({ environment: counter(), policy: mlp({ hidden: [4] }), numLanes: 5, seed: 2 })
  const trainer = createTrainer(world, ppo({ numSteps: 13, numMinibatches: 1 }))
  const path = join(folder, 'final.arrow')
  for (let update = 1; update <= 2; update++) {
    for await (const _ of trainer.updates({ totalSteps: update * 13 * 5 }));
    await writeArrow(path, trainer.rollout.table)
    const read = await readArrow(path)
    const [field, seen] = [read.schema.fields[4]!, read.getChild('finalObservation')!]
    expect(`${field.name} ${field.nullable} ${field.type}`).toBe('finalObservation true List<Float32>')
    let listed = 0
    for (let row = 0; row < read.numRows; row++) {
      const at = (name: string) => Number(read.getChild(name)!.get(row))
      // A lane sees (steps so far + 1, lane number + 1); odd lanes are over after 3 steps, even ones after 5.
      const isOver = at('step') === (at('lane') % 2 === 1 ? 2 : 4)
      const value = seen.get(row) as Iterable<number> | null
      expect(value && [...value], `row ${row}`).toEqual(
        isOver || row >= 12 * 5 ? [at('step') + 2, at('lane') + 1] : null,
      )
      if (value !== null) listed++
    }
    expect(seen.nullCount).toBe(read.numRows - listed)
    expect(seen.data[0]!.children[0]!.length).toBe(2 * listed)
  }
})

test('finalObservation of one element is nullable too', async () => {
  const environment = counter({ isNarrow: true })
  const world = await createWorld({ environment, policy: mlp({ hidden: [4] }), numLanes: 1, seed: 2 })
  const trainer = createTrainer(world, ppo({ numSteps: 12, numMinibatches: 1 }))
  for await (const _ of trainer.updates({ totalSteps: 1 }));
  const path = join(folder, 'narrow.arrow')
  await writeArrow(path, trainer.rollout.table)
  const seen = (await readArrow(path)).getChild('finalObservation')!
  expect(`${seen.type} ${[...seen].join(' ')}`).toBe('Float32     6     6  3')
})

test('several threads find the final observations that one finds', async () => {
  const sparse = async (threads: number) => {
    const options = { environment: built.cartPole(), policy: built.mlp({ hidden: [8] }), numLanes: 7, seed: 2 }
    const world = await built.createWorld(options)
    const trainer = built.createTrainer(world, built.ppo({ numSteps: 40, numMinibatches: 1 }), { threads })
    for await (const _ of trainer.updates({ totalSteps: 2 * 40 * 7 }));
    const { rows, column } = trainer.rollout.table.fields.find(({ name }) => name === 'finalObservation')!
    trainer.close()
    return { rows: [...rows!], column: [...column] }
  }
  const one = await sparse(1)
  expect(one.rows.length).toBeGreaterThan(7)
  expect(await sparse(3)).toEqual(one)
})

test('several files read as one say of each value of their metadata which there are', async () => {
  const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 2, seed: 2 })
  const trainer = createTrainer(world, ppo({ numSteps: 8, numMinibatches: 1 }))
  const paths: string[] = []
  for await (const { update } of trainer.updates({ totalSteps: 48 })) {
    paths.push(join(folder, `several-${update}.arrow`))
    await writeArrow(paths.at(-1)!, trainer.rollout.table)
  }
  const { schema, numRows } = await readArrow(...paths)
  expect(numRows).toBe(48)
  expect(schema.metadata.get('update')).toBe('0,1,2')
  expect(schema.metadata.get('seed')).toBe('2')
})

test('what is not an Arrow file, and a path that cannot be written, are named', async () => {
  const { table } = await trained()
  await expect(readArrow(join(folder, 'missing.arrow'))).rejects.toThrow('expected an Arrow file that can be read')
  await expect(readArrow('package.json')).rejects.toThrow('package.json: got a file that begins with ')
  await expect(writeArrow('/proc/nowhere/x.arrow', table)).rejects.toThrow('expected a writable path')
  await expect(writeArrow(join(folder, 'x'), table, { format: 'parquet' as never })).rejects.toThrow(
    'expected file or stream',
  )
})

test('a world without a trainer gives the table of what it recorded', async () => {
  const environment = cartPole()
  const policy = mlp({ hidden: [8] })
  const world = await createWorld({ environment, policy, numLanes: 3, seed: 5 })
  world.reserve(world.draft(), { numSteps: 200, learner: {} })
  for (let t = 0; t < 200; t++) await tick(world)
  await bootstrap(world)
  const cohort = world.cohort()
  const table = rolloutTable(cohort, { seed: world.seed })
  // The same episodes, played by other lanes of another world.
  const played = await recordEpisodes({ environment, policy, weights: cohort.weights, episodes: 3, seed: 5 })
  const column = ({ fields }: Table, name: string) => fields.find((field) => field.name === name)!.column
  const first = [...column(table, 'episode').keys()].filter((row) => column(table, 'episode')[row] === 0)
  const pick = (name: string, lane: number) =>
    first.filter((row) => column(table, 'lane')[row] === lane).map((row) => column(table, name)[row])
  expect(first.length).toBe(played.numRows)
  for (const name of ['step', 'reward', 'logprob', 'value', 'nextValue', 'terminated'])
    expect(
      [0, 1, 2].flatMap((lane) => pick(name, lane)),
      name,
    ).toEqual([...column(played, name)])
  const { layout, weights, ...metadata } = played.metadata
  expect(layout).toBe('episodes') // They are no rollout.
  const bytes = new Uint8Array(cohort.weights.buffer, cohort.weights.byteOffset, cohort.weights.byteLength)
  expect(weights).toBe(createHash('sha256').update(bytes).digest('hex'))
  expect(table.metadata).toEqual({ ...metadata, numSteps: '200' })
  expect((await toArrow(table)).numRows).toBe(600)
})

test('rolloutTable refuses what has no rollout', () => {
  expect(() => rolloutTable({ name: 'words' } as never, { seed: 0 })).toThrow(
    'rolloutTable(cohort): got "words", expected a cohort of episodes',
  )
})
