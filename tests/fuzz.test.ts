import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { start } from './support/command.ts'

const FUZZ = fileURLToPath(new URL('../scripts/fuzz.mjs', import.meta.url))

test('damaged files of every format are refused or read, and no reader hangs, dies or takes what a checksum denies', async () => {
  // The first of those of `npm run fuzz`, whose figures are in docs/security.md; among them each reader twice at the least.
  const { code, stdout } = await start(process.execPath, [FUZZ, 'cases=111', 'timeoutMs=2000'], { timeout: 110_000 })
    .ended
  const { faultList, cases, refused } = JSON.parse(stdout.trim().split('\n').at(-1)!)
  expect(faultList).toEqual([])
  expect([cases, code]).toEqual([111, 0])
  expect(refused).toBeGreaterThan(80)
})
