import { describe, expect, test } from 'vitest'
import type { ConversationCohort } from '../../../src/cohorts/conversations.ts'
import type { TextMetrics } from '../../../src/training/text/metrics.ts'
import type { Trainer } from '../../../src/training/trainer.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { trained, trainerOf } from '../../support/three-turns.ts'

describe('a template that takes thinking out of earlier turns', () => {
  test('trains fifty updates of three turns, and a killed run goes on to the same bits', async () => {
    const whole = await trainerOf(50, ['enable_thinking=false'])
    const folder = await temporaryFolder()
    const stop = new AbortController()
    const metrics: TextMetrics[] = []
    for await (const each of whole.updates({ signal: stop.signal })) {
      metrics.push(each)
      if (each.step === 20) stopAfter(whole, 9, stop)
    }
    expect(whole.progress().rlUpdates).toBe(20)
    expect(whole.world.cohort().segments.flat().length).toBeGreaterThan(0) // In the middle of conversations with rows behind them.
    await whole.save(folder) // Whatever kills it now, this is what is left.
    metrics.push(...(await trained(whole)))
    expect(metrics).toHaveLength(50)
    for (const { rl: update } of metrics) {
      expect(update!.trajectories).toBe(6)
      expect(update!.rewrites).toBe(12) // Before each turn but the first, the thinking of the one before is taken out.
      expect(update!.groupRewards).toHaveLength(2)
    }
    const resumed = await trainerOf(50, ['enable_thinking=false'])
    expect((await resumed.restore(folder)).warnings).toEqual([])
    await trained(resumed)
    expect(resumed.progress().rlUpdates).toBe(50)
    expect(resumed.world.cohort().weights).toEqual(whole.world.cohort().weights)
  })

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
  const end = trainer.moves + ticks
  Object.defineProperty(stop.signal, 'aborted', { get: () => trainer.moves >= end, configurable: true })
}
