// Replaces vitest where vitest does not run: it has the functions that the tests of the laws of kernels call. It ends at the first
// failure. `ONLY`: runs only the tests whose names contain this text.
import assert from 'node:assert/strict'

const only = process.env.ONLY ?? ''
let passed = 0
const path = []

export function describe(name, body) {
  path.push(name)
  body()
  path.pop()
}
describe.each = (values) => (name, body) => {
  for (const value of values) describe(filled(name, value), () => body(...[value].flat()))
}
describe.skipIf = (isSkipped) => (isSkipped ? () => {} : describe)
describe.runIf = (isRun) => describe.skipIf(!isRun)

export function test(name, body) {
  const whole = [...path, name].join(' > ')
  if (!whole.includes(only)) return
  body()
  passed++
}
test.each = (values) => (name, body) => {
  for (const value of values) test(filled(name, value), () => body(...[value].flat()))
}
test.skipIf = (isSkipped) => (isSkipped ? skipped : test)
test.runIf = (isRun) => test.skipIf(!isRun)
const skipped = () => {}
skipped.each = () => skipped

export const expect = (got) => ({
  toBe: (wanted) => assert.ok(Object.is(got, wanted), `got ${got}, expected ${wanted}`),
  toEqual: (wanted) => assert.deepEqual(got, wanted),
  toBeCloseTo: (wanted, digits = 2) =>
    assert.ok(Math.abs(got - wanted) < 10 ** -digits / 2, `got ${got}, expected ${wanted}`),
  toBeGreaterThan: (wanted) => assert.ok(got > wanted, `got ${got}, expected more than ${wanted}`),
  toBeLessThan: (wanted) => assert.ok(got < wanted, `got ${got}, expected less than ${wanted}`),
  toContain: (wanted) => assert.ok(got.includes(wanted), `got ${got}, expected ${wanted} in it`),
})

const filled = (name, value) => name.replace('%s', String([value].flat()[0])).replace('%i', String([value].flat()[0]))

process.on('exit', (code) => {
  if (code === 0) console.log(`${passed} tests passed`)
})
