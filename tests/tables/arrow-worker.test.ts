import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  Binary,
  Bool,
  CompressionType,
  compressionRegistry,
  type Data,
  type DataType,
  Dictionary,
  Field,
  FixedSizeList,
  Float64,
  Int32,
  List,
  makeData,
  Null,
  RecordBatch,
  RecordBatchFileWriter,
  Schema,
  Struct,
  Table,
  tableFromIPC,
  tableToIPC,
  Utf8,
  vectorFromArray,
} from 'apache-arrow'
import { beforeAll, describe, expect, test, vi } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { writeArrow } from '../../src/tables/arrow.ts'
import { arrowRows, readArrow } from '../../src/tables/read-arrow.ts'
import { temporaryFolder } from '../support/temporary.ts'

type Read = (task: object) => Promise<{ value: Uint8Array; moved: ArrayBuffer[] }>
const worker = vi.hoisted(() => ({ read: undefined as unknown as Read, leavesWork: undefined as boolean | undefined }))

// The reader of the thread, in this one.
vi.mock('../../src/base/threads/guarded.ts', () => ({
  serveReads: (read: Read, { leavesWork }: { leavesWork: boolean }) => Object.assign(worker, { read, leavesWork }),
  readGuarded: async (_: URL, path: string, task: object, expected: string) => {
    const { value, moved } = await worker.read({ ...task, path, expected })
    const received = structuredClone(value, { transfer: moved })
    expect(value.byteLength, 'bytes are handed over, and not copied').toBe(0)
    return received
  },
}))

let folder: string
beforeAll(async () => {
  folder = await temporaryFolder()
  await import('../../src/tables/arrow-worker.ts')
})

/** A file of one column of `length` rows, as it is given: nothing is made whole. */
async function fileOf(data: Data, length = data.length): Promise<string> {
  const schema = new Schema([new Field('x', data.type, true)])
  const struct = makeData({ type: new Struct(schema.fields), length, nullCount: 0, children: [data] })
  const path = join(folder, 'one.arrow')
  await writeFile(path, tableToIPC(new Table(schema, new RecordBatch(schema, struct)), 'stream'))
  return path
}

/** The data of a column, of whatever lengths its parts are. */
function data(type: DataType, given: object): Data {
  return makeData({ type, nullCount: 0, ...given } as never) as Data
}

const item = new Field('item', new Int32(), true)
const ints = (...values: number[]) => data(new Int32(), { length: values.length, data: Int32Array.from(values) })
const words = vectorFromArray(['a', 'b'], new Utf8())
const dictionary = new Dictionary(new Utf8(), new Int32())

describe('a file without damage', () => {
  test.each<[string, Data, unknown[]]>([
    ['numbers', ints(4, -5, 6), [4, -5, 6]],
    ['numbers, some of them null', vectorFromArray([1.5, null, 2], new Float64()).data[0]!, [1.5, null, 2]],
    ['flags', vectorFromArray([true, false, true], new Bool()).data[0]!, [true, false, true]],
    ['nothing', data(new Null(), { length: 3, nullCount: 3 }), [null, null, null]],
    ['texts, one of them empty', vectorFromArray(['ab', '', 'c'], new Utf8()).data[0]!, ['ab', '', 'c']],
    [
      'lists, one of them empty',
      data(new List(item), { length: 3, valueOffsets: Int32Array.of(0, 2, 2, 3), child: ints(7, 8, 9) }),
      [[7, 8], [], [9]],
    ],
    [
      'lists of one size',
      data(new FixedSizeList(2, item), { length: 2, child: ints(1, 2, 3, 4) }),
      [
        [1, 2],
        [3, 4],
      ],
    ],
    [
      'objects',
      data(new Struct([new Field('n', new Int32())]), { length: 2, children: [ints(3, 4)] }),
      [{ n: 3 }, { n: 4 }],
    ],
    ['words by number', data(dictionary, { data: Int32Array.of(1, 0, 1), dictionary: words }), ['b', 'a', 'b']],
    [
      'words by number, with no number where there is none',
      data(dictionary, {
        nullCount: 1,
        nullBitmap: Uint8Array.of(0b101),
        data: Int32Array.of(1, 9, 0),
        dictionary: words,
      }),
      ['b', null, 'a'],
    ],
  ])('is read as it is: %s', async (_, column, expected) => {
    const table = await readArrow(await fileOf(column))
    const rowOf = await arrowRows(table)
    expect(Array.from({ length: table.numRows }, (_, row) => rowOf(row))).toEqual(expected.map((x) => ({ x })))
  })

  test('may have exactly as many bits, offsets and elements as its rows need', async () => {
    const numbers = Int32Array.from({ length: 64 }, (_, i) => i)
    const nullBitmap = new Uint8Array(8).fill(0xff)
    nullBitmap[7] = 0x7f
    const whole = data(new Int32(), { length: 64, nullCount: 1, nullBitmap, data: numbers })
    const column = (await readArrow(await fileOf(whole))).getChild('x')!
    expect([...column]).toEqual([...numbers.slice(0, 63), null])
    const empty = await readArrow(await fileOf(vectorFromArray([''], new Utf8()).data[0]!))
    expect([...empty.getChild('x')!]).toEqual([''])
  })

  test('leaves nothing behind in the thread, also where it is refused: that is kept for the next', () => {
    expect(worker.leavesWork).toBe(false)
  })
})

