import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
// Workers load compiled files, and what they make must be made of the same ones here.
import { sac, sacNetwork, td3, td3Network } from '../../dist/src/entries/algorithms.js'
import { cartPole, createTrainer, createWorld, mlp, pendulum, ppo, type UpdateMetrics } from '../../dist/src/index.js'
import { BOUNDS, drift } from '../support/drift.ts'
import { temporaryFolder } from '../support/temporary.ts'

interface Recorded {
  readonly settings: Readonly<Record<string, number>>
  readonly hidden: readonly number[]
  readonly weights: readonly number[][]
  readonly target: readonly number[][]
  readonly steps: readonly (Readonly<
    Record<'observation' | 'action' | 'next' | 'terminated' | 'reward' | 'normal', number[]>
  > & {
    readonly critic_loss: number
    readonly actor_loss: number | null
    readonly weights?: readonly number[][]
    readonly target?: readonly number[][]
  })[]
}

/** A learner's columns in which a test writes. */
interface Written {
  readonly target: Float32Array
  readonly replay: {
    readonly rows: Readonly<Record<'observation' | 'action' | 'reward', Float32Array>> &
      Readonly<Record<'terminated' | 'truncated' | 'valid', Uint8Array>>
  }
}

test('gradient steps are those of Stable-Baselines3 on the same weights, minibatches and noise', async () => {
  const file = new URL('../golden/td3.json', import.meta.url)
  const { settings, hidden, weights, target, steps }: Recorded = JSON.parse(readFileSync(file, 'utf8'))
  const batchSize = steps[0]!.reward.length
  const world = await createWorld({
    environment: drift({ kind: 'numbers' }) as never,
    policy: td3Network({ hidden: [...hidden] }),
    numLanes: batchSize, // The next observation of row i is that of row i + numLanes.
    kernels: 'plain',
  })
  const algorithm = td3({
    ...{ numSteps: 1, gradientSteps: 1, batchSize, replayRows: 3 * batchSize, learningStarts: 2 * batchSize },
    ...{ learningRate: settings.learning_rate!, gamma: settings.gamma!, targetRate: settings.tau! },
    ...{ policyDelay: settings.policy_delay!, targetInterval: settings.policy_delay!, maxGradNorm: 1e9 },
    ...{ targetNoise: settings.target_policy_noise!, targetNoiseClip: settings.target_noise_clip! },
  })
  const trainer = createTrainer(world, algorithm)
  const cohort = world.cohort()
  const { kernels } = world as unknown as { kernels: Record<'drawByPriority' | 'drawReplayNormal', unknown> }
  let now = 0
  kernels.drawByPriority = (drawn: Uint32Array, weight: Float32Array) => {
    const written = cohort.learner.algorithm as unknown as Written
    const { rows } = written.replay
    const step = steps[now]!
    if (now === 0) {
      cohort.weights.set(weights.flat())
      written.target.set(target.flat())
    }
    const { low, high } = BOUNDS
    rows.observation.set([...step.observation, ...step.next])
    rows.action.set(step.action.map((a, i) => low[i % 2]! + ((a + 1) / 2) * (high[i % 2]! - low[i % 2]!)))
    rows.reward.set(step.reward)
    rows.terminated.set(step.terminated)
    rows.truncated.fill(0)
    rows.valid.fill(1)
    drawn.forEach((_, i) => {
      drawn[i] = i
    })
    weight.fill(1)
  }
  kernels.drawReplayNormal = (normal: Float32Array) => normal.set(steps[now]!.normal)
  const furthest = (got: Float32Array, expected: readonly number[]) =>
    Math.max(...expected.map((each, i) => Math.abs(each - got[i]!)))
  let compared = 0
  for await (const metrics of trainer.updates({ totalSteps: (steps.length + 1) * batchSize })) {
    if (Number.isNaN(metrics.criticLoss)) continue // Too few rows yet.
    const { critic_loss, actor_loss, weights: learned, target: followed } = steps[now]!
    expect(metrics.criticLoss).toBeCloseTo(critic_loss, 4)
    if (actor_loss === null) expect(metrics.actorLoss).toBeNaN()
    else expect(metrics.actorLoss).toBeCloseTo(actor_loss, 5)
    if (learned !== undefined && followed !== undefined) {
      expect(furthest(cohort.weights, learned.flat())).toBeLessThan(2e-6)
      const written = cohort.learner.algorithm as unknown as Written
      expect(furthest(written.target, followed.flat())).toBeLessThan(2e-6)
      compared++
    }
    now++
  }
  expect([now, compared]).toEqual([5, 3])
})

