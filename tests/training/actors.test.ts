import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
// Workers load compiled files, and what they make must be made of the same ones here.
import { defineOnPolicyAlgorithm, onPolicySettings, stalenessSettings } from '../../dist/src/entries/algorithms.js'
import {
  type AlgorithmDefinition,
  a2c,
  bc,
  cartPole,
  createTrainer,
  createWorld,
  defineSystem,
  type EpisodeCohort,
  InputError,
  mlp,
  pendulum,
  ppo,
  recurrent,
  restart,
  type Table,
  type Trainer,
  type TrainerOptions,
  ticTacToe,
  type UpdateMetrics,
  type World,
  type WorldOptions,
  writeArrow,
} from '../../dist/src/index.js'
import { metricsOfRun, stalenessMetrics } from '../../src/training/loop/metrics.ts'
import * as fc from '../support/properties.ts'
// @ts-expect-error: a module of somebody else, without types.
import { sleepy } from '../support/sleepy.mjs'
import { temporaryFolder } from '../support/temporary.ts'
import { isThorough, rowsOf, seeded, thorough } from '../support/tiers.ts'

const policy = mlp({ hidden: [12] })
const options = { environment: cartPole(), policy, numLanes: 13, seed: 7 }
const small = { numSteps: 24, numMinibatches: 2, updateEpochs: 2, learningRate: 2e-3 }

async function begin(given: WorldOptions, algorithm: AlgorithmDefinition, threads: TrainerOptions = {}) {
  return createTrainer((await createWorld(given)) as World<EpisodeCohort>, algorithm, threads)
}

/** Trains to the end of an update, of the hundred that there could be, and shows each. */
async function advance(
  trainer: Trainer<EpisodeCohort>,
  until: number,
  show: (metrics: UpdateMetrics) => unknown = () => {},
): Promise<void> {
  if (trainer.update === until) return
  const { numLanes, numSteps } = trainer.world.cohort()
  for await (const metrics of trainer.updates({ totalSteps: numLanes * numSteps * 100 })) {
    await show(metrics)
    if (metrics.update === until) break
  }
  expect(trainer.update).toBe(until)
}

const sha = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')
const shaOf = (column: Float32Array) =>
  sha(Uint8Array.from(new Uint8Array(column.buffer, column.byteOffset, column.byteLength)))

/** SHA-256 of the tensors of a checkpoint of the trainer, and of its rollout's Arrow file. */
async function bits(trainer: Trainer<EpisodeCohort>): Promise<Record<string, string>> {
  const folder = await temporaryFolder()
  const checkpoint = await trainer.save(folder)
  await writeArrow(join(folder, 'rollout.arrow'), trainer.rollout.table)
  return {
    columns: sha(await readFile(join(checkpoint, 'columns.safetensors'))),
    rollout: sha(await readFile(join(folder, 'rollout.arrow'))),
    weights: shaOf(trainer.world.cohort().weights),
  }
}

/** Metrics without what a clock has a part in. */
const untimed = (metrics: object) => Object.entries(metrics).filter(([key]) => !/seconds?$|cohorts|Age/i.test(key))

async function outcome(given: WorldOptions, algorithm: AlgorithmDefinition, threads: TrainerOptions, updates: number) {
  const trainer = await begin(given, algorithm, threads)
  const metrics: unknown[] = []
  await advance(trainer, updates, (update) => metrics.push(untimed(update)))
  const result = { bits: await bits(trainer), metrics }
  trainer.close()
  return result
}

const column = (table: Table, name: string) => table.fields.find((field) => field.name === name)!.column

