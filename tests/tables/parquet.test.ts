/** Parquet files, read by hyparquet; `tests/outside/exports.test.ts` asks pyarrow, DuckDB, polars and `datasets`. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import * as arrow from 'apache-arrow'
import { parquetMetadata, parquetReadObjects } from 'hyparquet'
import { expect, test } from 'vitest'
import { writeParquet } from '../../src/entries/data.ts'
import { arrowOfRows } from '../../src/tables/arrow-of-rows.ts'
import { temporaryFolder } from '../support/temporary.ts'

async function written(table: Parameters<typeof writeParquet>[1], options = {}) {
  const path = join(await temporaryFolder(), 'table.parquet')
  await writeParquet(path, table, options)
  const bytes = await readFile(path)
  const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength)
  const rows = (await parquetReadObjects({ file })).map((row) =>
    Object.fromEntries(Object.entries(row).map(([name, value]) => [name, value ?? null])),
  ) // The reader has undefined for a list that is null.
  return { rows, metadata: parquetMetadata(file) }
}

test('columns of each type have their values, and their types', async () => {
  const { rows, metadata } = await written({
    numRows: 3,
    fields: [
      { name: 'float', column: Float32Array.of(0.5, -1, 3), width: 1 },
      { name: 'double', column: Float64Array.of(0.1, Number.NEGATIVE_INFINITY, 7), width: 1 },
      { name: 'integer', column: Int32Array.of(-1, 2, 2 ** 31 - 1), width: 1 },
      { name: 'unsigned', column: Uint32Array.of(0, 1, 2 ** 32 - 1), width: 1 },
      { name: 'flag', column: Uint8Array.of(0, 1, 255), width: 1 },
      { name: 'wide', column: Float32Array.of(1, 2, 3, 4, 5, 6), width: 2 },
      { name: 'some', column: Float32Array.of(8, 9), width: 2, rows: Uint32Array.of(1) },
    ],
    metadata: { environment: 'CartPole-v1' },
  })
  expect(rows).toEqual([
    { float: 0.5, double: 0.1, integer: -1, unsigned: 0n, flag: 0, wide: [1, 2], some: null },
    { float: -1, double: Number.NEGATIVE_INFINITY, integer: 2, unsigned: 1n, flag: 1, wide: [3, 4], some: [8, 9] },
    { float: 3, double: 7, integer: 2 ** 31 - 1, unsigned: 2n ** 32n - 1n, flag: 255, wide: [5, 6], some: null },
  ])
  expect(metadata.key_value_metadata).toContainEqual({ key: 'environment', value: 'CartPole-v1' })
  const types = Object.fromEntries(metadata.schema.map(({ name, type, converted_type: as }) => [name, as ?? type]))
  expect(types).toMatchObject({ float: 'FLOAT', double: 'DOUBLE', integer: 'INT32', unsigned: 'INT64', flag: 'UINT_8' })
  expect(types).toMatchObject({ wide: 'LIST', some: 'LIST' })
})

test('texts, structs and lists of them have their values, and what is not there is null', async () => {
  const rows = [
    { text: 'a "quoted" é\n', messages: [{ role: 'user', content: 'hi' }], right: true, empty: [] },
    { text: null, messages: [{ role: 'user', content: '' }, { role: 'assistant' }], right: null, empty: [1.5, null] },
    {},
  ]
  const read = await written(await arrowOfRows(rows))
  expect(read.rows).toEqual([
    { ...rows[0] },
    { ...rows[1], messages: [rows[1]!.messages![0], { role: 'assistant', content: null }] },
    { text: null, messages: null, right: null, empty: null },
  ])
  await expect(arrowOfRows([{ a: 1 }, { a: 'b' }])).rejects.toThrow('column "a": got number and string, expected')
})

test('row groups have the rows that they are told to have', async () => {
  const table = { numRows: 5, fields: [{ name: 'a', column: Int32Array.of(1, 2, 3, 4, 5), width: 1 }], metadata: {} }
  const { rows, metadata } = await written(table, { rowGroups: [3, 1] })
  expect(rows.map(({ a }) => a)).toEqual([1, 2, 3, 4, 5])
  expect(metadata.row_groups.map(({ num_rows: count }) => count)).toEqual([3n, 1n, 1n])
})

test('a column of another type is refused by its name', async () => {
  const path = join(await temporaryFolder(), 'a.parquet')
  const table = new arrow.Table({ when: arrow.vectorFromArray([new Date(0)]) })
  await expect(writeParquet(path, table)).rejects.toThrow('column "when": got ')
})