const small = { learningStarts: 20, batchSize: 100, replayRows: 120, nStep: 2, learningRate: 0.01, gradientSteps: 3 }

/** With 300 units there are so many parameters that threads share the optimizer's steps, too. */
async function trainerOf(threads: number, hidden = [8]) {
  const policy = td3Network({ hidden })
  const world = await createWorld({ environment: pendulum(), policy, numLanes: 6, seed: 5 })
  return createTrainer(world, td3(small), { threads })
}

async function trainTo(trainer: Awaited<ReturnType<typeof trainerOf>>, last: number) {
  const told: unknown[] = []
  for await (const metrics of trainer.updates({ totalSteps: 6 * 4 * 8 })) {
    told.push(Object.keys(td3.metrics).map((name) => (metrics as UpdateMetrics)[name]))
    if (trainer.update === last) break
  }
  return { told, weights: [...trainer.world.cohort().weights] }
}

test('one and three threads leave the same bits, and a checkpoint taken up again goes on with them', async () => {
  const expected = await trainTo(await trainerOf(1), 8)
  expect(expected.told.at(-1)).not.toContain(Number.NaN)
  const shared = await trainerOf(3)
  expect(await trainTo(shared, 8)).toEqual(expected)
  shared.close()
  const folder = await temporaryFolder()
  const first = await trainerOf(1)
  const before = await trainTo(first, 5)
  await first.save(folder)
  const second = await trainerOf(1)
  await second.restore(folder)
  const after = await trainTo(second, 8)
  expect([...before.told, ...after.told]).toEqual(expected.told)
  expect(after.weights).toEqual(expected.weights)
})

test('threads that share the optimizer’s steps leave the same bits', async () => {
  const wide = await trainerOf(1, [300, 200])
  const { critics } = wide.world.cohort().model.deterministic!
  expect(critics.to - critics.from).toBeGreaterThan(65_536)
  const expected = await trainTo(wide, 3)
  const shared = await trainerOf(3, [300, 200])
  expect(await trainTo(shared, 3)).toEqual(expected)
  shared.close()
})

test('actions are uniform until it learns, and then those of the actor with noise', async () => {
  const world = await createWorld({
    environment: pendulum(),
    policy: td3Network({ hidden: [4] }),
    numLanes: 64,
    seed: 2,
  })
  const explorationNoise = 0.25
  const learning = { learningRate: 1e-30, optimizer: 'sgd', gradientSteps: 1, batchSize: 4 } as const
  const trainer = createTrainer(world, td3({ ...learning, numSteps: 8, learningStarts: 1024, explorationNoise }))
  const spreads: number[] = []
  for await (const _ of trainer.updates({ totalSteps: 64 * 8 * 4 })) {
    const { action } = world.cohort().rollout as { action: Float32Array }
    const mean = action.reduce((sum, each) => sum + each, 0) / action.length
    spreads.push(Math.sqrt(action.reduce((sum, each) => sum + (each - mean) ** 2, 0) / action.length))
  }
  // Torques are within ±2. The untrained actor's are near 0: its head has gain 0.01.
  for (const uniform of spreads.slice(0, 2)) expect(uniform / (2 / Math.sqrt(3))).toBeCloseTo(1, 1)
  for (const noisy of spreads.slice(2)) expect(noisy / (2 * explorationNoise)).toBeCloseTo(1, 1)
})

test('what it cannot learn is refused', async () => {
  const begin = async (options: object, algorithm: unknown = td3()) =>
    createTrainer(await createWorld({ environment: pendulum(), numLanes: 2, ...options } as never), algorithm as never)
  const refused = 'td3 policy: got a policy without a deterministic actor'
  await expect(begin({ policy: mlp() })).rejects.toThrow(refused)
  await expect(begin({ policy: sacNetwork() })).rejects.toThrow(refused)
  await expect(begin({ policy: td3Network() }, sac())).rejects.toThrow(
    'sac policy: got a policy without action critics',
  )
  await expect(begin({ policy: td3Network() }, ppo())).rejects.toThrow('ppo policy: got a policy of action values')
  await expect(begin({ policy: td3Network(), environment: cartPole() })).rejects.toThrow('td3Network action space')
})
