import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import type { Trainer } from '../../../src/training/loop/trainer.ts'
import type { TextMetrics } from '../../../src/training/text/evaluate/metrics.ts'
import type { ConversationCohort } from '../../../src/world/conversations/cohort.ts'
import { SOURCE, start } from '../../support/command.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { modelFolder, trained, trainerOf } from '../../support/three-turns.ts'
import { isThorough, seeded, thorough } from '../../support/tiers.ts'

const program = fileURLToPath(new URL('../../support/three-turns-run.ts', import.meta.url))
const KILLS = 3
const [UPDATES, MIDDLE] = isThorough ? [50, 20] : [12, 5]

describe('a template that takes thinking out of earlier turns', () => {
  test('trains updates of three turns, and a killed run goes on to the same bits', async () => {
    const whole = await trainerOf(UPDATES, ['enable_thinking=false'])
    const folder = await temporaryFolder()
    const stop = new AbortController()
    const metrics: TextMetrics[] = []
    for await (const each of whole.updates({ signal: stop.signal })) {
      metrics.push(each)
      if (each.step === MIDDLE) stopAfter(whole, 9, stop)
    }
    expect(whole.progress().rlUpdates).toBe(MIDDLE)
    expect(whole.world.cohort().segments.flat().length).toBeGreaterThan(0) // In the middle of conversations with rows behind them.
    await whole.save(folder) // Whatever kills it now, this is what is left.
    metrics.push(...(await trained(whole)))
    expect(metrics).toHaveLength(UPDATES)
    for (const { rl: update } of metrics) {
      expect(update!.trajectories).toBe(6)
      expect(update!.rewrites).toBe(12) // Before each turn but the first, the thinking of the one before is taken out.
      expect(update!.groupRewards).toHaveLength(2)
    }
    const resumed = await trainerOf(UPDATES, ['enable_thinking=false'])
    expect((await resumed.restore(folder)).warnings).toEqual([])
    await trained(resumed)
    expect(resumed.progress().rlUpdates).toBe(UPDATES)
    expect(resumed.world.cohort().weights).toEqual(whole.world.cohort().weights)
  })

  thorough(
    'goes on to the same weights from kills -9 at random ticks, also between the rows of a conversation',
    async () => {
      const folder = join(await temporaryFolder(), 'run')
      const model = await modelFolder()
      const launch = (...words: string[]) => start(process.execPath, [...SOURCE, program, model, ...words])
      const last = (stdout: string) => stdout.trimEnd().split('\n').at(-1)
      const whole = await launch().ended
      expect(whole.code, whole.stderr).toBe(0)
      expect(last(whole.stdout)).toMatch(/^weights [0-9a-f]{64} after \d+ ticks$/)
      const ticks = Number(whole.stdout.match(/after (\d+) ticks/)![1])
      let between = 0
      const random = seeded(1)
      // Where chance has put all of them at ends of conversations, there are some more.
      for (let kill = 0; kill < KILLS || (between === 0 && kill < 4 * KILLS); kill++) {
        const { process: child, ended, printed } = launch(folder)
        const part = kill < KILLS ? KILLS + 2 : 10 * KILLS
        await printed(`save ${1 + Math.floor((random() * ticks) / part)}:`)
        child.kill('SIGKILL')
        const { code, stdout, stderr } = await ended
        expect(code, stderr).toBeNull()
        if (!/ 0 rows/.test(last(stdout)!)) between++
      }
      const { code, stdout, stderr } = await launch(folder).ended
      expect(code, stderr).toBe(0)
      expect(last(stdout)).toBe(last(whole.stdout))
      expect(between, 'kills between the rows of a conversation').toBeGreaterThan(0)
    },
  )

  test('rewrites only what has thinking: other turns are appended to what stands', async () => {
    const metrics = await trained(await trainerOf(25, []))
    const rewrites = metrics.map(({ rl: update }) => update!.rewrites)
    expect(rewrites).toContain(0)
    const total = rewrites.reduce((sum, count) => sum + count, 0)
    expect(total).toBeGreaterThan(0) // Where the model said </think> by chance.
    expect(total).toBeLessThan(25)
  })
})

/** Aborts once the trainer has made so many more ticks. */
function stopAfter(trainer: Trainer<ConversationCohort>, ticks: number, stop: AbortController): void {
  const end = trainer.checkpointNumber + ticks
  Object.defineProperty(stop.signal, 'aborted', { get: () => trainer.checkpointNumber >= end, configurable: true })
}
