/** Native bodies: what simd.test.ts does not say of them at each level. */
import { describe, expect, test } from 'vitest'
import { cartPole } from '../../src/environments/cart-pole.ts'
import { createTrainer, createWorld, ppo } from '../../src/index.ts'
import {
  createKernels,
  examineNative,
  haveSameBits,
  type KernelBuild,
  type Kernels,
  kernelBuilds,
  MATMUL_SCRATCH,
} from '../../src/kernels/bind.ts'
import { nativeBodies, nativeLevels } from '../../src/kernels/native.ts'
import { mlp } from '../../src/policies/mlp.ts'
import * as fc from '../support/properties.ts'
import { advance } from '../support/small-training.ts'
import { type Argument, Bench, Numbers } from './calls.ts'
import { expectSameBits, levels, nativeNames, numRowsOf, RUNS, widthOf } from './laws.ts'

const hasNative = kernelBuilds().includes('native')

test('native kernels are there, or there is a reason why not', () => {
  const { level, why } = examineNative()
  expect(hasNative).toBe(level !== null)
  expect(level === null).toBe(typeof why === 'string')
  if (hasNative) expect(level).toBe(nativeLevels().at(-1))
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true })
  if (!hasNative) expect(() => createKernels(memory, 'native')).toThrow('kernels: got "native", expected plain')
})

test('native kernels have the bits of relaxed ones, and other builds their own', () => {
  expect(haveSameBits('native', 'relaxed')).toBe(true)
  expect(haveSameBits('relaxed', 'native')).toBe(true)
  expect(haveSameBits('simd', 'simd')).toBe(true)
  expect(haveSameBits('native', 'simd')).toBe(false)
  expect(haveSameBits('plain', 'simd')).toBe(false)
})

/** The argument that is workspace: what a body leaves there is its own. */
const WORKSPACE: { readonly [name: string]: number } = { denseBackwardInput: 3, matmul: 4 }

/** Arguments of each native kernel: columns may have any width, and begin at any element. */
const calls: { readonly [name: string]: (numbers: Numbers) => Argument[] } = {
  adamStep(numbers) {
    const length = numbers.whole(1, 100)
    const columns = [0, 1, 2, 3].map((i) => numbers.floats(length, i === 2 ? 0 : -1, 1))
    return [...columns, 0.7, 3e-3, 0.9, 0.99, 1e-6, 0.01, 0.4, 0.1, length]
  },
  denseBackwardInput(numbers) {
    const [rows, inputs, outputs] = [numRowsOf(numbers), widthOf(numbers), widthOf(numbers)]
    const [dx, dy, x] = [numbers.floats(rows * inputs), numbers.floats(rows * outputs), numbers.floats(rows * inputs)]
    const [weight, workspace] = [numbers.floats(inputs * outputs), numbers.floats((outputs + 1) * inputs)]
    return [dx, dy, weight, workspace, x, rows, inputs, outputs, numbers.uniform() < 0.5, numbers.whole(0, 2)]
  },
  denseBackwardWeights(numbers) {
    const [rows, inputs, outputs] = [numRowsOf(numbers), widthOf(numbers), widthOf(numbers)]
    const [dWeight, dBias] = [numbers.floats(inputs * outputs), numbers.floats(outputs)]
    return [dWeight, dBias, numbers.floats(rows * outputs), numbers.floats(rows * inputs), rows, inputs, outputs, 0]
  },
  denseForward(numbers) {
    const [rows, inputs, outputs] = [numRowsOf(numbers), widthOf(numbers), widthOf(numbers)]
    const columns = [rows * outputs, rows * inputs, inputs * outputs, outputs].map((length) => numbers.floats(length))
    return [...columns, rows, inputs, outputs, numbers.whole(0, 2), 0, 0]
  },
  matmul(numbers) {
    const [rows, columns, depth] = [numRowsOf(numbers), widthOf(numbers), [0, 3, 40, 129][numbers.whole(0, 3)]!]
    const columnsOf = [rows * columns, rows * depth, depth * columns].map((length) => numbers.floats(length))
    const bias = numbers.floats(numbers.uniform() < 0.5 ? columns : 0)
    const sides = [numbers.uniform() < 0.5, numbers.uniform() < 0.5, numbers.uniform() < 0.3]
    return [...columnsOf, bias, new Float32Array(MATMUL_SCRATCH).fill(0), rows, columns, depth, ...sides]
  },
}

