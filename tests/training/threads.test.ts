import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
// Workers load compiled files, and what they make must be made of the same ones here.
import {
  type AlgorithmDefinition,
  cartPole,
  collect,
  createTrainer,
  createWorld,
  type EpisodeCohort,
  InputError,
  mlp,
  pendulum,
  ppo,
  type Trainer,
  tick,
  type UpdateMetrics,
  type World,
  type WorldOptions,
  writeArrow,
} from '../../dist/src/index.js'
import { asEpisodes } from '../../dist/src/world/cohort.js'
import { listCheckpoints } from '../../src/training/folder/checkpoint.ts'
import { colonnade, MAIN, skipLoudly, start } from '../support/command.ts'
import { fingerprint } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { rowsOf, thorough } from '../support/tiers.ts'

type Algorithms = AlgorithmDefinition | Record<string, AlgorithmDefinition>

async function begin(options: WorldOptions, algorithms: Algorithms, threads: number): Promise<Trainer<EpisodeCohort>> {
  return createTrainer((await createWorld(options)) as World<EpisodeCohort>, algorithms, { threads })
}

/** Trains to the end of an update; returns the metrics of each that it did. */
async function advance(trainer: Trainer<EpisodeCohort>, until: number): Promise<UpdateMetrics[]> {
  const metrics: UpdateMetrics[] = []
  if (trainer.update === until) return metrics
  // A hundred updates are the whole training, so that what falls over its length is the same wherever it is stopped.
  const rows = Object.values(trainer.rollouts).reduce((sum, { table }) => sum + table.numRows, 0)
  for await (const update of trainer.updates({ totalSteps: rows * 100 })) {
    metrics.push(update)
    if (update.update === until) break
  }
  expect(trainer.update).toBe(until)
  return metrics
}

const sha = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

/** SHA-256 of every saved column and of every rollout's Arrow file. */
async function bits(trainer: Trainer<EpisodeCohort>): Promise<Record<string, string>> {
  const hashes: Record<string, string> = {}
  for (const { planned, column } of trainer.world.columns()) {
    if (!planned.saved) continue
    hashes[planned.name] = sha(Uint8Array.from(new Uint8Array(column.buffer, column.byteOffset, column.byteLength)))
  }
  const folder = await temporaryFolder()
  for (const [name, { table }] of Object.entries(trainer.rollouts)) {
    const path = join(folder, `${name}.arrow`)
    await writeArrow(path, table)
    hashes[`${name}.arrow`] = sha(await readFile(path))
  }
  return hashes
}

/** Metrics without what a clock has a part in. */
function untimed(metrics: readonly object[]): unknown[] {
  return metrics.map((update) => Object.fromEntries(Object.entries(update).filter(([key]) => !/seconds?$/i.test(key))))
}

/** All that a training by so many threads comes to. */
async function outcome(options: WorldOptions, algorithms: Algorithms, threads: number, updates: number) {
  const trainer = await begin(options, algorithms, threads)
  const metrics = untimed(await advance(trainer, updates))
  const { solvedAtSeconds, ...progress } = trainer.progress(trainer.world.names[0])
  const result = { bits: await bits(trainer), metrics, progress }
  trainer.close()
  return { ...result, trainer }
}

async function expectSameForTeams(
  options: WorldOptions,
  algorithms: Algorithms,
  updates: number,
  teams: readonly number[],
) {
  const { trainer, ...alone } = await outcome(options, algorithms, 1, updates)
  expect(alone.metrics).toHaveLength(updates)
  for (const threads of teams) {
    const { trainer: _, ...together } = await outcome(options, algorithms, threads, updates)
    expect(together, `${threads} threads`).toEqual(alone)
  }
  return { trainer, ...alone }
}

const policy = mlp({ hidden: [12] })

