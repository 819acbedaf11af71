/** No two different things are equal to the tests' own comparison of columns and lists of numbers (`support/equality.ts`). */
import { expect, test } from 'vitest'

const holes = (...at: number[]) => {
  const list: number[] = new Array(3)
  for (const i of at) list[i] = 1
  return list
}
class Own extends Array<number> {}
const named = <T extends object>(value: T) => Object.assign(value, { extra: 1 })
const nan = (bits: number) => new Float32Array(Uint32Array.of(bits).buffer)

const different: readonly (readonly [string, unknown, unknown])[] = [
  ['NaN and a number', [Number.NaN], [0]],
  ['zeros of two signs', [0], [-0]],
  ['zeros of two signs in columns', Float32Array.of(0), Float32Array.of(-0)],
  ['lengths', [1, 2], [1, 2, 3]],
  ['a number and a text', [1], ['1']],
  ['a number and a bigint', [1], [1n]],
  ['columns of other types with the same bytes', Int32Array.of(0), Float32Array.of(0)],
  ['columns of big numbers of other types', BigInt64Array.of(-1n), BigUint64Array.of(2n ** 64n - 1n)],
  ['columns of big numbers', BigInt64Array.of(1n), BigInt64Array.of(2n)],
  ['windows of one buffer', new Uint8Array([1, 2]).subarray(1), new Uint8Array([1, 2]).subarray(0, 1)],
  ['a name that one list has more', named([1, 2]), [1, 2]],
  ['a name that one column has more', named(Float32Array.of(1)), Float32Array.of(1)],
  ['nested lists', [[1, 2], [3]], [[1, 2], [4]]],
  ['nested columns', { a: [Float32Array.of(1)] }, { a: [Float32Array.of(2)] }],
  ['a list and a column', [1], Float32Array.of(1)],
  ['buffers', { a: Uint8Array.of(1).buffer }, { a: Uint8Array.of(2).buffer }],
  ['shared buffers', new SharedArrayBuffer(1), new SharedArrayBuffer(2)],
  ['views of bytes', new DataView(new ArrayBuffer(1)), new DataView(Uint8Array.of(1).buffer)],
]
test.each(different)('%s', (_, a, b) => {
  expect(a).not.toEqual(b)
  expect(b).not.toEqual(a)
  expect([a]).not.toStrictEqual([b])
})

test.each([
  ['a hole and undefined', holes(0, 2), [1, undefined, 1]],
  ['a hole elsewhere', holes(0), holes(2)],
  ['a class of lists', Own.from([1, 2]), [1, 2]],
  ['columns of bytes', Buffer.from([1]), Uint8Array.of(1)],
])('strictly: %s', (_, a, b) => {
  expect(a).not.toStrictEqual(b)
  expect(b).not.toStrictEqual(a)
})

test.each([
  ['lists', [1, Number.NaN, -0], [1, Number.NaN, -0]],
  ['columns', Float64Array.of(1, Number.NaN), Float64Array.of(1, Number.NaN)],
  ['NaN of two patterns', nan(0x7fc00000), nan(0x7fc00001)],
  ['empty lists', [], []],
  ['buffers', Uint8Array.of(1).buffer, Uint8Array.of(1).buffer],
])('%s that are the same', (_, a, b) => {
  expect(a).toEqual(b)
})
