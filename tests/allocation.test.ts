import { execFileSync } from 'node:child_process'
import { expect, test } from 'vitest'

const flags = ['--expose-gc', '--max-semi-space-size=256']
const script = new URL('./support/allocation.mjs', import.meta.url).pathname
const measured = JSON.parse(execFileSync(process.execPath, [...flags, script], { encoding: 'utf8' }))

test('a tick allocates nothing: the heap grows by less than 64 bytes a tick, garbage included', () => {
  console.log(`10,000 ticks of two cohorts: heap ${measured.heapBytes} bytes, buffers ${measured.bufferBytes} bytes`)
  expect(measured.ticks).toBe(10_000)
  expect(measured.heapBytes).toBeLessThan(64 * measured.ticks)
  expect(measured.bufferBytes).toBeLessThanOrEqual(0)
})

test('an update allocates its metrics and little else: 124 more minibatches cost less than 64 bytes each', () => {
  const { few, many } = measured.updateBytes
  console.log(`an update of 4 minibatches: ${few} bytes; of 128: ${many} bytes`)
  expect(few).toBeLessThan(16_384)
  expect(many - few).toBeLessThan(64 * 124)
})
