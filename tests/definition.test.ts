import { expect, test } from 'vitest'
import { fingerprint } from '../src/base/definition.ts'

test('a fingerprint is FNV-1a of the parts as JSON: the same everywhere, and other parts have others', () => {
  // Python: h = 0xcbf29ce484222325
  // for b in '["é",{"a":1}]'.encode(): h = ((h ^ b) * 0x100000001b3) % 2**64; then '%016x' % h
  expect(fingerprint('é', { a: 1 })).toBe('93b314070358949f')
  expect(new Set([fingerprint(), fingerprint('a'), fingerprint('a', null), fingerprint(['a'])]).size).toBe(4)
})
