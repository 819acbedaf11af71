import { execFileSync } from 'node:child_process'
import { expect, test } from 'vitest'

// Both sizes: with the maximum alone, the young generation begins small and is collected, and what was collected is not counted.
const flags = ['--expose-gc', '--min-semi-space-size=256', '--max-semi-space-size=256']
const script = new URL('./support/allocation.mjs', import.meta.url).pathname
const measured = JSON.parse(execFileSync(process.execPath, [...flags, script], { encoding: 'utf8' }))

// The runtime's own clock boxes what it returns on Node 20 (16 bytes, for each of a tick's four marks), not on Node 24.
const CLOCK_BYTES = 4 * 16

test('a tick allocates nothing: the heap grows by less than a small object a tick, garbage included', () => {
  const { heapBytes, keptBytes, bufferBytes } = measured
  console.log(`10,000 ticks of two cohorts: heap ${heapBytes} bytes, kept ${keptBytes}, buffers ${bufferBytes}`)
  expect(measured.ticks).toBe(10_000)
  expect(measured.heapBytes).toBeLessThan((CLOCK_BYTES + 16) * measured.ticks)
  expect(measured.keptBytes).toBeLessThan(measured.ticks)
  expect(measured.bufferBytes).toBeLessThanOrEqual(0)
})

test('an update allocates at most 32 kB with 4 minibatches, its metrics included, and less than 640 bytes for each of 124 more', () => {
  const { few, many } = measured.updateBytes
  console.log(`an update of 4 minibatches: ${few} bytes; of 128: ${many} bytes`)
  expect(few).toBeLessThan(32 * 1024)
  expect(many - few).toBeLessThan(640 * 124)
})

test('choosing the candidate set of a token allocates less than the number that a turn of its loop would box', () => {
  const { candidateBytes } = measured
  console.log(`a row of logits by top-p: ${candidateBytes.toFixed(2)} bytes`)
  expect(candidateBytes).toBeLessThan(4)
})
