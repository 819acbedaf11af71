/**
 * The thread that checks Arrow files. The library trusts a file's numbers: damaged ones can make it run forever or allocate huge lists.
 * The caller's thread can safely read a file that passes.
 */
import type * as Arrow from 'apache-arrow'
import { InputError, show } from '../base/errors.ts'
import { readWhole } from '../base/files/files.ts'
import { brokenSeal, checkSeal, hasTrace } from '../base/files/seal.ts'
import { serveReads } from '../base/threads/guarded.ts'

const arrow = await import('apache-arrow')
const { Type } = arrow

/** Marks of an Arrow file's begin and end, and of each message of a stream. */
const [MAGIC, CONTINUES] = ['ARROW1', '\xff\xff\xff\xff']

serveReads(
  async ({ path, expected }) => {
    const bytes = Uint8Array.from(await readWhole(path, expected)) // An own buffer, for the transfer.
    const isSealed = checkSeal(path, bytes)
    const table = tableOf(path, bytes)
    if (!isSealed && hasTrace([...table.schema.metadata])) throw brokenSeal(path)
    // A file truncated within its first bytes looks like an empty stream.
    if (table.schema.fields.length === 0) throw fault(path, 'no column')
    // Each row takes at least a bit; rows without columns could have any count.
    if (table.numRows > 8 * bytes.byteLength) throw fault(path, `${table.numRows} rows in ${bytes.byteLength} bytes`)
    for (const { data } of table.batches) check(path, data)
    return { value: bytes, moved: [bytes.buffer] }
  },
  { leavesWork: false },
)

/** @throws InputError for bytes that are not a table, since the library's errors do not describe the file's fault. */
function tableOf(path: string, bytes: Uint8Array): Arrow.Table {
  try {
    return arrow.tableFromIPC(bytes)
  } catch (error) {
    const { message } = error as Error
    const text = Buffer.from(bytes.buffer).toString('latin1')
    if (/ is compressed /.test(message)) throw new InputError(path, 'compressed columns', 'columns without compression')
    if (text.startsWith(MAGIC) && !text.endsWith(MAGIC)) {
      throw fault(path, `no ${MAGIC} at the end: the file was truncated or extended`)
    }
    if (!text.startsWith(MAGIC) && !text.startsWith(CONTINUES)) {
      throw fault(path, `a file that begins with ${show(text.slice(0, 6))}`)
    }
    if (error instanceof TypeError) throw fault(path, 'a schema or a footer that cannot be read')
    throw error
  }
}

function fault(subject: string, got: string): InputError {
  return new InputError(subject, got, 'an Arrow IPC file without damage')
}

/** @throws InputError for buffers that are too short and for offsets and indices out of range. */
function check(subject: string, data: Arrow.Data): void {
  const { type, length, offset, nullCount, nullBitmap, values, valueOffsets, children, dictionary } = data
  const need = (got: number, least: number, what: string): void => {
    if (!(got >= least)) throw fault(subject, `${got} ${what} of ${type}, for ${length} values`)
  }
  if (type.typeId === Type.Null) return // It counts nulls but has no buffers, not even of validity.
  if (nullCount > 0) need(nullBitmap.byteLength * 8, offset + length, 'bits of validity')
  switch (type.typeId) {
    case Type.Bool:
      need(values.length * 8, length, 'bits')
      return
    case Type.Binary:
    case Type.Utf8:
    case Type.LargeBinary:
    case Type.LargeUtf8:
      checkOffsets(subject, type, valueOffsets, length, values.length)
      return
    case Type.List:
    case Type.Map:
      checkOffsets(subject, type, valueOffsets, length, children[0]!.length)
      break
    case Type.FixedSizeList:
      need(children[0]!.length, length * (type as Arrow.FixedSizeList).listSize, 'elements')
      break
    case Type.Struct:
      for (const child of children) need(child.length, length, 'values of a field')
      break
    case Type.Union:
      throw fault(subject, `a column of ${type}`) // Datasets do not use other types.
    case Type.Dictionary: {
      need(values.length, length, 'indices')
      const size = dictionary!.length
      for (let i = 0; i < length; i++) {
        const index = Number(values[i])
        if (index >= 0 && index < size) continue
        if (!data.getValid(i)) continue
        throw fault(subject, `the index ${index} into ${size} values of ${type}`)
      }
      for (const part of dictionary!.data) check(subject, part)
      return
    }
    default:
      need(values.length, length * data.stride, 'numbers')
      return
  }
  for (const child of children) check(subject, child)
}

function checkOffsets(
  subject: string,
  type: Arrow.DataType,
  offsets: Int32Array | BigInt64Array,
  length: number,
  end: number,
): void {
  if (length === 0) return
  if (offsets.length <= length) throw fault(subject, `${offsets.length} offsets of ${type}, for ${length} values`)
  let before = 0
  for (let i = 0; i <= length; i++) {
    const offset = Number(offsets[i])
    if (offset < before || offset > end) {
      throw fault(subject, `the offset ${offset} after ${before} of ${end} in ${type}`)
    }
    before = offset
  }
}
