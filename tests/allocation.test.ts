import { execFileSync } from 'node:child_process'
import { expect, test } from 'vitest'

test('a tick allocates nothing: the heap grows by less than 64 bytes a tick, garbage included', () => {
  const flags = ['--expose-gc', '--max-semi-space-size=256']
  const script = new URL('./support/allocation.mjs', import.meta.url).pathname
  const measured = JSON.parse(execFileSync(process.execPath, [...flags, script], { encoding: 'utf8' }))
  console.log(`10,000 ticks of two cohorts: heap ${measured.heapBytes} bytes, buffers ${measured.bufferBytes} bytes`)
  expect(measured.ticks).toBe(10_000)
  expect(measured.heapBytes).toBeLessThan(64 * measured.ticks)
  expect(measured.bufferBytes).toBeLessThanOrEqual(0)
})
