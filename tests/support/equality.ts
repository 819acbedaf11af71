/**
 * Columns and lists of numbers are compared by Node first: `toEqual` asks of each element what it is, which takes longer than
 * most tests. What Node calls different is left to `toEqual`, which says where. Bare memory is compared by Node alone, since
 * `toEqual` calls any two buffers equal. Imported once a process.
 */
import { isDeepStrictEqual, types } from 'node:util'
import { expect } from 'vitest'

const isMemory = (value: unknown) => types.isAnyArrayBuffer(value) || types.isDataView(value)
const isOfNumbers = (value: unknown) =>
  ArrayBuffer.isView(value) || (Array.isArray(value) && value.every((each) => typeof each === 'number'))

expect.addEqualityTesters([
  (a: unknown, b: unknown) => {
    if (isMemory(a) && isMemory(b)) return isDeepStrictEqual(a, b)
    return isOfNumbers(a) && isOfNumbers(b) && isDeepStrictEqual(a, b) ? true : undefined
  },
])
