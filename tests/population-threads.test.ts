/** A population is the same with any number of threads, also where its run is killed. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { colony } from '../examples/colony.ts'
import { cartPole, despawn, spawn, writeArrow } from '../src/index.ts'
import { listCheckpoints } from '../src/training/folder/checkpoint.ts'
import { colonyTrainer } from './support/colony.ts'
import { colonnade, MAIN, start } from './support/command.ts'
import { advanceTo, columnsOf, fingerprint } from './support/small-training.ts'
import { temporaryFolder } from './support/temporary.ts'
import { rowsOf, thorough } from './support/tiers.ts'

test('leaves the same bits with 1 to 4 threads, while the program adds and removes lanes', async () => {
  const outcome = async (threads: number) => {
    const trainer = await colonyTrainer({}, {}, threads)
    const cohort = trainer.world.cohort()
    await advanceTo(trainer, 14, (update) => {
      if (update === 4) spawn(cohort, 5)
      if (update === 8) despawn(cohort, cohort.lanes.slice(0, 3))
    })
    const { solvedAtSeconds, ...progress } = trainer.progress()
    const path = join(await temporaryFolder(), 'rollout.arrow')
    await writeArrow(path, trainer.rollout.table)
    const file = (await readFile(path)).toString('base64')
    trainer.close()
    return { state: columnsOf(trainer), progress, file, steps: trainer.steps }
  }
  const alone = await outcome(1)
  expect(alone.progress.population!.born).toBeGreaterThan(30)
  expect(alone.progress.population!.died).toBeGreaterThan(30)
  for (const threads of rowsOf([3, 2, 4])) expect(await outcome(threads), `${threads} threads`).toEqual(alone)
})

test('lanes that the program alone adds are the same with 2 threads as with 1', async () => {
  const outcome = async (threads: number) => {
    const options = { environment: cartPole(), numLanes: 24, present: 9 }
    const trainer = await colonyTrainer(options, { numSteps: 8 }, threads)
    await advanceTo(trainer, 3, (update) => {
      if (update === 1) spawn(trainer.world.cohort(), 7)
    })
    trainer.close()
    return columnsOf(trainer)
  }
  expect(await outcome(2)).toEqual(await outcome(1))
})

thorough(
  'with room for 4,096 it leaves the same bits with 1 to 4 threads, also where others go on from a checkpoint',
  async () => {
    const made = (threads: number) =>
      colonyTrainer(
        { environment: colony({ meals: 330, lifespan: 20 }), numLanes: 4096, present: 1365 },
        { numSteps: 8, numMinibatches: 4, updateEpochs: 1 },
        threads,
      )
    const folder = await temporaryFolder()
    const alone = await made(1)
    await advanceTo(alone, 4)
    await alone.save(folder)
    await advanceTo(alone, 8)
    const { born, died } = alone.progress().population!
    expect(Math.min(born, died)).toBeGreaterThan(1000)
    const expected = { state: columnsOf(alone), steps: alone.steps, born, died }
    for (const threads of [2, 3, 4]) {
      const trainer = await made(threads)
      if (threads > 2) await trainer.restore(folder)
      await advanceTo(trainer, 8)
      const { born, died } = trainer.progress().population!
      trainer.close()
      expect({ state: columnsOf(trainer), steps: trainer.steps, born, died }, `${threads} threads`).toEqual(expected)
    }
  },
)

thorough('a run with room for 4,096 that is killed between two checkpoints goes on to the same bits', async () => {
  const folder = await temporaryFolder()
  const words = [
    ...['train', 'dist/examples/colony.js', 'numLanes=4096', 'totalSteps=240000', 'mlp.hidden=8', 'seed=2'],
    ...['environment.meals=500', 'checkpointEvery=5', 'rollouts=last'],
    ...['ppo.numSteps=8', 'ppo.numMinibatches=4', 'ppo.updateEpochs=1'],
  ]
  const whole = join(folder, 'whole')
  expect((await colonnade([...words, 'threads=1', `out=${whole}`, '--quiet'])).code).toBe(0)
  const expected = await fingerprint(whole)
  const last = (await listCheckpoints(whole)).at(-1)!
  const steps = expected.metrics.map((line: { readonly steps: number }) => line.steps)
  // About a third of the lanes is taken, when those have died of whom all were there at first.
  expect((steps.at(-1)! - steps[6]!) / (8 * (steps.length - 7) * 4096)).toBeCloseTo(1 / 3, 1)
  const run = join(folder, 'killed')
  const { process: child, ended } = start(process.execPath, [MAIN, ...words, 'threads=2', `out=${run}`, '--quiet'])
  while ((await listCheckpoints(run)).length < 2 && child.exitCode === null) await pause(1)
  child.kill('SIGKILL')
  await ended
  expect((await listCheckpoints(run)).at(-1)).toBeLessThan(last)
  const { code, stderr } = await colonnade(['resume', run, '--quiet'])
  expect(code, stderr).toBe(0)
  expect(await fingerprint(run)).toEqual(expected)
})
