/** Optimizers by their contract: one of your own in a file, in this thread, in others, and in a run that is resumed. */
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { lion } from '../../examples/custom-optimizer.ts'
import { rl } from '../../src/algorithms/tokens/rl.ts'
import { sft } from '../../src/algorithms/tokens/sft.ts'
import { defineOptimizer, dqn } from '../../src/entries/algorithms.ts'
import { cartPole, createTrainer, createWorld, type EpisodeCohort, mlp, ppo, type Trainer } from '../../src/index.ts'
import { readCheckpoint } from '../../src/training/folder/checkpoint.ts'
import { inProcess, SMALL } from '../support/command.ts'
import { advanceTo, columnsOf } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

/** The built-in `sgd`, written outside. */
const ownSgd = defineOptimizer({
  id: 'own-sgd',
  takes: ['momentum'],
  moments: 1,
  step({ weights, moment, gradient, gradientScale, learningRate, settings, length }) {
    const { momentum, weightDecay } = settings
    for (let i = 0; i < length; i++) {
      moment[i] = momentum * moment[i]! + gradient[i]! * gradientScale
      weights[i] = weights[i]! - learningRate * (moment[i]! + weightDecay * weights[i]!)
    }
  },
})

/** Adam with its bias corrections, written outside from the paper. */
const ownAdam = defineOptimizer({
  id: 'own-adam',
  takes: ['beta1', 'beta2'],
  moments: 2,
  powersOf: ['beta1', 'beta2'],
  step({ weights, moment, squareMoment, gradient, gradientScale, learningRate, settings, powers, length }) {
    const { beta1, beta2, epsilon } = settings
    for (let i = 0; i < length; i++) {
      const g = gradient[i]! * gradientScale
      moment[i] = beta1 * moment[i]! + (1 - beta1) * g
      squareMoment[i] = beta2 * squareMoment[i]! + (1 - beta2) * g * g
      const [first, second] = [moment[i]! / (1 - powers[0]!), squareMoment[i]! / (1 - powers[1]!)]
      weights[i]! -= (learningRate * first) / (Math.sqrt(second) + epsilon)
    }
  },
})

async function trained(
  settings: Parameters<typeof ppo>[0],
  parts?: Parameters<typeof ppo>[1],
  updates = 4,
): Promise<Trainer<EpisodeCohort>> {
  const environment = cartPole()
  const world = await createWorld({ environment, policy: mlp({ hidden: [8] }), numLanes: 4, seed: 1, kernels: 'plain' })
  const algorithm = ppo({ numSteps: 16, numMinibatches: 2, updateEpochs: 2, ...settings }, parts)
  const trainer = createTrainer(world, algorithm) as Trainer<EpisodeCohort>
  if (updates > 0) await advanceTo(trainer, updates)
  return trainer
}

const weightsOf = (trainer: Trainer<EpisodeCohort>) => [...trainer.world.cohort().weights]

