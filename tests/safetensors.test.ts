import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { InputError } from '../src/base/errors.ts'
import {
  decodeSafetensors,
  encodeSafetensors,
  openSafetensors,
  readSafetensors,
  type Tensor,
  type TensorType,
  type TensorValues,
  tensorOf,
  tensorValues,
  writeSafetensors,
} from '../src/base/files/safetensors.ts'
import * as fc from './support/properties.ts'
import { temporaryFolder } from './support/temporary.ts'

const bytesOf: Record<TensorType, number> = {
  ...{ F64: 8, I64: 8, U64: 8, F32: 4, I32: 4, U32: 4 },
  ...{ F16: 2, BF16: 2, I16: 2, U16: 2, I8: 1, U8: 1, BOOL: 1 },
}
const types = Object.keys(bytesOf) as TensorType[]

/** A file with the given header, whatever it says, and data. */
function file(header: unknown, data = new Uint8Array(16)): Uint8Array {
  const json = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header))
  const head = Buffer.alloc(8)
  head.writeBigUInt64LE(BigInt(json.length))
  return Buffer.concat([head, json, data])
}

function whole(tensors: readonly Tensor[]): Uint8Array {
  return Buffer.concat(encodeSafetensors(tensors))
}

describe('safetensors', () => {
  test('come back as they went, whatever their types, shapes, names and bytes', () => {
    const tensor = fc
      .record({ type: fc.constantFrom(...types), shape: fc.array(fc.nat(4), { maxLength: 3 }), seed: fc.nat() })
      .map(({ type, shape, seed }) => {
        const size = shape.reduce((product, side) => product * side, 1) * bytesOf[type]
        return { type, shape, bytes: Uint8Array.from({ length: size }, (_, i) => (seed + 31 * i) % 256) }
      })
    const name = fc.string({ unit: 'grapheme', minLength: 1 }).filter((word) => !word.startsWith('__'))
    fc.assert(
      fc.property(fc.uniqueArray(name, { maxLength: 6 }), fc.infiniteStream(tensor), (names, stream) => {
        const tensors = names.map((each) => ({ name: each, ...stream.next().value }))
        const decoded = decodeSafetensors('x', whole(tensors)).tensors
        expect([...decoded.keys()].sort()).toEqual([...names].sort())
        for (const { name, type, shape, bytes } of tensors) {
          const { bytes: back, ...rest } = decoded.get(name)!
          expect(rest).toEqual({ name, type, shape })
          expect(Buffer.from(back).equals(bytes)).toBe(true)
        }
      }),
    )
  })

  test.each(types)('keep %s under the name that the format has for it', (type) => {
    const bytes = Uint8Array.from({ length: 2 * bytesOf[type] }, (_, i) => i + 1)
    const encoded = whole([{ name: 'a', type, shape: [2], bytes }])
    const length = Number(Buffer.from(encoded).readBigUInt64LE())
    const header = JSON.parse(Buffer.from(encoded.subarray(8, 8 + length)).toString())
    expect(header).toEqual({ a: { dtype: type, shape: [2], data_offsets: [0, bytes.length] } })
    expect(length % 8).toBe(0)
    expect(encoded.length).toBe(8 + length + bytes.length)
  })

  test('are views of the file, wherever it lies in its buffer', () => {
    const encoded = whole([{ name: 'a', type: 'U8', shape: [3], bytes: Uint8Array.of(1, 2, 3) }])
    const shifted = new Uint8Array(encoded.length + 3)
    shifted.set(encoded, 3)
    const { bytes } = decodeSafetensors('x', shifted.subarray(3)).tensors.get('a')!
    expect([...bytes]).toEqual([1, 2, 3])
    expect(bytes.buffer).toBe(shifted.buffer)
  })

  test('may carry metadata, which is no tensor', () => {
    const header = { __metadata__: { made: 'elsewhere' }, a: { dtype: 'U8', shape: [16], data_offsets: [0, 16] } }
    const { tensors, metadata } = decodeSafetensors('x', file(header))
    expect([...tensors.keys()]).toEqual(['a'])
    expect(metadata).toEqual({ made: 'elsewhere' })
  })

  const entry = { dtype: 'F32', shape: [4], data_offsets: [0, 16] }
  const second = { ...entry, data_offsets: [16, 32] }
  const text = JSON.stringify(entry)
  test.each<[string, Uint8Array, RegExp]>([
    ['an empty file', new Uint8Array(), /got 0 bytes, expected a safetensors file/],
    ['a file of 7 bytes', new Uint8Array(7), /got 7 bytes, expected a safetensors file/],
    [
      'an absurd header length',
      file({ a: entry }).fill(0xff, 0, 8),
      /a header of 18446744073709551615 bytes, above the/,
    ],
    [
      'a header length beyond the file',
      longerHeader(file({ a: entry }), 90_000_000),
      /header of \d+ bytes in a file of/,
    ],
    ['a header length one too long', longerHeader(file({}, new Uint8Array()), 1), /got a header of 3 bytes/],
    ['a header length that cuts the header', longerHeader(file({ a: entry }), -5), /header that is not JSON/],
    ['a header length of 0', file(''), /header that is not JSON/],
    ['a header that is not JSON', file('{"a": '), /header that is not JSON/],
    ['a header that is not UTF-8', file({ ab: entry }).fill(0xff, 10, 11), /header that is not JSON/],
    ['a header behind a byte order mark', file(`\ufeff{"a":${text}}`), /header that is not JSON/],
    ['a header behind spaces', file(` {"a":${text}}`), /got a header that is \{/],
    [
      'a file cut within its data',
      file({ a: entry }).subarray(0, -1),
      /tensor a at bytes 0–16, expected an end within the/,
    ],
    ['a file cut within its header', file({ a: entry }).subarray(0, 20), /got a header of \d+ bytes in a file of 20/],
    ['a file cut before its data', file({ a: entry }, new Uint8Array()), /expected an end within the file's 0 bytes/],
    ['offsets beyond the data', file({ a: { ...entry, data_offsets: [4, 20] } }), /tensor a at bytes 4–20/],
    [
      'offsets before the data',
      file({ a: { ...entry, data_offsets: [-4, 12] } }),
      /data_offsets \[-4,12\], expected two whole/,
    ],
    ['offsets the wrong way round', file({ a: { ...entry, data_offsets: [16, 0] } }), /tensor a at bytes 16–0/],
    [
      'offsets that do not hold the shape',
      file({ a: { ...entry, shape: [3] } }),
      /expected 12 bytes for F32 of shape \[3\]/,
    ],
    ['offsets that do not hold the type', file({ a: { ...entry, dtype: 'F64' } }), /expected 32 bytes for F64/],
    ['offsets that are words', file({ a: { ...entry, data_offsets: ['x', 'y'] } }), /data_offsets \["x","y"\]/],
    ['offsets that are fractions', file({ a: { ...entry, data_offsets: [0.5, 16.5] } }), /data_offsets \[0.5,16.5\]/],
    [
      'three offsets',
      file({ a: { ...entry, data_offsets: [0, 16, 32] } }),
      /data_offsets \[0,16,32\], expected two whole/,
    ],
    ['tensors that are the same bytes', file({ a: entry, b: entry }), /tensor b at bytes 0–16, which overlaps/],
    [
      'tensors that overlap',
      file({ a: entry, b: { ...entry, data_offsets: [12, 28] } }, new Uint8Array(28)),
      /tensor b at bytes 12–28, which overlaps the one before, expected a start at 16/,
    ],
    [
      'a gap between tensors',
      file({ a: entry, b: { ...entry, data_offsets: [20, 36] } }, new Uint8Array(36)),
      /tensor b at bytes 20–36, which leaves a gap, expected a start at 16/,
    ],
    ['a gap before the first', file({ b: second }, new Uint8Array(32)), /tensor b at bytes 16–32, which leaves a gap/],
    ['bytes of no tensor', file({ a: entry }, new Uint8Array(20)), /x: got 20 bytes of data, expected the 16 bytes/],
    ['bytes and no tensors', file({}), /x: got 16 bytes of data, expected the 0 bytes/],
    [
      'an unknown type',
      file({ a: { ...entry, dtype: 'F8_E5M2' } }),
      /tensor a of type F8_E5M2, expected one of F64, I64/,
    ],
    ['a type in small letters', file({ a: { ...entry, dtype: 'f32' } }), /tensor a of type f32/],
    ['a type that every object has', file({ a: { ...entry, dtype: 'constructor' } }), /tensor a of type constructor/],
    ['no type', file({ a: { shape: [4], data_offsets: [0, 16] } }), /tensor a of type undefined/],
    ['no offsets', file({ a: { dtype: 'F32', shape: [4] } }), /tensor a with data_offsets undefined/],
    ['no shape', file({ a: { dtype: 'F32', data_offsets: [0, 16] } }), /tensor a of shape undefined/],
    ['a shape with sides below 0', file({ a: { ...entry, shape: [-2, -2] } }), /tensor a of shape \[-2,-2\]/],
    ['a shape beyond all bounds', file({ a: { ...entry, shape: [2 ** 52, 2 ** 52, 0] } }), /tensor a at bytes 0–16/],
    ['a header that is null', file('null'), /got a header that is null/],
    ['a header that is a list', file([entry]), /got a header that is \[/],
    ['a tensor that is null', file({ a: null }), /tensor a that is null, expected its dtype/],
    ['a tensor that is a list', file({ a: [1] }), /tensor a that is \[1\]/],
    ['two tensors of one name', file(`{"a":${text},"a":${text}}`), /a header with two entries "a"/],
    [
      'two tensors of one name, one escaped',
      file(`{"a":${text} , "\\u0061" : ${text}}`),
      /a header with two entries "a"/,
    ],
    ['a tensor with two types', file(`{"a":{"dtype":"U8",${text.slice(1)}}`), /a header with two entries "dtype"/],
    ['metadata that are a list', file({ __metadata__: ['x'], a: entry }), /metadata \["x"\] that are not texts/],
    ['metadata that are numbers', file({ __metadata__: { x: 1 }, a: entry }), /metadata \{"x":1\} that are not texts/],
  ])('are refused with %s', (_, bytes, message) => {
    const decode = () => decodeSafetensors('x', bytes)
    expect(decode).toThrow(InputError)
    expect(decode).toThrow(message)
  })

  test('may lie in another order than their names, and be empty', () => {
    const [b, c] = [
      { dtype: 'F32', shape: [0, 2], data_offsets: [16, 16] },
      { ...entry, dtype: 'I32' },
    ]
    const { tensors } = decodeSafetensors(
      'x',
      file(
        { a: second, b, c },
        Uint8Array.from({ length: 32 }, (_, i) => i),
      ),
    )
    expect([...tensors.keys()]).toEqual(['c', 'b', 'a'])
    expect([...tensors.get('a')!.bytes]).toEqual(Array.from({ length: 16 }, (_, i) => 16 + i))
    expect(tensors.get('b')!.bytes.length).toBe(0)
  })

  test('are aligned to their elements when we write them, whatever the order in which they are given', () => {
    const given = types.map((type) => ({ name: type, type, shape: [1], bytes: new Uint8Array(bytesOf[type]) }))
    const encoded = whole(given.reverse())
    for (const { type, bytes } of decodeSafetensors('x', encoded).tensors.values()) {
      expect((bytes.byteOffset - encoded.byteOffset) % bytesOf[type]).toBe(0)
    }
  })

  test('have any name but that of the metadata, each once, and metadata are texts', () => {
    const named = (name: string) => tensorOf(name, Uint8Array.of(1))
    const names = ['__proto__', 'constructor', '1', '', 'a"}{', 'a\\', 'Ω\u0000']
    expect([...decodeSafetensors('x', whole(names.map(named))).tensors.keys()].sort()).toEqual([...names].sort())
    expect(() => encodeSafetensors([named('a'), named('a')])).toThrow('safetensors: got two tensors "a"')
    expect(() => encodeSafetensors([named('__metadata__')])).toThrow(
      'expected distinct names, none of them __metadata__',
    )
    expect(() => encodeSafetensors([], { x: 1 as never })).toThrow('safetensors metadata x: got 1, expected a text')
  })

  test('take a name of thirty million characters for a name', () => {
    const name = 'x'.repeat(3e7)
    expect(decodeSafetensors('x', whole([tensorOf(name, Uint8Array.of(1))])).tensors.has(name)).toBe(true)
  })

  test('have a header that is read in proportion to its length: its names once, its characters twice', () => {
    const spent = (count: number) => {
      const entry = (i: number) => [`t${i}`, { dtype: 'U8', shape: [1], data_offsets: [i, i + 1] }]
      const named = Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, 'v']))
      const header = { __metadata__: named, ...Object.fromEntries(Array.from({ length: count }, (_, i) => entry(i))) }
      const bytes = file(header, new Uint8Array(count))
      const [parse, has] = [vi.spyOn(JSON, 'parse'), vi.spyOn(Set.prototype, 'has')]
      expect(decodeSafetensors('x', bytes).tensors.size).toBe(count)
      const parsed = parse.mock.calls.reduce((sum, [text]) => sum + text.length, 0)
      const counts = { length: bytes.length - count - 8, parsed, looked: has.mock.calls.length }
      vi.restoreAllMocks()
      return counts
    }
    for (const count of [2500, 10_000]) {
      const { length, parsed, looked } = spent(count)
      expect(parsed).toBeLessThan(2 * length)
      expect(looked).toBe(5 * count + 1) // Names of tensors and metadata, the three fields of each tensor.
    }
  })

  test('are refused where a header has more than a million keys', () => {
    const wide = (count: number) => file(`{"__metadata__":{${'"":"",'.repeat(count - 2)}"":""}}`)
    expect(() => decodeSafetensors('x', wide(1_000_001))).toThrow(/a header with 1000001 keys, above the 1000000/)
    expect(() => decodeSafetensors('x', wide(1_000_000))).toThrow(/a header with two entries ""/)
    const text = { __metadata__: { text: ':"\\":'.repeat(200_000) } } // None of them is behind a key.
    expect(decodeSafetensors('x', file(text, new Uint8Array(0))).metadata).toEqual(text.__metadata__)
  })

  test('are refused, and never misread, when any one byte of the header length is changed', () => {
    const encoded = whole([{ name: 'a', type: 'F32', shape: [2, 2], bytes: new Uint8Array(16) }])
    for (let place = 0; place < 8; place++) {
      for (const by of [1, 8, 64, 255]) {
        const changed = Uint8Array.from(encoded)
        changed[place] = (changed[place]! + by) % 256
        expect(() => decodeSafetensors('x', changed), `byte ${place} by ${by}`).toThrow(InputError)
      }
    }
  })
})

