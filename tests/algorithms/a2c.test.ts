import { expect, test } from 'vitest'
// Workers load compiled files, and what they make must be made of the same ones here.
import {
  a2c,
  breakout,
  convolutional,
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  mlp,
  type PolicyDefinition,
  pendulum,
  recall,
  recurrent,
  ticTacToe,
  type UpdateMetrics,
} from '../../dist/src/index.js'
import { temporaryFolder } from '../support/temporary.ts'
import { rowsOf } from '../support/tiers.ts'

interface Trained {
  readonly environment: EnvironmentDefinition
  readonly policy: PolicyDefinition
  readonly numLanes: number
  readonly numSteps: number
}

const NUM_UPDATES = 4

async function trainerOf({ environment, policy, numLanes, numSteps }: Trained, threads: number) {
  const world = await createWorld({ environment, policy, numLanes, seed: 5 })
  return createTrainer(world, a2c({ numSteps, learningRate: 0.01, learningRateSchedule: 'linear' }), { threads })
}

type A2cTrainer = Awaited<ReturnType<typeof trainerOf>>

const untimed = ({ update, episodes, ...metrics }: UpdateMetrics) =>
  [update, episodes, ...Object.keys(a2c.metrics).map((name) => metrics[name])] as const

/** Trains up to an update; what each update told, and the weights. */
async function trainTo(trainer: A2cTrainer, { numLanes, numSteps }: Trained, last: number) {
  const told = []
  for await (const metrics of trainer.updates({ totalSteps: numLanes * numSteps * NUM_UPDATES })) {
    told.push(untimed(metrics as UpdateMetrics))
    if (trainer.update === last) break
  }
  return { told, weights: [...trainer.world.cohort().weights] }
}

const masked: Trained = {
  environment: ticTacToe(),
  policy: mlp({ hidden: [8] }),
  numLanes: 300,
  numSteps: 5,
}
const boxed: Trained = { environment: pendulum(), policy: mlp({ hidden: [8] }), numLanes: 200, numSteps: 4 }
const remembering: Trained = {
  environment: recall(),
  policy: recurrent({ units: 4, hidden: [4], sequenceLength: 4, burnIn: 4, device: 'cpu' }),
  numLanes: 6,
  numSteps: 8,
}
const seeing: Trained = {
  environment: breakout(),
  policy: convolutional({ filters: [2], hidden: [4], device: 'cpu' }),
  numLanes: 4,
  numSteps: 5,
}

const rollouts = [
  ['an action mask', masked],
  ['a box action', boxed],
] as const

test.each(rowsOf(rollouts))('an update leaves the same bits on 1 to 3 threads with %s', async (_, trained) => {
  const [one, ...others] = await Promise.all(
    [1, 2, 3].map(async (threads) => {
      const trainer = await trainerOf(trained, threads)
      const seen = await trainTo(trainer, trained, NUM_UPDATES)
      trainer.close()
      return seen
    }),
  )
  expect(one!.told).toHaveLength(NUM_UPDATES)
  for (const other of others) expect(other).toEqual(one)
})

test.each([
  ['a perceptron', masked],
  ['a policy with a memory', remembering],
  ['a convolutional policy', seeing],
])('%s is trained, and a checkpoint taken up again continues with the same bits', async (_, trained) => {
  const whole = await trainerOf(trained, 1)
  const begun = [...whole.world.cohort().weights]
  const expected = await trainTo(whole, trained, NUM_UPDATES)
  expect(expected.weights).not.toEqual(begun)
  for (const metrics of expected.told) for (const value of metrics.slice(2)) expect(value).toBeTypeOf('number')
  const folder = await temporaryFolder()
  const first = await trainerOf(trained, 1)
  const before = await trainTo(first, trained, 2)
  await first.save(folder)
  const second = await trainerOf(trained, 1)
  await second.restore(folder)
  const after = await trainTo(second, trained, NUM_UPDATES)
  expect([...before.told, ...after.told]).toEqual(expected.told)
  expect(after.weights).toEqual(expected.weights)
})

test('what the optimizer has no use for is refused', () => {
  expect(() => a2c({ optimizer: 'adam', momentum: 0.5 })).toThrow(
    'a2c.momentum: got 0.5, expected 0: adam accepts beta1 and beta2',
  )
  expect(() => a2c({ beta1: 0.5 })).toThrow('a2c.beta1: got 0.5, expected 0.9: rmsprop accepts momentum')
  expect(() => a2c({ clipCoef: 0.2 } as never)).toThrow(
    'a2c setting: got "clipCoef" (did you mean "valueCoef"?), expected one of 20, like valueCoef, ',
  )
})
