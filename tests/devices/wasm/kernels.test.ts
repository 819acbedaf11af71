import type { Tensor, Tensor3D, Tensor4D } from '@tensorflow/tfjs-core'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Registration, registerWasmKernels } from '../../../src/devices/wasm/register.ts'
import { Numbers } from '../../kernels/calls.ts'
import { expectSame, floats, startBackends, tf, wholes } from './compare.ts'

/** Cases a property. */
const RUNS = 60

let registration: Registration

beforeAll(async () => {
  registration = registerWasmKernels(tf, await startBackends())
})
afterAll(() => registration.undo())

/** Runs `check` on seeded cases. */
async function forCases(check: (numbers: Numbers) => Promise<void>, runs = RUNS): Promise<void> {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 0, max: 2 ** 31 }), (seed) => check(new Numbers(seed))),
    { numRuns: runs },
  )
}

const lengthOf = (numbers: Numbers): number => [0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 17, 33, 64][numbers.whole(0, 13)]!
const sideOf = (numbers: Numbers): number => Math.max(1, lengthOf(numbers))

describe('matMul', () => {
  for (const [transposeA, transposeB] of [
    [false, false],
    [false, true],
    [true, false],
    [true, true],
  ] as const) {
    const multiply = (a: Tensor, b: Tensor) => tf.matMul(a, b, transposeA, transposeB)
    const shapes = (rows: number, depth: number, columns: number) => [
      transposeA ? [depth, rows] : [rows, depth],
      transposeB ? [columns, depth] : [depth, columns],
    ]

    test(`of any batch equals cpu's, in value and gradients (transposed: ${transposeA}, ${transposeB})`, async () => {
      await forCases(async (numbers) => {
        const batch = [[], [1], [3], [2, 3], [2, 1, 2]][numbers.whole(0, 4)]!
        const [a, b] = shapes(lengthOf(numbers), sideOf(numbers), lengthOf(numbers)) as [number[], number[]]
        await expectSame(multiply, [floats(numbers, [...batch, ...a]), floats(numbers, [...batch, ...b])])
      })
    })

    test(`broadcasts its batches (transposed: ${transposeA}, ${transposeB})`, async () => {
      await forCases(async (numbers) => {
        const batches = [
          [[3], [1]],
          [[], [4]],
          [
            [2, 1],
            [1, 3],
          ],
          [[2, 3], [3]],
          [
            [2, 1, 2],
            [3, 1],
          ],
        ][numbers.whole(0, 4)]!
        const [batchA, batchB] = numbers.uniform() < 0.5 ? batches : batches.toReversed()
        const [a, b] = shapes(sideOf(numbers), sideOf(numbers), sideOf(numbers)) as [number[], number[]]
        const batch = tf.broadcast_util.assertAndGetBroadcastShape(batchA!, batchB!)
        // The cpu backend takes the wrong matrices where both batches are stretched, and has no gradient here.
        const reference = (left: Tensor, right: Tensor) =>
          multiply(tf.broadcastTo(left, [...batch, ...a]), tf.broadcastTo(right, [...batch, ...b]))
        const given = [floats(numbers, [...batchA!, ...a]), floats(numbers, [...batchB!, ...b])]
        await expectSame(multiply, given, { gradient: false, reference })
      })
    })

    test(`of integers equals cpu's (transposed: ${transposeA}, ${transposeB})`, async () => {
      await forCases(async (numbers) => {
        const [a, b] = shapes(lengthOf(numbers), sideOf(numbers), lengthOf(numbers)) as [number[], number[]]
        await expectSame(multiply, [wholes(numbers, [2, ...a], -9, 9), wholes(numbers, [2, ...b], -9, 9)])
      }, 20)
    })

    test(`with bias and activation equals cpu's (transposed: ${transposeA}, ${transposeB})`, async () => {
      await forCases(async (numbers) => {
        const [rows, depth, columns] = [sideOf(numbers), sideOf(numbers), sideOf(numbers)]
        const [a, b] = shapes(rows, depth, columns) as [number[], number[]]
        const kinds = ['linear', 'relu', 'elu', 'relu6', 'sigmoid', 'leakyrelu'] as const
        const activation = kinds[numbers.whole(0, 5)]!
        const bias = [[columns], [1, columns], [rows, columns], [1], [rows, 1]][numbers.whole(0, 4)]!
        const fused = (left: Tensor, right: Tensor, added: Tensor) =>
          tf.fused.matMul({
            a: left as Tensor3D,
            b: right as Tensor3D,
            bias: added,
            activation,
            transposeA,
            transposeB,
          })
        const given = [floats(numbers, a), floats(numbers, b), floats(numbers, bias)]
        await expectSame(fused, given)
      })
    })
  }

  test('of sides that do not fit is refused before anything is made', () => {
    const { numTensors, numBytes } = tf.memory()
    tf.tidy(() => {
      expect(() => tf.matMul(tf.ones([2, 3]), tf.ones([4, 2]))).toThrow('[2,3]')
    })
    expect(tf.memory()).toMatchObject({ numTensors, numBytes })
  })
})

