import { expect, test } from 'vitest'
import { packNested, unpackNested } from '../../src/components/nested.ts'

test('nested columns, numbers, words and lists come back equal, also numbers that JSON lacks', () => {
  const value = {
    rows: { id: Int32Array.of(1, 2), part: new Float64Array(8).subarray(2, 4), none: new Uint8Array(0) },
    list: [1, -0, Number.NaN, Number.POSITIVE_INFINITY, 0.1 + 0.2, 'a', null, { half: Float32Array.of(0.5) }],
    isSet: true,
  }
  const columns = packNested(value)
  expect(Object.values(columns).every((column) => ArrayBuffer.isView(column))).toBe(true)
  expect(unpackNested(columns)).toEqual(value)
  expect(Object.is(unpackNested<typeof value>(columns).list[1], -0)).toBe(true)
})