describe('same bits for 1, 2, 3, 4 and 16 threads', () => {
  // Rows of a minibatch, and blocks of 256 of them: 208 and 1, 1,285 and 6, 5,140 and 21.
  const few = { numLanes: 13, learner: { numSteps: 32, numMinibatches: 2 } }
  const several = { numLanes: 257, learner: { numSteps: 10, numMinibatches: 2, updateEpochs: 2 } }
  const many = { numLanes: 257, learner: { numSteps: 20, numMinibatches: 1, updateEpochs: 2 } }

  const matrix = [
    ['CartPole-v1', 'simd', '6 blocks a minibatch', several, 4],
    ['Pendulum-v1', 'best', '13 lanes', few, 12],
    ['CartPole-v1', 'plain', '13 lanes, 20 updates', few, 20],
    ['CartPole-v1', 'best', '21 blocks a minibatch', many, 3],
    ['Pendulum-v1', 'plain', '6 blocks a minibatch', several, 3],
    ['Pendulum-v1', 'simd', '21 blocks a minibatch', many, 3],
  ] as const

  test.each(rowsOf(matrix, 2))(
    'in %s with %s kernels: %s',
    async (id, kernels, _size, { numLanes, learner }, updates) => {
      const environment = id === 'CartPole-v1' ? cartPole() : pendulum()
      const build = kernels === 'best' ? {} : { kernels }
      const options = { environment, policy, numLanes, seed: 7, ...build }
      const first = await outcome(options, ppo({ ...learner, learningRate: 1e-3 }), 1, 1)
      // Each size meets each team in one of the two environments.
      const teams = rowsOf(id === 'CartPole-v1' ? [2, kernels === 'best' ? 16 : 5] : [4, 3])
      const { bits: last } = await expectSameForTeams(options, ppo({ ...learner, learningRate: 1e-3 }), updates, teams)
      for (const [name, hash] of Object.entries(first.bits)) {
        if (/weights|oment|arrow/.test(name)) expect(last[name], `${name} moved`).not.toBe(hash)
      }
    },
  )

  test('with two learning cohorts and one that only acts, across 3 threads', async () => {
    const options = {
      seed: 3,
      cohorts: [
        { name: 'hare', environment: cartPole(), policy, numLanes: 13 },
        { name: 'frozen', environment: cartPole(), policy, numLanes: 5 },
        { name: 'hunter', environment: pendulum(), policy: mlp({ hidden: [6], sharedTrunk: true }), numLanes: 2 },
      ],
    }
    const algorithms = { hare: ppo({ numSteps: 48 }), hunter: ppo({ numSteps: 48, gamma: 0.9, updateEpochs: 2 }) }
    const { trainer, bits } = await expectSameForTeams(options, algorithms, 6, [3])
    expect(Object.keys(bits)).toEqual(expect.arrayContaining(['hare.arrow', 'hunter.arrow', 'frozen.weights']))
    expect(asEpisodes('test', trainer.world.cohort('frozen')).episode.episode.some((episode) => episode > 0)).toBe(true)
  })

  test('where dead rows of next-step resets are left out of the minibatches', async () => {
    const options = {
      environment: cartPole({ maxEpisodeSteps: 15 }),
      policy,
      numLanes: 37,
      autoreset: 'next-step' as const,
    }
    const { trainer } = await expectSameForTeams(options, ppo({ numSteps: 40, numMinibatches: 3 }), 3, rowsOf([3, 2]))
    expect(asEpisodes('test', trainer.world.cohort()).rollout.valid.some((valid) => valid === 0)).toBe(true)
  })

  test.each(rowsOf(['adam', 'sgd']))('of a network so large that threads share the steps of %s', async (optimizer) => {
    const options = { environment: cartPole(), policy: mlp({ hidden: [256, 256] }), numLanes: 13 }
    const settings = { numSteps: 16, numMinibatches: 2, updateEpochs: 1, learningRate: 1e-3, optimizer }
    const { trainer } = await expectSameForTeams(options, ppo(settings), 2, rowsOf([3, 2]))
    expect(trainer.world.cohort().weights.length).toBeGreaterThan(65_536)
  })

  test('where targetKl ends updates early', async () => {
    const options = { environment: cartPole(), policy, numLanes: 37 }
    const settings = { numSteps: 32, numMinibatches: 2, updateEpochs: 8, learningRate: 5e-3 }
    const stopped = await expectSameForTeams(options, ppo({ ...settings, targetKl: 0.003 }), 6, rowsOf([2, 3]))
    const free = await outcome(options, ppo(settings), 1, 6)
    expect(stopped.bits).not.toEqual(free.bits)
  })

  // In the fast tier tests/training/sweep.test.ts trains side by side with threads.
  thorough('side by side in one process', async () => {
    const options = { environment: cartPole(), policy, numLanes: 9 }
    const run = (threads: number) => outcome(options, ppo({ numSteps: 32 }), threads, 5)
    const [alone, ...others] = await Promise.all([run(1), run(2), run(3), run(2)])
    for (const { bits, metrics } of others) {
      expect({ bits, metrics }).toEqual({ bits: alone!.bits, metrics: alone!.metrics })
    }
  })

  test.each(
    rowsOf([
      [2, 3],
      [3, 1],
      [1, 2],
    ]),
  )('saved by %i and resumed by %i', async (before, after) => {
    const options = { environment: pendulum(), policy, numLanes: 13, seed: 2 }
    const algorithm = ppo({ numSteps: 48 })
    const whole = await outcome(options, algorithm, 1, 6)
    const first = await begin(options, algorithm, before)
    await advance(first, 2)
    const folder = await temporaryFolder()
    await first.save(folder)
    const second = await begin(options, algorithm, after)
    expect(await second.restore(folder)).toEqual({ warnings: [] })
    const metrics = untimed(await advance(second, 6))
    expect({ metrics, bits: await bits(second) }).toEqual({ metrics: whole.metrics.slice(2), bits: whole.bits })

    await advance(first, 4)
    await first.restore(folder) // With its workers at their places.
    await advance(first, 6)
    expect(await bits(first)).toEqual(whole.bits)
    first.close()
    second.close()
  })

  test('with the workers sent home between updates', async () => {
    const options = { environment: cartPole(), policy, numLanes: 13, seed: 2 }
    const whole = await outcome(options, ppo({ numSteps: 48 }), 1, 6)
    const trainer = await begin(options, ppo({ numSteps: 48 }), 3)
    const metrics: UpdateMetrics[] = []
    for (const until of [1, 3, 6]) {
      metrics.push(...(await advance(trainer, until)))
      trainer.close()
      trainer.close()
    }
    expect({ metrics: untimed(metrics), bits: await bits(trainer) }).toEqual({
      metrics: whole.metrics,
      bits: whole.bits,
    })
  })
})

