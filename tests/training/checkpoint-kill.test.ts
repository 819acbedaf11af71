import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeEach, describe, expect, test } from 'vitest'
import { listCheckpoints, readCheckpoint, writeCheckpoint } from '../../src/training/folder/checkpoint.ts'
import { manifest, tensor } from '../support/checkpoints.ts'
import { start } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { seeded } from '../support/tiers.ts'

const random = seeded(1)

let run: string
beforeEach(async () => {
  run = await temporaryFolder()
})

describe('a checkpoint', () => {
  test('is never broken by kill -9 during pruning', async () => {
    let midway = 0
    for (let kill = 0; kill < 6; kill++) {
      run = await temporaryFolder()
      for (let update = 1; update <= 8; update++) {
        await writeCheckpoint(run, [tensor(update)], manifest(update))
        // Removing so many files takes a while, so that most kills hit a checkpoint that is half removed.
        for (let i = 0; i < 200; i++)
          writeFileSync(join(run, 'checkpoints', String(update).padStart(8, '0'), `witness-${i}`), '')
      }
      const child = start(process.execPath, [fileURLToPath(new URL('../support/prune.mjs', import.meta.url)), run])
      await child.printed('pruning')
      await new Promise((resolve) => setTimeout(resolve, random() * 15))
      child.process.kill('SIGKILL')
      await child.ended
      const updates = await listCheckpoints(run)
      expect(updates.at(-1)).toBe(8)
      for (const update of updates) expect((await readCheckpoint(run, update)).manifest.update).toBe(update)
      if (updates.length > 1) midway++
    }
    expect(midway, 'kills before the pruning was done').toBeGreaterThan(0)
  })

  test('is never broken by kill -9 at 12 random moments, and nothing that was saved is lost', async () => {
    const script = fileURLToPath(new URL('../support/save-forever.mjs', import.meta.url))
    let leftovers = 0
    for (let kill = 0; kill < 12; kill++) {
      const child = start(process.execPath, [script, run])
      await Promise.race([once(child.process.stdout!, 'data'), child.ended])
      await new Promise((resolve) => setTimeout(resolve, random() * 60))
      child.process.kill('SIGKILL')
      const { code, stdout, stderr } = await child.ended
      expect(code, stderr).toBeNull()
      const acknowledged = Number(stdout.slice(0, stdout.lastIndexOf('\n')).split('\n').at(-1))
      const updates = await listCheckpoints(run)
      expect(updates.at(-1)).toBeGreaterThanOrEqual(acknowledged)
      for (const update of updates) {
        const { manifest, tensors } = await readCheckpoint(run, update)
        expect(manifest.update).toBe(update)
        const { bytes } = tensors.get('numbers')!
        expect(new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true)).toBe(update)
      }
      leftovers += (await readdir(join(run, 'checkpoints'))).filter((name) => name.endsWith('.tmp')).length
    }
    expect(leftovers, 'kills that hit a writing').toBeGreaterThan(0)
    const next = 1 + (await listCheckpoints(run)).at(-1)!
    await writeCheckpoint(run, [tensor(1)], manifest(next))
    expect((await readdir(join(run, 'checkpoints'))).filter((name) => name.endsWith('.tmp'))).toEqual([])
  })
})
