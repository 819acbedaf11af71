/** `npm run control`: what it trains, and that it goes on where it was killed. */
import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { planOf, settingsOf } from '../../bench/control/cells.ts'
import { configureRun } from '../../src/index.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { thorough } from '../support/tiers.ts'

test('each of three algorithms trains on three environments with three seeds, and a run takes all their settings', async () => {
  const { cells, totalSteps } = planOf([])
  expect(totalSteps).toBe(1_000_000)
  expect(new Set(cells.map((cell) => Object.values(cell).join())).size).toBe(27)
  for (const cell of cells.slice(0, 9)) {
    const { algorithm, environment, settings } = await configureRun(cell.environment, settingsOf(cell))
    expect([algorithm.id, environment.id, cell.seed]).toEqual([cell.algorithm, cell.environment, 1])
    expect(settings.checkpointEvery).toBeGreaterThan(50)
  }
  expect(() => planOf(['algorithms=td3,trpo'])).toThrow('trpo')
  expect(() => planOf(['steps=0'])).toThrow('got 0, expected whole numbers ≥ 1')
  expect(() => planOf(['step=5'])).toThrow('step')
})

/** Starts `npm run control` on Hopper with few steps; returns its exit code, or null if it was killed. */
function control(out: string, until?: () => boolean): Promise<number | null> {
  const main = fileURLToPath(new URL('../../dist/bench/control/main.js', import.meta.url))
  const words = [`out=${out}`, 'steps=1500', 'episodes=2', 'seeds=1', 'environments=Hopper-v5', 'algorithms=td3,ppo']
  const child = spawn(process.execPath, [main, ...words], { stdio: 'ignore', detached: true })
  const ended = new Promise<number | null>((resolve) => child.on('close', resolve))
  if (until !== undefined) {
    const kill = async () => {
      while (!until()) await wait(5)
      process.kill(-child.pid!, 'SIGKILL')
    }
    void kill()
  }
  return ended
}

thorough(
  'trainings that were killed go on, those that ended stay, and the record is that of a run that nobody killed',
  async () => {
    const folder = await temporaryFolder()
    const [whole, killed] = [join(folder, 'whole'), join(folder, 'killed')]
    const recordOf = (out: string) => JSON.parse(readFileSync(join(out, 'record.json'), 'utf8')).outcomes
    const told = (out: string) => recordOf(out).map(({ seconds, load, date, ...rest }: Record<string, unknown>) => rest)
    expect(await control(whole)).toBe(0)

    const metrics = join(killed, 'td3-Hopper-v5-1', 'metrics.jsonl')
    expect(
      await control(killed, () => existsSync(metrics) && readFileSync(metrics, 'utf8').split('\n').length > 5),
    ).toBe(null)
    expect(existsSync(join(killed, 'record.json'))).toBe(false)
    expect(await control(killed, () => existsSync(join(killed, 'record.json')))).toBe(null)
    const first = recordOf(killed)
    expect(first).toMatchObject([{ algorithm: 'td3', totalSteps: 1500, episodes: 2 }])
    expect(await control(killed)).toBe(0)
    expect(recordOf(killed)[0]).toEqual(first[0])
    expect(told(killed)).toEqual(told(whole))
  },
  240_000,
)