describe('actors', () => {
  test('collect what observations are normalized by: each rollout once, whichever buffer it is in', async () => {
    const normalizing = mlp({ hidden: [8], normalizeObservations: true })
    const algorithm = ppo({ ...small, maxStaleness: 2 })
    const trainer = await begin({ ...options, policy: normalizing, numLanes: 4 }, algorithm, { threads: 2, actors: 1 })
    const seen: number[] = []
    await advance(trainer, 6, () => {
      seen.push(...(column(trainer.rollout.table, 'observation') as Float32Array))
      const { weights } = trainer.world.cohort()
      for (let k = 0; k < 4; k++) {
        const values = seen.filter((_, i) => i % 4 === k)
        const mean = values.reduce((sum, value) => sum + value, 0) / values.length
        const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length
        expect(weights.at(k - 8)).toBeCloseTo(mean, 6)
        expect(weights.at(k - 4)! / Math.sqrt(variance + 1e-8)).toBeCloseTo(1, 5)
      }
    })
    expect(seen).toHaveLength(6 * 4 * small.numSteps * 4)
    trainer.close()
  })

  const worlds: [string, WorldOptions][] = [
    ['TicTacToe-v0, with masks', { ...options, environment: ticTacToe() }],
    ['CartPole-v1, plain', { ...options, kernels: 'plain' }],
    ['Pendulum-v1', { ...options, environment: pendulum() }],
    [
      'dead rows of next-step resets',
      { ...options, environment: cartPole({ maxEpisodeSteps: 9 }), autoreset: 'next-step' },
    ],
  ]

  test.each(rowsOf(worlds))(
    'with maxStaleness 0 leave the bits of a training whose threads collect and then learn: %s',
    async (_, given) => {
      const trainer = await begin(given, ppo(small))
      const expected: unknown[] = []
      await advance(trainer, 5, (metrics) => expected.push(untimed(metrics)))
      const { rollout, weights } = await bits(trainer)
      for (const threads of rowsOf([{ threads: 5, actors: 3 }, { actors: 1 }])) {
        const ahead = await outcome(given, ppo(small), threads, 5)
        expect(ahead.bits).toMatchObject({ rollout, weights })
        expect(
          ahead.metrics.map((update) =>
            (update as [string, unknown][]).filter(
              ([key]) => key !== 'staleRows0' && !Object.hasOwn(stalenessMetrics, key),
            ),
          ),
        ).toEqual(expected)
      }
    },
  )

  test.each(rowsOf(['vtrace', 'decoupled', 'none']))(
    'with maxStaleness 1 and correction %s leave the same bits, whatever their number and that of those who learn',
    async (correction) => {
      const algorithm = ppo({ ...small, maxStaleness: 1, correction })
      const given = { ...options, numLanes: 29 } // 696 rows: three blocks to evaluate.
      const alone = await outcome(given, algorithm, {}, 5)
      expect(await outcome(given, algorithm, { threads: 4, actors: 2 }, 5)).toEqual(alone)
      const others = (['vtrace', 'decoupled', 'none'] as const).filter((other) => other !== correction)
      for (const other of rowsOf(others)) {
        const { bits } = await outcome(given, ppo({ ...small, maxStaleness: 1, correction: other }), {}, 5)
        expect(bits.weights).not.toBe(alone.bits.weights)
      }
    },
  )

  test('deliver each row once and in its order, chosen by weights as new as is permitted, whatever takes how long', async () => {
    const cases = fc.record({
      numLanes: fc.integer({ min: 1, max: 6 }),
      numSteps: fc.integer({ min: 1, max: 9 }),
      maxStaleness: fc.integer({ min: 0, max: 3 }),
      actors: fc.integer({ min: 1, max: 3 }),
      learners: fc.integer({ min: 1, max: 2 }),
      sleep: fc.constantFrom(0, 0, 0.5, 2),
      pause: fc.constantFrom(0, 0, 4),
      seed: fc.nat(1000),
    })
    const property = fc.asyncProperty(cases, async (given) => {
      const { numLanes, numSteps, maxStaleness, actors, learners, sleep, pause, seed } = given
      const environment = sleepy({ sleep, maxEpisodeSteps: 11 })
      // Weights that no step moves: what lanes do is then a function of the seed alone.
      const still = {
        numSteps,
        numMinibatches: 1,
        updateEpochs: 1,
        learningRate: 1e-30,
        optimizer: 'sgd',
        correction: 'none',
      } as const
      const world = { environment: cartPole({ maxEpisodeSteps: 11 }), policy, numLanes, seed }
      const expected: unknown[] = []
      const names = [
        'observation',
        'action',
        'reward',
        'truncated',
        'logprob',
        'value',
        'nextValue',
        'lane',
        'episode',
        'step',
        'episodeReturn',
        'finalObservation',
      ]
      const shown = ({ table }: { table: Table }) =>
        names.map((name) => Array.from(column(table, name)).slice(0, name === 'finalObservation' ? 1 : undefined))
      const together = await begin(world, ppo(still))
      await advance(together, 6, () => expected.push(shown(together.rollout)))
      const ahead = await begin({ ...world, environment }, ppo({ ...still, maxStaleness }), {
        threads: actors + learners,
        actors,
      })
      const found: unknown[] = []
      const random = seeded(seed)
      await advance(ahead, 6, async ({ update }) => {
        found.push(shown(ahead.rollout))
        for (const version of column(ahead.rollout.table, 'version')) {
          expect(update - 1 - version).toBeLessThanOrEqual(maxStaleness)
          expect(version).toBeLessThanOrEqual(Math.max(0, update - 1 - Math.min(1, maxStaleness)))
        }
        await new Promise((resolve) => setTimeout(resolve, random() * pause))
        expect(shown(ahead.rollout)).toEqual(found.at(-1)) // Nobody writes where it lies.
      })
      ahead.close()
      expect(found).toEqual(expected)
    })
    await fc.assert(property, { numRuns: isThorough ? 10 : 4 })
  })

  test('weigh rows as a training does that reads the same rollouts from tables', async () => {
    const constant = { ...small, learningRateSchedule: 'constant', rhoMax: 1.02, cMax: 0.98 } as const
    const given = { ...options, kernels: 'plain' as const, environment: cartPole({ maxEpisodeSteps: 20 }) }
    const reader = await begin(given, ppo(constant))
    const ahead = await begin(given, ppo({ ...constant, maxStaleness: 1 }))
    const { rhoMax, cMax } = constant
    await advance(ahead, 6, async () => {
      const folder = await temporaryFolder()
      await writeArrow(join(folder, 'rollout.arrow'), ahead.rollout.table)
      const { readArrow } = await import('../../dist/src/index.js')
      const table = await readArrow(join(folder, 'rollout.arrow'))
      for await (const _ of reader.learn(table, { correction: 'vtrace', rhoMax, cMax }));
      expect(shaOf(ahead.world.cohort().weights)).toBe(shaOf(reader.world.cohort().weights))
    })
    ahead.close()
  })

  test.each(['plain', 'best'] as const)(
    'tell how stale rows are, and how likely they are now: %s kernels',
    async (kernels) => {
      const given = { ...options, numLanes: 5, ...(kernels === 'plain' && { kernels }) }
      const algorithm = ppo({ ...small, maxStaleness: 2, rhoMax: 1.01, correction: 'decoupled', gaeLambda: 0.9 })
      const trainer = await begin(given, algorithm, { threads: 3, actors: 2 })
      // The weights before each update, and a world in which they say what they would have chosen.
      let before = Float32Array.from(trainer.world.cohort().weights)
      await advance(trainer, 5, async (metrics) => {
        const { table } = trainer.rollout
        const world = await createWorld({ ...given, kernels: 'plain' })
        const { policy, weights } = world.cohort()
        weights.set(before)
        policy.refresh?.()
        before = Float32Array.from(trainer.world.cohort().weights)
        const columns = Object.fromEntries(table.fields.map(({ name, column }) => [name, column]))
        const { observation, action, logprob, version, advantage } = columns as Record<string, Float32Array>
        const none = { memory: new Float32Array(0), actionMask: new Uint8Array(0), continues: new Uint8Array(0) }
        const rows = { ...none, observation: observation!, action: action! }
        const evaluated = policy.evaluate(rows, 0, table.numRows) as { logprob: Float32Array; value: Float32Array }
        const ratios = Array.from(logprob!, (old, row) => Math.exp(evaluated.logprob[row]! - old))
        const mean = (values: readonly number[]) => values.reduce((sum, each) => sum + each, 0) / values.length
        const staleness = Array.from(version!, (each) => metrics.update - 1 - each)
        expect(metrics.staleness).toBeCloseTo(mean(staleness), 12)
        const told = Object.keys(metrics).filter((key) => key !== 'cohorts')
        const { maxStaleness } = algorithm.staleness!
        expect(told).toEqual(Object.keys(metricsOfRun(algorithm.metrics, maxStaleness)))
        expect(metrics.stalenessMax).toBe(Math.max(...staleness))
        for (let age = 0; age <= maxStaleness; age++) {
          const rows = staleness.filter((each) => each === age).length
          expect(metrics[`staleRows${age}`], `rows ${age} updates stale`).toBe(rows)
        }
        expect(metrics.importanceWeight).toBeCloseTo(mean(ratios), 5)
        expect(metrics.importanceWeightMax).toBeCloseTo(Math.max(...ratios), 5)
        expect(metrics.importanceWeightTruncated).toBeCloseTo(mean(ratios.map((ratio) => Math.min(1.01, ratio))), 5)
        if (metrics.update > 2) expect(metrics.importanceWeightMax).toBeGreaterThan(1.01)

        // Generalized advantages of the values that the weights give now, each times its weight.
        const { numLanes, numSteps } = trainer.world.cohort()
        const final = table.fields.find(({ name }) => name === 'finalObservation')!
        const values = new Float32Array(final.column.length / 4)
        policy.values(values, { ...none, observation: final.column as Float32Array }, values.length)
        const finals = new Map(Array.from(final.rows!, (row, i) => [row, values[i]!]))
        const { reward, terminated, truncated } = columns as Record<string, Float32Array>
        const later = new Float64Array(numLanes)
        for (let row = numSteps * numLanes - 1; row >= 0; row--) {
          const next = terminated![row] ? 0 : (finals.get(row) ?? evaluated.value[row + numLanes]!)
          const isOver = terminated![row] === 1 || truncated![row] === 1
          const delta = reward![row]! + 0.99 * next - evaluated.value[row]!
          later[row % numLanes] = delta + (isOver ? 0 : 0.99 * 0.9 * later[row % numLanes]!)
          expect(advantage![row]).toBeCloseTo(later[row % numLanes]! * Math.min(1.01, ratios[row]!), 3)
        }
      })
      trainer.close()
    },
  )

  thorough('tell how old a rollout is, and who waited for whom', async () => {
    const environment = sleepy({ sleep: 6 })
    const trainer = await begin({ ...options, environment }, ppo({ ...small, maxStaleness: 1 }), {
      threads: 3,
      actors: 2,
    })
    const start = performance.now()
    let [waited, learned, idle, collected, before] = [0, 0, 0, 0, 0]
    await advance(trainer, 6, (metrics) => {
      waited += metrics.learnerWaitSeconds!
      learned += metrics.updateSeconds
      idle += metrics.actorWaitSeconds!
      collected += metrics.rolloutSeconds
      expect(metrics.rolloutAgeMax).toBeGreaterThanOrEqual(metrics.rolloutAge!)
      expect(metrics.rolloutAgeMax).toBeGreaterThanOrEqual(metrics.rolloutSeconds)
      const took = metrics.seconds - before
      before = metrics.seconds
      expect((metrics.stepsPerSecond * took) / (13 * 24)).toBeCloseTo(1, 6)
      expect(metrics.learnerWaitSeconds! + metrics.updateSeconds).toBeLessThan(took)
    })
    const whole = (performance.now() - start) / 1000
    expect(trainer.seconds).toBeGreaterThan(waited + learned)
    expect(trainer.seconds).toBeLessThan(whole)
    expect(idle + collected).toBeLessThan(1.5 * whole) // The slowest actor's rollouts, and the mean of what both waited.
    expect(waited).toBeGreaterThan(learned) // Steps take longer than learning from them.
    const quick = await begin(
      { ...options, environment: cartPole() },
      ppo({ ...small, updateEpochs: 200, maxStaleness: 1 }),
    )
    let [wait, took] = [0, 0]
    await advance(quick, 6, (metrics) => {
      wait += metrics.actorWaitSeconds!
      took += metrics.rolloutSeconds
    })
    expect(wait).toBeGreaterThan(took)
    trainer.close()
    quick.close()
  })

  test('go on from a checkpoint, and after a close, with the bits of a training that did not stop', async () => {
    const environment = sleepy({ sleep: 1 }) // So that a rollout is under way where the others stop.
    const given = { ...options, environment }
    const algorithm = a2c({ numSteps: 12, learningRate: 5e-3, maxStaleness: 1 })
    const whole = await outcome(given, algorithm, {}, 6)
    const first = await begin(given, algorithm, { threads: 4, actors: 2 })
    await advance(first, 2)
    const folder = await temporaryFolder()
    await first.save(folder)
    const second = await begin(given, algorithm)
    expect(await second.restore(folder)).toEqual({ warnings: [] })
    await advance(second, 6)
    expect(await bits(second)).toEqual(whole.bits)
    await advance(first, 3)
    await first.restore(folder) // With its actors amid a rollout.
    await advance(first, 4)
    first.close()
    await advance(first, 6)
    expect(await bits(first)).toEqual(whole.bits)
    first.close()
    second.close()
  })

  test('collect no more than there will be updates', async () => {
    const trainer = await begin(options, ppo({ ...small, maxStaleness: 3 }))
    const totalSteps = 13 * 24 * 3
    for await (const _ of trainer.updates({ totalSteps }));
    await trainer.save(await temporaryFolder())
    const { update } = trainer
    for await (const _ of trainer.updates({ totalSteps: 2 * totalSteps }));
    expect([update, trainer.update]).toEqual([3, 6])
    trainer.close()
  })

  test('say which of them failed, and end', async () => {
    const environment = sleepy({ failsAt: 30 })
    const trainer = await begin({ ...options, environment }, ppo({ ...small, maxStaleness: 1 }), {
      threads: 3,
      actors: 2,
    })
    const failure = /^worker [12] of 3 threads \((lanes 0–5|lanes 6–12) of mlp\) failed: the cart is broken$/
    await expect(advance(trainer, 9)).rejects.toThrow(failure)
    await expect(advance(trainer, 9)).rejects.toThrow(failure)
  })

  test('are given up with a reason while one of them is stuck', async () => {
    const environment = sleepy({ sleep: 1e9 })
    const trainer = await begin({ ...options, environment }, ppo({ ...small, maxStaleness: 1 }))
    const isOver = expect(advance(trainer, 1)).rejects.toThrow('that is enough')
    setTimeout(() => trainer.giveUp(new Error('that is enough')), 100)
    await isOver
  })
})

