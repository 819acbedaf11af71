/** What a run saves where an update was given up because a call is stuck, and where it failed with something else beside that. */
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { configureRun, type Run, startRun } from '../../src/index.ts'
import { listCheckpoints } from '../../src/training/folder/checkpoint.ts'
import { temporaryFolder } from '../support/temporary.ts'

/** A run whose first update is stuck in `step`, is told so, and then fails with what `failure` makes of the reason. */
async function stuckRun(failure: (stall: Error) => Error): Promise<Run> {
  const keys = { numLanes: '2', 'mlp.hidden': '4', stallSeconds: '0.2', onStall: 'stop', threads: '1' }
  const run = await startRun(await configureRun('CartPole-v1', keys), join(await temporaryFolder(), 'run'))
  const { trainer } = run
  const givenUp = vi.spyOn(trainer, 'giveUp').mockImplementation(() => {})
  vi.spyOn(trainer, 'updates').mockImplementation(async function* () {
    trainer.beats.set([1, 1]) // The mark behind which `step` is called, and none after it.
    await vi.waitFor(() => expect(givenUp).toHaveBeenCalled(), { timeout: 60_000 })
    throw failure(givenUp.mock.calls[0]![0])
  })
  return run
}

test('the state before an update that was given up is saved, and the run fails with what is stuck', async () => {
  const run = await stuckRun((stall) => stall)
  await expect(run.train()).rejects.toThrow(/1 threads \(lanes 0–1 of mlp\): step has not returned/)
  expect(await listCheckpoints(run.folder)).toEqual([0])
})

test('an update that fails with another error beside a stuck call leaves nothing to save: the run fails with that error', async () => {
  const run = await stuckRun(() => new Error('the dynamics broke'))
  await expect(run.train()).rejects.toThrow('the dynamics broke')
  expect(await listCheckpoints(run.folder)).toEqual([])
})
