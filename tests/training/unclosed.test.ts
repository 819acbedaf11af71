import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { start } from '../support/command.ts'
import { rowsOf } from '../support/tiers.ts'

const program = fileURLToPath(new URL('../support/trainers-unclosed.mjs', import.meta.url))

test.each(rowsOf(['lanes', 'actors', 'text']))(
  'trainers of %s that nobody closed give their threads back, with one warning',
  async (kind) => {
    const { code, stdout, stderr } = await start(process.execPath, ['--expose-gc', program, kind]).ended
    expect(code, stderr).toBe(0)
    const { before, most, after } = JSON.parse(stdout)
    expect(most.threads).toBeGreaterThanOrEqual(before.threads + 1)
    // Node may have ended one of its own.
    expect(after.threads).toBeLessThanOrEqual(before.threads)
    expect(most.descriptors).toBeGreaterThan(before.descriptors)
    expect(after.descriptors).toBeLessThan(before.descriptors + 4) // A worker has four.
    expect(stderr.match(/COLONNADE_UNCLOSED_TRAINER/g)).toHaveLength(1)
    expect(stderr).toContain('a trainer with threads was dropped without close(): its threads are ended now')
  },
)
