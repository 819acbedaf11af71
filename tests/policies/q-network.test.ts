import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { box, discrete, multiDiscrete, spaceWidth } from '../../src/base/space.ts'
import { takeArena } from '../../src/components/arena.ts'
import { type Columns, column, type Plan } from '../../src/components/column.ts'
import { qNetwork } from '../../src/entries/algorithms.ts'
import { createKernels, kernelBuilds } from '../../src/kernels/bind.ts'
import type { ActionValuePolicy, Derivatives, Rows } from '../../src/policies/policy.ts'

const WIDTH = 3
const NUM_ACTIONS = 4
const ROWS = 5
const observationSpace = box({ low: -9, high: 9, shape: [WIDTH] })

/** A network whose weights are all drawn at random, and rows for it. */
function makeNetwork(
  settings: Parameters<typeof qNetwork>[0],
  build = kernelBuilds()[0]!,
  observationSpace = box({ low: -9, high: 9, shape: [WIDTH] }),
) {
  const model = qNetwork(settings).build(observationSpace, discrete(NUM_ACTIONS))
  const WIDTH = spaceWidth(observationSpace)
  const size = model.numParameters
  const { arena, columns } = takeArena({
    weights: column('f32', size),
    gradient: column('f32', size),
    workspace: model.workspace(),
    observation: column('f32', ROWS, WIDTH),
    action: column('i32', ROWS),
    actionMask: column('u8', ROWS, NUM_ACTIONS),
    value: column('f32', ROWS),
  })
  const random = new Random(6)
  const normals = (into: Float32Array, lane: number) => {
    for (let i = 0; i < into.length; i++) {
      random.draw(Stream.initialize, lane, 0, i)
      into[i] = 0.7 * random.normal(0, 0)
    }
  }
  normals(columns.weights, 1)
  normals(columns.observation, 2)
  columns.action.set([0, 3, 1, 2, 3])
  columns.weights[model.actionValues!.exploration] = 0.2
  const kernels = createKernels(arena.memory, build)
  const policy = model.bind(columns.weights, columns.workspace as Columns<Plan>, kernels, random) as ActionValuePolicy
  const rows: Rows = {
    ...{ observation: columns.observation, action: columns.action },
    ...{ actionMask: new Uint8Array(0), memory: new Float32Array(0), continues: new Uint8Array(0) },
  }
  const { weights, gradient, actionMask, value } = columns
  return { model, policy, rows, weights, gradient, actionMask, value }
}

/** The values of all actions by the layers' own formulas. */
function valuesByHand({ model, rows, weights }: ReturnType<typeof makeNetwork>, isDueling: boolean): number[][] {
  const layers = model.parameters.filter(({ name }) => name.endsWith('.weight'))
  return Array.from({ length: ROWS }, (_, row) => {
    let x = [...rows.observation.subarray(row * WIDTH, (row + 1) * WIDTH)]
    for (const [i, { offset, shape }] of layers.entries()) {
      const [numInputs, numOutputs] = shape as [number, number]
      const bias = offset + numInputs * numOutputs
      x = Array.from({ length: numOutputs }, (_, j) => {
        const sum = x.reduce((s, input, k) => s + input * weights[offset + k * numOutputs + j]!, weights[bias + j]!)
        return i === layers.length - 1 ? sum : Math.tanh(sum)
      })
    }
    if (!isDueling) return x
    const advantages = x.slice(0, NUM_ACTIONS)
    const mean = advantages.reduce((sum, each) => sum + each, 0) / NUM_ACTIONS
    return advantages.map((advantage) => x[NUM_ACTIONS]! + advantage - mean)
  })
}

