import { describe, expect, test } from 'vitest'
import { cartPole, createTrainer, createWorld, mlp, ppo, type UpdateMetrics } from '../../src/index.ts'
import { savedTensors } from '../../src/training/folder/snapshot.ts'

type PpoSettings = NonNullable<Parameters<typeof ppo>[0]>

/** Eight updates of 64 steps. */
async function train(settings: PpoSettings) {
  const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 4, seed: 2 })
  const trainer = createTrainer(world, ppo({ numSteps: 16, learningRate: 1e-3, ...settings }))
  const before = world.cohorts[0]!.weights.slice()
  const metrics: UpdateMetrics[] = []
  for await (const update of trainer.updates({ totalSteps: 512 })) metrics.push(update)
  return { before, after: world.cohorts[0]!.weights.slice(), metrics, world }
}

describe('settings of ppo', () => {
  test('a learning rate falls in a straight line to 0 unless another schedule is named', async () => {
    const { metrics } = await train({})
    expect(metrics.map(({ learningRate }) => learningRate)).toEqual(
      Array.from({ length: 8 }, (_, update) => 1e-3 * (1 - update / 8)),
    )
  })

  test('a warm-up comes before the schedule', async () => {
    const { metrics } = await train({ learningRateSchedule: 'cosine', warmupFraction: 0.25 })
    const wanted = [0.5, 1, 1, 0.933, 0.75, 0.5, 0.25, 0.067].map((factor) => 1e-3 * factor)
    metrics.forEach(({ learningRate }, update) => void expect(learningRate).toBeCloseTo(wanted[update]!, 6))
  })

  test('a clip coefficient that falls clips more', async () => {
    const steep = { learningRate: 1e-2, learningRateSchedule: 'constant', clipCoef: 0.1 } as const
    const clipped = ({ metrics }: { metrics: UpdateMetrics[] }) => metrics.at(-1)!.clipFraction
    const falling = clipped(await train({ ...steep, clipCoefSchedule: 'linear' }))
    expect(falling).toBeGreaterThan(2 * clipped(await train(steep)))
  })

  test.each<[string, PpoSettings, string[]]>([
    ['adam', {}, ['betaPowers', 'moment', 'squareMoment']],
    ['sgd', { optimizer: 'sgd', momentum: 0.9 }, ['moment']],
    ['rmsprop', { optimizer: 'rmsprop' }, ['moment', 'squareMoment']],
  ])(
    '%s moves the weights, each optimizer elsewhere, and a checkpoint keeps its columns',
    async (_, settings, kept) => {
      const { before, after, world } = await train(settings)
      expect(after).not.toEqual(before)
      expect(after.every(Number.isFinite)).toBe(true)
      const others = (['adam', 'sgd', 'rmsprop'] as const).filter((name) => name !== (settings.optimizer ?? 'adam'))
      for (const optimizer of others) expect((await train({ optimizer })).after).not.toEqual(after)
      const columns = savedTensors(world).filter(({ name }) => name.includes('.optimizer.'))
      expect(
        columns.filter(({ bytes }) => bytes.some((byte) => byte !== 0)).map(({ name }) => name.split('.').at(-1)),
      ).toEqual(expect.arrayContaining(kept))
      expect(columns.filter(({ bytes }) => bytes.length > 0).length).toBe(kept.length)
    },
  )

  test.each<PpoSettings>([{ optimizer: 'sgd' }, { optimizer: 'sgd', momentum: 0.9 }, { optimizer: 'rmsprop' }])(
    'weight decay shrinks the weights of %o',
    async (settings) => {
      const size = ({ after }: { after: Float32Array }) => Math.hypot(...after)
      const rate = { ...settings, learningRate: 1e-4 }
      expect(size(await train({ ...rate, weightDecay: 20 }))).toBeLessThan(0.99 * size(await train(rate)))
    },
  )

  test.each<[object, string]>([
    [{ optimizer: 'adamw' }, 'ppo.optimizer: got "adamw" (did you mean "adam"?), expected one of adam, sgd, rmsprop'],
    [{ momentum: 0.9 }, 'ppo.momentum: got 0.9, expected 0: adam accepts beta1 and beta2'],
    [{ optimizer: 'sgd', momentum: -1 }, 'ppo.momentum: got -1, expected a number ≥ 0 and ≤ 1'],
    [{ learningRateSchedule: 'exponential' }, 'expected one of constant, linear, cosine'],
    [{ clipCoefSchedule: true }, 'ppo.clipCoefSchedule: got true'],
    [{ warmupFraction: 1.5 }, 'ppo.warmupFraction: got 1.5, expected a number ≥ 0 and ≤ 1'],
    [{ warmupFraction: Number.NaN }, 'ppo.warmupFraction: got NaN'],
    [{ annealLearningRate: false }, 'ppo setting: got "annealLearningRate"'],
  ])('%o is refused', (settings, message) => {
    expect(() => ppo(settings as PpoSettings)).toThrow(message)
  })
})
