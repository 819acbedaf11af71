/** Policies of every exportable kind, and the original's actions on 10,000 observations. */
import { expect } from 'vitest'
import { choiceSizes, spaceWidth } from '../../src/base/space.ts'
import {
  type BoxSpace,
  box,
  createWorld,
  defineEnvironment,
  discrete,
  mlp,
  multiDiscrete,
  type Space,
  tick,
} from '../../src/index.ts'
import type { KernelBuild } from '../../src/kernels/kernels.ts'
import { Numbers } from '../kernels/calls.ts'
import { isThorough } from './tiers.ts'

export const NUM_OBSERVATIONS = isThorough ? 10_000 : 2_000

const INFINITY = Number.POSITIVE_INFINITY
type MlpSettings = NonNullable<Parameters<typeof mlp>[0]>

interface Kind {
  readonly policy: MlpSettings
  readonly actionSpace: Space
  readonly observationShape?: readonly number[]
  readonly actionMask?: boolean
}

const kinds: Readonly<Record<string, Kind>> = {
  'discrete, tanh': { policy: { hidden: [64, 64] }, actionSpace: discrete(3) },
  'discrete, relu, shared trunk': {
    policy: { hidden: [33, 17], activation: 'relu', sharedTrunk: true },
    actionSpace: discrete(5),
  },
  'discrete, no hidden layer': { policy: { hidden: [] }, actionSpace: discrete(4) },
  'discrete of one': { policy: { hidden: [8] }, actionSpace: discrete(1) },
  'discrete, no hidden layer, shared trunk, observations of three sides': {
    policy: { hidden: [], sharedTrunk: true },
    actionSpace: discrete(2),
    observationShape: [3, 2, 2],
  },
  'multi-discrete, tanh, shared trunk': {
    policy: { hidden: [16, 16], sharedTrunk: true },
    actionSpace: multiDiscrete([3, 1, 4]),
  },
  'multi-discrete of one, relu': {
    policy: { hidden: [24], activation: 'relu' },
    actionSpace: multiDiscrete([3]),
    observationShape: [2, 3],
  },
  'multi-discrete, masked': { policy: { hidden: [16] }, actionSpace: multiDiscrete([3, 2]), actionMask: true },
  'discrete, masked, relu': {
    policy: { hidden: [16], activation: 'relu' },
    actionSpace: discrete(6),
    actionMask: true,
  },
  'box, tanh': {
    policy: { hidden: [64, 64] },
    actionSpace: box({ low: [-0.5, -INFINITY, 0.1], high: [0.25, 0.3, INFINITY] }),
  },
  'box of two sides, relu, shared trunk': {
    policy: { hidden: [16], activation: 'relu', sharedTrunk: true },
    actionSpace: box({ low: -0.7, high: 1, shape: [2, 2] }),
    observationShape: [2, 2],
  },
  'discrete, tanh, normalized': { policy: { hidden: [64, 64], normalizeObservations: true }, actionSpace: discrete(3) },
  'box of two sides, shared trunk, normalized': {
    policy: { hidden: [16], sharedTrunk: true, normalizeObservations: true },
    actionSpace: box({ low: -0.7, high: 1, shape: [2, 2] }),
    observationShape: [2, 2],
  },
  'discrete, tanh, layer norms': { policy: { hidden: [33, 16], layerNorm: true }, actionSpace: discrete(3) },
  'box, relu, shared trunk, layer norms': {
    policy: { hidden: [16, 7], activation: 'relu', sharedTrunk: true, layerNorm: true },
    actionSpace: box({ low: -2, high: 2, shape: [2] }),
  },
  'box, no hidden layer': { policy: { hidden: [] }, actionSpace: box({ low: -2, high: 2, shape: [1] }) },
}

export const kindNames = Object.keys(kinds)
/** Kinds without normalized observations. */
export const rawKindNames = kindNames.filter((name) => kinds[name]!.policy.normalizeObservations !== true)

