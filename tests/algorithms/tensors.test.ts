/** Optimizers of language models: Muon against PyTorch's, and Adam in 8 bits against Adam. */
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { ppo } from '../../src/algorithms/on-policy/ppo.ts'
import { defineOptimizer } from '../../src/algorithms/optimizers/define-optimizer.ts'
import { tensorsPlan } from '../../src/algorithms/optimizers/tensors.ts'
import { rl } from '../../src/algorithms/tokens/rl.ts'
import { sft } from '../../src/algorithms/tokens/sft.ts'
import { TrainedArray } from '../../src/algorithms/trained-array.ts'
import { takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { reverse } from '../../src/environments/tasks/sequences.ts'
import { createTrainer } from '../../src/index.ts'
import { createKernels, kernelBuilds } from '../../src/kernels/bind.ts'
import type { KernelBuild } from '../../src/kernels/kernels.ts'
import { languageModel } from '../../src/language/language-model.ts'
import type { Parameter } from '../../src/policies/policy.ts'
import { createWorld } from '../../src/world/world.ts'
import { temporaryFolder } from '../support/temporary.ts'

// Recorded by tests/golden/record_muon.py, which says how.
interface Recorded {
  readonly lr: number
  readonly weightDecay: number
  readonly shapes: Readonly<Record<string, readonly number[]>>
  readonly begun: Readonly<Record<string, number[]>>
  readonly steps: readonly { readonly gradient: Record<string, number[]>; readonly weights: Record<string, number[]> }[]
  readonly bf16: Readonly<Record<string, number[]>>
}
const recorded = JSON.parse(readFileSync(new URL('../golden/muon.json', import.meta.url), 'utf8')) as Recorded

const numbers = { momentum: 0, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0 }

function parametersOf(shapes: Recorded['shapes']): Parameter[] {
  let offset = 0
  return Object.entries(shapes).map(([name, shape]) => {
    const parameter = { name, shape, offset }
    offset += shape.reduce((product, side) => product * side, 1)
    return parameter
  })
}

/** Trained weights of these parameters. */
function arrayOf(optimizer: string, parameters: readonly Parameter[], build: KernelBuild) {
  const { offset, shape } = parameters.at(-1)!
  const size = offset + shape.reduce((product, side) => product * side, 1)
  const { arena, columns } = takeArena({
    weights: column('f32', size),
    gradient: column('f32', size),
    reference: column('f32', 0),
    optimizer: tensorsPlan({ optimizer }, parameters),
  })
  const trained = new TrainedArray(columns.weights, columns, createKernels(arena.memory, build), parameters)
  trained.start()
  return { trained, columns }
}

const flat = (values: Readonly<Record<string, number[]>>) => Object.values(values).flat()
const farthest = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Array.from(a).reduce((most, x, i) => Math.max(most, Math.abs(x - b[i]!)), 0)

describe('muon', () => {
  test.each(kernelBuilds())(
    'makes the steps of PyTorch’s: matrices in layers by it, the rest by AdamW (%s)',
    (build) => {
      const { lr, weightDecay, shapes, begun, steps, bf16 } = recorded
      const { trained } = arrayOf('muon', parametersOf(shapes), build)
      trained.weights.set(flat(begun))
      for (const { gradient, weights } of steps) {
        trained.gradient.set(flat(gradient))
        trained.descend({ ...numbers, optimizer: 'muon', weightDecay }, lr, Number.POSITIVE_INFINITY)
        expect(farthest(trained.weights, flat(weights))).toBeLessThan(1e-5)
      }
      // As it comes, the iteration is computed in bf16.
      expect(farthest(trained.weights, flat(bf16))).toBeLessThan(1e-2)
    },
  )

  test('keeps one moment of a matrix in a layer, and two of the rest', () => {
    const { columns } = arrayOf('muon', parametersOf(recorded.shapes), 'plain')
    expect(columns.optimizer.moment).toHaveLength(42 + 36 + 84 + 84 + 6)
    expect(columns.optimizer.squareMoment).toHaveLength(42 + 6)
  })

  test('takes another momentum', () => {
    const last = (momentum: number) => {
      const { trained } = arrayOf('muon', parametersOf(recorded.shapes), 'plain')
      trained.weights.set(flat(recorded.begun))
      for (const { gradient } of recorded.steps) {
        trained.gradient.set(flat(gradient))
        trained.descend({ ...numbers, optimizer: 'muon', momentum }, 0.01, Number.POSITIVE_INFINITY)
      }
      return [...trained.weights]
    }
    expect(last(0.95)).toEqual(last(0))
    expect(last(0.5)).not.toEqual(last(0))
  })
})

describe('adam8', () => {
  const [rows, columnsOfRow] = [48, 100]
  const parameters = parametersOf({ 'a.weight': [rows, columnsOfRow], 'b.bias': [10] })

  /** The mean squared distance of noisy least squares from their solution, by step. */
  function descended(optimizer: string, steps: number) {
    const { trained, columns } = arrayOf(optimizer, parameters, 'plain')
    let state = 7
    const uniform = () => {
      state = (Math.imul(state, 1664525) + 1013904223) | 0
      return (state >>> 8) / 2 ** 24 - 0.5
    }
    const wanted = Float32Array.from(trained.weights, () => 4 * uniform())
    // Each weight has a curvature of its own, over four decades within every block.
    const curvature = Float32Array.from(wanted, () => 10 ** (8 * uniform() ** 2) / 10)
    const squares: number[] = []
    for (let step = 0; step < steps; step++) {
      trained.gradient.set(trained.weights.map((weight, i) => curvature[i]! * (weight - wanted[i]! + 0.2 * uniform())))
      trained.descend({ ...numbers, optimizer }, 0.02, Number.POSITIVE_INFINITY)
      squares.push(trained.weights.reduce((sum, weight, i) => sum + (weight - wanted[i]!) ** 2, 0) / wanted.length)
    }
    return { squares, columns, weights: [...trained.weights] }
  }

  test('descends as Adam does, with a quarter of its moments', () => {
    const [eight, whole] = [descended('adam8', 300), descended('adam', 300)]
    const bytes = (columns: (typeof eight)['columns']) => columns.optimizer.moment.byteLength
    expect(bytes(eight.columns)).toBe(4 * (19 * 65 + 10))
    expect(bytes(eight.columns) / bytes(whole.columns)).toBeLessThan(0.26)
    // Where Adam is on its way, and where only the noise is left.
    for (const step of [20, 60, 100]) expect(eight.squares[step]! / whole.squares[step]!).toBeCloseTo(1, 1)
    expect(eight.squares.at(-1)! / whole.squares.at(-1)!).toBeGreaterThan(0.8)
    expect(eight.squares.at(-1)! / whole.squares.at(-1)!).toBeLessThan(1.25)
    expect(whole.squares.at(-1)!).toBeLessThan(whole.squares[0]! / 50)
    expect(eight.weights).not.toEqual(whole.weights)
  })

  test.each([
    ['at first', 1],
    ['when the powers have come to 0', 0],
  ])('forgets: after large gradients, small ones move weights as far as Adam’s, %s', (_, power) => {
    const moved = (optimizer: string) => {
      const { trained, columns } = arrayOf(optimizer, parameters, 'plain')
      columns.optimizer.betaPowers.fill(power)
      for (let step = 0; step < 300; step++) {
        trained.gradient.fill(step < 5 ? 1 : step < 200 ? 0 : 0.01)
        // One number of each block keeps its gradient, and with it the block's scale.
        for (let i = 0; i < rows * columnsOfRow; i += 256) trained.gradient[i] = 1 + Math.sin(step) / 100
        if (step === 200) trained.weights.fill(0)
        trained.descend({ ...numbers, beta2: 0.98, optimizer }, 0.001, Number.POSITIVE_INFINITY)
      }
      return trained.weights.subarray(0, 4800).reduce((sum, weight) => sum + weight, 0) / 4800
    }
    expect(moved('adam')).toBeLessThan(-0.03)
    expect(Math.abs(moved('adam8') / moved('adam') - 1)).toBeLessThan(0.2)
  })

  test('has the same moments for a gradient of zeros: none', () => {
    const { trained, columns } = arrayOf('adam8', parameters, 'plain')
    trained.weights.fill(3)
    trained.descend({ ...numbers, optimizer: 'adam8' }, 0.1, 1)
    expect(new Set(trained.weights)).toEqual(new Set([3]))
    expect(
      new Set(new Uint8Array(columns.optimizer.moment.buffer, columns.optimizer.moment.byteOffset, 65 * 19 * 4)),
    ).toEqual(new Set([0]))
  })
})

describe('in a training', () => {
  async function trainer(optimizer: string, updates = 3) {
    const policy = languageModel({ width: 32, layers: 1, heads: 2 })
    const world = await createWorld({ environment: reverse(), policy, numLanes: 4, groupSize: 2, seed: 2 })
    const phases = [
      sft({ updates, batchSize: 8, optimizer }),
      rl({ updates: 1, groupsPerUpdate: 2, groupSize: 2, optimizer }),
    ]
    return { world, trainer: createTrainer(world, phases) }
  }

  test.each(['muon', 'adam8'])(
    '%s lowers the loss, and goes on from a checkpoint to the same bits',
    async (optimizer) => {
      const whole = await trainer(optimizer)
      const losses: number[] = []
      for await (const { loss } of whole.trainer.updates()) losses.push(loss)
      expect(losses[2]!).toBeLessThan(losses[0]!)
      const folder = `${await temporaryFolder()}/checkpoint`
      const first = await trainer(optimizer)
      for await (const _ of first.trainer.updates()) {
        await first.trainer.save(folder)
        break
      }
      const resumed = await trainer(optimizer)
      await resumed.trainer.restore(folder)
      for await (const _ of resumed.trainer.updates());
      expect(resumed.world.cohort().weights).toEqual(whole.world.cohort().weights)
    },
  )

  test('one from outside that knows parameters takes the steps of sgd, written for each parameter, and is for tokens alone', async () => {
    const seen = new Set<string>()
    const own = defineOptimizer({
      id: 'own-of-tensors',
      takes: ['momentum'],
      moments: ({ shape }) => [1 + shape.reduce((product, side) => product * side, 1), 0],
      workspace: () => 1,
      step({ parameter, weights, moment, gradient, gradientScale, learningRate, settings, length, workspace }) {
        seen.add(parameter.name)
        expect(workspace.length).toBeGreaterThanOrEqual(1)
        expect(moment).toHaveLength(length + 1)
        for (let i = 0; i < length; i++) {
          moment[i] = settings.momentum * moment[i]! + gradient[i]! * gradientScale
          weights[i] = weights[i]! - learningRate * (moment[i]! + settings.weightDecay * weights[i]!)
        }
      },
    })
    const given = { updates: 3, batchSize: 8, momentum: 0.9, weightDecay: 0.1, learningRate: 0.1 }
    const weightsOf = async (phase: ReturnType<typeof sft>) => {
      const policy = languageModel({ width: 16, layers: 1, heads: 2 })
      const world = await createWorld({ environment: reverse(), policy, numLanes: 2, seed: 2, kernels: 'plain' })
      for await (const _ of createTrainer(world, phase).updates());
      return world.cohort().weights
    }
    const ours = await weightsOf(sft(given, { optimizer: own }))
    expect(ours).toEqual(await weightsOf(sft({ ...given, optimizer: 'sgd' })))
    expect(seen.size).toBeGreaterThan(8)
    expect(() => ppo({}, { optimizer: own })).toThrow(
      /^ppo.optimizer: got "own-of-tensors".*expected one of adam, sgd, rmsprop/,
    )
  })

  test('an unknown one, and numbers that it does not take, are refused by name', () => {
    expect(() => sft({ optimizer: 'muom' })).toThrow(/^sft.optimizer: got "muom" \(did you mean "muon"\?\)/)
    expect(() => rl({ optimizer: 'adam8', momentum: 0.5 })).toThrow(/^rl.momentum: got 0.5, expected 0: adam8 accepts/)
  })
})