describe('an open file', () => {
  test('has the tensors of the whole file, each read as a whole or in part', async () => {
    const path = join(await temporaryFolder(), 'open.safetensors')
    const numbers = Float32Array.from({ length: 60 }, (_, i) => i / 7)
    await writeSafetensors(path, [tensorOf('a', numbers, [12, 5]), tensorOf('b', numbers, [60], 'F16')])
    const { tensors } = await readSafetensors(path)
    const open = openSafetensors(path)
    expect([...open.tensors.keys()]).toEqual([...tensors.keys()])
    for (const [name, { type, shape, bytes }] of tensors) {
      const place = open.tensors.get(name)!
      expect(place).toMatchObject({ name, type, shape })
      expect(Buffer.from(open.read(place))).toEqual(Buffer.from(bytes))
      expect(Buffer.from(open.read(place, 8, 20))).toEqual(Buffer.from(bytes.subarray(8, 20)))
    }
    open.close()
  })

  test('is verified before its tensors are read, in pieces', async () => {
    const path = join(await temporaryFolder(), 'damaged.safetensors')
    await writeSafetensors(path, [tensorOf('a', new Float32Array(2.5 * 2 ** 20).fill(1))])
    const bytes = await readFile(path)
    bytes[bytes.length - 3] ^= 1
    await writeFile(path, bytes)
    expect(() => openSafetensors(path)).toThrow(/damaged.safetensors: got SHA-256 .* but it states/)
    openSafetensors(path, true).close() // Somebody has verified it before.
    await writeFile(path, bytes.subarray(0, 2 ** 20))
    expect(() => openSafetensors(path)).toThrow(InputError)
    await writeFile(path, bytes.subarray(0, 5))
    expect(() => openSafetensors(path)).toThrow('got 5 bytes, expected a safetensors file')
    expect(() => openSafetensors(join(path, '..'))).toThrow('got a folder, expected a readable safetensors file')
  })
})

