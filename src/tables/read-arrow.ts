/** Arrow tables and IPC files as tables and rows. Loads apache-arrow on first use. */
import type * as Arrow from 'apache-arrow'
import { InputError, show } from '../base/errors.ts'
import { ownFile } from '../base/files/own-files.ts'
import type { ReadLimits } from '../base/threads/guarded.ts'
import type { Column } from '../components/column.ts'
import type { Field, Table } from './table.ts'

export type ArrowTable = Arrow.Table

const ARROW_FILE = 'an Arrow file that can be read'

/**
 * Reads Arrow IPC files (or streams) of one schema as one table. Metadata that differs between files is joined by commas. A separate
 * thread with limits on time and memory checks each file, so that a damaged one is an error and cannot block the process.
 * @throws InputError for a file that cannot be read, is damaged, or does not match its checksum.
 */
export async function readArrow(...paths: string[]): Promise<Arrow.Table> {
  return readArrowFiles(paths)
}

/** Like `readArrow`, with custom limits. */
export async function readArrowFiles(paths: readonly string[], limits?: ReadLimits): Promise<Arrow.Table> {
  const { readGuarded } = await import('../base/threads/guarded.ts')
  const { SEAL_KEY } = await import('../base/files/seal.ts')
  const loading = import('apache-arrow') // In parallel with the start of the thread.
  const tables: Arrow.Table[] = []
  for (const path of paths) {
    const entry = ownFile(new URL('./arrow-worker.js', import.meta.url))
    const bytes = await readGuarded<Uint8Array>(entry, path, {}, ARROW_FILE, limits)
    const table = (await loading).tableFromIPC(bytes)
    table.schema.metadata.delete(SEAL_KEY) // It belongs to the file, not to the table.
    tables.push(table)
  }
  const [first, ...rest] = tables
  if (first === undefined) throw new InputError('readArrow(paths)', 'no path', 'at least one')
  if (rest.length === 0) return first
  for (const [i, table] of tables.entries()) {
    const [got, expected] = [table, first].map(({ schema }) => schema.fields.map(({ name, type }) => `${name} ${type}`))
    if (String(got) === String(expected)) continue
    throw new InputError(
      paths[i]!,
      `columns ${show(String(got))}`,
      `the columns of ${paths[0]}: ${show(String(expected))}`,
    )
  }
  const whole = first.concat(...rest)
  for (const key of first.schema.metadata.keys()) {
    const values = tables.map(({ schema }) => schema.metadata.get(key))
    whole.schema.metadata.set(key, [...new Set(values)].join(','))
  }
  return whole
}

/** Converts a table to bytes of an IPC stream and back, for transfer in memory. The bytes are trusted. */
export async function arrowStreams(): Promise<{
  toStream(table: Arrow.Table): Uint8Array
  fromStream(bytes: Uint8Array): Arrow.Table
}> {
  const { tableFromIPC, tableToIPC } = await import('apache-arrow')
  return { toStream: (table) => tableToIPC(table, 'stream'), fromStream: (bytes) => tableFromIPC(bytes) }
}

/** Converts values of Arrow columns to plain ones: lists to arrays, structs to objects. */
export async function arrowPlain(): Promise<(value: unknown) => unknown> {
  const arrow = await import('apache-arrow')
  const plain = (value: unknown): unknown => {
    if (value instanceof arrow.Vector) return [...value].map(plain)
    const isStruct = value instanceof arrow.StructRow || value instanceof arrow.MapRow
    if (!isStruct) return value
    return Object.fromEntries([...value].map(([name, element]) => [name, plain(element)]))
  }
  return plain
}

/** Reads rows of a table as plain objects: lists as arrays, structs as objects. */
export async function arrowRows(table: Arrow.Table): Promise<(row: number) => Record<string, unknown>> {
  const plain = await arrowPlain()
  const columns = table.schema.fields.map(({ name }) => [name, table.getChild(name)!] as const)
  return (row) => Object.fromEntries(columns.map(([name, column]) => [name, plain(column.get(row))]))
}

/**
 * The numeric columns of an Arrow table, in the format of `toArrow`: numbers, lists of one length, and the present rows of nullable
 * columns. Columns of one record batch without nulls are not copied. Other columns, such as strings, are left out and listed in `unread`.
 * @throws InputError for a column with lists of several lengths, or with null in a list.
 */
