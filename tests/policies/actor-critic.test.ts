/** Networks on our own kernels, held against tfjs: the same network on its `cpu` device, which has none of them but the cells. */
import { afterEach, describe, expect, test } from 'vitest'
import {
  breakout,
  cartPolePosition,
  convolutional,
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  type PolicyDefinition,
  pendulum,
  ppo,
  recurrent,
} from '../../src/index.ts'
import type { Rows } from '../../src/policies/policy.ts'
import type { World } from '../../src/world/world.ts'
import { doors } from '../support/doors.ts'
import { isThorough } from '../support/tiers.ts'
import { enlarge, expectSlopes, gradientOf, played, relativeError, sequencesOf } from './network-suite.ts'

const [numLanes, numSteps, burnIn] = [4, 8, 3]
// Episodes end within every sequence.
const position = cartPolePosition({ maxEpisodeSteps: 5 })
type Made = (device: 'none' | 'cpu') => PolicyDefinition
const networks: readonly (readonly [name: string, environment: EnvironmentDefinition, make: Made, burnIn: number])[] = [
  ['convolutions', breakout(), (device) => convolutional({ filters: [3, 2], hidden: [5], device }), 0],
  [
    'convolutions of even filters, two trunks',
    breakout(),
    (device) => convolutional({ filters: [2], kernelSize: 4, hidden: [], sharedTrunk: false, device }),
    0,
  ],
  ['a GRU', position, (device) => recurrent({ units: 7, hidden: [5], sequenceLength: numSteps, device }), 0],
  [
    'a GRU in a shared trunk, masks',
    doors(),
    (device) => recurrent({ units: 5, hidden: [], sharedTrunk: true, sequenceLength: numSteps, device }),
    0,
  ],
  [
    'an LSTM of means, with a burn-in',
    pendulum({ maxEpisodeSteps: 5 }),
    (device) => recurrent({ cell: 'lstm', units: 6, hidden: [4], sequenceLength: numSteps - burnIn, burnIn, device }),
    burnIn,
  ],
  [
    'an LSTM over convolutions',
    breakout(),
    (device) => recurrent({ cell: 'lstm', units: 4, filters: [2], hidden: [3], sequenceLength: numSteps, device }),
    0,
  ],
]

let open: World[] = []
afterEach(() => {
  for (const world of open) world.close()
  open = []
})
const play = async (policy: PolicyDefinition, environment: EnvironmentDefinition) => {
  const { world, cohort } = await played(policy, environment, numLanes, numSteps)
  open.push(world)
  return cohort
}

describe.each(isThorough ? networks : networks.slice(0, -1))('%s', (_, environment, make, burnIn) => {
  /** The rows of actions that follow the burn-in. */
  const trained = (rows: Rows, width: number): Rows => {
    const isLate = (i: number) => Math.floor(i / width) % numSteps >= burnIn
    return { ...rows, action: (rows.action as Float32Array).filter((__, i) => isLate(i)) as Float32Array }
  }
  const count = numLanes * (numSteps - burnIn)

  test('says what tfjs says, and has its gradient and that of finite differences', async () => {
    const theirs = await play(make('cpu'), environment)
    const ours = await play(make('none'), environment)
    expect(ours.model.parameters).toEqual(theirs.model.parameters)
    expect(ours.model.memoryWidth).toBe(theirs.model.memoryWidth)
    expect(ours.weights).toEqual(theirs.weights)
    for (const name of ['logprob', 'value', 'memory'] as const) {
      if (theirs.rollout[name].length === 0) continue // There is no memory.
      expect(relativeError(ours.rollout[name], theirs.rollout[name])).toBeLessThan(1e-5)
    }
    for (const cohort of [ours, theirs]) enlarge(cohort)
    const whole = sequencesOf(theirs)
    const rows = trained(whole, whole.action.length / (numLanes * numSteps))
    const wanted = await theirs.policy.evaluate(rows, 0, count)
    const got = await ours.policy.evaluate(rows, 0, count)
    for (const name of ['logprob', 'entropy', 'value'] as const) {
      expect(relativeError(got[name].subarray(0, count), wanted[name].subarray(0, count))).toBeLessThan(1e-5)
    }
    const gradient = await gradientOf(ours, rows, count)
    expect(relativeError(gradient, await gradientOf(theirs, rows, count))).toBeLessThan(1e-4)
    // A burn-in depends on the weights too, and has no gradient.
    if (burnIn === 0) await expectSlopes(ours, rows, count)
  })
})

const small = networks.filter(([name]) => name === 'a GRU')
test.each(isThorough ? networks : small)(
  '%s: whole updates give the weights that tfjs gives',
  async (_, environment, make) => {
    const learn = async (device: 'none' | 'cpu') => {
      const world = await createWorld({ environment, policy: make(device), numLanes, seed: 1 })
      open.push(world)
      const trainer = createTrainer(world, ppo({ numSteps: 2 * numSteps, numMinibatches: 2, learningRate: 1e-3 }))
      for await (const __ of trainer.updates({ totalSteps: 4 * numSteps * numLanes })) void __
      return world.cohorts[0]!.weights.slice()
    }
    expect(relativeError(await learn('none'), await learn('cpu'))).toBeLessThan(1e-4)
  },
)

test('normalized observations need our own kernels', () => {
  expect(() => recurrent({ normalizeObservations: true, device: 'cpu' })).toThrow(
    'recurrent normalizeObservations: got true with device cpu, expected false, or device none',
  )
})