describe('gather', () => {
  test('along any axis has the gradient that cpu has', async () => {
    await forCases(async (numbers) => {
      const shape = [sideOf(numbers), sideOf(numbers), sideOf(numbers)].slice(0, numbers.whole(1, 3))
      const axis = numbers.whole(0, shape.length - 1)
      const indices = wholes(numbers, [lengthOf(numbers)], 0, shape[axis]! - 1)
      await expectSame((x, at) => tf.gather(x, at, axis), [floats(numbers, shape), indices])
    })
  })

  test('of a table of embeddings by a batch of sequences has it too', async () => {
    await forCases(async (numbers) => {
      const [count, width] = [sideOf(numbers), sideOf(numbers)]
      const indices = wholes(numbers, [3, lengthOf(numbers)], 0, count - 1)
      await expectSame((x, at) => tf.gather(x, at), [floats(numbers, [count, width]), indices])
    })
  })

  test('unsortedSegmentSum leaves out segments that do not exist', async () => {
    await forCases(async (numbers) => {
      const [count, width] = [lengthOf(numbers), sideOf(numbers)]
      const segments = wholes(numbers, [count], -1, 5)
      await expectSame(
        (x, at) => tf.unsortedSegmentSum(x, at as never, 5),
        [floats(numbers, [count, width]), segments],
        {
          gradient: false,
        },
      )
    })
  })
})

describe('convolution', () => {
  test('has the gradients that cpu has', async () => {
    await forCases(async (numbers) => {
      const [height, width] = [numbers.whole(3, 7), numbers.whole(3, 7)]
      const [channels, filters] = [numbers.whole(1, 5), numbers.whole(1, 9)]
      const filter = [numbers.whole(1, 3), numbers.whole(1, 3), channels, filters]
      const strides = [1, 2, [1, 2]][numbers.whole(0, 2)] as number | [number, number]
      const pad = (['same', 'valid', 1] as const)[numbers.whole(0, 2)]!
      await expectSame(
        (x, w) => tf.conv2d(x as Tensor4D, w as Tensor4D, strides, pad, 'NHWC', 1, pad === 1 ? 'floor' : undefined),
        [floats(numbers, [numbers.whole(1, 3), height, width, channels]), floats(numbers, filter)],
      )
    })
  })

  test('fused with bias and activation has them too', async () => {
    await forCases(async (numbers) => {
      const shape = [2, 6, 5, numbers.whole(1, 4)]
      const filter = [3, 3, shape[3]!, numbers.whole(1, 9)]
      await expectSame(
        (x, w, bias) =>
          tf.fused.conv2d({
            x: x as Tensor4D,
            filter: w as Tensor4D,
            strides: 1,
            pad: 'same',
            bias,
            activation: 'relu',
          }),
        [floats(numbers, shape), floats(numbers, filter), floats(numbers, [filter[3]!])],
      )
    }, 20)
  })

  test('depthwise has the gradients that cpu has', async () => {
    await forCases(async (numbers) => {
      const [height, width] = [numbers.whole(3, 7), numbers.whole(3, 7)]
      const channels = numbers.whole(1, 5)
      const filter = [numbers.whole(1, 3), numbers.whole(1, 3), channels, numbers.whole(1, 3)]
      const strides = numbers.whole(1, 2)
      const pad = (['same', 'valid'] as const)[numbers.whole(0, 1)]!
      await expectSame(
        (x, w) => tf.depthwiseConv2d(x as Tensor4D, w as Tensor4D, strides, pad),
        [floats(numbers, [numbers.whole(1, 3), height, width, channels]), floats(numbers, filter)],
      )
    })
  })
})

describe('einsum', () => {
  test.each([
    'ij->ji',
    'ij->i',
    'ij->',
    'ijk->kj',
    'ij,jk->ik',
    'ij,kj->ik',
    'ij,ij->ij',
    'ij,ij->',
    'i,j->ij',
    'i,j->ji',
    'bij,bjk->bik',
    'bhqd,bhkd->bhqk',
    'bqhd,bkhd->bhqk',
    'bhqk,bkhd->bqhd',
    'bi,oi->bo',
    'ijk,jl->il',
    'ij,k->i',
  ])('%s equals cpu, and its gradient that of multiplying and summing', async (equation) => {
    const [input, output] = equation.split('->') as [string, string]
    const terms = input.split(',')
    const letters = [...new Set(input.replace(',', ''))]
    // On cpu without einsum's gradient: every term stretched over all letters, multiplied, summed and put in order.
    const reference = (...tensors: Tensor[]) => {
      const stretched = tensors.map((tensor, i) => {
        const order = letters.filter((letter) => terms[i]!.includes(letter))
        const shape = letters.map((letter) => tensor.shape[terms[i]!.indexOf(letter)] ?? 1)
        const ordered = tf.transpose(
          tensor,
          order.map((letter) => terms[i]!.indexOf(letter)),
        )
        return tf.reshape(ordered, shape)
      })
      const summed = letters.flatMap((letter, axis) => (output.includes(letter) ? [] : [axis]))
      const product = stretched.reduce((a, b) => tf.mul(a, b))
      const left = letters.filter((letter) => output.includes(letter))
      const sum = summed.length === 0 ? product : tf.sum(product, summed)
      return tf.transpose(
        sum,
        [...output].map((letter) => left.indexOf(letter)),
      )
    }
    await forCases(async (numbers) => {
      const lengths = new Map(letters.map((letter) => [letter, numbers.whole(1, 5)]))
      const given = terms.map((term) =>
        floats(
          numbers,
          [...term].map((letter) => lengths.get(letter)!),
        ),
      )
      await expectSame((...tensors) => tf.einsum(equation, ...tensors), given, { reference })
    }, 10)
  })
})

describe('elements', () => {
  test('tanh equals cpu, in value and gradient', async () => {
    await forCases((numbers) => expectSame(tf.tanh, [floats(numbers, [lengthOf(numbers), lengthOf(numbers)], -9, 9)]))
  })
})
