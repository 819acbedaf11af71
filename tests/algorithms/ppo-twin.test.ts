import { expect, test } from 'vitest'
import { cartPole, createTrainer, createWorld, mlp, ppo, type UpdateMetrics } from '../../src/index.ts'
import { episodeMetrics, metricsOfRun } from '../../src/training/metrics.ts'
import { ppoTwin, type TwinMoments, type TwinSettings } from '../support/ppo-twin.ts'

type PpoSettings = NonNullable<Parameters<typeof ppo>[0]>

const NUM_LANES = 34
const NUM_STEPS = 16
const NUM_UPDATES = 3

/** Three updates beside their twin: each minibatch is two blocks, episodes end and are cut off, and every clip is at work. */
async function besideTwin(settings: PpoSettings, rates: readonly number[], clips: readonly number[]) {
  const algorithm = ppo({ numSteps: NUM_STEPS, ...settings })
  const environment = cartPole({ maxEpisodeSteps: 23 })
  const world = await createWorld({ environment, policy: mlp({ hidden: [3] }), numLanes: NUM_LANES, seed: 7 })
  const trainer = createTrainer(world, algorithm)
  const [cohort] = world.cohorts
  const { rollout, weights, model, environmentLanes } = cohort!
  const moments: TwinMoments = { first: [], second: [], steps: 0 }
  const ended: { return: number; length: number }[] = []
  const sums = new Array<number>(NUM_LANES).fill(0)
  const seen = []
  let before = weights.slice()
  for await (const metrics of trainer.updates({ totalSteps: NUM_UPDATES * NUM_LANES * NUM_STEPS })) {
    const update = metrics.update - 1
    const { key0, key1 } = environmentLanes.random
    const all = algorithm.parameters as unknown as TwinSettings
    const resolved = { ...all, learningRate: rates[update]!, clipCoef: clips[update]! }
    const twin = ppoTwin(model.parameters, before, rollout, NUM_LANES, resolved, moments, { update, key0, key1 })
    // Episodes, from the rewards and flags alone.
    const lengths: number[] = []
    for (let i = 0; i < NUM_LANES * NUM_STEPS; i++) {
      const n = i % NUM_LANES
      sums[n]! += rollout.reward[i]!
      if (rollout.terminated[i] === 0 && rollout.truncated[i] === 0) continue
      ended.push({ return: sums[n]!, length: rollout.step[i]! + 1 })
      lengths.push(rollout.step[i]! + 1)
      sums[n] = 0
    }
    const recent = ended.slice(-100)
    const mean = (of: readonly number[]) => of.reduce((sum, each) => sum + each, 0) / of.length
    const expected = {
      ...twin.metrics,
      update: update + 1,
      steps: (update + 1) * NUM_LANES * NUM_STEPS,
      episodes: ended.length,
      episodeReturn: mean(recent.map((episode) => episode.return)),
      episodeLength: mean(recent.map((episode) => episode.length)),
    }
    seen.push({ metrics, expected, twin, after: weights.slice(), lengths })
    before = weights.slice()
  }
  return seen
}

/** Figures of a clock: they add up, and nothing else is known of them. */
const TIMED = ['seconds', 'stepsPerSecond', 'rolloutSeconds', 'updateSeconds', 'phaseSeconds'] as const

const cases: [string, PpoSettings, number[], number[]][] = [
  [
    'with every clip at work',
    {
      updateEpochs: 3,
      numMinibatches: 2,
      learningRate: 0.03,
      clipCoef: 0.005,
      clipValue: 0.05,
      entropyCoef: 0.03,
      valueCoef: 0.7,
      maxGradNorm: 0.3,
      gamma: 0.9,
      gaeLambda: 0.8,
      weightDecay: 0.05,
    },
    [0.03, 0.02, 0.01],
    [0.005, 0.005, 0.005],
  ],
  [
    'by stochastic gradient descent, with advantages as they are and schedules of both kinds',
    {
      updateEpochs: 2,
      numMinibatches: 2,
      learningRate: 0.2,
      learningRateSchedule: 'cosine',
      warmupFraction: 1 / 3,
      clipCoef: 0.06,
      clipCoefSchedule: 'linear',
      normalizeAdvantage: false,
      optimizer: 'sgd',
      momentum: 0.5,
      weightDecay: 0.1,
      maxGradNorm: 1.5,
      targetKl: 3e-4,
    },
    [0.2, 0.2, 0.1],
    [0.06, 0.04, 0.02],
  ],
]

test.each(cases)(
  'an update is what its definition says %s: weights and every metric',
  async (_, settings, ...given) => {
    const seen = await besideTwin(settings, ...given)
    expect(seen).toHaveLength(NUM_UPDATES)
    for (const { metrics, expected, twin, after } of seen) {
      twin.weights.forEach((weight, k) => void expect(after[k], `weight ${k}`).toBeCloseTo(weight, 3))
      for (const [key, value] of Object.entries(expected) as [keyof typeof expected, number][]) {
        const tolerance = 1e-5 + 2e-3 * Math.abs(value)
        expect(Math.abs(metrics[key] - value), `${key}: ${metrics[key]} for ${value}`).toBeLessThan(tolerance)
      }
      checkTimes(metrics)
      // Nobody adds a metric without a twin.
      const told = Object.keys(metrics).filter((key) => key !== 'cohorts')
      expect(told).toEqual(Object.keys(metricsOfRun(ppo.metrics)))
      expect(told.toSorted()).toEqual([...Object.keys(expected), ...TIMED].toSorted())
      const [name] = Object.keys(metrics.cohorts)
      const ofCohort = Object.keys({ ...episodeMetrics, ...ppo.metrics })
      expect(metrics.cohorts).toEqual({
        [name!]: Object.fromEntries(ofCohort.map((key) => [key, metrics[key as never]])),
      })
    }
    // The case is one that tells: clips are at work, norms are above theirs, episodes end both ways.
    const { maxGradNorm } = settings
    expect(seen.some(({ metrics }) => metrics.clipFraction > 0.01 && metrics.clipFraction < 0.9)).toBe(true)
    expect(seen.some(({ twin }) => twin.norms.some((norm) => norm > maxGradNorm!))).toBe(true)
    const passes = seen.map(({ twin }) => twin.epochs)
    if (settings.targetKl !== undefined) expect(new Set(passes).size).toBeGreaterThan(1)
    const lengths = seen.flatMap((each) => each.lengths)
    expect(lengths).toContain(23)
    expect(lengths.some((length) => length < 23)).toBe(true)
  },
)

function checkTimes({
  seconds,
  steps,
  update,
  stepsPerSecond,
  rolloutSeconds,
  updateSeconds,
  phaseSeconds,
}: UpdateMetrics) {
  const whole = rolloutSeconds + updateSeconds
  expect(stepsPerSecond).toBeCloseTo(steps / update / whole, 6)
  expect(seconds).toBeGreaterThanOrEqual(whole - 1e-9)
  const phases = Object.values(phaseSeconds).reduce((sum, each) => sum + each, 0)
  expect(phases).toBeGreaterThan(0)
}
