/** Compares a few updates of an algorithm with their twin, including all metrics. */
import { expect } from 'vitest'
import type { AlgorithmFactory } from '../../src/entries/algorithms.ts'
import { cartPole, createTrainer, createWorld, mlp, type UpdateMetrics } from '../../src/index.ts'
import type { Parameter } from '../../src/policies/policy.ts'
import { episodeMetrics, metricsOfRun } from '../../src/training/loop/metrics.ts'
import type { Rollout, TwinMoments } from './on-policy-twin.ts'

const NUM_LANES = 34
const NUM_STEPS = 16
const NUM_UPDATES = 3

/** Metrics of time, of which only the sum is checked. */
const TIMED = ['seconds', 'stepsPerSecond', 'rolloutSeconds', 'updateSeconds', 'phaseSeconds'] as const

/** A recomputed update. */
interface Twin {
  readonly weights: readonly number[]
  readonly metrics: Readonly<Record<string, number>>
  /** Of its gradients, in order. */
  readonly norms: readonly number[]
}

/** The inputs of a twin. */
interface TwinInputs {
  readonly parameters: readonly Parameter[]
  readonly before: Float32Array
  readonly rollout: Rollout
  readonly numLanes: number
  readonly settings: Readonly<Record<string, unknown>>
  readonly moments: TwinMoments
  /** The update's number, and the key of its row order. */
  readonly shuffle: { readonly update: number; readonly key0: number; readonly key1: number }
}

/** Three updates beside their twin: a rollout has several blocks, and episodes end and are truncated. */
async function besideTwin<T extends Twin>(
  factory: AlgorithmFactory,
  settings: Readonly<Record<string, unknown>>,
  twinOf: (inputs: TwinInputs) => T,
) {
  const algorithm = factory({ numSteps: NUM_STEPS, ...settings } as never)
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
    const { parameters } = model
    const given = { parameters, before, rollout, numLanes: NUM_LANES, settings: algorithm.parameters, moments }
    const twin = twinOf({ ...given, shuffle: { update, key0, key1 } })
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

/**
 * Compares an algorithm's updates with its twin: weights, all declared metrics, and the trainer's. Returns the updates.
 */
export async function holdToTwin<T extends Twin>(
  factory: AlgorithmFactory,
  settings: Readonly<Record<string, unknown>>,
  twinOf: (inputs: TwinInputs) => T,
) {
  const seen = await besideTwin(factory, settings, twinOf)
  expect(seen).toHaveLength(NUM_UPDATES)
  let before = 0
  for (const { metrics, expected, twin, after } of seen) {
    twin.weights.forEach((weight, k) => void expect(after[k], `weight ${k}`).toBeCloseTo(weight, 3))
    for (const [key, value] of Object.entries(expected) as [keyof typeof expected, number][]) {
      const tolerance = 1e-5 + 2e-3 * Math.abs(value)
      expect(Math.abs(metrics[key] - value), `${key}: ${metrics[key]} for ${value}`).toBeLessThan(tolerance)
    }
    checkTimes(metrics, before)
    before = metrics.seconds
    // No metric may lack a twin.
    const told = Object.keys(metrics).filter((key) => key !== 'cohorts')
    expect(told).toEqual(Object.keys(metricsOfRun(factory.metrics)))
    expect(told.toSorted()).toEqual([...Object.keys(expected), ...TIMED].toSorted())
    const [name] = Object.keys(metrics.cohorts)
    const ofCohort = Object.keys({ ...episodeMetrics, ...factory.metrics })
    expect(metrics.cohorts).toEqual({
      [name!]: Object.fromEntries(ofCohort.map((key) => [key, metrics[key as never]])),
    })
  }
  // The rollouts must include both kinds of episode end.
  const lengths = seen.flatMap((each) => each.lengths)
  expect(lengths).toContain(23)
  expect(lengths.some((length) => length < 23)).toBe(true)
  return seen
}

/** Checks the times of an update; `before` are the seconds at the end of the one before. */
function checkTimes(metrics: UpdateMetrics, before: number) {
  const { seconds, steps, update, stepsPerSecond, rolloutSeconds, updateSeconds, phaseSeconds } = metrics
  expect(stepsPerSecond / (steps / update / (seconds - before))).toBeCloseTo(1, 6)
  expect(seconds - before).toBeGreaterThanOrEqual(rolloutSeconds + updateSeconds - 1e-9)
  const phases = Object.values(phaseSeconds).reduce((sum, each) => sum + each, 0)
  expect(phases).toBeGreaterThan(0)
}
