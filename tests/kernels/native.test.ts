/** Native bodies: what simd.test.ts does not say of them at each level. */
import { readFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { cartPole } from '../../src/environments/classic/cart-pole.ts'
import { createTrainer, createWorld, ppo } from '../../src/index.ts'
import {
  Activation,
  createKernels,
  describeNative,
  examineNative,
  haveSameBits,
  kernelBuilds,
} from '../../src/kernels/bind.ts'
import * as games from '../../src/kernels/grids/plain.ts'
import type { KernelBuild, Kernels } from '../../src/kernels/kernels.ts'
import { nativeBodies, nativeLevels } from '../../src/kernels/native.ts'
import { mlp } from '../../src/policies/mlp.ts'
import { advance } from '../support/small-training.ts'
import { type Argument, Bench, Numbers } from './calls.ts'
import { expectSameBits, levels, nativeNames } from './laws.ts'

const hasNative = kernelBuilds().includes('native')

test('native kernels are there, or there is a reason why not', () => {
  const { level, from, why } = examineNative()
  expect(hasNative).toBe(level !== null)
  expect(from === null).toBe(level === null)
  expect(describeNative('relaxed')).toBeNull()
  expect(level === null).toBe(typeof why === 'string')
  if (hasNative) expect(level).toBe(nativeLevels().at(-1))
  if (hasNative) expect(describeNative('native')).toBe(`${level}, from ${from}`)
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

test('each kernel with a native body is compared with its relaxed one', async () => {
  const files = ['simd.test.ts', 'transformer.test.ts', 'quantized4.test.ts', 'bf16.test.ts', 'replay.test.ts'].map(
    (name) => readFile(new URL(name, import.meta.url), 'utf8'),
  )
  const calls = [...(await Promise.all(files)).join().matchAll(/\bmatches(?:Relaxed)?\(\s*['`]([\w${}]+)/g)].map(
    ([, name]) => name!,
  )
  const compared = ['gru', 'lstm'].flatMap((cell) => calls.map((name) => name.replace('${' + 'cell}', cell)))
  const ofGames = Object.keys(games) // `environments/compiled-games.test.ts` compares them.
  for (const name of nativeNames) expect([...compared, ...ofGames]).toContain(name)
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

  test('a memory that is not shared serves as a shared one does, until it has grown', () => {
    const memory = new WebAssembly.Memory({ initial: 1 })
    const column = (from: number) => new Float32Array(memory.buffer, 4096 * from, 1024).fill(from)
    const [y, x, weight, bias] = [0, 1, 2, 3].map(column)
    const unshared = createKernels(memory, 'native')
    const layer = () => unshared.denseForward(y!, x!, weight!, bias!, 32, 32, 32, Activation.linear, 0, 0)
    layer()
    expect([...y!]).toEqual(Array(1024).fill(32 * 2 + 3))
    memory.grow(1)
    expect(layer).toThrow('the memory of native kernels has grown')
  })

  test('a column outside the memory is refused', () => {
    const kernels = createKernels(memory, 'native')
    expect(() => kernels.globalNorm(new Float32Array(4), 4)).toThrow('outside the memory')
  })

  test('a column may lie in another shared buffer if that is said, and leaves the same bits there', () => {
    const other = new SharedArrayBuffer(2 ** 20)
    const numbers = Float32Array.from({ length: 4096 }, (_, i) => Math.sin(i))
    const [bound, near] = [createKernels(memory, 'native', 'apart'), createKernels(memory, 'native')]
    const columnsIn = (buffer: ArrayBufferLike) =>
      [0, 1, 2].map((at) => {
        const column = new Float32Array(buffer, 16_384 * at, 4096)
        column.set(numbers)
        return column
      })
    const [here, there] = [columnsIn(memory.buffer), columnsIn(other)]
    const norms: number[] = []
    for (const [kernels, columns] of [
      [near, here],
      [bound, there],
    ] as const) {
      const [y, x, weight] = columns as [Float32Array, Float32Array, Float32Array]
      norms.push(kernels.globalNorm(y, 4096))
      kernels.sumSlots(x, 4, 1024, 0, 1024)
      kernels.sgdStep(y, x, weight, 0.5, 0.01, 0.9, 0.1, 4096)
      for (const [rows, outputs] of [
        [1, 1],
        [32, 32],
      ] as const) {
        kernels.denseForward(y, x, weight, weight, rows, outputs, outputs, Activation.tanh, 0, 0)
      }
    }
    expect(there).toEqual(here)
    expect(norms[0]).toBe(norms[1])
    expect(() => bound.globalNorm(new Float32Array(4), 4)).toThrow('outside of all shared memory')
    expect(() => bound.flagsToFloats(there[0]!, new Uint8Array(other, 0, 4), 4)).toThrow('outside the memory')
    expect(() => createKernels(memory, 'relaxed', 'apart').globalNorm(there[0]!, 4)).toThrow('outside the memory')
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

describe.runIf(hasNative)('a dense layer', () => {
  // Rows, inputs, outputs: a weight that the cache does not hold, and rows of gradients that displace one another in it.
  const sizes = [
    [67, 516, 1003],
    [300, 259, 256],
  ] as const
  const calls = levels.flatMap((level) => sizes.map((size) => [level, ...size] as const))

  test.each(calls)('beyond the caches has the bits of the relaxed one (%s, %i × %i × %i)', (level, ...size) => {
    const [rows, inputs, outputs] = size
    const numbers = new Numbers(rows)
    const [x, y, weight] = [rows * inputs, rows * outputs, inputs * outputs].map((length) => numbers.floats(length))
    const bias = numbers.floats(outputs)
    const workspace = new Float32Array((outputs + 1) * inputs)
    const calls = {
      denseForward: [y!, x!, weight!, bias, ...size, Activation.tanh, 0, 0],
      denseBackwardWeights: [weight!, bias, y!, x!, ...size, 0],
      denseBackwardInput: [x!, y!, weight!, workspace, x!.toReversed(), ...size, true, Activation.relu],
    }
    for (const [name, given] of Object.entries(calls) as [keyof Kernels, Argument[]][]) {
      const { columns } = new Bench(level).call(name, given)
      for (const [i, column] of new Bench('relaxed').call(name, given).columns.entries()) {
        if (column !== undefined && given[i] !== workspace) expectSameBits(columns[i]!, column)
      }
    }
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