describe('a training in which something goes wrong', () => {
  const script = fileURLToPath(new URL('../support/threads-failure.mjs', import.meta.url))

  /** Runs it in a process of its own, which nothing but its last handle ends. */
  async function run(order: object) {
    const { code, stdout, stderr } = await start(process.execPath, [script, JSON.stringify(order)]).ended
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const lines = stdout.trimEnd().split('\n')
    const failings = lines.filter((line) => line === 'failing')
    const records = lines.filter((line) => line.startsWith('{')).map((line) => JSON.parse(line))
    const errors = records.filter(({ message }) => message !== undefined)
    return { failings, records, errors, exit: records.find(({ exiting }) => exiting) }
  }

  const second = 'worker 2 of 3 threads (lanes 26–39 of agents)'
  const last = 'worker 1 of 2 threads (lanes 20–39 of agents)'
  /** Node says 1 of a worker that is terminated, or 0 where it had nothing to do just then. */
  const terminated = (worker: string) =>
    expect.stringMatching(new RegExp(`^${worker.replaceAll(/[()]/g, '\\$&')} ended with code [01]$`))
  const thrown = (what: string) =>
    `environment Faulty-v0: got ${what} thrown by step, expected an Error as the exception`
  const notFinite = 'got NaN in observation[0] of lane 39 (episode 1, step 4) from step, expected finite numbers'

  test.each(
    rowsOf(
      [
        ['that throws in environment.reset', { environment: { phase: 'reset' } }, `${second} failed: boom in reset`],
        ['that throws in environment.step', { environment: { phase: 'step' } }, `${second} failed: boom in step`],
        ['that throws in policy.infer', { policy: { phase: 'infer', calls: 40 } }, `${second} failed: boom in infer`],
        ['that throws in policy.values', { policy: { phase: 'values', calls: 2 } }, `${second} failed: boom in values`],
        [
          'that throws in policy.differentiate',
          { policy: { phase: 'differentiate', calls: 1 } },
          `${second} failed: boom in differentiate`,
        ],
        [
          'beside which there are cores enough, and that throws',
          { threads: 2, environment: { phase: 'step', culprit: 1 } },
          `${last} failed: boom in step`,
        ],
      ],
      2,
    ),
  )('by a worker %s ends with the error, the worker and its lanes', async (_, order, message) => {
    const { errors, records, failings, exit } = await run(order)
    expect(errors.map((error) => error.message)).toEqual([message, message])
    expect(errors[0].stack.startsWith(message)).toBe(true)
    expect(errors[0].stack).toMatch(/boom in \w+\n +at .*threads-faults\.mjs:\d+/)
    expect(records.find(({ isSame }) => isSame !== undefined).isSame).toBe(true)
    expect(failings).toHaveLength(1)
    expect(exit.ended).toBe(exit.started)
  })

  test.each(
    rowsOf([
      [
        'writes NaN in its lanes',
        { environment: { phase: 'step', kind: 'nan' } },
        `${second} failed: environment Faulty-v0: ${notFinite}`,
      ],
      [
        'throws a text',
        { environment: { phase: 'step', kind: 'text' } },
        `${second} failed: ${thrown('"boom in step"')}`,
      ],
      ['throws null', { environment: { phase: 'step', kind: 'null' } }, `${second} failed: ${thrown('null')}`],
      ['calls process.exit(3)', { environment: { phase: 'step', kind: 'exit' } }, `${second} ended with code 3`],
      ['is killed at work', { environment: { phase: 'step', kind: 'slow' }, terminate: 'midway' }, terminated(second)],
      ['is killed between updates', { terminate: 'between' }, terminated(second)],
      ['is killed between updates, the only one', { terminate: 'between', threads: 2 }, terminated(last)],
    ]),
  )('because a worker %s ends with an error that says so', async (_, order, message) => {
    const { errors, records, failings, exit } = await run(order)
    expect(errors.map((error) => error.message)).toEqual([message, message])
    expect(records.find(({ isSame }) => isSame !== undefined).isSame).toBe(true)
    expect(failings).toHaveLength(1)
    expect(exit.ended).toBe(exit.started)
  })

  test.each(
    rowsOf([
      ['throws there when it is imported', 'import', /failed: environment module: got \/.*\(boom in import\)$/],
      ['throws there after a while', 'late', /failed: boom, late$/],
      ['leaves a rejection unhandled there', 'unhandled', /failed: boom, unhandled$/],
      ['never comes to its end there', 'stuck', /ended with code \d+$/],
    ]),
  )('because a module %s ends before it has begun', async (_, way, message) => {
    const { errors, records, exit } = await run({ way })
    expect(errors[0].message).toMatch(/^worker [12] of 3 threads \(lanes (13–25|26–39) of agents\) /)
    expect(errors[0].message).toMatch(message)
    expect(records.find(({ isSame }) => isSame !== undefined).isSame).toBe(true)
    expect(exit).toMatchObject({ started: 2, ended: 2 })
  })

  test.each(
    rowsOf([
      ['throws', { culprit: 0 }, { name: 'Error', message: 'boom in step' }],
      [
        'writes NaN',
        { culprit: 0, kind: 'nan' },
        { name: 'InputError', message: `environment Faulty-v0: ${notFinite.replace('39', '12')}` },
      ],
    ]),
  )("because the caller's own thread %s ends with that error, and the workers end", async (_, order, error) => {
    const { errors, records, exit } = await run({ environment: { phase: 'step', ...order } })
    expect(errors).toMatchObject([error, error])
    expect(records.find(({ isSame }) => isSame !== undefined).isSame).toBe(true)
    expect(exit).toMatchObject({ started: 2, ended: 2 })
  })

  test.each(
    rowsOf([
      ['in the middle of an update', 'close'],
      ['while its workers are on their way', 'close early'],
    ]),
  )('because it is closed %s ends with an error that says so', async (_, terminate) => {
    const order = { environment: { phase: 'step', kind: 'slow' }, terminate }
    const { errors, exit } = await run(order)
    expect(errors[0].message).toBe('the trainer was closed during an update')
    expect(exit).toMatchObject({ started: 2, ended: 2 })
  })

  test('leaves nothing that holds the process when it is only left and forgotten', async () => {
    const { records, exit } = await run({ leave: true })
    expect(records[0]).toMatchObject({ update: 1 })
    expect(exit.started).toBe(2)
  })
})

