import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  Field,
  Int32,
  List,
  makeData,
  RecordBatch,
  Schema,
  Struct,
  Table,
  tableFromArrays,
  tableToIPC,
  Utf8,
  vectorFromArray,
} from 'apache-arrow'
import { beforeAll, describe, expect, test } from 'vitest'
import { InputError } from '../src/base/errors.ts'
import { readSafetensors, tensorOf, writeSafetensors } from '../src/base/files/safetensors.ts'
import { checkSeal } from '../src/base/files/seal.ts'
import { loadRlPrompts } from '../src/language/datasets/load.ts'
import { writeArrow } from '../src/tables/arrow.ts'
import { readArrow } from '../src/tables/read-arrow.ts'
import { start } from './support/command.ts'
import { temporaryFolder } from './support/temporary.ts'

let folder: string
beforeAll(async () => {
  folder = await temporaryFolder()
})

/** A file with these bytes changed. */
async function changed(name: string, bytes: Uint8Array, changes: Readonly<Record<number, number>>): Promise<string> {
  const path = join(folder, name)
  const copy = Uint8Array.from(bytes)
  for (const [at, value] of Object.entries(changes)) copy[Number(at)] = value
  await writeFile(path, copy)
  return path
}

/** Reads prompts in a process of its own: what they are, or the name of the error; nothing where the process had to be killed. */
async function prompts(path: string, limits: object): Promise<string> {
  const data = new URL('../dist/src/entries/data.js', import.meta.url).href
  const words = [path, JSON.stringify({ limits })].map((word) => JSON.stringify(word))
  const program = `
    import { loadRlPrompts } from '${data}'
    const told = await loadRlPrompts(${words[0]}, JSON.parse(${words[1]})).then(JSON.stringify, (error) => error.name + ': ' + error.message)
    console.log(told)`
  const { stdout, code } = await start(process.execPath, ['--input-type=module', '-e', program], { timeout: 45_000 })
    .ended
  return `${stdout.trim()} (exit code ${code})`
}

describe('an Arrow file from others', () => {
  const whole = tableToIPC(tableFromArrays({ prompt: ['one', 'two', 'three'], n: Float32Array.of(1, 2, 3) }), 'file')

  test('that makes its reader run for ever is refused within its limit', async () => {
    for (const at of [224, 566]) {
      const path = await changed('endless.arrow', whole, { [at]: whole[at]! ^ 0x80 })
      expect(await prompts(path, { timeoutMs: 1500 }), `byte ${at}`).toMatch(
        /^InputError: .*endless\.arrow: got no result of its reader in 1\.5 s, expected an Arrow file that can be read; limits\.timeoutMs/,
      )
    }
  })

  test('without damage is read, by a thread that stays', async () => {
    const path = await changed('whole.arrow', whole, {})
    for (let i = 0; i < 3; i++) {
      expect(await loadRlPrompts(path)).toEqual([1, 2, 3].map((n) => ({ prompt: ['one', 'two', 'three'][n - 1], n })))
    }
  })

  test.each([
    ['a list that ends behind its elements', [0, 2, 2_000_000_000]],
    ['a list that ends before it begins', [0, 3, 2]],
    ['a list that begins below 0', [-1, 2, 3]],
  ])('with %s is refused', async (_, offsets) => {
    const item = new Field('item', new Int32())
    const child = makeData({ type: new Int32(), data: Int32Array.of(1, 2, 3) })
    const type = new List(item)
    const list = makeData({ type, length: 2, nullCount: 0, valueOffsets: Int32Array.from(offsets), child })
    const schema = new Schema([new Field('list', type)])
    const struct = makeData({ type: new Struct(schema.fields), length: 2, nullCount: 0, children: [list] })
    const bytes = tableToIPC(new Table(schema, new RecordBatch(schema, struct)), 'stream')
    const path = await changed('list.arrow', bytes, {})
    await expect(readArrow(path)).rejects.toThrow(/list\.arrow: got .*, expected an Arrow IPC file without damage/)
  })

  test('with limits that are none, and one that is not there, is refused by name', async () => {
    const path = await changed('whole.arrow', whole, {})
    await expect(loadRlPrompts(path, { limits: { memoryMib: 0 } })).rejects.toThrow('limits.memoryMib: got 0')
    await expect(loadRlPrompts(join(folder, 'missing.arrow'))).rejects.toThrow(/missing\.arrow: got ENOENT/)
  })
})