test.runIf(hasNative)('each kernel with a native body is called below, and has a compiled twin', () => {
  expect(Object.keys(calls)).toEqual([...nativeNames].sort())
  const kernels = createKernels(new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }), 'relaxed')
  for (const name of nativeNames) expect(kernels).toHaveProperty(name)
})

test.runIf(hasNative).each(Object.keys(calls))('%s leaves the bits of the relaxed build at every level', (name) => {
  const [relaxed, ...benches] = ['relaxed' as const, ...levels].map((build) => new Bench(build))
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 2 ** 31 }), fc.integer({ min: 0, max: 7 }), (seed, shift) => {
      const given = calls[name]!(new Numbers(seed))
      const wanted = relaxed!.call(name as keyof Kernels, given, shift)
      for (const bench of benches) {
        const got = bench.call(name as keyof Kernels, given, shift)
        for (const [i, column] of wanted.columns.entries()) {
          if (i !== WORKSPACE[name] && column !== undefined) expectSameBits(got.columns[i]!, column)
        }
        expect(got.result).toEqual(wanted.result)
      }
    }),
    { numRuns: RUNS },
  )
})

describe.runIf(hasNative)('binding', () => {
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true })

  test('a product and its sum are rounded once, in vectors and in what is left of them', () => {
    const a = 1 + 2 ** -12
    for (const level of levels) {
      for (const outputs of [1, 3, 16, 40]) {
        const [weight, bias] = [new Float32Array(outputs).fill(a), new Float32Array(outputs).fill(-(1 + 2 ** -11))]
        const given = [new Float32Array(outputs), Float32Array.of(a), weight, bias, 1, 1, outputs, 0, 0, 0]
        const [y] = new Bench(level).call('denseForward', given).columns
        expect([...y!]).toEqual(Array(outputs).fill(2 ** -24))
      }
    }
  })

  test('a memory that is not shared is refused', () => {
    expect(() => createKernels(new WebAssembly.Memory({ initial: 1 }), 'native')).toThrow(
      'kernels: got "native" over a memory that is not shared, expected a shared memory, or another build',
    )
  })

  test('a column outside the memory is refused', () => {
    const kernels = createKernels(memory, 'native')
    expect(() => kernels.globalNorm(new Float32Array(4), 4)).toThrow('outside the memory')
  })

  test('a body refuses arguments of other types, and fewer', () => {
    const { denseForward, denseBackwardInput } = nativeBodies(memory.buffer)
    expect(denseForward!(0, 0, 0, 0, 1, 1, 1, 0, 0, 0)).toBeUndefined()
    expect(() => denseForward!(0)).toThrow(
      'denseForward: expected 10 arguments: y (offset), x (offset), weight (offset)',
    )
    expect(() => denseForward!(0, 0, 0, true, 1, 1, 1, 0, 0, 0)).toThrow('denseForward: expected')
    expect(() => denseBackwardInput!(0, 0, 0, 0, 0, 1, 1, 1, 1, 0)).toThrow('accumulate (bool)')
  })

  test('a level that is not there is refused', () => {
    expect(() => nativeBodies(memory.buffer, 'avx1024')).toThrow('bind: expected a level that this processor has')
  })
})

describe.runIf(hasNative)('training', () => {
  /** The weights after two updates. */
  async function trained(kernels: KernelBuild, threads: number): Promise<Float32Array> {
    const policy = mlp({ hidden: [32, 33] })
    const world = await createWorld({ environment: cartPole(), policy, numLanes: 64, seed: 5, kernels })
    const trainer = await createTrainer(world, ppo({ numSteps: 32, numMinibatches: 4, updateEpochs: 2 }), { threads })
    try {
      await advance(trainer, 2)
      return world.cohorts[0]!.weights.slice()
    } finally {
      trainer.close()
    }
  }

  test('leaves the same weights on one thread and on two, and those of the relaxed build', async () => {
    const one = await trained('native', 1)
    expect(await trained('native', 2)).toEqual(one)
    expect(await trained('relaxed', 1)).toEqual(one)
  })
})
