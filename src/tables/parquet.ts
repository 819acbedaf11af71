/**
 * Tables as Parquet, by hyparquet-writer, which is loaded on first use. Numbers keep their types: 8-bit ones as annotated INT32, unsigned
 * 32-bit ones as INT64. Lists of fixed or variable length are LIST, and structs are groups.
 */
import type * as Arrow from 'apache-arrow'
import type { SchemaElement } from 'hyparquet'
import { checkGiven, InputError, show } from '../base/errors.ts'
import { writeWhole } from '../base/files/files.ts'
import { toArrow } from './arrow.ts'
import { arrowPlain } from './read-arrow.ts'
import type { Table } from './table.ts'

/** Options of a Parquet file. */
export interface ParquetOptions {
  /** Rows of each row group, in order; the last number applies to all further groups. Default: 100,000. */
  readonly rowGroups?: readonly number[]
}

/**
 * Writes a table as a Parquet file with snappy compression, atomically. The table's metadata become the file's.
 * @throws InputError for a column of an unsupported type (supported: numbers, strings, booleans, and lists and structs of them), and if
 * the path cannot be written.
 * @example await writeParquet('episodes.parquet', await recordEpisodes({ environment, policy, weights, episodes: 100 }))
 */
export async function writeParquet(
  path: string,
  table: Table | Arrow.Table,
  { rowGroups = [100_000] }: ParquetOptions = {},
): Promise<void> {
  checkGiven('path of writeParquet', path, 'a text')
  checkGiven('table of writeParquet', table, [])
  const [arrow, { ByteWriter, parquetWrite }] = await Promise.all([import('apache-arrow'), import('hyparquet-writer')])
  const whole = table instanceof arrow.Table ? table : await toArrow(table as Table)
  const plain = await arrowPlain()
  const columnData = whole.schema.fields.map((field) => ({
    name: field.name,
    data: valuesOf(arrow, whole.getChild(field.name)!, plain),
  }))
  const schema: SchemaElement[] = [
    { name: 'root', num_children: whole.schema.fields.length },
    ...whole.schema.fields.flatMap((field) => elementsOf(arrow, field)),
  ]
  const kvMetadata = [...whole.schema.metadata].map(([key, value]) => ({ key, value }))
  const writer = new ByteWriter()
  parquetWrite({ writer, columnData, schema, rowGroupSize: [...rowGroups], kvMetadata, createdBy: 'colonnade' })
  await writeWhole(path, [new Uint8Array(writer.getBuffer())])
}

function valuesOf(
  arrow: typeof Arrow,
  column: Arrow.Vector,
  plain: (value: unknown) => unknown,
): unknown[] | Float64Array {
  const { type, nullCount } = column
  if (arrow.DataType.isInt(type) && type.bitWidth === 32 && !type.isSigned) {
    return Array.from(column, (value) => (value === null ? null : BigInt(value as number)))
  }
  // Floats stay typed arrays. The writer needs arrays for other types, to detect repeated values.
  const isPlain = arrow.DataType.isFloat(type) && type.precision !== arrow.Precision.HALF && nullCount === 0
  return isPlain ? (column.toArray() as Float64Array) : Array.from(column, plain)
}

/** A column's schema: an element and those below it, in order. */
function elementsOf(arrow: typeof Arrow, { name, type, nullable }: Arrow.Field): SchemaElement[] {
  const repetition = { name, repetition_type: nullable ? 'OPTIONAL' : 'REQUIRED' } as const
  const { DataType, Precision } = arrow
  if (DataType.isUtf8(type)) return [{ ...repetition, type: 'BYTE_ARRAY', converted_type: 'UTF8' }]
  if (DataType.isBool(type)) return [{ ...repetition, type: 'BOOLEAN' }]
  if (DataType.isFloat(type) && type.precision !== Precision.HALF) {
    return [{ ...repetition, type: type.precision === Precision.SINGLE ? 'FLOAT' : 'DOUBLE' }]
  }
  if (DataType.isInt(type)) {
    if (type.bitWidth === 64 || (type.bitWidth === 32 && !type.isSigned)) return [{ ...repetition, type: 'INT64' }]
    if (type.bitWidth === 32) return [{ ...repetition, type: 'INT32' }]
    const width = `${type.isSigned ? 'INT' : 'UINT'}_${type.bitWidth as 8 | 16}` as const
    return [{ ...repetition, type: 'INT32', converted_type: width }]
  }
  if (DataType.isList(type) || DataType.isFixedSizeList(type)) {
    const [item] = type.children as [Arrow.Field]
    return [
      { ...repetition, converted_type: 'LIST', num_children: 1 },
      { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
      ...elementsOf(arrow, new arrow.Field('element', item.type, item.nullable)),
    ]
  }
  if (DataType.isStruct(type)) {
    const children = (type.children as Arrow.Field[]).flatMap((child) => elementsOf(arrow, child))
    return [{ ...repetition, num_children: type.children.length }, ...children]
  }
  throw new InputError(`column ${show(name)}`, String(type), 'numbers, texts, flags, or lists or structs of them')
}
