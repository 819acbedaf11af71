import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Field, makeTable, RecordBatch, Schema, Struct, Table, tableToIPC } from 'apache-arrow'
import { describe, expect, test } from 'vitest'
import { VERSION } from '../../src/base/version.ts'
import { writeArrow } from '../../src/tables/arrow.ts'
import { readArrow } from '../../src/tables/read-arrow.ts'
import { samplesOfFile } from '../../src/tables/trajectories/sample.ts'
import { groupNumbers, Trajectories } from '../../src/tables/trajectories/trajectories.ts'
import {
  readTrajectories,
  type TextOrigin,
  trajectoryTable,
  trajectoryTableOfFile,
  writeTrajectories,
} from '../../src/tables/trajectories/trajectory-table.ts'
import * as fc from '../support/properties.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { anyTrajectory, plain, trajectory } from '../support/trajectories.ts'

const origin: TextOrigin = {
  ...{ environment: 'text/reverse', model: 'languageModel', tokenizer: 'bytes', algorithm: 'grpo', seed: 3 },
  promptOf: (promptId) => JSON.stringify(`prompt ${promptId}`),
}

function two(): Trajectories {
  const trajectories = new Trajectories()
  trajectories.append(trajectory({ components: { right: 0.5 }, version: [-1, -1, 4, 6] }))
  trajectories.append(trajectory({ group: 1, promptId: 9, reward: null, error: 'no judge', stopReason: 'length' }))
  trajectories.setAdvantages([2, Number.NaN])
  return trajectories
}

describe('trajectories as Arrow', () => {
  test('lie over their own columns where they are in order: lists and numbers are not copied', async () => {
    const trajectories = two()
    const columns = trajectories.columns()
    const table = await trajectoryTable(trajectories, origin)
    for (const [name, column] of [
      ['tokens', columns.token],
      ['lossMask', columns.lossMask],
      ['logprobs', columns.logprob],
      ['versions', columns.version],
    ] as const) {
      const data = table.getChild(name)!.data[0]!
      expect(data.valueOffsets!.buffer, name).toBe(columns.offsets.buffer)
      expect(data.children[0]!.values.buffer, name).toBe(column.buffer)
    }
    expect(table.getChild('reward')!.data[0]!.values.buffer).toBe(columns.reward.buffer)
  })

  test('have null where nothing is known: unknown rewards, missing advantages, logprobs that nobody drew', async () => {
    const table = await trajectoryTable(two(), origin)
    const column = (name: string) => JSON.parse(JSON.stringify([...table.getChild(name)!]))
    expect(column('reward')).toEqual([1, null])
    expect(column('advantage')).toEqual([2, null])
    expect(column('reward/right')).toEqual([0.5, null])
    expect(column('error')).toEqual([null, 'no judge'])
    expect([...table.getChild('logprobs')!.get(0)]).toEqual([null, null, -0.5, -1])
    expect(column('prompt')).toEqual(['"prompt 0"', '"prompt 9"'])
    expect(column('stopReason')).toEqual(['stop', 'length'])
  })

  test('say of a column that it may be null where it may, so that readers that rely on it are not misled', async () => {
    const { fields } = (await trajectoryTable(two(), origin)).schema
    const nullable = fields.filter((field) => field.nullable).map(({ name }) => name)
    expect(nullable).toEqual(['answer', 'completion', 'reward', 'advantage', 'error', 'reward/right'])
    const elements = fields.filter(({ type }) => type.children?.[0]?.nullable).map(({ name }) => name)
    expect(elements).toEqual(['logprobs', 'turnRewards'])
  })

  test('have columns of candidate sets where a filter had left out anything for any token, and none where it had not', async () => {
    const namesOf = async (...rows: Parameters<typeof trajectory>[0][]) => {
      const trajectories = new Trajectories()
      for (const [member, row] of rows.entries()) trajectories.append(trajectory({ member, ...row }))
      const { fields } = (await trajectoryTable(trajectories, origin)).schema
      return fields.map(({ name }) => name).filter((name) => name.startsWith('candidate'))
    }
    expect(await namesOf({}, { candidateCount: [0, 0, 0, 0], candidateIds: [] })).toEqual([])
    const filtered = { candidateCount: [0, 0, 0, 2], candidateIds: [7, 8] }
    expect(await namesOf({}, filtered)).toEqual(['candidateCounts', 'candidateIds'])
  })

  test('say where they came from: algorithm, tokenizer, and the range of the weights that chose a token', async () => {
    const metadata = Object.fromEntries((await trajectoryTable(two(), origin)).schema.metadata)
    expect(metadata).toEqual({
      ...{ environment: 'text/reverse', model: 'languageModel', tokenizer: 'bytes', algorithm: 'grpo', seed: '3' },
      ...{ versionMin: '0', versionMax: '6', colonnade: VERSION },
    })
    const nobody = new Trajectories()
    nobody.append(trajectory({ version: [-1, -1, -1, -1] }))
    const without = (await trajectoryTable(nobody, origin)).schema.metadata
    expect([without.has('versionMin'), without.has('versionMax')]).toEqual([false, false])
  })

  test('are the same table whoever was done first', async () => {
    const members = [0, 1, 2, 3].map((i) => trajectory({ group: i >> 1, member: i & 1, token: [i, 1, 2, 3] }))
    const columns = []
    for (const order of [
      [0, 1, 2, 3],
      [3, 0, 2, 1],
    ]) {
      const trajectories = new Trajectories()
      for (const i of order) trajectories.append(members[i]!)
      trajectories.setAdvantages(order.map((i) => i * 10))
      columns.push(JSON.stringify((await trajectoryTable(trajectories, origin)).toArray()))
    }
    expect(columns[1]).toBe(columns[0])
    expect(JSON.parse(columns[0]!).map(({ advantage }: { advantage: number }) => advantage)).toEqual([0, 10, 20, 30])
  })
})

