import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { cartPole, createTrainer, createWorld, mlp, pendulum, ppo, tick, writeArrow } from '../../src/index.ts'
import type { Trainer } from '../../src/training/loop/trainer.ts'
import { asEpisodes } from '../../src/world/cohort.ts'
import type { EpisodeCohort } from '../../src/world/episodes/cohort.ts'
import { temporaryFolder } from '../support/temporary.ts'

let folder: string
beforeAll(async () => {
  folder = await temporaryFolder()
})

const sha = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

const settings = { numSteps: 24, numMinibatches: 3, updateEpochs: 2, learningRate: 1e-3 }

async function start(environment = cartPole(), seed = 5): Promise<Trainer<EpisodeCohort>> {
  const world = await createWorld({ environment, policy: mlp({ hidden: [16, 16] }), numLanes: 12, seed })
  return createTrainer(world, ppo(settings))
}

async function advance(trainer: Trainer<EpisodeCohort>, updates: number): Promise<void> {
  for await (const { update } of trainer.updates({ totalSteps: 24 * 12 * 10 })) if (update === updates) break
}

/** What a run is, in two hashes: of every saved column, and of the rollout file. */
async function bits(trainer: Trainer<EpisodeCohort>, name: string): Promise<string[]> {
  const saved = trainer.world.columns().filter(({ planned }) => planned.saved)
  const hash = createHash('sha256')
  for (const { column } of saved) hash.update(new Uint8Array(column.buffer, column.byteOffset, column.byteLength))
  const path = join(folder, `${name}.arrow`)
  await writeArrow(path, trainer.rollout.table)
  return [hash.digest('hex'), sha(await readFile(path))]
}

describe('same bits', () => {
  test.each([
    ['CartPole-v1', cartPole()],
    ['Pendulum-v1', pendulum()],
  ])(
    'two runs of %s with one seed have the same parameters and the same rollout file, another seed does not',
    async (id, environment) => {
      const runs: string[][] = []
      for (const seed of [5, 5, 6]) {
        const trainer = await start(environment, seed)
        await advance(trainer, 4)
        runs.push(await bits(trainer, `${id}-${runs.length}`))
      }
      expect(runs[1]).toEqual(runs[0])
      expect(runs[2]![0]).not.toBe(runs[0]![0])
      expect(runs[2]![1]).not.toBe(runs[0]![1])
    },
  )

  test.each([1, 2, 3, 4, 5, 6, 7, 8, 9])(
    'stopped at update %i and resumed equals uninterrupted, lanes in mid-episode',
    async (stop) => {
      const whole = await start()
      await advance(whole, 10)
      const first = await start()
      await advance(first, stop)
      expect([...asEpisodes('test', first.world.cohort()).episode.step].some((step) => step > 0)).toBe(true)
      await first.save(join(folder, `stop${stop}`))
      const second = await start()
      await second.restore(join(folder, `stop${stop}`))
      expect(second.steps).toBe(stop * 24 * 12)
      await advance(second, 10)
      expect(await bits(second, `second${stop}`)).toEqual(await bits(whole, `whole${stop}`))
      expect(second.progress()).toEqual({ ...whole.progress(), solvedAtSeconds: second.progress().solvedAtSeconds })
    },
  )
})

