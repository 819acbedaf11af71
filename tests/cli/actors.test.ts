/** Runs whose rollouts are collected while others are learned from. */
import { existsSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { beforeEach, expect, test } from 'vitest'
import { stalenessMetrics } from '../../src/training/loop/metrics.ts'
import { colonnade, type Ended, MAIN, start } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { seeded } from '../support/tiers.ts'

const random = seeded(1)

let here: string
beforeEach(async () => {
  here = await temporaryFolder()
})

const words = ['CartPole-v1', 'ppo.maxStaleness=1', 'mlp.hidden=8', 'checkpointEvery=2', 'seed=3']

const lines = async (folder: string) =>
  (await readFile(join(here, folder, 'metrics.jsonl'), 'utf8'))
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
const weights = (folder: string) => readFile(join(here, folder, 'checkpoints', '00000040', 'columns.safetensors'))

test('a run killed at random moments and resumed leaves what one does that nobody stops, with other threads too', async () => {
  const whole = await colonnade(['train', ...words, 'totalSteps=40960', 'out=whole'], here)
  expect(whole.code, whole.stderr).toBe(0)
  expect(whole.stderr).toContain('16 lanes, 2 threads, seed 3')
  let last: Ended | undefined
  for (let kill = 0; last?.code !== 0; kill++) {
    const isBegun = existsSync(join(here, 'killed', 'checkpoints', '00000002'))
    if (!isBegun) await rm(join(here, 'killed'), { recursive: true, force: true })
    const others = kill % 2 ? ['threads=3', 'actors=2'] : []
    const args = isBegun ? ['resume', 'killed', ...others] : ['train', ...words, 'totalSteps=40960', 'out=killed']
    const { process: child, ended, printed } = start(process.execPath, [MAIN, ...args], { cwd: here })
    await printed('  killed\n')
    if (kill < 6) await Promise.race([ended, pause(20 + random() * 120)])
    else await ended
    child.kill('SIGKILL')
    last = await ended
    expect([0, null], last.stderr).toContain(last.code)
  }
  expect(await weights('killed')).toEqual(await weights('whole'))
  const untimed = (line: Record<string, unknown>) =>
    Object.fromEntries(Object.entries(line).filter(([key]) => !/seconds?$|Age/i.test(key)))
  expect((await lines('killed')).map(untimed)).toEqual((await lines('whole')).map(untimed))
})

test('the lines of metrics.jsonl have what is told of staleness, and only there', async () => {
  const few = ['CartPole-v1', 'mlp.hidden=8', 'totalSteps=3072']
  const stale = 'ppo.maxStaleness=1'
  for (const [folder, more] of Object.entries({
    ahead: [stale],
    actors: [stale, 'threads=3', 'actors=2'],
    together: [],
  })) {
    const { code, stderr } = await colonnade(['train', ...few, ...more, `out=${folder}`], here)
    expect(code, stderr).toBe(0)
    const [line] = (await lines(folder)).slice(-1)
    for (const name of Object.keys(stalenessMetrics))
      expect(Object.hasOwn(line, name), name).toBe(folder !== 'together')
    if (folder !== 'together') {
      expect(line).toMatchObject({ staleness: 1, stalenessMax: 1, staleRows0: 0, staleRows1: 1024 })
      expect(stderr).toContain('stale 1: 100 %')
    }
  }
  expect(JSON.parse(await readFile(join(here, 'actors', 'summary.json'), 'utf8')).threads).toBe(3)
  const { code, stderr } = await colonnade(['train', ...few, stale, 'threads=1', 'out=alone'], here)
  expect(code).not.toBe(0)
  expect(stderr).toContain('threads: got 1, and a maxStaleness of 1, expected at least 2 threads')
})