describe.each([false, true])('a network of action values, dueling %s', (dueling) => {
  const settings = { hidden: [6, 5], activation: 'tanh', dueling } as const

  test.each(kernelBuilds())(
    'gives the values that its layers say, and evaluates its own choices as such (%s)',
    (build) => {
      const network = makeNetwork(settings, build)
      const { policy, rows } = network
      const expected = valuesByHand(network, dueling)
      const values = policy.actionValues(rows.observation, 0, ROWS)
      for (let i = 0; i < ROWS * NUM_ACTIONS; i++) {
        expect(values[i]).toBeCloseTo(expected[Math.floor(i / NUM_ACTIONS)]![i % NUM_ACTIONS]!, 4)
      }
      const { value, logprob, entropy } = policy.evaluate(rows, 0, ROWS) as Derived
      for (let row = 0; row < ROWS; row++) {
        const own = expected[row]!
        const action = rows.action[row]!
        expect(value[row]).toBeCloseTo(own[action]!, 4)
        const probabilities = own.map((each) => 0.2 / 4 + (each === Math.max(...own) ? 0.8 : 0))
        expect(logprob[row]).toBeCloseTo(Math.log(probabilities[action]!), 5)
        expect(entropy[row]).toBeCloseTo(-probabilities.reduce((sum, p) => sum + p * Math.log(p), 0), 5)
      }
    },
  )

  test.each(kernelBuilds())('values a state by its best legal action (%s)', (build) => {
    const network = makeNetwork(settings, build)
    const { policy, rows, actionMask, value } = network
    const best = valuesByHand(network, dueling).map((own) => own.indexOf(Math.max(...own)))
    for (let i = 0; i < actionMask.length; i++)
      actionMask[i] = best[Math.floor(i / NUM_ACTIONS)] === i % NUM_ACTIONS ? 0 : 1
    policy.values(value, { ...rows, actionMask }, ROWS)
    for (const [row, own] of valuesByHand(network, dueling).entries()) {
      expect(value[row]).toBeCloseTo(Math.max(...own.filter((_, a) => a !== best[row])), 4)
    }
  })

  /** Compares the gradient to differences of the loss by hand. */
  function expectGradient(network: ReturnType<typeof makeNetwork>, loss: () => number): void {
    const { model, weights, gradient } = network
    for (let i = 0; i < model.numParameters; i++) {
      const before = weights[i]!
      weights[i] = before + 1e-2
      const step = weights[i]! - before
      const above = loss()
      weights[i] = before - 1e-2
      const below = loss()
      const width = step + before - weights[i]!
      weights[i] = before
      expect(gradient[i], `parameter ${i}`).toBeCloseTo((above - below) / width, 2)
    }
  }

  test.each(kernelBuilds())('differentiates the values of the actions that were taken (%s)', (build) => {
    const network = makeNetwork(settings, build)
    const { policy, rows, gradient } = network
    const factors = [1, -2, 0.5, 3, -1]
    const lossOf = (_: unknown, { dValue }: Derivatives) => dValue.set(factors)
    policy.differentiate(rows, 0, ROWS, lossOf, policy.view(gradient))
    expectGradient(network, () =>
      valuesByHand(network, dueling).reduce((sum, own, row) => sum + factors[row]! * own[rows.action[row]!]!, 0),
    )
  })

  test.each(kernelBuilds())('differentiates the values of all actions (%s)', (build) => {
    const network = makeNetwork(settings, build)
    const { policy, rows, gradient } = network
    const factors = Float32Array.from({ length: ROWS * NUM_ACTIONS }, (_, i) => Math.sin(1 + 2 * i))
    policy.actionValues(rows.observation, 0, ROWS)
    policy.differentiateValues(rows.observation, 0, factors, ROWS, policy.view(gradient))
    expectGradient(network, () =>
      valuesByHand(network, dueling)
        .flat()
        .reduce((sum, value, i) => sum + factors[i]! * value, 0),
    )
  })
})

describe('over images', () => {
  const [height, width, channels, filters, units] = [3, 4, 2, 3, 5]
  const settings = { filters: [filters], kernelSize: 2, hidden: [units], activation: 'tanh' } as const
  const images = box({ low: -9, high: 9, shape: [height, width, channels] })

  /** A convolution of 2 × 2 that begins at its pixel, with zeros beyond the image; relu, a dense layer with tanh, and the head. */
  function byHand({ model, weights, rows }: ReturnType<typeof makeNetwork>): number[][] {
    const at = (name: string) => weights.subarray(model.parameters.find((each) => each.name === name)!.offset)
    const [w, b] = [at('values.convolution.0.weight'), at('values.convolution.0.bias')]
    const dense = (x: number[], name: string, numOutputs: number) =>
      Array.from({ length: numOutputs }, (_, j) =>
        x.reduce((sum, each, k) => sum + each * at(`${name}.weight`)[k * numOutputs + j]!, at(`${name}.bias`)[j]!),
      )
    return Array.from({ length: ROWS }, (_, row) => {
      const pixel = (y: number, x: number, c: number) =>
        y < height && x < width ? rows.observation[((row * height + y) * width + x) * channels + c]! : 0
      const seen = Array.from({ length: height * width * filters }, (_, i) => {
        const [y, x, f] = [Math.floor(i / (width * filters)), Math.floor(i / filters) % width, i % filters]
        let sum = b[f]!
        for (let tap = 0; tap < 4; tap++) {
          for (let c = 0; c < channels; c++)
            sum += pixel(y + (tap >> 1), x + (tap & 1), c) * w[(tap * channels + c) * filters + f]!
        }
        return Math.max(0, sum)
      })
      return dense(dense(seen, 'values.0', units).map(Math.tanh), 'values.head', NUM_ACTIONS)
    })
  }

  test.each(kernelBuilds())('gives values by convolution and dense layers, with their gradient (%s)', (build) => {
    const network = makeNetwork(settings, build, images)
    const { model, policy, rows, weights, gradient } = network
    const values = policy.actionValues(rows.observation, 0, ROWS)
    for (const [i, expected] of byHand(network).flat().entries()) expect(values[i]).toBeCloseTo(expected, 4)
    const lossOf = (_: unknown, { dValue }: Derivatives) => dValue.fill(1)
    policy.differentiate(rows, 0, ROWS, lossOf, policy.view(gradient))
    const loss = () => byHand(network).reduce((sum, own, row) => sum + own[rows.action[row]!]!, 0)
    for (let i = 0; i < model.numParameters; i++) {
      const before = weights[i]!
      weights[i] = before + 1e-3
      const above = loss()
      weights[i] = before - 1e-3
      const below = loss()
      weights[i] = before
      expect(gradient[i], `parameter ${i}`).toBeCloseTo((above - below) / 2e-3, 1)
    }
  })

  test('what is no image is refused', () => {
    expect(() => makeNetwork(settings)).toThrow('qNetwork observation space')
  })
})

type Derived = { value: Float32Array; logprob: Float32Array; entropy: Float32Array }

test('what is no single choice is refused', () => {
  const build = () => qNetwork().build(observationSpace, multiDiscrete([2, 2]))
  expect(build).toThrow('qNetwork action space')
  expect(() => qNetwork().build(discrete(3), discrete(2))).toThrow('qNetwork observation space')
})
