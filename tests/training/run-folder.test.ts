import { getEventListeners } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { callsOf, createBeats } from '../../src/base/clock.ts'
import { disk } from '../../src/base/files/files.ts'
import { listRollouts } from '../../src/entries/data.ts'
import { configureRun } from '../../src/index.ts'
import { RunFolder } from '../../src/training/folder/run-folder.ts'
import { runRecordOf } from '../../src/training/folder/run-record.ts'
import { temporaryFolder } from '../support/temporary.ts'

let folder: string
beforeEach(async () => {
  vi.restoreAllMocks()
  folder = join(await temporaryFolder(), 'run')
})

describe('the log of a run', () => {
  test('has what nobody may have seen, with time and process, and what is told on standard error too', async () => {
    const { found: files } = await RunFolder.claim(folder, 'refuse')
    const told: string[] = []
    vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
      told.push(String(text))
      return true
    })
    files.log('one')
    files.tell('two')
    expect(told).toEqual(['colonnade: warning: two\n'])
    const lines = (await readFile(join(folder, 'run.log'), 'utf8')).split('\n')
    expect(lines.map((line) => line.replace(/^\d{4}-\d\d-\d\dT[\d:.]+Z/, 'at'))).toEqual([
      `at process ${process.pid}: one`,
      `at process ${process.pid}: two`,
      '',
    ])
    await files.release()
    const files2 = await RunFolder.take(folder)
    const append = vi.spyOn(disk, 'append').mockImplementation(() => {
      throw new Error('disk full')
    })
    expect(() => files2.log('lost')).not.toThrow()
    expect(append).toHaveBeenCalledOnce()
    await files2.release()
  })

  test('has what is stuck while somebody watches, and nothing of it afterwards', async () => {
    const { found: files } = await RunFolder.claim(folder, 'refuse')
    vi.spyOn(process.stderr, 'write').mockReturnValue(true)
    const beats = createBeats(1)
    const giveUp = vi.fn()
    const { signal } = new AbortController()
    const training = { beats, who: ['all lanes'], calls: callsOf([]), giveUp }
    const watch = await files.watch(training, { stallSeconds: 0.05, onStall: 'continue' }, signal)
    expect(getEventListeners(signal, 'abort')).toHaveLength(1)
    beats.set([1, 1]) // It has marked the second kind of work, and goes no further.
    const log = () => readFile(join(folder, 'run.log'), 'utf8').catch(() => '')
    await vi.waitFor(async () => expect(await log()).toMatch(/: all lanes: step has not returned for [\d.]+ s/), 20_000)
    const told = await log()
    watch.close()
    expect(getEventListeners(signal, 'abort')).toEqual([])
    Atomics.add(beats, 0, 1)
    await new Promise((resolve) => setTimeout(resolve, 250))
    expect(await log()).toBe(told)
    expect(watch.stall).toBeNull()
    expect(giveUp).not.toHaveBeenCalled()
    await files.release()
  })
})

describe('the training that a folder is compared with', () => {
  test('is what its config.json says, without modules; what it does not say is undefined', () => {
    const part = (id: string, module?: string) => ({ id, parameters: { a: 1 }, ...(module && { module }) })
    const config = { environment: part('e', 'file:///e.mjs'), policy: part('p'), algorithm: part('a'), sft: null }
    expect(runRecordOf({ colonnade: '1', ...config, settings: { seed: 3, numLanes: 2 } })).toEqual({
      ...{ environment: part('e'), policy: part('p'), algorithm: part('a'), sft: null, rl: undefined },
      ...{ seed: 3, numLanes: 2, rewardReduction: undefined },
    })
    expect(runRecordOf({ colonnade: '1', policy: 'mlp' })).toMatchObject({ policy: 'mlp', seed: undefined })
  })
})

test('the rollouts of a run come in the order of their updates, whatever the order in which the disk lists them', async () => {
  vi.spyOn(disk, 'list').mockResolvedValue(['00000010.arrow', '00000002.arrow', 'notes', '00000003.arrow.7.tmp'])
  expect(await listRollouts(folder)).toEqual(
    ['00000002.arrow', '00000010.arrow'].map((name) => join(folder, 'rollouts', name)),
  )
})

test('what is watched takes no less than 0 seconds', async () => {
  await expect(configureRun('CartPole-v1', { stallSeconds: '-1' })).rejects.toThrow(
    'stallSeconds: got "-1", expected a number ≥ 0',
  )
  expect((await configureRun('CartPole-v1', { stallSeconds: '0' })).settings.stallSeconds).toBe(0)
})