describe('while others wait for a rollout', () => {
  test('an actor that makes no progress is given up, by its lanes and the call that does not return', async () => {
    const given = { ...options, environment: sleepy({ sleep: 1e9 }) }
    const trainer = await begin(given, ppo({ ...small, maxStaleness: 1 }), { stallSeconds: 0.3 })
    await expect(advance(trainer, 1)).rejects.toThrow(
      /^worker 1 of 2 threads \(lanes 0–12 of mlp\): step has not returned for 0\.3 s, and update 1 waits for its rollout$/,
    )
    trainer.close()
  })

  thorough('one that only takes its time is not', async () => {
    // A rollout takes longer than the time that there is, and each step of it less.
    const trainer = await begin(
      { ...options, environment: sleepy({ sleep: 200 }) },
      ppo({ ...small, maxStaleness: 1 }),
      {
        stallSeconds: 1.2,
      },
    )
    await advance(trainer, 1)
    trainer.close()
  })

  test('the time that there is has to be a number', async () => {
    for (const stallSeconds of [-1, Number.NaN, '9' as never]) {
      const begun = begin(options, ppo({ ...small, maxStaleness: 1 }), { stallSeconds })
      await expect(begun).rejects.toThrow(/stallSeconds: got .*, expected a number ≥ 0/)
    }
  })
})