describe('a file is refused', () => {
  test.each<[string, Data, string]>([
    ['numbers than rows', ints(1, 2), '2 numbers of Int32, for 5 values'],
    ['flags than rows', data(new Bool(), { data: new Uint8Array(8) }), '64 bits of Bool, for 100 values'],
    [
      'bits of validity than rows',
      data(new Int32(), { nullCount: 1, nullBitmap: new Uint8Array(8), data: new Int32Array(100) }),
      '64 bits of validity of Int32, for 100 values',
    ],
    ['indices than rows', data(dictionary, { data: Int32Array.of(0, 1), dictionary: words }), '2 indices of'],
    [
      'elements than lists of one size need',
      data(new FixedSizeList(3, item), { child: ints(1, 2, 3, 4) }),
      '4 elements of FixedSizeList[3]<Int32>, for 2 values',
    ],
    [
      'values of a field than objects',
      data(new Struct([new Field('n', new Int32())]), { children: [ints(3, 4)] }),
      '2 values of a field of Struct<{n:Int32}>, for 3 values',
    ],
  ])('with fewer %s', async (_, short, message) => {
    const length = Number(/for (\d+) values/.exec(message)?.[1] ?? 4)
    const column = Object.assign(short.clone(), { length })
    await expect(readArrow(await fileOf(column, length))).rejects.toThrow(`one.arrow: got ${message}`)
  })

  test.each([[2], [-1]])('with the index %d into two words', async (index) => {
    const column = data(dictionary, { data: Int32Array.of(1, index, 0), dictionary: words })
    await expect(readArrow(await fileOf(column))).rejects.toThrow(`got the index ${index} into 2 values of`)
  })

  test.each<[string, Data]>([
    [
      'the offset 3 after 0 of 2 in List<Int32>',
      data(new List(item), { length: 2, valueOffsets: Int32Array.of(0, 3, 2), child: ints(1, 2, 3) }),
    ],
    [
      'the offset 1 after 2 of 3 in List<Int32>',
      data(new List(item), { length: 3, valueOffsets: Int32Array.of(0, 2, 1, 3), child: ints(1, 2, 3) }),
    ],
    [
      'the offset 20 after 5 of 8 in Utf8',
      data(new Utf8(), { length: 2, valueOffsets: Int32Array.of(0, 5, 20), data: new Uint8Array(8) }),
    ],
  ])('with %s', async (message, column) => {
    const refused = readArrow(await fileOf(column))
    await expect(refused).rejects.toThrow(InputError)
    await expect(refused).rejects.toThrow(`got ${message}, expected an Arrow IPC file without damage`)
  })

  test('with one offset less than texts need: each has an end', async () => {
    const column = data(new Utf8(), { length: 1, valueOffsets: Int32Array.of(0, 0), data: new Uint8Array(0) })
    const texts = Object.assign(column.clone(), { length: 2 })
    await expect(readArrow(await fileOf(texts))).rejects.toThrow('got 2 offsets of Utf8, for 2 values')
  })

  test('with damage within lists', async () => {
    const inner = Object.assign(ints(1, 2).clone(), { length: 6 })
    const lists = data(new List(item), { length: 1, valueOffsets: Int32Array.of(0, 6), child: inner })
    await expect(readArrow(await fileOf(lists))).rejects.toThrow(/\d numbers of Int32, for 6 values/)
  })

  test('with no column, and with more rows than its bytes have bits', async () => {
    const path = join(folder, 'none.arrow')
    await writeFile(path, tableToIPC(new Table(new Schema([])), 'stream'))
    await expect(readArrow(path)).rejects.toThrow(
      'none.arrow: got no column, expected an Arrow IPC file without damage',
    )
    const nothing = data(new Null(), { length: 100_000, nullCount: 100_000 })
    await expect(readArrow(await fileOf(nothing))).rejects.toThrow(/one\.arrow: got 100000 rows in \d+ bytes/)
  })

  test('with the entry of a checksum in it and none that can be read', async () => {
    const path = await fileOf(ints(1, 2))
    await writeArrow(path, await readArrow(path))
    expect([...(await readArrow(path)).getChild('x')!]).toEqual([1, 2])
    const table = await readArrow(path)
    const { fields } = table.schema
    const schema = new Schema(fields, new Map([['colonnade.sha256', 'lost']]))
    const batches = table.batches.map(({ data }) => new RecordBatch(schema, data))
    await writeFile(path, tableToIPC(new Table(schema, batches), 'stream'))
    await expect(readArrow(path)).rejects.toThrow('got an unreadable checksum of the file')
  })
})