describe('a file of Python', () => {
  // from safetensors.torch import save  (safetensors 0.8.0, torch 2.15.0)
  // t = torch.tensor
  // data = save({'w': t([[1.5, -2.0], [0.1, 3e38]]), 'd': t([1 / 3], dtype=torch.float64), 'l': t([-(2**53) - 1]),
  //     'b': t([1.0, 0.1, -3e38]).to(torch.bfloat16), 'h': t([0.1, -65504, 6e-8]).to(torch.float16),
  //     'e': torch.zeros((0, 3)), 's': t(7, dtype=torch.uint8), 't': t([True, False, True]),
  //     'i': t([-5], dtype=torch.int32), 'j': t([-3], dtype=torch.int16), 'k': t([-9], dtype=torch.int8)},
  //     {'made': 'Python', 'by': 'é'})
  // n = int.from_bytes(data[:8], 'little'); print(n, data[8:8 + n].decode(), data[8 + n:].hex())
  const header =
    '{"__metadata__":{"made":"Python","by":"é"},' +
    '"l":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},' +
    '"d":{"dtype":"F64","shape":[1],"data_offsets":[8,16]},' +
    '"e":{"dtype":"F32","shape":[0,3],"data_offsets":[16,16]},' +
    '"w":{"dtype":"F32","shape":[2,2],"data_offsets":[16,32]},' +
    '"i":{"dtype":"I32","shape":[1],"data_offsets":[32,36]},' +
    '"b":{"dtype":"BF16","shape":[3],"data_offsets":[36,42]},' +
    '"h":{"dtype":"F16","shape":[3],"data_offsets":[42,48]},' +
    '"j":{"dtype":"I16","shape":[1],"data_offsets":[48,50]},' +
    '"k":{"dtype":"I8","shape":[1],"data_offsets":[50,51]},' +
    '"s":{"dtype":"U8","shape":[],"data_offsets":[51,52]},' +
    '"t":{"dtype":"BOOL","shape":[3],"data_offsets":[52,55]}}       '
  const data =
    'ffffffffffffdfff555555555555d53f0000c03f000000c0cdcccc3de6b1617ffbffffff803fcd3d62ff662efffb0100fdfff707010001'
  const python = file(header, Buffer.from(data, 'hex'))

  /** What the file holds, in the order of its bytes. */
  const tensors: [string, TensorValues, number[], TensorType][] = [
    ['l', BigInt64Array.of(-(2n ** 53n) - 1n), [1], 'I64'],
    ['d', Float64Array.of(1 / 3), [1], 'F64'],
    ['e', new Float32Array(), [0, 3], 'F32'],
    ['w', Float32Array.of(1.5, -2, 0.1, 3e38), [2, 2], 'F32'],
    ['i', Int32Array.of(-5), [1], 'I32'],
    // [float(x) for x in t([1.0, 0.1, -3e38]).to(torch.bfloat16)], and of t([0.1, -65504, 6e-8]).to(torch.float16)
    ['b', Float32Array.of(1, 0.10009765625, -3.00405527047391e38), [3], 'BF16'],
    ['h', Float32Array.of(0.0999755859375, -65504, 2 ** -24), [3], 'F16'],
    ['j', Int16Array.of(-3), [1], 'I16'],
    ['k', Int8Array.of(-9), [1], 'I8'],
    ['s', Uint8Array.of(7), [], 'U8'],
    ['t', Uint8Array.of(1, 0, 1), [3], 'BOOL'],
  ]

  test('is read', async () => {
    const { tensors: found, metadata } = await readSafetensors(python)
    expect(metadata).toEqual({ made: 'Python', by: 'é' })
    const read = [...found.values()].map((each) => [each.name, tensorValues(each), each.shape, each.type])
    expect(read).toEqual(tensors)
  })

  test('is what we write of the same tensors, byte for byte', async () => {
    const path = join(await temporaryFolder(), 'a.safetensors')
    const rounded = { b: Float32Array.of(1, 0.1, -3e38), h: Float32Array.of(0.1, -65504, 6e-8) }
    const given = tensors.map(([name, values, shape, type]) =>
      tensorOf(name, name in rounded ? rounded[name as 'b'] : values, shape, type),
    )
    expect(Buffer.concat(encodeSafetensors(given, { made: 'Python', by: 'é' })).equals(python)).toBe(true)
    await writeSafetensors(path, given, { made: 'Python', by: 'é' })
    expect([...(await readSafetensors(path)).tensors.keys()].join('')).toBe('ldewibhjkst')
  })

  test('that is not there, or no safetensors file, is named', async () => {
    const folder = await temporaryFolder()
    await expect(readSafetensors(join(folder, 'no'))).rejects.toThrow(
      /no: got ENOENT.+, expected a readable safetensors file/,
    )
    await writeFile(join(folder, 'text'), 'weights, supposedly')
    await expect(readSafetensors(join(folder, 'text'))).rejects.toThrow(/text: got a header of \d+ bytes/)
    await expect(readSafetensors(new Uint8Array(3))).rejects.toThrow('safetensors: got 3 bytes')
    await expect(writeSafetensors(join(folder, 'text/a'), [])).rejects.toThrow(InputError)
  })
})