describe('files of trajectories', () => {
  test('read back as the same trajectories, by epoch, group and member, with their advantages', async () => {
    const folder = await temporaryFolder()
    let file = 0
    await fc.assert(
      fc.asyncProperty(fc.array(anyTrajectory, { maxLength: 20 }), async (rows) => {
        const trajectories = new Trajectories()
        for (const row of rows) trajectories.append(row)
        trajectories.setAdvantages(rows.map((_, i) => (i % 3 === 0 ? Number.NaN : i / 7)))
        const path = join(folder, `${file++}.arrow`)
        await writeTrajectories(path, trajectories, origin)
        const read = await readTrajectories(path)
        const order = trajectories.order()
        const rowsOf = (table: Trajectories) => Array.from({ length: table.count }, (_, i) => plain(table.row(i)))
        expect(rowsOf(read.trajectories)).toEqual(rowsOf(trajectories.take(order)))
        const { advantage } = trajectories.columns()
        expect([...read.trajectories.columns().advantage]).toEqual(order.map((i) => advantage[i]))
        expect(read.metadata).toMatchObject({ environment: 'text/reverse', tokenizer: 'bytes' })
        const said = order.map((i) => ({
          prompt: `"prompt ${rows[i]!.promptId}"`,
          answer: null,
          completion: null,
          tokenTexts: null,
        }))
        expect(read.words).toEqual(said)
      }),
      { numRuns: 20 },
    )
  })

  test('have prompt, answer and completion as words beside the ids, each its own where numbers of examples are equal', async () => {
    const folder = await temporaryFolder()
    const paths = [join(folder, 'a.arrow'), join(folder, 'b.arrow')]
    for (const [i, path] of paths.entries()) {
      const run = new Trajectories()
      for (const row of [0, 1]) run.append({ ...two().row(row), source: `run ${i}` })
      await writeTrajectories(path, run, {
        ...origin,
        promptOf: (promptId) => JSON.stringify(`${promptId} of ${i}`),
        answerOf: (promptId) => (promptId === 9 ? null : `answer ${promptId} of ${i}`),
        decode: (ids) => ids.map((id) => `<${id}>`).join(''),
        ...(i === 0 ? { textsOf: (ids: ArrayLike<number>) => Array.from(ids, (id) => `é${id}`) } : {}),
      })
    }
    const read = await readTrajectories(...paths)
    // Nobody said them of the second file.
    const textsOf = (i: number) => (i === 0 ? Array.from(two().row(0).token, (id) => `é${id}`) : null)
    const said = [0, 1].flatMap((i) => [
      { prompt: `"0 of ${i}"`, answer: `answer 0 of ${i}`, completion: '<7><8>', tokenTexts: textsOf(i) },
      { prompt: `"9 of ${i}"`, answer: null, completion: '<7><8>', tokenTexts: textsOf(i) },
    ])
    expect(read.words).toEqual(said)
    const samples = samplesOfFile(read)
    expect(samples.map(({ prompt, groundTruth, response }) => [prompt, groundTruth, response])).toEqual(
      said.map(({ prompt, answer, completion }) => [JSON.parse(prompt), answer, completion]),
    )
    // As one table again, in its order whatever the files' was.
    const table = await trajectoryTableOfFile(await readTrajectories(...paths.reverse()))
    expect([...table.getChild('completion')!]).toEqual(said.map(({ completion }) => completion))
    expect([...table.getChild('prompt')!]).toEqual(said.map(({ prompt }) => prompt))
    expect(Array.from(table.getChild('tokenTexts')!, (list) => list && [...list])).toEqual(
      said.map(({ tokenTexts }) => tokenTexts),
    )
    expect(Object.fromEntries(table.schema.metadata)).toMatchObject({ environment: 'text/reverse', versionMax: '6' })

    await writeTrajectories(paths[0]!, two(), origin)
    const ids = await readTrajectories(paths[0]!)
    expect(() => samplesOfFile(ids)).toThrow(/trajectory 0: got no text of the completion/)
  })

  test('tell what nobody recorded from what was certain, in logprobs and in candidate sets', async () => {
    const path = join(await temporaryFolder(), 'x.arrow')
    const trajectories = new Trajectories()
    const [certain, unrecorded] = [
      { logprob: [Number.NaN, Number.NaN, 0, -1], candidateCount: [0, 0, 2, 0], candidateIds: [3, 7] },
      { logprob: [Number.NaN, -2, Number.NaN, -3], version: [-1, -1, -1, -1], candidateCount: [0, 0, -1, 0] },
    ]
    trajectories.append(trajectory(certain))
    trajectories.append(trajectory({ member: 1, ...unrecorded, candidateIds: [] }))
    await writeTrajectories(path, trajectories, origin)
    const lists = (name: string, table: Awaited<ReturnType<typeof readArrow>>) =>
      [...table.getChild(name)!].map((list) => [...list])
    const table = await readArrow(path)
    expect(lists('logprobs', table)).toEqual([
      [null, null, 0, -1],
      [null, -2, null, -3],
    ])
    expect(lists('candidateCounts', table)).toEqual([
      [0, 0, 2, 0],
      [0, 0, null, 0],
    ])
    const { trajectories: read } = await readTrajectories(path)
    expect(plain(read.row(0))).toMatchObject(certain)
    expect(plain(read.row(1))).toMatchObject(unrecorded)
  })

  test('are read from older files too, which have other names for candidate sets and dropped replies', async () => {
    const trajectories = new Trajectories()
    const filtered = { candidateCount: [0, 0, -1, 2], candidateIds: [7, 8], cutTurns: 1, droppedReplies: 1 }
    trajectories.append(trajectory(filtered))
    const { schema, batches } = await trajectoryTable(trajectories, origin)
    const older: Record<string, string> = {
      ...{ candidateCounts: 'supportLengths', candidateIds: 'supportIds', droppedReplies: 'unheard' },
    }
    const fields = schema.fields.map(({ name, type, nullable }) => new Field(older[name] ?? name, type, nullable))
    const renamed = new Schema(fields, schema.metadata)
    const table = new Table(
      renamed,
      batches.map(({ data }) => new RecordBatch(renamed, data.clone(new Struct(fields)))),
    )
    const path = join(await temporaryFolder(), 'older.arrow')
    await writeArrow(path, table)
    expect((await readArrow(path)).getChild('supportIds')).not.toBeNull()
    expect(plain((await readTrajectories(path)).trajectories.row(0))).toMatchObject(filtered)
  })

  test('are read one after another, and groups of two runs stay two', async () => {
    const folder = await temporaryFolder()
    const paths = [join(folder, 'a.arrow'), join(folder, 'b.arrow')]
    for (const [i, path] of paths.entries()) {
      const run = new Trajectories()
      for (const row of [0, 1]) run.append({ ...two().row(row), source: `run ${i}` })
      await writeTrajectories(path, run, origin)
    }
    const { trajectories } = await readTrajectories(...paths)
    expect(trajectories.count).toBe(4)
    expect(plain(trajectories.row(3))).toEqual({ ...plain(two().row(1)), source: 'run 1' })
    expect([...groupNumbers(trajectories.columns())]).toEqual([0, 1, 2, 3])
    await expect(readTrajectories()).rejects.toThrow(/no path/)
  })

  test('without a source, as those of older versions, are sources of their own', async () => {
    const folder = await temporaryFolder()
    const paths = [join(folder, 'a.arrow'), join(folder, 'b.arrow')]
    const whole = await trajectoryTable(two(), origin)
    const old = whole.select(whole.schema.fields.map(({ name }) => name).filter((name) => name !== 'source'))
    for (const path of paths) await writeArrow(path, old)
    const { trajectories } = await readTrajectories(...paths)
    expect(trajectories.columns().source).toEqual([paths[0], paths[0], paths[1], paths[1]])
    expect([...groupNumbers(trajectories.columns())]).toEqual([0, 1, 2, 3])
  })

  test('with a column that is missing, or lists of different lengths, are errors that name it', async () => {
    const folder = await temporaryFolder()
    const path = join(folder, 'x.arrow')
    await writeFile(path, tableToIPC(makeTable({ tokens: Int32Array.of(1) }), 'file'))
    await expect(readTrajectories(path)).rejects.toThrow(/x\.arrow: got no column "epoch" among tokens/)

    const { schema } = await trajectoryTable(two(), origin)
    const arrow = await import('apache-arrow')
    const whole = await trajectoryTable(two(), origin)
    const [short] = (await trajectoryTable(two(), origin)).select(['lossMask']).batches
    const lossMask = short!.data.children[0]!
    const cut = arrow.makeData({
      ...{ type: lossMask.type, length: 2, nullCount: 0, valueOffsets: Int32Array.of(0, 2, 6) },
      child: lossMask.children[0]!,
    } as never)
    const children = whole.batches[0]!.data.children.map((data, i) =>
      schema.fields[i]!.name === 'lossMask' ? cut : data,
    )
    const struct = arrow.makeData({ type: new arrow.Struct(schema.fields), length: 2, nullCount: 0, children })
    await writeArrow(path, new arrow.Table(schema, new arrow.RecordBatch(schema, struct)))
    expect((await readArrow(path)).numRows).toBe(2)
    await expect(readTrajectories(path)).rejects.toThrow(/group 0, member 0, lossMask: got 2 elements, expected 4/)
  })
})