export function fromArrow(table: Arrow.Table): Table {
  const unread = new Map<string, string>()
  const fields = table.schema.fields.flatMap(({ name, type }) => {
    let before = 0
    const parts = table.getChild(name)!.data.map((data) => {
      before += data.length
      return partOf(name, data, before - data.length)
    })
    if (parts.length > 0 && !parts.includes(null)) return [joined(name, parts as Part[])]
    unread.set(name, String(type))
    return []
  })
  const left = unread.size > 0 ? { unread } : {}
  return { numRows: table.numRows, fields, ...left, metadata: Object.fromEntries(table.schema.metadata) }
}

/** A column's rows in one record batch; `rows` lists the present ones, if some are missing. */
interface Part {
  readonly column: Column
  readonly width: number
  readonly numRows: number
  readonly rows: readonly number[] | null
}

/** A column's rows in a record batch that starts at row `before`. */
function partOf(name: string, data: Arrow.Data, before: number): Part | null {
  const { length: numRows, offset, nullCount, nullBitmap, valueOffsets, children } = data
  const column = children.length > 1 ? null : numbersOf(children[0] ?? data)
  if (column === null) return null
  const isThere = (row: number) => ((nullBitmap[(offset + row) >> 3]! >> ((offset + row) & 7)) & 1) === 1
  const all = Array.from({ length: numRows }, (_, row) => row)
  const isList = children.length > 0 && (data.type as Arrow.FixedSizeList).listSize === undefined
  const rows = nullCount > 0 ? all.filter(isThere) : isList ? all : null
  const [first] = rows ?? []
  const lengthOf = (row: number) => Number(valueOffsets[row + 1]) - Number(valueOffsets[row])
  const width = isList
    ? first === undefined
      ? 0
      : lengthOf(first)
    : ((data.type as Arrow.FixedSizeList).listSize ?? 1)
  const start = (row: number) => (isList ? Number(valueOffsets[row]) : row * width)
  const [items] = children
  if (items !== undefined && items.nullCount > 0) {
    for (const row of rows ?? all) {
      for (let k = 0; k < width; k++) {
        if (items.getValid(start(row) + k)) continue
        throw new InputError(`${name} of row ${before + row}`, `null at index ${k}`, 'a number')
      }
    }
  }
  if (rows === null) return { column: column.subarray(0, numRows * width), width, numRows, rows }
  const other = isList ? rows.find((row) => lengthOf(row) !== width) : undefined
  if (other !== undefined) {
    const got = `lists of ${width} and of ${lengthOf(other)} numbers`
    throw new InputError(`column ${name} of the table`, got, 'lists of one length')
  }
  const own = new (column.constructor as Float32ArrayConstructor)(rows.length * width)
  for (const [i, row] of rows.entries()) own.set(column.subarray(start(row), start(row) + width), i * width)
  return { column: own, width, numRows, rows }
}

function joined(name: string, parts: readonly Part[]): Field {
  const [first, ...others] = parts as [Part, ...Part[]]
  const width = Math.max(...parts.map((part) => part.width))
  const isSparse = parts.some(({ rows }) => rows !== null)
  let { column } = first
  if (others.length > 0) {
    const length = parts.reduce((sum, part) => sum + part.column.length, 0)
    column = new (column.constructor as Float32ArrayConstructor)(length)
    let at = 0
    for (const part of parts) {
      column.set(part.column, at)
      at += part.column.length
    }
  }
  if (!isSparse) return { name, column, width }
  let before = 0
  const places: number[] = []
  for (const { rows, numRows } of parts) {
    for (const row of rows ?? Array.from({ length: numRows }, (_, i) => i)) places.push(before + row)
    before += numRows
  }
  return { name, column, width, rows: Uint32Array.from(places) }
}

/** Arrow's type ids of integers, floats and booleans. Dates, decimals, strings and dictionary keys have similar arrays. */
const [INT, FLOAT, BOOL] = [2, 3, 6]

/** The numbers of a part of a column, booleans as 0 and 1; null for another type. */
function numbersOf({ type, values, length, offset }: Arrow.Data): Column | null {
  if (type.typeId === BOOL) {
    return Uint8Array.from({ length }, (_, i) => (values[(offset + i) >> 3]! >> ((offset + i) & 7)) & 1)
  }
  if (type.typeId !== INT && type.typeId !== FLOAT) return null
  const types = [Float32Array, Float64Array, Int32Array, Uint32Array, Uint8Array]
  return types.some((type) => values instanceof type) ? (values.subarray(0, length) as Column) : null
}