describe('tensorOf', () => {
  test.each<[string, () => unknown, string]>([
    ['a shape of another size', () => tensorOf('a', new Float32Array(3), [2, 2]), '3 elements of shape [2,2]'],
    ['a shape below 0', () => tensorOf('a', new Float32Array(1), [-1, -1]), '1 elements of shape [-1,-1]'],
    ['a list', () => tensorOf('a', [1, 2] as never), 'tensor a: got [1,2], expected a typed array'],
    ['f64 for f32', () => tensorOf('a', new Float64Array(1), [1], 'F32'), 'a Float64Array for "F32", expected F64'],
    ['f64 for bf16', () => tensorOf('a', new Float64Array(1), [1], 'BF16'), 'a Float64Array for "BF16", expected F64'],
    ['i8 for u8', () => tensorOf('a', new Int8Array(1), [1], 'U8'), 'a Int8Array for "U8", expected I8'],
    ['2 for BOOL', () => tensorOf('a', Uint8Array.of(1, 2), [2], 'BOOL'), '2 in element 1, expected 0 or 1'],
    [
      '65520 for f16',
      () => tensorOf('a', Float32Array.of(0, 65520), [2], 'F16'),
      '65520 in element 1, expected a number',
    ],
    ['-3.4e38 for bf16', () => tensorOf('a', Float32Array.of(-3.4e38), [1], 'BF16'), 'expected a number that BF16 can'],
  ])('refuses %s', (_, make, message) => {
    expect(make).toThrow(InputError)
    expect(make).toThrow(message)
  })

  test('gives f16 and bf16 their infinities and NaN where the number itself is one', () => {
    const values = Float32Array.of(Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NaN)
    for (const type of ['F16', 'BF16'] as const) expect(tensorValues(tensorOf('a', values, [3], type))).toEqual(values)
  })

  test('takes a part of a larger array, and its values are a view again where they may be', () => {
    const part = Float32Array.of(1, 2, 3, 4).subarray(1, 3)
    const values = tensorValues(tensorOf('a', part)) as Float32Array
    expect(values.buffer).toBe(part.buffer)
    expect([...values]).toEqual([2, 3])
    const shifted = new Uint8Array(9)
    shifted.set(new Uint8Array(part.buffer, 4, 8), 1)
    expect(tensorValues({ name: 'a', type: 'F32', shape: [2], bytes: shifted.subarray(1) })).toEqual(part)
  })
})

function longerHeader(bytes: Uint8Array, by: number): Uint8Array {
  const changed = Buffer.from(bytes)
  changed.writeBigUInt64LE(changed.readBigUInt64LE() + BigInt(by))
  return changed
}
