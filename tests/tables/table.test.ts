import { expect, test } from 'vitest'
import { box, discrete } from '../../src/base/space.ts'
import type { FinalObservations, RolloutColumns } from '../../src/components/rollout.ts'
import { toArrow } from '../../src/tables/arrow.ts'
import { arrowRows } from '../../src/tables/read-arrow.ts'
import { type RolloutOrigin, type Table, tableOfRollout } from '../../src/tables/table.ts'

test('a table of every kind of column is as Arrow what it is', async () => {
  const numbers = Array.from({ length: 10 }, (_, i) => i + 1)
  const table: Table = {
    numRows: 10,
    fields: [
      { name: 'f32', column: Float32Array.from(numbers, (x) => x / 4), width: 1 },
      { name: 'f64', column: Float64Array.from(numbers, (x) => x / 3), width: 1 },
      { name: 'i32', column: Int32Array.from(numbers, (x) => -x), width: 1 },
      { name: 'u32', column: Uint32Array.from(numbers, (x) => 2 ** 32 - x), width: 1 },
      { name: 'u8', column: Uint8Array.from(numbers, (x) => 255 - x), width: 1 },
      { name: 'wide', column: Int32Array.from({ length: 30 }, (_, i) => i), width: 3 },
      { name: 'some', column: Float32Array.of(7, 8, 9), width: 1, rows: Uint32Array.of(1, 7, 8) },
      { name: 'someWide', column: Float32Array.of(1, 2, 3, 4, 5, 6), width: 2, rows: Uint32Array.of(0, 6, 9) },
    ],
    metadata: { a: 'b' },
  }
  const arrow = await toArrow(table)
  expect(arrow.schema.fields.map(({ name, type, nullable }) => `${name} ${type} ${nullable}`)).toEqual([
    ...['f32 Float32 false', 'f64 Float64 false', 'i32 Int32 false', 'u32 Uint32 false', 'u8 Uint8 false'],
    ...['wide FixedSizeList[3]<Int32> false', 'some Float32 true', 'someWide List<Float32> true'],
  ])
  expect([...arrow.schema.metadata]).toEqual([['a', 'b']])
  const some = [null, 7, null, null, null, null, null, 8, 9, null]
  const someWide = [[1, 2], null, null, null, null, null, [3, 4], null, null, [5, 6]]
  const rowOf = await arrowRows(arrow)
  expect(numbers.map((_, row) => rowOf(row))).toEqual(
    numbers.map((x, row) => ({
      ...{ f32: x / 4, f64: x / 3, i32: -x, u32: 2 ** 32 - x, u8: 255 - x, wide: [3 * row, 3 * row + 1, 3 * row + 2] },
      ...{ some: some[row], someWide: someWide[row] },
    })),
  )
  // A bit a row: ten of them lie in two bytes.
  expect(arrow.getChild('some')!.data[0]!.nullBitmap.byteLength).toBe(2)
  expect([arrow.getChild('some')!.nullCount, arrow.getChild('someWide')!.nullCount]).toEqual([7, 7])
})

const origin: RolloutOrigin = {
  environmentId: 'none',
  observationSpace: box({ low: [0, 0], high: [1, 1] }),
  actionSpace: discrete(3),
  ...{ seed: 4, gamma: null, numLanes: 2, numSteps: 2, policy: { id: 'mlp', parameters: { hidden: [8] } } },
  checkpoint: 'a/b',
}

/** Columns of four rows, of which the table only looks at lengths. */
function columns(more: Partial<RolloutColumns> = {}): RolloutColumns {
  const none = new Float32Array(0)
  return {
    reward: new Float32Array(4),
    version: Uint32Array.of(5, 6),
    actionMask: none,
    appliedAction: none,
    ...more,
  } as never
}

/** Final observations of some rows: row r is seen as (10 r, 10 r + 1); the memory behind them has been used before. */
function finals(...rows: number[]): FinalObservations {
  return {
    row: Uint32Array.of(...rows, 9, 9),
    observation: Float32Array.of(...rows.flatMap((row) => [10 * row, 10 * row + 1]), -1, -1, -1, -1),
    actionMask: new Uint8Array(0),
    count: Uint32Array.of(rows.length),
  }
}

test.each<[string, FinalObservations[]]>([
  ['one list', [finals(0, 2, 3)]],
  ['one list that does not rise', [finals(3, 0, 2)]],
  ['those of two threads', [finals(2), finals(0, 3)]],
  ['those of three threads, one of which found none', [finals(3), finals(), finals(2, 0)]],
])('final observations are by row, and no older ones: %s', (_, lists) => {
  const { fields } = tableOfRollout(columns(), lists, origin)
  const { rows, column, width } = fields.find(({ name }) => name === 'finalObservation')!
  expect([[...rows!], [...column], width]).toEqual([[0, 2, 3], [0, 1, 20, 21, 30, 31], 2])
})

test('final observations of one list that rises lie where they were found, and are those that stand there when asked', () => {
  const list = finals(0, 2)
  const field = tableOfRollout(columns(), [list], origin).fields.find(({ name }) => name === 'finalObservation')!
  expect(field.column.buffer).toBe(list.observation.buffer)
  expect(field.rows!.buffer).toBe(list.row.buffer)
  list.count[0] = 1
  expect([[...field.rows!], [...field.column]]).toEqual([[0], [0, 1]])
})

test('a column that the environment has not is no field; a mask is as wide as it has choices', () => {
  const names = (table: Table) => table.fields.map(({ name }) => name)
  expect(names(tableOfRollout(columns(), [finals()], origin))).not.toContain('actionMask')
  expect(names(tableOfRollout(columns(), [finals()], origin))).not.toContain('appliedAction')
  const more = { actionMask: new Uint8Array(12), appliedAction: new Float32Array(4) }
  const table = tableOfRollout(columns(more), [finals()], origin)
  expect(names(table).slice(5, 8)).toEqual(['actionMask', 'action', 'appliedAction'])
  expect(table.fields[5]!.width).toBe(3)
})

test('a rollout says where it came from, and of which weights its first row is', () => {
  const { metadata } = tableOfRollout(columns(), [finals()], origin)
  expect(metadata).toMatchObject({
    ...{ environment: 'none', seed: '4', gamma: 'null', numLanes: '2', numSteps: '2', update: '5', checkpoint: 'a/b' },
  })
  expect(JSON.parse(metadata.policy!)).toEqual({ id: 'mlp', parameters: { hidden: [8] } })
})

test('final observations of bytes in several lists are bytes in the order of their rows', () => {
  const listed = (rows: number[], bytes: number[], count: number): FinalObservations => ({
    row: Uint32Array.from(rows),
    observation: Uint8Array.from(bytes),
    actionMask: new Uint8Array(0),
    count: Uint32Array.of(count),
  })
  const finals = [listed([5, 1, 9], [50, 51, 10, 11, 90, 91], 2), listed([3, 0], [30, 31, 0, 0], 1)]
  const empty = { reward: new Float32Array(10), actionMask: new Uint8Array(0), appliedAction: new Float32Array(0) }
  const spaces = { observationSpace: box({ low: 0, high: 99, shape: [2], type: 'u8' }), actionSpace: discrete(2) }
  const { fields } = tableOfRollout(empty as unknown as RolloutColumns, finals, spaces as RolloutOrigin)
  const { rows, column } = fields.find(({ name }) => name === 'finalObservation')!
  expect([rows, column]).toEqual([Uint32Array.of(1, 3, 5), Uint8Array.of(10, 11, 30, 31, 50, 51)])
})