/** A policy of a kind with weights that all matter, and its environment, for `exportPolicy`. */
export function trained(name: string) {
  const { policy: settings, actionSpace, observationShape = [4], actionMask = false } = kinds[name]!
  const observationSpace = box({ low: -INFINITY, high: INFINITY, shape: observationShape })
  const policy = mlp(settings)
  const numbers = new Numbers(kindNames.indexOf(name))
  const { numParameters, normalizedInputs = 0 } = policy.build(observationSpace, actionSpace)
  const weights = numbers.floats(numParameters, -0.5, 0.5)
  for (let k = numParameters - normalizedInputs; k < numParameters; k++) weights[k] = 0.1 + Math.abs(weights[k]!)
  const numLogits = choiceSizes(actionSpace).reduce((sum, size) => sum + size, 0)
  const observation = numbers.floats(NUM_OBSERVATIONS * spaceWidth(observationSpace), -3, 3)
  const mask = numbers.flags(actionMask ? NUM_OBSERVATIONS * numLogits : 0, 0.7)
  for (let row = 0; row < mask.length / numLogits; row++) {
    let from = row * numLogits
    for (const size of choiceSizes(actionSpace)) {
      mask[from + numbers.whole(0, size - 1)] = 1 // At least one choice is legal.
      from += size
    }
  }
  const acted: { action?: Float32Array | Int32Array } = {}
  const environment = defineEnvironment({
    id: 'Seen-v0',
    settings: {},
    state: () => ({}),
    make: () => ({
      observationSpace,
      actionSpace,
      ...(actionMask && { actionMask }),
      maxEpisodeSteps: 2,
      returnThreshold: null,
      reset(lanes) {
        lanes.observation.set(observation)
        if (actionMask) lanes.actionMask.set(mask)
      },
      step(lanes) {
        acted.action ??= lanes.action.slice()
      },
    }),
  })()
  return { policy, environment, weights, observation, mask, acted }
}

export type Trained = ReturnType<typeof trained>

/** The original's actions and values, with one observation per lane. */
export async function actAsOriginal({ policy, environment, weights, acted }: Trained, kernels: KernelBuild) {
  const world = await createWorld({ environment, policy, numLanes: NUM_OBSERVATIONS, explore: false, kernels })
  const cohort = world.cohorts[0]!
  cohort.weights.set(weights)
  delete acted.action
  tick(world)
  return { action: acted.action!, value: cohort.rollout.value.slice(0, NUM_OBSERVATIONS) }
}

/** An exported policy's outputs for all observations; `head` is logits, or means. */
export interface Said {
  readonly action: ArrayLike<number>
  readonly head: ArrayLike<number>
  readonly value: ArrayLike<number>
}

/**
 * Compares the actions and values of each observation. Different choices count as a tie if the exported logits are
 * equal within rounding, otherwise as an error; box actions and values must be equal within rounding. Returns the
 * number of ties.
 */
export function compare(
  { environment }: Trained,
  original: Awaited<ReturnType<typeof actAsOriginal>>,
  said: Said,
): number {
  const near = (a: number, b: number) => Math.abs(a - b) <= 1e-5 * Math.max(1, Math.abs(b))
  const { actionSpace } = environment
  const width = spaceWidth(actionSpace)
  const sizes = choiceSizes(actionSpace)
  const numOutputs = sizes.length > 0 ? sizes.reduce((sum, size) => sum + size, 0) : width
  expect(said.action.length).toBe(NUM_OBSERVATIONS * width)
  expect(said.head.length).toBe(NUM_OBSERVATIONS * numOutputs)
  expect(said.value.length).toBe(NUM_OBSERVATIONS)
  let [equal, ties] = [0, 0]
  const wrong: string[] = []
  for (let row = 0; row < NUM_OBSERVATIONS; row++) {
    let state: 'equal' | 'tie' | 'wrong' = near(said.value[row]!, original.value[row]!) ? 'equal' : 'wrong'
    let from = row * numOutputs
    for (let k = 0; k < width; k++) {
      const [got, wanted] = [said.action[row * width + k]!, original.action[row * width + k]!]
      if (actionSpace.kind === 'box') {
        const { low, high } = actionSpace as BoxSpace
        const clipped = Math.min(Math.max(said.head[from + k]!, low[k]!), high[k]!)
        if (!near(got, wanted) || !near(got, clipped)) state = 'wrong'
        continue
      }
      if (got !== wanted) {
        const isTie = near(said.head[from + got]!, said.head[from + wanted]!)
        if (!isTie) state = 'wrong'
        else if (state === 'equal') state = 'tie'
      }
      from += sizes[k]!
    }
    if (state === 'equal') equal++
    else if (state === 'tie') ties++
    else wrong.push(`observation ${row}`)
  }
  expect(wrong.slice(0, 5)).toEqual([])
  expect(equal + ties).toBe(NUM_OBSERVATIONS)
  return ties
}

/** An exported policy must not pass by a constant action. */
export function expectVariety({ environment }: Trained, action: ArrayLike<number>): void {
  const sizes = choiceSizes(environment.actionSpace)
  if (sizes.length === 0) {
    expect(new Set(Array.from(action)).size).toBeGreaterThan(1000)
    return
  }
  sizes.forEach((size, k) => {
    const chosen = new Set(Array.from(action).filter((_, i) => i % sizes.length === k))
    expect(chosen.size).toBeGreaterThanOrEqual(Math.min(size, 2))
  })
}
