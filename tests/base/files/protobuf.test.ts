import { describe, expect, test } from 'vitest'
import {
  bytesField,
  doubleField,
  doublesField,
  type Field,
  floatField,
  mapFields,
  messageOf,
  numberField,
  ProtoReader,
} from '../../../src/base/files/protobuf.ts'

const hex = (field: Field) => Buffer.from(messageOf([field])).toString('hex')

describe('the wire format of protocol buffers', () => {
  // The examples of protobuf.dev/programming-guides/encoding; of −1 and 2^40 what Python's protobuf 6 makes of them:
  // from google.protobuf.internal import encoder; encoder.Int64Encoder(1, False, False)(print, -1, False)
  test('is that of its documentation', () => {
    expect(hex(numberField(1, 150))).toBe('089601')
    expect(hex(bytesField(2, 'testing'))).toBe('120774657374696e67')
    expect(hex(bytesField(3, [numberField(1, 150)]))).toBe('1a03089601')
    expect(hex(numberField(1, 0))).toBe('0800')
    expect(hex(numberField(1, 127))).toBe('087f')
    expect(hex(numberField(1, 128))).toBe('088001')
    expect(hex(numberField(1, -1))).toBe('08ffffffffffffffffff01')
    expect(hex(numberField(1, 2 ** 40))).toBe('08808080808020')
  })

  test('has longer numbers for higher fields, and lengths of bytes, not of letters', () => {
    expect(hex(numberField(20, 2))).toBe('a00102')
    expect(hex(bytesField(1, 'é'))).toBe('0a02c3a9')
    expect(hex(bytesField(1, new Uint8Array(200))).slice(0, 6)).toBe('0ac801')
    expect(hex(bytesField(8, []))).toBe('4200')
  })

  test('is refused for numbers that it cannot have', () => {
    for (const value of [-2, 0.5, 2 ** 53]) expect(() => numberField(1, value)).toThrow(RangeError)
  })

  test('is read with numbers of any size, in any order, and with unknown fields', () => {
    const read = new ProtoReader(
      messageOf([
        numberField(9, 2 ** 52 + 3),
        bytesField(3, 'é'),
        doubleField(2, -0.5),
        floatField(7, 0.25),
        ...mapFields(4, { b: 2, a: 300 }, (value) => numberField(2, value)),
      ]),
    )
    expect([read.number(9), read.text(3), read.number(2), read.number(7)]).toEqual([2 ** 52 + 3, 'é', -0.5, 0.25])
    expect([read.has(1), read.number(1), read.bytes(1).length, read.messages(1)]).toEqual([false, 0, 0, []])
    expect(read.entries(4).map(([key, entry]) => [key, entry.number(2)])).toEqual([
      ['a', 300],
      ['b', 2],
    ])
  })

  test('is read whatever kinds of numbers it has', () => {
    const read = (text: string) => new ProtoReader(Buffer.from(text, 'hex'))
    expect(read('0d0000c03f').number(1)).toBe(1.5)
    expect(read('09000000000000f83f').number(1)).toBe(1.5)
    expect([read('08010802').number(1), read('0a01410a0142').text(1)]).toEqual([2, 'B']) // The last one counts.
    expect(read('').messages(1)).toEqual([])
    expect([read('').text(1), read('').number(1), read('').has(1)]).toEqual(['', 0, false])
    expect(
      read('0a050a01611001')
        .entries(1)
        .map(([key, entry]) => [key, entry.number(2)]),
    ).toEqual([['a', 1]])
    for (const [text, message] of [
      [`08${'ff'.repeat(10)}01`, 'got a number of more than ten bytes at 11, expected a message'],
      ['0b', 'got a field of kind 3, expected a message'],
      ['0d0000c0', 'got 4 bytes, expected 5 of a message'],
      ['0a0241', 'got 3 bytes, expected 4 of a message'],
      ['08', 'got 1 bytes, expected 2 of a message'],
      [`0a${'ff'.repeat(9)}01`, 'got -1 bytes at 11, expected a message'],
    ] as const) {
      expect(() => read(text)).toThrow(message)
    }
  })

  test('has zeros and empty lists in it, which are read as such', () => {
    const fields = [numberField(1, 0), doubleField(2, 0), doublesField(3, new Float64Array()), bytesField(4, '')]
    expect(Buffer.from(messageOf(fields)).toString('hex')).toBe('08001100000000000000001a002200')
    const message = new ProtoReader(messageOf(fields))
    expect([1, 2, 3, 4].map((field) => message.has(field))).toEqual([true, true, true, true])
    expect([message.number(1), message.number(2), message.bytes(3).length, message.text(4)]).toEqual([0, 0, 0, ''])
    expect(mapFields(1, {}, doubleField.bind(null, 2))).toEqual([])
    expect(messageOf([])).toHaveLength(0)
  })

  test('is read with whole numbers of 64 bits and their sign', () => {
    const written = (value: number) => new ProtoReader(messageOf([numberField(1, value)])).number(1)
    for (const value of [0, 127, 128, 2 ** 32, 2 ** 53 - 1, -1]) expect(written(value)).toBe(value)
    const read = (text: string) => new ProtoReader(Buffer.from(text, 'hex')).number(1)
    expect(read(`08fe${'ff'.repeat(8)}01`)).toBe(-2)
    expect(read(`08${'ff'.repeat(8)}7f`)).toBe(2 ** 63) // 2^63 − 1, rounded.
    expect(read(`08${'80'.repeat(9)}01`)).toBe(-(2 ** 63))
  })

  test('is refused where a field has another kind than it is asked for', () => {
    const message = new ProtoReader(messageOf([numberField(1, 5), bytesField(2, 'abc')]))
    expect(() => message.number(2)).toThrow('got 3 bytes in field 2, expected a number')
    for (const ask of [() => message.bytes(1), () => message.text(1), () => message.messages(1)]) {
      expect(ask).toThrow('got the number 5 in field 1, expected bytes')
    }
  })

  test('that is cut off anywhere but between two fields is refused', () => {
    const fields = [numberField(1, 300), bytesField(2, 'abc'), doublesField(3, Float64Array.of(1, 2)), floatField(4, 1)]
    const whole = messageOf(fields)
    const ends = fields.map((_, i) => messageOf(fields.slice(0, i + 1)).length)
    for (let length = 1; length <= whole.length; length++) {
      const cut = () => new ProtoReader(whole.subarray(0, length))
      if (ends.includes(length)) expect(cut).not.toThrow()
      else expect(cut, `${length} bytes`).toThrow(/got \d+ bytes, expected \d+ of a message/)
    }
  })
})
