/**
 * Columns and lists of numbers are compared by their bytes or numbers first: `toEqual` asks of each element what it is, which
 * takes longer than most tests. What differs is left to `toEqual`, which says where. Imported once a process.
 */
import { expect } from 'vitest'

function areSame(a: unknown, b: unknown): true | undefined {
  if (ArrayBuffer.isView(a) && ArrayBuffer.isView(b)) {
    if (a.constructor !== b.constructor || a.byteLength !== b.byteLength || a instanceof DataView) return undefined
    const [left, right] = [a, b].map((each) => new Uint8Array(each.buffer, each.byteOffset, each.byteLength))
    return Buffer.compare(left!, right!) === 0 ? true : undefined
  }
  if (!Array.isArray(a) || !Array.isArray(b) || a.length !== b.length) return undefined
  for (let i = 0; i < a.length; i++) if (typeof a[i] !== 'number' || !Object.is(a[i], b[i])) return undefined
  return a.length > 0 ? true : undefined
}

expect.addEqualityTesters([areSame])