describe('a Parquet file from others', () => {
  const golden = (name: string) => readFile(new URL(`./golden/datasets/${name}`, import.meta.url))

  test('whose reader leaves a promise behind is refused, and does not end the process', async () => {
    const path = await changed('dangling.parquet', await golden('questions-gzip.parquet'), {
      940: 236,
      1891: 223,
      2288: 11,
      2317: 170,
    })
    expect(await prompts(path, {})).toMatch(/^InputError: .*dangling\.parquet.*\(exit code 0\)$/)
  })

  test('that asks for more memory than it may is refused, and the next one is read', async () => {
    const path = await changed('x.parquet', await golden('questions-snappy.parquet'), {})
    const columns = { prompt: 'question' }
    await expect(loadRlPrompts(path, { columns, limits: { memoryMib: 1e-6 } })).rejects.toThrow(InputError)
    expect((await loadRlPrompts(path, { columns })).length).toBe(7)
  })
})

describe('what we wrote', () => {
  const table = new Table({
    name: vectorFromArray(['a', 'bc', null], new Utf8()),
    n: vectorFromArray([1, 2, 3], new Int32()),
  })

  test.each(['file', 'stream'] as const)('as an Arrow %s is refused with any byte changed', async (format) => {
    const path = join(folder, `own.${format}`)
    await writeArrow(path, table, { format })
    const bytes = new Uint8Array(await readFile(path))
    const read = await readArrow(path)
    expect([read.toArray().map(String), read.schema.metadata.size]).toEqual([table.toArray().map(String), 0])
    const passed: number[] = []
    for (let at = 0; at < bytes.length; at++) {
      const copy = bytes.slice()
      copy[at]! ^= 1 << (at % 8)
      try {
        checkSeal('own', copy)
        passed.push(at)
      } catch (error) {
        expect(error).toBeInstanceOf(InputError)
      }
    }
    expect(passed).toEqual([])
    const at = bytes.lastIndexOf(2)
    await expect(readArrow(await changed('own.arrow', bytes, { [at]: 3 }))).rejects.toThrow(
      /own\.arrow: got SHA-256 [0-9a-f]{64}, but it states [0-9a-f]{64}, expected the bytes that were written/,
    )
    await writeArrow(join(folder, 'again'), read, { format })
    expect(await readFile(join(folder, 'again'))).toEqual(Buffer.from(bytes))
  })

  test('as an Arrow stream is refused where it ends in its first bytes, or its checksum is overwritten', async () => {
    const path = join(folder, 'own.stream')
    await writeArrow(path, table, { format: 'stream' })
    const bytes = await readFile(path)
    const cut = join(folder, 'cut.stream')
    await writeFile(cut, bytes.subarray(0, 8))
    await expect(readArrow(cut)).rejects.toThrow(/cut\.stream: got no column/)
    const at = bytes.indexOf('colonnade-sha256:')
    await writeFile(cut, Buffer.from(bytes).fill('x', at, at + 163))
    await expect(readArrow(cut)).rejects.toThrow(/cut\.stream: got an unreadable checksum of the file/)
  })

  test('as safetensors is refused with any byte changed, and its checksum is no metadata of the user’s', async () => {
    const path = join(folder, 'own.safetensors')
    await writeSafetensors(path, [tensorOf('w', Float32Array.of(1, 2, 3)), tensorOf('v', Int32Array.of(4))], {
      by: 'us',
    })
    expect((await readSafetensors(path)).metadata).toEqual({ by: 'us' })
    const bytes = new Uint8Array(await readFile(path))
    for (let at = 0; at < bytes.length; at++) {
      const copy = bytes.slice()
      copy[at]! ^= 1 << (at % 8)
      await expect(readSafetensors(copy), `byte ${at}`).rejects.toThrow(InputError)
    }
  })

  test('a header of brackets is refused before it fills the memory', async () => {
    const json = Buffer.from(`{"a":[${'[],'.repeat(100_000)}[]]}`)
    const file = Buffer.concat([Buffer.alloc(8), json])
    file.writeBigUInt64LE(BigInt(json.length))
    await expect(readSafetensors(file)).rejects.toThrow(/a header with 100003 brackets in 300010 bytes/)
  })
})
