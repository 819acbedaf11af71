import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { ColumnType } from '../../src/components/column.ts'
import { InputError } from '../../src/errors.ts'
import { decodeSafetensors, encodeSafetensors, type Tensor } from '../../src/training/safetensors.ts'

const bytesOf: Record<ColumnType, number> = { f32: 4, f64: 8, i32: 4, u32: 4, u8: 1 }
const types = Object.keys(bytesOf) as ColumnType[]

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
        const decoded = decodeSafetensors('x', whole(tensors))
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
    expect(header).toEqual({ a: { dtype: type.toUpperCase(), shape: [2], data_offsets: [0, bytes.length] } })
    expect(length % 8).toBe(0)
    expect(encoded.length).toBe(8 + length + bytes.length)
  })

  test('are views of the file, wherever it lies in its buffer', () => {
    const encoded = whole([{ name: 'a', type: 'u8', shape: [3], bytes: Uint8Array.of(1, 2, 3) }])
    const shifted = new Uint8Array(encoded.length + 3)
    shifted.set(encoded, 3)
    const { bytes } = decodeSafetensors('x', shifted.subarray(3)).get('a')!
    expect([...bytes]).toEqual([1, 2, 3])
    expect(bytes.buffer).toBe(shifted.buffer)
  })

  test('may carry metadata, which is no tensor', () => {
    const header = { __metadata__: { made: 'elsewhere' }, a: { dtype: 'U8', shape: [16], data_offsets: [0, 16] } }
    expect([...decodeSafetensors('x', file(header)).keys()]).toEqual(['a'])
  })

  const entry = { dtype: 'F32', shape: [4], data_offsets: [0, 16] }
  test.each<[string, Uint8Array, RegExp]>([
    ['an empty file', new Uint8Array(), /got 0 bytes, expected a safetensors file/],
    ['a file of 7 bytes', new Uint8Array(7), /got 7 bytes, expected a safetensors file/],
    ['a header length beyond the file', file({ a: entry }).fill(0xff, 0, 8), /got a header of \d+ bytes in a file of/],
    ['a header length one too long', longerHeader(file({}, new Uint8Array()), 1), /got a header of 3 bytes/],
    ['a header length that cuts the header', longerHeader(file({ a: entry }), -5), /header that is not JSON/],
    ['a header that is not JSON', file('{"a": '), /header that is not JSON/],
    ['a file cut within its data', file({ a: entry }).subarray(0, -1), /tensor a at bytes 0–16/],
    ['a file cut within its header', file({ a: entry }).subarray(0, 20), /got a header of \d+ bytes in a file of 20/],
    ['offsets beyond the data', file({ a: { ...entry, data_offsets: [4, 20] } }), /tensor a at bytes 4–20/],
    ['offsets before the data', file({ a: { ...entry, data_offsets: [-4, 12] } }), /tensor a at bytes -4–12/],
    ['offsets the wrong way round', file({ a: { ...entry, data_offsets: [16, 0] } }), /tensor a at bytes 16–0/],
    ['offsets that do not hold the shape', file({ a: { ...entry, shape: [3] } }), /expected 12 bytes within/],
    ['offsets that are words', file({ a: { ...entry, data_offsets: ['x', 'y'] } }), /tensor a/],
    ['tensors that overlap', file({ a: entry, b: { ...entry, data_offsets: [0, 16] } }), /tensor b/],
    ['bytes of no tensor', file({ a: entry }, new Uint8Array(20)), /x: got .+ expected/],
    ['an unknown type', file({ a: { ...entry, dtype: 'BF16' } }), /tensor a of type BF16, expected one of F32, F64/],
    ['no type', file({ a: { shape: [4], data_offsets: [0, 16] } }), /tensor a of type undefined/],
    ['no offsets', file({ a: { dtype: 'F32', shape: [4] } }), /tensor a/],
    ['no shape', file({ a: { dtype: 'F32', data_offsets: [0, 16] } }), /tensor a/],
    ['a shape with sides below 0', file({ a: { ...entry, shape: [-2, -2] } }), /tensor a/],
    ['a header that is null', file('null'), /x: got .+ expected/],
    ['a header that is a list', file([entry]), /x: got .+ expected/],
    ['a tensor that is null', file({ a: null }), /tensor a/],
  ])('are refused with %s', (_, bytes, message) => {
    const decode = () => decodeSafetensors('x', bytes)
    expect(decode).toThrow(InputError)
    expect(decode).toThrow(message)
  })

  test('are refused, and never misread, when any one byte of the header length is changed', () => {
    const encoded = whole([{ name: 'a', type: 'f32', shape: [2, 2], bytes: new Uint8Array(16) }])
    for (let place = 0; place < 8; place++) {
      for (const by of [1, 8, 64, 255]) {
        const changed = Uint8Array.from(encoded)
        changed[place] = (changed[place]! + by) % 256
        expect(() => decodeSafetensors('x', changed), `byte ${place} by ${by}`).toThrow(InputError)
      }
    }
  })
})

function longerHeader(bytes: Uint8Array, by: number): Uint8Array {
  const changed = Buffer.from(bytes)
  changed.writeBigUInt64LE(changed.readBigUInt64LE() + BigInt(by))
  return changed
}
