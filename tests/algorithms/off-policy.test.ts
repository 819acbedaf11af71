import { createHash } from 'node:crypto'
import { dirname } from 'node:path'
import { expect, test } from 'vitest'
import { defineOffPolicyAlgorithm, dqn, offPolicySettings, qNetwork, sac } from '../../src/entries/algorithms.ts'
import { mountainCar } from '../../src/environments/classic/mountain-car.ts'
import {
  cartPole,
  createTrainer,
  createWorld,
  mlp,
  type PolicyDefinition,
  recurrent,
  ticTacToe,
} from '../../src/index.ts'
import { readCheckpoint } from '../../src/training/folder/checkpoint.ts'
import { temporaryFolder } from '../support/temporary.ts'

const hash = (bytes: NodeJS.ArrayBufferView) => createHash('sha256').update(bytes).digest('hex')

const metrics = { seen: { unit: null, description: 'of a row', reduction: 'rowMean' } } as const
const options = {
  id: 'own',
  settings: offPolicySettings(),
  metrics,
  check: () => {},
  loss: () => ({ ofBlock: () => {} }),
}

test('masks of actions are refused by a loss that does not say that it obeys them', async () => {
  const begin = async (more: object) => {
    const world = await createWorld({ environment: ticTacToe(), policy: qNetwork({ hidden: [4] }), numLanes: 2 })
    return createTrainer(world, defineOffPolicyAlgorithm({ ...options, ...more })())
  }
  await expect(begin({})).rejects.toThrow('own environment: got an environment with action masks')
  await begin({ obeysMasks: true })
})

test('policies that an algorithm cannot learn are refused by name', async () => {
  const begin = async (algorithm: ReturnType<typeof dqn>, policy: PolicyDefinition) =>
    createTrainer(await createWorld({ environment: cartPole(), policy, numLanes: 2 }), algorithm)
  await expect(begin(dqn(), mlp({ hidden: [4] }))).rejects.toThrow(
    'dqn policy: got a policy without action values, expected a policy that outputs them: qNetwork',
  )
  await expect(begin(sac() as never, mlp({ hidden: [4] }))).rejects.toThrow(
    'sac policy: got a policy without action critics, expected a policy with two critics: sacNetwork',
  )
  await expect(begin(dqn(), recurrent({ units: 4 }))).rejects.toThrow(/dqn policy: got a policy with memory/)
})

// A stranger's checkpoint may hold any numbers, and kernels read and write the rows that they are given.
test.each<readonly [string, readonly number[], string]>([
  ['counts', [-5], 'replay: got -5 stored steps'],
  ['counts', [29.5], 'replay: got 29.5 stored steps'],
  // The sums above the leaf of row 126, of 128 leaves for 120 rows.
  [
    'tree',
    Array.from({ length: 256 }, (_, i) => (254 >> (7 - Math.floor(Math.log2(i))) === i ? 1e12 : 0)),
    'row 126 drawn',
  ],
  ['tree', new Array(256).fill(Number.NaN), 'row 127 drawn'],
])('a replay from a changed checkpoint is refused: %s', async (name, values, refusal) => {
  const world = await createWorld({ environment: cartPole(), policy: qNetwork({ hidden: [4] }), numLanes: 4 })
  const trainer = createTrainer(world, dqn({ numSteps: 4, batchSize: 32, learningStarts: 8, replayRows: 120 }))
  const train = async (totalSteps: number) => {
    for await (const _ of trainer.updates({ totalSteps }));
  }
  await train(64)
  const found = [...world.columns()].find(({ planned }) => planned.name.endsWith(`replay.${name}`))!
  ;(found.column as Float64Array).set(values)
  await expect(train(128)).rejects.toThrow(refusal)
})

