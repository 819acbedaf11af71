/** Settings of algorithms as formulas of `progress`: each update has their values, in every thread and after a resume. */
import { readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { describe, expect, test } from 'vitest'
// Workers load compiled files, and what they make must be made of the same ones here.
import {
  awr,
  cql,
  defineOffPolicyAlgorithm,
  defineOnPolicyAlgorithm,
  discreteCql,
  dqn,
  iql,
  iqlNetwork,
  offPolicySettings,
  onPolicySettings,
  qNetwork,
  sac,
  sacNetwork,
  td3,
  td3bc,
  td3Network,
} from '../../dist/src/entries/algorithms.js'
import { resolveSweepKeys } from '../../dist/src/entries/data.js'
import {
  a2c,
  bc,
  cartPole,
  createTrainer,
  createWorld,
  mlp,
  pendulum,
  ppo,
  recordEpisodes,
} from '../../dist/src/index.js'
import { sealManifest } from '../../dist/src/training/folder/checkpoint.js'
import { inProcess } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { rowsOf } from '../support/tiers.ts'

type Given = Readonly<Record<string, unknown>>
interface Case {
  readonly algorithm: unknown
  readonly environment: object
  readonly policy: object
  readonly sizes: Given
  /** The values of its settings in the first half of the training, and in the second. */
  readonly halves: Readonly<Record<string, readonly [number, number]>>
  /** The rows from which it learns, all in each update; it collects its own without them. */
  readonly table?: Awaited<ReturnType<typeof recordEpisodes>>
}

const UPDATES = 6
const LANES = 4

const adam = { beta1: [0.9, 0.7], beta2: [0.99, 0.9], epsilon: [1e-5, 1e-3], weightDecay: [0.1, 3] } as const
const descent = { learningRate: [1e-3, 7e-3], maxGradNorm: [0.01, 0.5] } as const
const replay = { targetRate: [0.1, 0.6], priorityCorrection: [0.9, 0.1] } as const
const sizes = { numSteps: 16, gradientSteps: 2, batchSize: 150, learningStarts: 0, priorityExponent: 0.6 }
const onPendulum = { environment: pendulum(), sizes: { ...sizes, targetInterval: 1 } }

const cases: Readonly<Record<string, Case>> = {
  ppo: {
    ...{ algorithm: ppo, environment: cartPole(), policy: mlp({ hidden: [8] }) },
    sizes: { numSteps: 64, numMinibatches: 2, learningRateSchedule: 'constant' },
    halves: {
      ...{ ...adam, ...descent, clipCoef: [0.2, 0.001], clipValue: [0.3, 0.001], entropyCoef: [0.01, 0.5] },
      ...{ valueCoef: [0.5, 0.1], gaeLambda: [0.95, 0.2], targetKl: [100, 1e-9] },
    },
  },
  td3: {
    ...{ ...onPendulum, algorithm: td3, policy: td3Network({ hidden: [8] }) },
    halves: {
      ...{ ...adam, ...descent, ...replay, explorationNoise: [0.1, 0.9], targetNoise: [0.1, 0.6] },
      targetNoiseClip: [0.3, 0.05],
    },
  },
  a2c: {
    ...{ algorithm: a2c, environment: cartPole(), policy: mlp({ hidden: [8] }), sizes: {} },
    halves: { ...descent, epsilon: [1e-5, 1e-2], momentum: [0.1, 0.8], entropyCoef: [0.01, 0.5], valueCoef: [1, 0.1] },
  },
  dqn: {
    ...{ algorithm: dqn, environment: cartPole(), policy: qNetwork({ hidden: [8] }) },
    sizes: { ...sizes, targetInterval: 1, explorationFraction: 0 },
    halves: { ...adam, ...descent, ...replay, huberDelta: [1, 0.3], explorationFinal: [0.1, 0.9] },
  },
  sac: {
    ...{ ...onPendulum, algorithm: sac, policy: sacNetwork({ hidden: [8] }) },
    halves: { ...adam, ...descent, ...replay, temperature: [0.2, 3] },
  },
}

/** Episodes of a network that has not learned, as many rows as are whole steps of all lanes. */
async function recorded(environment: object, episodes: number) {
  const policy = mlp({ hidden: [8] })
  const { weights } = (await createWorld({ environment, policy, numLanes: 1, seed: 4 } as never)).cohort()
  const table = await recordEpisodes({ environment, policy, weights, episodes, seed: 1, explore: true } as never)
  const numSteps = Math.floor(table.numRows / LANES)
  return { environment, table, sizes: { numSteps } }
}

const [fromPendulum, fromCartPole] = [await recorded(pendulum(), 1), await recorded(cartPole(), 12)]
const stored = { ...sizes, targetInterval: 1, replayRows: 400 }
const weighed = { ...descent, weightMax: [20, 0.5] } as const
const recordedCases: Readonly<Record<string, Case>> = {
  awr: {
    ...{ ...fromCartPole, algorithm: awr, policy: mlp({ hidden: [8] }) },
    halves: { ...adam, ...weighed, gaeLambda: [0.95, 0.2], temperature: [1, 0.3], valueCoef: [0.5, 0.1] },
  },
  iql: {
    ...{ ...fromPendulum, algorithm: iql, policy: iqlNetwork({ hidden: [8] }) },
    sizes: { ...stored, ...fromPendulum.sizes },
    halves: { ...adam, ...descent, ...replay, expectile: [0.7, 0.9], beta: [3, 0.5], weightMax: [100, 0.5] },
  },
  bc: {
    ...{ ...fromCartPole, algorithm: bc, policy: mlp({ hidden: [8] }) },
    halves: { ...weighed, beta: [0.5, 3], entropyCoef: [0.01, 0.5] },
  },
  td3bc: {
    ...{ ...fromPendulum, algorithm: td3bc, policy: td3Network({ hidden: [8] }) },
    sizes: { ...stored, ...fromPendulum.sizes },
    halves: { ...descent, ...replay, targetNoise: [0.1, 0.6], targetNoiseClip: [0.3, 0.05], alpha: [2.5, 0.5] },
  },
  cql: {
    ...{ ...fromPendulum, algorithm: cql, policy: sacNetwork({ hidden: [8] }) },
    sizes: { ...stored, ...fromPendulum.sizes, actionSamples: 2 },
    halves: { ...descent, ...replay, temperature: [0.2, 3], conservativeWeight: [2.5, 0.5] },
  },
  discreteCql: {
    ...{ ...fromCartPole, algorithm: discreteCql, policy: qNetwork({ hidden: [8] }) },
    sizes: { ...stored, ...fromCartPole.sizes },
    halves: { ...descent, ...replay, huberDelta: [1, 0.1], conservativeWeight: [1, 0.1] },
  },
}

async function begin({ algorithm, environment, policy, sizes, table }: Case, given: Given, threads = 1) {
  const world = await createWorld({ environment, policy, numLanes: LANES, seed: 3 } as never)
  const made = (algorithm as (given: Given) => { readonly numSteps: number })({ ...sizes, ...given })
  return { world, trainer: createTrainer(world, made as never, { threads }), numSteps: made.numSteps, table }
}

type Begun = Awaited<ReturnType<typeof begin>>

/** Trains to the end, or only to update `last`. */
async function goOn({ world, trainer, numSteps, table }: Begun, last = UPDATES): Promise<Uint8Array> {
  const updates =
    table === undefined
      ? trainer.updates({ totalSteps: UPDATES * LANES * numSteps })
      : trainer.learn(table, { epochs: UPDATES, done: trainer.update })
  for await (const { update } of updates) if (update === last) break
  if (last === UPDATES) trainer.close()
  const { weights } = world.cohort() as unknown as { weights: Float32Array }
  return new Uint8Array(weights.slice().buffer)
}

const halvesOf = (each: Case, half: 0 | 1): Given =>
  Object.fromEntries(Object.entries(each.halves).map(([key, values]) => [key, values[half]]))

const formulasOf = (each: Case): Given =>
  Object.fromEntries(Object.entries(each.halves).map(([key, [a, b]]) => [key, `if(progress < 0.5, ${a}, ${b})`]))

/** The first half with its values; then goes on from there with `given` as if these had been the values from the start. */
async function changedAtHalf(each: Case): Promise<(given: Given) => Promise<Uint8Array>> {
  const first = await begin(each, halvesOf(each, 0))
  await goOn(first, UPDATES / 2)
  const path = await first.trainer.save(await temporaryFolder())
  const file = join(path, 'manifest.json')
  const manifest = JSON.parse(await readFile(file, 'utf8'))
  const [cohort] = Object.values(manifest.cohorts) as [{ algorithm: { parameters: Given } }]
  const { parameters } = cohort.algorithm
  return async (given) => {
    cohort.algorithm.parameters = { ...parameters, ...given }
    await writeFile(file, JSON.stringify(sealManifest({ ...manifest, checksum: undefined } as never)))
    const second = await begin(each, given)
    await second.trainer.restore(dirname(dirname(path)))
    return goOn(second)
  }
}

describe.each([...rowsOf(Object.entries(cases), 2), ...rowsOf(Object.entries(recordedCases), 1)])(
  '%s with formulas',
  (id, each) => {
    test('that change at half the training learns as one that goes on from there with other numbers', async () => {
      const whole = await goOn(await begin(each, formulasOf(each)))
      const goOnWith = await changedAtHalf(each)
      const second = halvesOf(each, 1)
      expect(await goOnWith(second)).toEqual(whole)
      // So that a setting which does not change would have been seen.
      for (const [key, [before]] of Object.entries(each.halves))
        expect(await goOnWith({ ...second, [key]: before }), key).not.toEqual(whole)
    })

    test('has the same bits on three threads, and after a resume', async () => {
      const whole = await goOn(await begin(each, formulasOf(each)))
      expect(await goOn(await begin(each, formulasOf(each), 3))).toEqual(whole)
      const stopped = await begin(each, formulasOf(each))
      await goOn(stopped, UPDATES / 2 + 1)
      const folder = dirname(dirname(await stopped.trainer.save(await temporaryFolder())))
      const resumed = await begin(each, formulasOf(each))
      await resumed.trainer.restore(folder)
      expect(await goOn(resumed), id).toEqual(whole)
    })
  },
)

test('a line and half a cosine of a formula are those of the schedules with these names, to the bit', async () => {
  const each = { ...cases.ppo!, halves: {} }
  const falling = { learningRateSchedule: 'linear', clipCoefSchedule: 'cosine', learningRate: 1e-2, clipCoef: 0.1 }
  const formulas = {
    learningRate: '1e-2 * (1 - progress)',
    clipCoef: `0.1 * (0.5 * (1 + cos(${Math.PI} * progress)))`,
  }
  const wanted = await goOn(await begin(each, falling))
  expect(await goOn(await begin(each, formulas))).toEqual(wanted)
  expect(await goOn(await begin(each, { ...formulas, clipCoef: 0.1 }))).not.toEqual(wanted)
})

test('a loss of one’s own has the values of the update, and the exploration of dqn those of its epsilon', async () => {
  const metrics = { seen: { unit: null, description: 'value of a setting', reduction: 'rowMean' } } as const
  const course = Array.from({ length: UPDATES }, (_, update) => 0.5 * (update / UPDATES) ** 2)
  const formula = '0.5 * progress * progress'
  const onPolicy = defineOnPolicyAlgorithm({
    ...{ id: 'own', settings: onPolicySettings(), metrics },
    loss: ({ entropyCoef }) => ({
      ofRows({ dLogprob, dEntropy, dValue }, sums, _, __, ___, numRows, ____, sumsFrom) {
        for (const column of [dLogprob, dEntropy, dValue]) column.fill(0, 0, numRows)
        sums[sumsFrom] = sums[sumsFrom]! + numRows * entropyCoef
      },
    }),
  })
  const offPolicy = defineOffPolicyAlgorithm({
    ...{ id: 'own', settings: offPolicySettings(), metrics, check: () => {} },
    loss: ({ targetRate }) => ({
      ofBlock({ count, error }, _, sums, sumsFrom) {
        error.fill(0)
        sums[sumsFrom] = sums[sumsFrom]! + count * targetRate
      },
    }),
  })
  const told: number[][] = []
  for (const [each, given] of [
    [{ ...cases.ppo!, algorithm: onPolicy, sizes: {} }, { entropyCoef: formula }],
    [{ ...cases.dqn!, algorithm: offPolicy, sizes }, { targetRate: `${formula} + 1e-9` }],
  ] as const) {
    const { trainer, numSteps } = await begin(each, given)
    const seen: number[] = []
    for await (const metrics of trainer.updates({ totalSteps: UPDATES * LANES * numSteps }))
      seen.push((metrics as unknown as { seen: number }).seen)
    told.push(seen)
  }
  for (const seen of told) seen.forEach((value, i) => void expect(value).toBeCloseTo(course[i]!, 8))

  const { world, trainer, numSteps } = await begin(cases.dqn!, { explorationFinal: '0.3 + 0.6 * progress' })
  const cohort = world.cohort() as unknown as {
    weights: Float32Array
    model: { actionValues: { exploration: number } }
  }
  const epsilons: number[] = []
  for await (const _ of trainer.updates({ totalSteps: UPDATES * LANES * numSteps }))
    epsilons.push(cohort.weights[cohort.model.actionValues.exploration]!)
  epsilons.forEach((value, i) => void expect(value).toBeCloseTo(0.3 + (0.6 * i) / UPDATES, 6))
})

test.each<[Given, string]>([
  [
    { entropyCoef: '0.01 * (1 - progres)' },
    'ppo.entropyCoef: got "0.01 * (1 - progres)", expected a number ≥ 0, or a formula of progress',
  ],
  [{ entropyCoef: '0.01 * (1 - progress' }, 'ppo.entropyCoef: got "0.01 * (1 - progress", its end as word 7'],
  [{ clipCoef: 'progress * decay' }, 'name in ppo.clipCoef: got "decay"'],
  [
    { entropyCoef: '0.5 - progress' },
    'ppo.entropyCoef: got "0.5 - progress", which is -0.0010000000000000009 at progress 0.501, expected a number ≥ 0',
  ],
  [
    { clipCoef: 'log(progress - 1)' },
    'ppo.clipCoef: got "log(progress - 1)", which is NaN at progress 0, expected a number > 0',
  ],
  [{ updateEpochs: '4 * progress' }, 'ppo.updateEpochs: got "4 * progress", expected a whole number ≥ 1'],
  [{ gamma: '0.9 + 0.1 * progress' }, 'ppo.gamma: got "0.9 + 0.1 * progress", expected a number ≥ 0 and ≤ 1'],
  [
    { learningRate: '1e-3 * (1 - progress)' },
    'ppo.learningRate: got "1e-3 * (1 - progress)" with learningRateSchedule linear, expected learningRateSchedule constant, since the formula is the schedule',
  ],
  [{ momentum: 'progress' }, 'ppo.momentum: got progress, expected 0: adam accepts beta1 and beta2'],
])('a formula that cannot be is refused in one line before anything begins: %o', (given, message) => {
  expect(() => ppo(given as never)).toThrow(message)
})

test('a formula that leaves its range between the tried times is refused at its update', async () => {
  const wild = `if(${1 / 4096} < progress and progress < ${3 / 4096}, 0 - 1, 0)`
  const { trainer } = await begin({ ...cases.ppo!, sizes: { numSteps: 1 } }, { entropyCoef: wild })
  const updates = trainer.updates({ totalSteps: 2048 * LANES })
  await updates.next()
  await expect(updates.next()).rejects.toThrow(`which is -1 at progress ${1 / 2048}, expected a number ≥ 0`)
})

test('a run takes formulas on the command line and in its file, and refuses wrong ones before it begins', async () => {
  const folder = join(await temporaryFolder(), 'run')
  const words = ['train', 'CartPole-v1', `out=${folder}`, 'totalSteps=1024', 'numLanes=8', 'threads=1']
  const wrong = await inProcess([...words, 'ppo.entropyCoef=0.1 * (1 - 2 * progress)'])
  expect(wrong.code).not.toBe(0)
  expect(wrong.stderr).toContain('which is -0.0002000000000000002 at progress 0.501, expected a number ≥ 0')
  await expect(readFile(join(folder, 'config.json'))).rejects.toThrow('ENOENT')
  const rate = ['ppo.learningRateSchedule=constant', 'ppo.learningRate=1e-3 * (1 - progress)']
  const right = await inProcess([...words, ...rate, 'ppo.entropyCoef=0.1 * (1 - progress)'])
  expect(right.stderr).toContain('ppo, learning rate 1e-3 * (1 - progress)')
  expect(right.stderr + right.stdout).not.toContain('error')
  const config = JSON.parse(await readFile(join(folder, 'config.json'), 'utf8'))
  expect(config.algorithm.parameters.entropyCoef).toBe('0.1 * (1 - progress)')
})

test('a sweep tries a formula with commas in its parentheses as one value', async () => {
  const formulas = ['if(progress < 0.5, 0.2, 0.1)', 'max(0.1, 0.2 * (1 - progress))']
  const resolved = await resolveSweepKeys('CartPole-v1', { 'ppo.clipCoef': [...formulas, '0.3'].join(',') })
  expect(resolved.get('ppo.clipCoef')).toEqual([...formulas, 0.3])
})