describe('threads', () => {
  const options = { environment: cartPole(), policy, numLanes: 4 }

  test.each([0, -1, 1.5, 65, Number.NaN, Number.POSITIVE_INFINITY, '2', null])('are refused as %s', async (threads) => {
    const world = await createWorld(options)
    const attempt = () => createTrainer(world, ppo(), { threads: threads as number })
    expect(attempt).toThrow(InputError)
    expect(attempt).toThrow(/^threads: got .* expected a whole number from 1 to 64$/)
    expect(world.threads.count).toBe(1)
  })

  test.each(['environment', 'policy', 'algorithm'] as const)(
    'are refused where the %s has no module, by its name, and the world is as before',
    async (noun) => {
      const definitions = { environment: cartPole(), policy, algorithm: ppo({ numSteps: 8 }) }
      const { module: _, ...bare } = definitions[noun]
      const { algorithm, ...cohort } = { ...definitions, [noun]: bare }
      const world = await createWorld({ ...cohort, numLanes: 4 })
      const attempt = () => createTrainer(world, algorithm, { threads: 2 })
      expect(attempt).toThrow(InputError)
      expect(attempt).toThrow(`${noun} ${bare.id}`)
      expect(attempt).toThrow('got no module, and 2 threads')
      expect(world.threads.count).toBe(1)
      expect(await advance(createTrainer(world, algorithm), 1)).toHaveLength(1)
      tick(world)
    },
  )

  test('own the ticks of their world', async () => {
    const trainer = await begin(options, ppo({ numSteps: 8 }), 2)
    const expected = 'got a world shared by 2 threads, expected trainer.updates(), or threads: 1'
    expect(() => tick(trainer.world)).toThrow(InputError)
    expect(() => tick(trainer.world)).toThrow(expected)
    expect(() => collect(trainer.world, 8)).toThrow(expected)
    await advance(trainer, 1)
    expect(() => tick(trainer.world)).toThrow(expected)
    trainer.close()
  })

  test('serve one loop at a time: a second one in the middle of an update is refused, and the first goes on', async () => {
    const alone = await outcome(options, ppo({ numSteps: 8 }), 1, 3)
    const trainer = await begin(options, ppo({ numSteps: 8 }), 2)
    const [first, second] = await Promise.allSettled([advance(trainer, 3), advance(trainer, 3)])
    expect(first.status).toBe('fulfilled')
    expect(second).toMatchObject({ status: 'rejected', reason: expect.any(InputError) })
    expect(await bits(trainer)).toEqual(alone.bits)
    trainer.close()
  })

  thorough(
    'leave nothing behind on the heap of the caller, however often they meet',
    async () => {
      const script = fileURLToPath(new URL('../support/threads-memory.mjs', import.meta.url))
      const updates = 170 // With 33 meetings each.
      const { code, stdout } = await start(process.execPath, ['--expose-gc', script, String(updates)], {
        timeout: 280_000, // Two threads that meet 5,600 times wait long for one another where others have the cores.
      }).ended
      expect(code).toBe(0)
      const [early, middle, late] = stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line))
      // What is left behind is left in both parts; code that V8 compiles late, on a busy machine, in one.
      const grown = Math.min(middle.heap - early.heap, late.heap - middle.heap)
      expect(grown / updates, 'bytes an update').toBeLessThan(1000)
    },
    300_000,
  )
})