test('a loss of one’s own is handed every row of a minibatch once, in blocks', async () => {
  const counts: number[] = []
  const progress: number[] = []
  const own = defineOffPolicyAlgorithm({
    ...options,
    loss: () => ({
      ofBlock({ count, error, weight, scale }, gradient, sums, sumsFrom) {
        counts.push(count)
        expect(scale).toBe(1 / 150)
        for (let row = 0; row < count; row++) sums[sumsFrom] = sums[sumsFrom]! + 3 * weight[row]!
        error.fill(1)
        gradient[0]![0] = 2
      },
      advance: (part) => progress.push(part),
    }),
  })
  const world = await createWorld({ environment: cartPole(), policy: qNetwork({ hidden: [4] }), numLanes: 5 })
  const trainer = createTrainer(world, own({ numSteps: 4, gradientSteps: 1, batchSize: 150, learningStarts: 30 }))
  const before = world.cohort().weights.slice()
  for await (const { update, ...told } of trainer.updates({ totalSteps: 40 })) {
    expect(told.seen).toEqual(update === 1 ? Number.NaN : 3) // 20 rows are too few.
    expect(told.gradNorm).toEqual(update === 1 ? Number.NaN : 3 * 2)
  }
  expect(counts).toEqual([64, 64, 22])
  expect(progress).toEqual([0.5, 1])
  expect(world.cohort().weights[0]).toBeLessThan(before[0]!)
  expect(world.cohort().weights.slice(1)).toEqual(before.slice(1))
})

test('settings that are missing, and metrics that are no means, are refused', () => {
  const { batchSize, ...rest } = offPolicySettings()
  expect(() => defineOffPolicyAlgorithm({ ...options, settings: rest as never })).toThrow(
    'own settings: got no batchSize',
  )
  const last = { seen: { ...metrics.seen, reduction: 'last' } } as const
  expect(() => defineOffPolicyAlgorithm({ ...options, metrics: last })).toThrow('own metrics seen.reduction')
  const taken = { gradNorm: metrics.seen }
  expect(() => defineOffPolicyAlgorithm({ ...options, metrics: taken })).toThrow('are added automatically')
  expect(() => defineOffPolicyAlgorithm({ ...options, metrics: { seen: null } as never })).toThrow(
    'own metrics seen: got null, expected { unit, description, reduction }',
  )
})

test.each([
  ['before its rollout is stored', 'infer', 1],
  ['at its third gradient step', 'adamStep', 3],
  ['after its last one', 'setPriorities', 8 + 8 + 3],
])('an update that fails %s leaves the state before it for saving, the replay included', async (_, method, count) => {
  const environment = mountainCar()
  const world = await createWorld({ environment, policy: qNetwork({ hidden: [4] }), numLanes: 3, seed: 5 })
  const sizes = { numSteps: 8, batchSize: 16, gradientSteps: 3, replayRows: 54, learningStarts: 20, nStep: 2 }
  const trainer = createTrainer(world, dqn({ ...sizes, priorityExponent: 0.6 }))
  trainer.keepsState = true
  const save = async () => {
    const { tensors, manifest } = await readCheckpoint(dirname(dirname(await trainer.save(await temporaryFolder()))))
    return { ...manifest, tensors: Object.fromEntries([...tensors].map(([name, { bytes }]) => [name, hash(bytes)])) }
  }
  // The replay has gone round in the midst of a rollout, and an episode of 200 steps is truncated in the next update.
  for await (const _ of trainer.updates({ totalSteps: 3 * 8 * 24 }));
  const before = await save()
  type Calls = Record<string, (...given: unknown[]) => unknown>
  const calls = (method === 'infer' ? world.cohort().policy : world.kernels) as unknown as Calls
  const call = calls[method]!.bind(calls)
  let done = 0
  calls[method] = (...given) => {
    const result = call(...given)
    if (++done === count) throw new Error('the last call')
    return result
  }
  await expect(trainer.updates({ totalSteps: 3 * 8 * 25 }).next()).rejects.toThrow('the last call')
  const left = new Map(world.columns().map(({ planned, column }) => [planned.name, hash(column)]))
  const written = Object.keys(before.tensors).filter((name) => name.includes('.replay.'))
  const same = written.filter((name) => left.get(name) === before.tensors[name])
  const constant = ['lane', 'episode', 'reward', 'actionMask', 'terminated', 'valid', 'finalActionMask'] // Of MountainCar.
  expect(written.length).toBe(14)
  if (method === 'infer') expect(same).toEqual(written)
  else expect(same.map((name) => name.replace(/.*\./, ''))).toEqual(constant)
  expect(await save()).toEqual(before)
  expect(await save()).toEqual(before)
})
