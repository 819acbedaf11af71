/**
 * Trainings keep the bits that were written down, on any number of threads. Where a change of the bits is meant,
 * `npx vitest run --mode record tests/training/bits.test.ts` writes them down anew; CHANGELOG.md says why.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { bitsOf, trainings } from '../support/bits.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { rowsOf } from '../support/tiers.ts'

const GOLDEN = fileURLToPath(new URL('../golden/bits.json', import.meta.url))
const names = Object.keys(trainings) as (keyof typeof trainings)[]
const bits = async (name: (typeof names)[number], threads: number) =>
  bitsOf(name, threads, join(await temporaryFolder(), 'run'))

test.runIf(import.meta.env.MODE === 'record')('are written down', async () => {
  const recorded: Record<string, unknown> = {}
  for (const name of names) recorded[name] = await bits(name, 1)
  writeFileSync(GOLDEN, `${JSON.stringify(recorded, null, 2)}\n`)
})

describe.each(names)('%s', (name) => {
  test.each(rowsOf([3, 1]))('leaves the recorded weights and rows with %d threads', async (threads) => {
    expect(await bits(name, threads)).toEqual(JSON.parse(readFileSync(GOLDEN, 'utf8'))[name])
  })
})