describe('an optimizer from outside', () => {
  test('is the built-in one where it does the same: sgd with momentum and decay, to the bit', async () => {
    const settings = { momentum: 0.9, weightDecay: 0.01, learningRate: 0.02 }
    const builtIn = await trained({ ...settings, optimizer: 'sgd' })
    const own = await trained(settings, { optimizer: ownSgd })
    expect(columnsOf(own)).toEqual(columnsOf(builtIn))
    expect(weightsOf(await trained({ ...settings, momentum: 0.8, optimizer: 'sgd' }))).not.toEqual(weightsOf(own))
  })

  test('is handed the powers of its settings: Adam from the paper', async () => {
    const settings = { beta1: 0.8, beta2: 0.95, learningRate: 0.01 }
    const builtIn = weightsOf(await trained(settings))
    const own = weightsOf(await trained(settings, { optimizer: ownAdam }))
    for (const [i, weight] of own.entries()) expect(weight).toBeCloseTo(builtIn[i]!, 4)
    expect(weightsOf(await trained({ learningRate: 0.01 }))).not.toEqual(builtIn)
  })

  test('may keep nothing: the sign of the gradient', async () => {
    const signSgd = defineOptimizer({
      id: 'sign-sgd',
      step({ weights, moment, squareMoment, gradient, learningRate, length }) {
        expect([moment.length, squareMoment.length]).toEqual([0, 0])
        for (let i = 0; i < length; i++) weights[i]! -= learningRate * Math.sign(gradient[i]!)
      },
    })
    const settings = { learningRate: 2 ** -8, learningRateSchedule: 'constant' } as const
    const before = weightsOf(await trained(settings, { optimizer: signSgd }, 0))
    const after = weightsOf(await trained(settings, { optimizer: signSgd }, 1))
    const steps = after.map((weight, i) => (weight - before[i]!) * 2 ** 8) // Four steps of 1 in either direction.
    for (const step of steps) expect(Math.abs(step - Math.round(step))).toBeLessThan(1e-4)
    expect(Math.max(...steps)).toBeCloseTo(4, 3)
    expect(Math.min(...steps)).toBeCloseTo(-4, 3)
  })

  test.each([
    ['ppo', ppo],
    ['dqn', dqn],
    ['sft', sft],
    ['rl', rl],
  ] as const)('is a part of %s, whose settings it takes or refuses', (name, algorithm) => {
    const make = algorithm as typeof ppo
    expect((make({ beta1: 0.5 }, { optimizer: lion }).parameters as { optimizer: string }).optimizer).toBe('lion')
    expect(() => make({ momentum: 0.5 }, { optimizer: lion })).toThrow(
      `${name}.momentum: got 0.5, expected 0: lion accepts beta1 and beta2`,
    )
    expect(() => make({ optimizer: 'adm' })).toThrow(
      `${name}.optimizer: got "adm" (did you mean "adam"?), expected one of adam, sgd`,
    )
    const none = Object.assign(() => 1, { id: 'none' })
    expect(() => make({}, { optimizer: none })).toThrow('got none, expected an optimizer made by defineOptimizer')
    const taken = defineOptimizer({ id: 'adam', step() {} })
    expect(() => make({}, { optimizer: taken })).toThrow('got a second adam, expected the first one, or another id')
  })

  test.each([
    [{ id: '' }, 'optimizer id: got "", expected a name'],
    [{ moments: 3 }, 'optimizer mine, moments: got 3, expected 0, 1, 2 or a function of a parameter'],
    [{ step: 1 }, 'optimizer mine, step: got 1, expected a function'],
    [{ takes: 'beta1' }, 'takes of optimizer mine: got "beta1", expected a list'],
    [
      { takes: ['beta3'] },
      'optimizer mine, takes: got "beta3" (did you mean "beta1"?), expected one of momentum, beta1',
    ],
    [{ powersOf: ['epsilon'] }, 'optimizer mine, powersOf: got "epsilon", expected one of momentum, beta1, beta2'],
  ])('is refused as %j', (wrong, message) => {
    expect(() => defineOptimizer({ id: 'mine', step() {}, ...(wrong as object) })).toThrow(message)
  })
})

test('a run names it by the path of its module, in two threads as in one, and goes on with it', async () => {
  const folder = await temporaryFolder()
  const module = fileURLToPath(new URL('../../dist/examples/custom-optimizer.js', import.meta.url))
  const told = [
    ...SMALL.filter((word) => !/totalSteps|numMinibatches/.test(word)),
    `ppo.optimizer=${module}`,
    'ppo.numMinibatches=2',
    'ppo.beta2=0.9',
    'ppo.learningRateSchedule=constant',
  ]
  const whole = 'totalSteps=2048'
  const train = async (name: string, ...words: string[]) => {
    const { code, stderr } = await inProcess(['train', 'CartPole-v1', ...told, `out=${folder}/${name}`, ...words])
    expect(code, stderr).toBe(0)
  }
  await train('one', whole, 'threads=1')
  await train('two', whole, 'threads=2')
  await train('half', 'threads=1', 'totalSteps=1024')
  const { code } = await inProcess(['resume', `${folder}/half`, whole, `trust=${module}`])
  expect(code).toBe(0)
  const [one, two, half] = await Promise.all(['one', 'two', 'half'].map((name) => readCheckpoint(`${folder}/${name}`)))
  const columns = ({ tensors }: typeof one) =>
    Object.fromEntries([...tensors!].map(([name, { bytes }]) => [name, [...bytes]]))
  expect(columns(two!)).toEqual(columns(one!))
  expect(columns(half!)).toEqual(columns(one!))
  expect([...one!.tensors.keys()].some((name) => name.endsWith('optimizer.moment'))).toBe(true)
})