/** What became of a file, and what is said of it. */
const file = Buffer.from(tableToIPC(new Table({ x: vectorFromArray([1, 2, 3], new Int32()) }), 'file'))
const zeros = Buffer.alloc(1000)
const open = 'no ARROW1 at the end: the file was truncated or extended'
test.each<[string, Buffer, string]>([
  ['a file cut short by a byte', file.subarray(0, -1), open],
  ['a file cut short by a half', file.subarray(0, file.length >> 1), open],
  ['a file with something behind it', Buffer.concat([file, zeros]), open],
  ['a file without its footer', Buffer.concat([file.subarray(0, 8), file.subarray(-6)]), 'a schema or a footer that'],
  [
    'a file behind a byte',
    Buffer.concat([zeros.subarray(0, 1), file]),
    String.raw`a file that begins with "\u0000ARROW"`,
  ],
  ['nothing', Buffer.alloc(0), 'no column'],
  ['CSV', Buffer.from('observation,action\n1,2\n'), 'a file that begins with "observ"'],
  ['JSON', Buffer.from('{"action":1}\n'), String.raw`a file that begins with "{\"acti"`],
  ['Parquet', Buffer.concat([Buffer.from('PAR1'), file, Buffer.from('PAR1')]), 'a file that begins with "PAR1AR"'],
  ['gzip', Buffer.of(0x1f, 0x8b, 8, 0, 0, 0, 0, 0), String.raw`a file that begins with "\u001f`],
])('%s is refused in words of ours', async (_, bytes, got) => {
  const path = join(folder, 'damaged.arrow')
  await writeFile(path, bytes)
  const refused = await readArrow(path).catch((error: unknown) => error)
  expect(refused).toBeInstanceOf(InputError)
  expect((refused as InputError).got).toContain(got)
  expect((refused as InputError).message).not.toMatch(/Cannot read properties|\n/)
})

test('a compressed file is refused as what it is', async () => {
  const encode = (bytes: Uint8Array) => bytes.slice(1)
  Object.assign(compressionRegistry, { registry: { [CompressionType.LZ4_FRAME]: { encode } } }) // It has none of its own.
  const writer = new RecordBatchFileWriter({ compressionType: CompressionType.LZ4_FRAME })
  writer.write(new Table({ x: vectorFromArray(Array(1000).fill(7), new Int32()) }))
  const path = join(folder, 'compressed.arrow')
  await writeFile(path, writer.finish().toUint8Array(true))
  Object.assign(compressionRegistry, { registry: {} })
  await expect(readArrow(path)).rejects.toThrow('compressed.arrow: got compressed columns, expected columns without')
})

test('bytes are what the file has, whatever is in it', async () => {
  const path = join(folder, 'binary.arrow')
  const column = vectorFromArray([Uint8Array.of(1, 2), Uint8Array.of()], new Binary())
  await writeFile(path, tableToIPC(new Table({ x: column }), 'file'))
  expect([...(await readArrow(path)).getChild('x')!].map((bytes) => [...bytes])).toEqual([[1, 2], []])
  expect(tableFromIPC(tableToIPC(await readArrow(path))).numRows).toBe(2)
})