describe('createTrainer', () => {
  test('comes before the first tick, once, and names unknown cohorts', async () => {
    const world = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: 2 })
    expect(() => createTrainer(world, { mpl: ppo() })).toThrow('did you mean "mlp"?')
    expect(() => createTrainer(world, { mlp: 3 as never })).toThrow('algorithm of mlp: got 3')
    tick(world)
    expect(() => createTrainer(world, ppo())).toThrow('expected createTrainer before the first tick')
  })

  test('several cohorts need an algorithm by name; a cohort without one acts and is not recorded', async () => {
    const options = () => ({
      cohorts: [
        { name: 'learner', environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 4 },
        { name: 'other', environment: pendulum(), policy: mlp({ hidden: [8] }), numLanes: 3 },
        { name: 'frozen', environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 2 },
      ],
    })
    expect(() => createTrainer(world0, ppo())).toThrow('got one algorithm for 3 cohorts')
    const world = await createWorld(options())
    const trainer = createTrainer(world, { learner: ppo({ numSteps: 32 }), other: ppo({ numSteps: 32, gamma: 0.9 }) })
    const before = world.cohorts.map(({ weights }) => sha(Uint8Array.from(new Uint8Array(weights.slice().buffer))))
    for await (const metrics of trainer.updates({ totalSteps: 32 * 7 * 2 })) {
      expect(metrics.steps).toBe(metrics.update * 32 * 7)
      expect(Number.isNaN(metrics.episodeReturn)).toBe(true)
      expect(Object.keys(metrics.cohorts)).toEqual(['learner', 'other'])
      expect(metrics.cohorts.learner!.policyLoss).not.toBeNaN()
    }
    const after = world.cohorts.map(({ weights }) => sha(Uint8Array.from(new Uint8Array(weights.slice().buffer))))
    expect(after.map((hash, i) => hash !== before[i])).toEqual([true, true, false])
    expect(() => trainer.rollout).toThrow('expected trainer.rollouts[name] with one of learner, other')
    expect(trainer.rollouts.other!.table.numRows).toBe(32 * 3)
    expect(world.cohort('frozen').episode.step.some((step) => step > 0)).toBe(true)
  })

  test('an option, a phase or a signal that there is not is an error', async () => {
    const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 1 })
    expect(() => createTrainer(world, ppo({ numSteps: 8 }), { thread: 2 } as never)).toThrow(
      'option of createTrainer: got "thread" (did you mean "threads"?), expected one of threads, actors, stallSeconds, profile, folder, ifExists, backend, collector, crew, loggers',
    )
    const trainer = createTrainer(world, ppo({ numSteps: 8, numMinibatches: 1 }))
    for (const [goal, message] of [
      [
        { totalStep: 8 },
        'option of trainer.updates: got "totalStep" (did you mean "totalSteps"?), expected one of totalSteps, phase, signal',
      ],
      [{ totalSteps: 8, phase: 'warm' }, 'phase: got "warm", expected one of sft, rl'],
      [{ totalSteps: 8, signal: {} }, 'signal: got {}, expected an AbortSignal'],
      [{}, 'totalSteps: got undefined, expected a number ≥ 1'],
    ] as const) {
      await expect(trainer.updates(goal as never).next()).rejects.toThrow(message)
    }
    expect(trainer.update).toBe(0)
  })

  test('ends between two updates once its signal is aborted, and goes on later', async () => {
    const trainer = await start()
    const stop = new AbortController()
    for await (const { update } of trainer.updates({ totalSteps: 24 * 12 * 3, signal: stop.signal })) {
      if (update === 2) stop.abort()
    }
    expect(trainer.update).toBe(2)
    for await (const _ of trainer.updates({ totalSteps: 24 * 12 * 3 }));
    expect(trainer.update).toBe(3)
  })

  test.each([0, -5, Number.NaN, 'all'])('refuses totalSteps %s', async (totalSteps) => {
    const trainer = await start()
    await expect(trainer.updates({ totalSteps: totalSteps as number }).next()).rejects.toThrow('expected a number ≥ 1')
  })
})

describe('metrics', () => {
  test('count steps, episodes and the mean of the last returns', async () => {
    const trainer = await start()
    for await (const metrics of trainer.updates({ totalSteps: 24 * 12 * 3 })) {
      expect(metrics.steps).toBe(metrics.update * 24 * 12)
      expect(metrics.episodeReturn).toBeCloseTo(metrics.episodeLength, 10) // Each step of CartPole returns 1.
      expect(metrics.entropy).toBeGreaterThan(0.6)
      expect(metrics.entropy).toBeLessThanOrEqual(Math.LN2 + 1e-6)
      expect(metrics.approxKl).toBeGreaterThanOrEqual(0)
      expect(metrics.gradNorm).toBeGreaterThan(0)
    }
    expect(trainer.progress().episodes).toBeGreaterThan(10)
  })
})

const world0 = await createWorld({
  cohorts: ['a', 'b', 'c'].map((name) => ({
    name,
    environment: cartPole(),
    policy: mlp({ hidden: [8] }),
    numLanes: 1,
  })),
})

test('its seconds are those of a clock beside it, with what is done between updates', async () => {
  const trainer = await start()
  trainer.keepsState = true
  let between = 0
  const began = performance.now()
  for await (const { update } of trainer.updates({ totalSteps: 24 * 12 * 10 })) {
    if (update === 4) break
    const paused = performance.now()
    while (performance.now() - paused < 20);
    between += performance.now() - paused
  }
  const whole = (performance.now() - began) / 1000
  expect(trainer.seconds).toBeGreaterThan(between / 1000)
  expect(trainer.seconds).toBeGreaterThan(0.8 * whole)
  expect(trainer.seconds).toBeLessThanOrEqual(whole)
})