describe('a run with threads=2', () => {
  const LONG = [
    ...'rollouts=last checkpointEvery=10 totalSteps=16384 numLanes=4 mlp.hidden=8 environment.maxEpisodeSteps=60'.split(
      ' ',
    ),
    ...'ppo.numSteps=16 ppo.numMinibatches=1 ppo.updateEpochs=1'.split(' '),
  ]

  async function result(run: string) {
    const { metrics, ...files } = await fingerprint(run)
    return { ...files, metrics: untimed(metrics) }
  }

  thorough('stops at Ctrl-C, and resumed equals an uninterrupted one with threads=1', async (context) => {
    if (!(await colonnade(['train', '--help'])).stdout.includes('threads=')) skipLoudly(context, 'no key `threads` yet')
    const folder = await temporaryFolder()
    expect((await colonnade(['train', 'CartPole-v1', 'out=whole', 'threads=1', ...LONG], folder)).code).toBe(0)

    const training = start(process.execPath, [MAIN, 'train', 'CartPole-v1', 'out=run', 'threads=2', ...LONG], {
      cwd: folder,
    })
    await training.printed('/16,384 steps')
    training.process.kill('SIGINT')
    const { code, stdout } = await training.ended
    expect(code).toBe(130)
    expect(stdout).toMatch(/^interrupted: /)
    const summary = JSON.parse(await readFile(join(folder, 'run/summary.json'), 'utf8'))
    expect(summary).toMatchObject({ status: 'interrupted', threads: 2 })
    expect(summary.updates).toBeLessThan(256)
    expect(await listCheckpoints(join(folder, 'run'))).toContain(summary.updates)

    expect((await colonnade(['resume', 'run'], folder)).code).toBe(0)
    expect(await result(join(folder, 'run'))).toEqual(await result(join(folder, 'whole')))
  })
})