describe('what cannot be collected ahead is refused', () => {
  const stale = ppo({ ...small, maxStaleness: 1 })
  const memory = recurrent({ units: 4, hidden: [4], sequenceLength: 4 })
  const system = defineSystem({ id: 'mine', settings: {}, make: () => ({ after: 'step', run() {} }) })()
  const undeclared = defineOnPolicyAlgorithm({
    id: 'undeclared',
    settings: onPolicySettings(),
    metrics: {},
    loss: () => ({ ofRows: () => {} }),
  })

  const [one, two] = ['one', 'two'].map((name) => ({ environment: cartPole(), policy, numLanes: 2, name }))
  const ahead = 'cohort mlp, whose rollouts are collected ahead: got'

  test.each<[string, WorldOptions, TrainerOptions]>([
    ['threads: got 1, and a maxStaleness of 1, expected at least 2 threads', options, { threads: 1 }],
    ['actors: got 0, and a maxStaleness of 1, expected at least 1', options, { threads: 2, actors: 0 }],
    ['actors: got 2, expected a whole number from 0 to 1: fewer than the threads', options, { threads: 2, actors: 2 }],
    ['actors: got 1.5, expected a whole number ≥ 0', options, { actors: 1.5 }],
    ['actors: got -1, expected a whole number ≥ 0', options, { actors: -1 }],
    [`${ahead} lanes that come and go, expected lanes that stay`, { ...options, present: 3 }, {}],
    [`${ahead} 2 sets of weights, expected one`, { ...options, weightSets: 2 }, {}],
    [`${ahead} systems of its own, expected none`, { ...options, systems: [system] }, {}],
    ['ahead: got a policy with a memory, expected one without', { ...options, policy: memory }, {}],
    ['actors: got cohorts one, two, expected a world of one cohort of episodes', { cohorts: [one!, two!] }, {}],
  ])('%s', async (message, given, threads) => {
    const world = (await createWorld(given)) as World<EpisodeCohort>
    const algorithms = 'cohorts' in given ? { one: stale } : stale
    const create = () => createTrainer(world, algorithms, threads)
    expect(create).toThrow(InputError)
    expect(create).toThrow(message)
  })

  test('an algorithm without a correction has no maxStaleness, or asks for none by name', async () => {
    expect(() => undeclared({ maxStaleness: 1 } as never)).toThrow(
      'undeclared setting: got "maxStaleness", expected one of',
    )
    expect(() => bc({ maxStaleness: 1 } as never)).toThrow('"maxStaleness"')
    const { defineAlgorithm } = await import('../../dist/src/index.js')
    const { plan, bind } = ppo()
    const mine = defineAlgorithm({
      id: 'mine',
      settings: stalenessSettings(),
      metrics: {},
      make: (staleness) => ({ numSteps: 1, gamma: null, plan, bind, staleness }),
    })
    expect(mine({ maxStaleness: 1, correction: 'none' }).staleness?.maxStaleness).toBe(1)
    expect(() => mine({ maxStaleness: 1 })).toThrow(
      'mine correction: got vtrace for maxStaleness 1, for a learner that accepts no advantages',
    )
    expect(mine().staleness?.maxStaleness).toBe(0)
  })

  test('lanes that are ahead are not restarted, and no tables are learned from', async () => {
    const trainer = await begin(options, stale)
    expect(() => restart(trainer.world.cohort())).toThrow(
      'restart of cohort mlp: got lanes whose rollouts actors collect ahead',
    )
    await expect(trainer.learn(trainer.rollout.table).next()).rejects.toThrow(
      'trainer.learn(table): got a trainer with actors',
    )
    trainer.close()
  })
})
