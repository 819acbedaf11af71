import { describe, expect, test } from 'vitest'
import { bytesField, numberField } from '../../../src/base/files/protobuf.ts'

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex')

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
})
