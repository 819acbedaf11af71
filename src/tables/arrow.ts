/** Tables as Arrow: record batches over the same memory, and IPC files (`read-arrow.ts` reads them). Loads apache-arrow on first use. */
import type * as Arrow from 'apache-arrow'
import { checkGiven, InputError, show } from '../base/errors.ts'
import type { Column } from '../components/column.ts'
import type { Field, Table } from './table.ts'

/**
 * Converts the table to an apache-arrow `Table` of one record batch whose buffers are the table's columns: nothing is copied, and later
 * writes to the columns are visible. Flags are uint8; wide columns are fixed-size lists. A column with values in only some rows is
 * nullable, and a variable-size list if it is wide, so that the other rows take no space.
 */
export async function toArrow(table: Table): Promise<Arrow.Table> {
  checkGiven('table of toArrow', table, ['numRows', 'fields', 'metadata'])
  const arrow = await import('apache-arrow')
  const fields = table.fields.map(
    (field) => new arrow.Field(field.name, typeOf(arrow, field), field.rows !== undefined),
  )
  const children = table.fields.map((field) => dataOf(arrow, field, table.numRows))
  const schema = new arrow.Schema(fields, new Map(Object.entries(table.metadata)))
  const struct = arrow.makeData({ type: new arrow.Struct(fields), length: table.numRows, nullCount: 0, children })
  return new arrow.Table(schema, new arrow.RecordBatch(schema, struct))
}

/**
 * Writes tables of one schema as an uncompressed Arrow IPC file (or stream), one record batch per table. The file is written atomically,
 * and its schema metadata contains a checksum (`colonnade.sha256`) that `readArrow` verifies.
 * @throws InputError if the path cannot be written.
 */
export async function writeArrow(
  path: string,
  table: Table | Arrow.Table,
  options: { format?: 'file' | 'stream' } = {},
): Promise<void> {
  checkGiven('path of writeArrow', path, 'a text')
  checkGiven('table of writeArrow', table, [])
  const { format = 'file' } = options
  if (format !== 'file' && format !== 'stream') throw new InputError('format', show(format), 'file or stream')
  const arrow = await import('apache-arrow')
  const { writeWhole } = await import('../base/files/files.ts')
  const { SEAL_KEY, sealOf, sealText } = await import('../base/files/seal.ts')
  const whole = table instanceof arrow.Table ? table : await toArrow(table as Table)
  const Writer = format === 'file' ? arrow.RecordBatchFileWriter : arrow.RecordBatchStreamWriter
  const sealed = (checksum?: string): AsyncIterable<Uint8Array> => {
    const { fields, metadata, dictionaries, metadataVersion } = whole.schema
    const entries = new Map([...metadata, [SEAL_KEY, sealText(checksum)]])
    const schema = new arrow.Schema(fields, entries, dictionaries, metadataVersion)
    const batches = whole.batches.map(({ data }) => new arrow.RecordBatch(schema, data))
    return Writer.writeAll(new arrow.Table(schema, batches)) as unknown as AsyncIterable<Uint8Array>
  }
  await writeWhole(path, sealed(await sealOf(sealed()))) // The same bytes twice, except for the checksum.
}

function typeOf(arrow: typeof Arrow, { column, width, rows }: Field): Arrow.DataType {
  const element = elementType(arrow, column)
  if (width === 1) return element
  const item = new arrow.Field('item', element, false)
  return rows === undefined ? new arrow.FixedSizeList(width, item) : new arrow.List(item)
}

/** Arrow's type of a column's elements. */
export function elementType(arrow: typeof Arrow, column: Column): Arrow.DataType {
  if (column instanceof Float32Array) return new arrow.Float32()
  if (column instanceof Float64Array) return new arrow.Float64()
  if (column instanceof Int32Array) return new arrow.Int32()
  return column instanceof Uint32Array ? new arrow.Uint32() : new arrow.Uint8()
}

function dataOf(arrow: typeof Arrow, field: Field, numRows: number): Arrow.Data {
  const { column, width, rows } = field
  if (rows !== undefined) return sparseData(arrow, { ...field, column, rows }, numRows)
  const type = elementType(arrow, column)
  const data = arrow.makeData({ type, length: column.length, nullCount: 0, data: column } as never) as Arrow.Data
  if (width === 1) return data
  const list = typeOf(arrow, field) as Arrow.FixedSizeList
  return arrow.makeData({ type: list, length: numRows, nullCount: 0, child: data } as never) as Arrow.Data
}

/** A column with values in only some rows: a validity bit per row, and values or lists for the present ones. */
function sparseData(arrow: typeof Arrow, field: Field & { rows: Uint32Array }, numRows: number): Arrow.Data {
  const { column, width, rows } = field
  const nullBitmap = new Uint8Array(Math.ceil(numRows / 8))
  for (const row of rows) nullBitmap[row >> 3]! |= 1 << (row & 7)
  const whole = { type: typeOf(arrow, field), length: numRows, nullCount: numRows - rows.length, nullBitmap }
  if (width === 1) {
    const data = new (column.constructor as Float32ArrayConstructor)(numRows)
    for (const [i, row] of rows.entries()) data[row] = column[i]!
    return arrow.makeData({ ...whole, data } as never) as Arrow.Data
  }
  const valueOffsets = new Int32Array(numRows + 1)
  for (const row of rows) valueOffsets[row + 1] = width
  for (let row = 0; row < numRows; row++) valueOffsets[row + 1]! += valueOffsets[row]!
  const type = elementType(arrow, column)
  const child = arrow.makeData({ type, length: column.length, nullCount: 0, data: column } as never) as Arrow.Data
  return arrow.makeData({ ...whole, valueOffsets, child } as never) as Arrow.Data
}
