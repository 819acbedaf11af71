import { describe, expect, test } from 'vitest'
// Workers load compiled files, and what they make must be made of the same ones here.
import { sac, sacNetwork } from '../../dist/src/entries/algorithms.js'
import { box, cartPole, createTrainer, createWorld, mlp, pendulum, type UpdateMetrics } from '../../dist/src/index.js'
import { boxMuller, philox4x32, Stream } from '../../src/base/random.ts'
import { temporaryFolder } from '../support/temporary.ts'

const HIDDEN = 5
const BATCH = 12
const GAMMA = 0.9

interface Learned {
  readonly target: Float32Array
  readonly gradients: Float32Array
  readonly weight: Float32Array
  readonly threads: {
    readonly thread0: Record<'observation' | 'nextObservation' | 'action' | 'return' | 'discount', Float32Array>
  }
}

/** The values of a network by their formulas, in f64: a layer of tanh, and a linear one. */
function layersOf(model: { parameters: readonly { name: string; offset: number; shape: readonly number[] }[] }) {
  return (weights: ArrayLike<number>, name: string, x: readonly number[]): number[] => {
    const layers = model.parameters.filter((each) => each.name.startsWith(`${name}.`) && each.name.endsWith('.weight'))
    return layers.reduce<number[]>(
      (input, { offset, shape: [numInputs, numOutputs] }, i) =>
        Array.from({ length: numOutputs! }, (_, j) => {
          const bias = weights[offset + numInputs! * numOutputs! + j]!
          const sum = input.reduce((s, each, k) => s + each * weights[offset + k * numOutputs! + j]!, bias)
          return i === layers.length - 1 ? sum : Math.tanh(sum)
        }),
      [...x],
    )
  }
}

describe.each([null, 0.3])('with temperature %s', (temperature) => {
  test('the gradient is that of both losses and of the temperature’s, made anew from the minibatch', async () => {
    const policy = sacNetwork({ hidden: [HIDDEN], activation: 'tanh' })
    const world = await createWorld({ environment: pendulum(), policy, numLanes: 3, seed: 4, kernels: 'plain' })
    const still = {
      optimizer: 'sgd',
      learningRate: 1e-30,
      gamma: GAMMA,
      batchSize: BATCH,
      gradientSteps: 1,
      targetInterval: 9,
    } as const
    const trainer = createTrainer(world, sac({ ...still, temperature, learningStarts: 1, priorityExponent: 0.5 }))
    const cohort = world.cohort()
    const { model } = cohort
    const columns = cohort.learner.algorithm as unknown as Learned
    const placeOf = (name: string) => model.parameters.find((each) => each.name === name)!.offset
    const weights = cohort.weights
    weights.forEach((weight, i) => {
      weights[i] = weight + 0.4 * Math.sin(3 * i)
    })
    weights[placeOf('logTemperature')] = -0.7
    for await (const metrics of trainer.updates({ totalSteps: 3 * 4 * 3 })) {
      if (metrics.update === 1) columns.target.set(columns.target.map((each, i) => each + 0.3 * Math.cos(i)))
      if (metrics.update < 3) continue
      const value = layersOf(model)
      const { observation, nextObservation, action, return: returns, discount } = columns.threads.thread0
      const rows = (column: Float32Array, width: number, row: number) => [
        ...column.subarray(row * width, (row + 1) * width),
      ]
      const { key0, key1 } = cohort.environmentLanes.random
      const words = new Uint32Array(4)
      const draw = (w: ArrayLike<number>, seen: number[], row: number, use: number) => {
        philox4x32(words, row, 2, use, Stream.replay, key0, key1) // Two gradient steps went before.
        const epsilon = boxMuller(words[0]!, words[1]!, 0)
        const [mean, logStd] = value(w, 'actor', seen) as [number, number]
        const a = Math.tanh(mean + Math.exp(logStd) * epsilon)
        const density = Math.exp(-0.5 * epsilon ** 2) / Math.exp(logStd) / Math.sqrt(2 * Math.PI) / (1 - a * a)
        return { a, logprob: Math.log(density) }
      }
      const least = (w: ArrayLike<number>, seen: number[], a: number) =>
        Math.min(...[0, 1].map((i) => value(w, `critic${i}`, [...seen, a])[0]!))
      const alpha = temperature ?? Math.exp(-0.7)
      const lossOf = (w: ArrayLike<number>, part: string): number => {
        let sum = 0
        for (let row = 0; row < BATCH; row++) {
          const [seen, next] = [rows(observation, 3, row), rows(nextObservation, 3, row)]
          const own = draw(part === 'actor' ? w : weights, seen, row, 2)
          if (part === 'actor') sum += alpha * own.logprob - least(weights, seen, own.a)
          else if (part === 'logTemperature') sum += temperature === null ? -w[placeOf(part)]! * (own.logprob - 1) : 0
          else {
            const then = draw(weights, next, row, 1)
            const y = returns[row]! + discount[row]! * (least(columns.target, next, then.a) - alpha * then.logprob)
            sum += (columns.weight[row]! * (y - value(w, part, [...seen, action[row]! / 2])[0]!) ** 2) / 2
          }
        }
        return sum / BATCH
      }
      expect(new Set(columns.weight).size).toBeGreaterThan(1)
      for (const { name, offset, shape } of model.parameters) {
        for (let i = offset; i < offset + shape.reduce((product, side) => product * side, 1); i++) {
          const part = name.split('.')[0]!
          const [above, below] = [1e-5, -1e-5].map((step) => {
            const moved = Float64Array.from(weights)
            moved[i] = moved[i]! + step
            return lossOf(moved, part)
          }) as [number, number]
          const expected = (above - below) / 2e-5
          expect(Math.abs(columns.gradients[i]! - expected), `${name} ${i}`).toBeLessThan(
            1e-3 * (1 + Math.abs(expected)),
          )
        }
      }
      expect(metrics.actorLoss).toBeCloseTo(lossOf(weights, 'actor'), 3)
      expect(metrics.criticLoss).toBeCloseTo(lossOf(weights, 'critic0') + lossOf(weights, 'critic1'), 2)
      expect(metrics.temperature).toBeCloseTo(alpha, 6)
    }
  })
})

const small = { learningStarts: 20, batchSize: 100, replayRows: 120, nStep: 2, learningRate: 0.01 }

async function trainerOf(threads: number) {
  const world = await createWorld({
    environment: pendulum(),
    policy: sacNetwork({ hidden: [8] }),
    numLanes: 6,
    seed: 5,
  })
  return createTrainer(world, sac(small), { threads })
}

async function trainTo(trainer: Awaited<ReturnType<typeof trainerOf>>, last: number) {
  const told: unknown[] = []
  for await (const metrics of trainer.updates({ totalSteps: 6 * 4 * 8 })) {
    told.push(Object.keys(sac.metrics).map((name) => (metrics as UpdateMetrics)[name]))
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

test('what it cannot learn is refused', async () => {
  const begin = async (options: object) =>
    createTrainer(await createWorld({ environment: pendulum(), numLanes: 2, ...options } as never), sac())
  await expect(begin({ policy: mlp() })).rejects.toThrow('sac policy: got a policy without action critics')
  await expect(begin({ policy: sacNetwork(), environment: cartPole() })).rejects.toThrow('sacNetwork action space')
  const open = box({ low: [-1], high: [Number.POSITIVE_INFINITY] })
  expect(() => sacNetwork().build(box({ low: 0, high: 1, shape: [2] }), open)).toThrow('a box with finite bounds')
})
