/**
 * Tables as Parquet, by hyparquet-writer, which is loaded where it is first used. Numbers keep their types: of 8 bits as INT32
 * that says so, of 32 bits without a sign as INT64. Lists, of one length or not, are LIST, and structs groups.
 */
import type * as Arrow from 'apache-arrow'
import type { SchemaElement } from 'hyparquet'
import { checkGiven, InputError, show } from '../base/errors.ts'
import { writeWhole } from '../base/files/files.ts'
import { arrowPlain, toArrow } from './arrow.ts'
import type { Table } from './table.ts'

/** How a table is written. */
export interface ParquetOptions {
  /** The rows of each row group, in order; the last number is that of all that follow. Default: 100,000. */
  readonly rowGroups?: readonly number[]
}

/**
 * Writes a table as a Parquet file, compressed by snappy, which appears whole or not at all. Its metadata are the file's.
 * @throws InputError for a column that is neither of numbers, texts and flags nor of lists and structs of them, and if the path
 * cannot be written.
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

/** The values of a column as the writer takes them. */
function valuesOf(
  arrow: typeof Arrow,
  column: Arrow.Vector,
  plain: (value: unknown) => unknown,
): unknown[] | Float64Array {
  const { type, nullCount } = column
  if (arrow.DataType.isInt(type) && type.bitWidth === 32 && !type.isSigned) {
    return Array.from(column, (value) => (value === null ? null : BigInt(value as number)))
  }
  // Floating-point numbers as they lie. Others the writer wants as an array, where it looks for those that repeat.
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
