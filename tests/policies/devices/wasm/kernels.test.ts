import type { Tensor, Tensor3D, Tensor4D } from '@tensorflow/tfjs-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { WasmBackend } from '../../../../src/policies/devices/wasm/heap.ts'
import { type Registration, registerWasmKernels } from '../../../../src/policies/devices/wasm/register.ts'
import { Numbers } from '../../../kernels/calls.ts'
import * as fc from '../../../support/properties.ts'
import {
  expectSame,
  flags,
  floats,
  type Given,
  kernelsSeen,
  startBackends,
  tf,
  watchKernels,
  wholes,
} from './compare.ts'

/** Cases a property. */
const RUNS = 60

let backend: WasmBackend
let registration: Registration

beforeAll(async () => {
  backend = await startBackends()
  registration = registerWasmKernels(tf, backend)
  watchKernels([...registration.added, ...registration.replaced])
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

/** A shape, and one that is stretched to it: axes of one element, or none where the first ones are. Either comes first. */
function stretched(numbers: Numbers): [number[], number[]] {
  const shape = Array.from({ length: numbers.whole(0, 4) }, () => [0, 1, 2, 3, 5, 8][numbers.whole(0, 5)]!)
  const other = shape.map((length) => (numbers.uniform() < 0.3 ? 1 : length)).slice(numbers.whole(0, 1))
  return numbers.uniform() < 0.5 ? [shape, other] : [other, shape]
}

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

  test('transposed has them too', async () => {
    await forCases(async (numbers) => {
      const [stride, side, channels] = [numbers.whole(1, 2), numbers.whole(1, 3), numbers.whole(1, 5)]
      const pad = (['same', 'valid'] as const)[numbers.whole(0, 1)]!
      const out = pad === 'same' ? 5 * stride : 4 * stride + side
      await expectSame(
        (x, w) => tf.conv2dTranspose(x as Tensor4D, w as Tensor4D, [2, out, out, channels], stride, pad),
        [floats(numbers, [2, 5, 5, 4]), floats(numbers, [side, side, channels, 4])],
      )
    }, 20)
  })

  test('dilated, or with its channels first, equals cpu', async () => {
    await forCases(async (numbers) => {
      const filter = floats(numbers, [numbers.whole(1, 3), numbers.whole(1, 3), 3, 4])
      const [last, first] = [floats(numbers, [2, 6, 7, 3]), floats(numbers, [2, 3, 6, 7])]
      await expectSame((x, w) => tf.conv2d(x as Tensor4D, w as Tensor4D, 1, 'same', 'NHWC', 2), [last, filter], {
        gradient: false,
      })
      await expectSame((x, w) => tf.conv2d(x as Tensor4D, w as Tensor4D, 1, 'same', 'NCHW'), [first, filter])
    }, 20)
  })

  test('depthwise, fused or dilated, equals cpu', async () => {
    await forCases(async (numbers) => {
      const [channels, multiplier] = [numbers.whole(1, 4), numbers.whole(1, 2)]
      const given = [floats(numbers, [2, 5, 6, channels]), floats(numbers, [3, 2, channels, multiplier])]
      const pad = (['same', 'valid'] as const)[numbers.whole(0, 1)]!
      await expectSame((x, w) => tf.depthwiseConv2d(x as Tensor4D, w as Tensor4D, 1, pad, 'NHWC', 2), given, {
        gradient: false,
      })
      const fused = (x: Tensor, w: Tensor, bias: Tensor) =>
        tf.fused.depthwiseConv2d({
          x: x as Tensor4D,
          filter: w as Tensor4D,
          strides: 1,
          pad,
          bias,
          activation: 'relu6',
        })
      await expectSame(fused, [...given, floats(numbers, [channels * multiplier])])
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
  test.each([
    ['tanh', -9, 9],
    ['exp', -9, 9],
    ['log', 0.01, 9],
    ['softplus', -20, 20],
    ['erf', -5, 5],
  ] as const)('%s equals cpu, in value and gradient', async (name, low, high) => {
    const shape = (numbers: Numbers) => [lengthOf(numbers), lengthOf(numbers)]
    await forCases((numbers) => expectSame(tf[name], [floats(numbers, shape(numbers), low, high)]))
  })

  test.each(['maximum', 'minimum'] as const)(
    '%s equals cpu, in its value of stretched shapes and its gradients of one',
    async (name) => {
      await forCases(async (numbers) => {
        const [a, b] = stretched(numbers)
        const larger = (x: Tensor, y: Tensor) => tf[name](x, y)
        // tfjs's gradient of it forgets to sum over what was stretched.
        await expectSame(larger, [floats(numbers, a), floats(numbers, b)], { gradient: false })
        await expectSame(larger, [floats(numbers, a), floats(numbers, a)])
      })
    },
  )

  test.each(['equal', 'notEqual', 'greater', 'greaterEqual', 'less', 'lessEqual'] as const)(
    '%s of stretched shapes equals cpu',
    async (name) => {
      await forCases(async (numbers) => {
        const [a, b] = stretched(numbers)
        const digits = (given: Given): Given => ({
          ...given,
          values: given.values.map((value) => Math.round(value * 3)),
        })
        const pair = [digits(floats(numbers, a)), digits(floats(numbers, b))]
        await expectSame((x, y) => tf[name](x, y), pair, { gradient: false })
      })
    },
  )

  test("maximum and greater of integers are still tfjs's own", async () => {
    await forCases(async (numbers) => {
      const [a, b] = stretched(numbers)
      const pair = [wholes(numbers, a, -3, 3), wholes(numbers, b, -3, 3)]
      await expectSame((x, y) => tf.maximum(x, y), pair)
      await expectSame((x, y) => tf.greater(x, y), pair)
    }, 20)
  })

  test('where, of floats and of integers, equals cpu', async () => {
    await forCases(async (numbers) => {
      const [a, b] = stretched(numbers)
      const choose = (condition: Tensor, x: Tensor, y: Tensor) => tf.where(condition as never, x, y)
      // A length of 0 against 1 is not stretched by tfjs: no shape here, but see the test of it.
      const full = a.length > b.length ? a : b
      if (a.includes(0) || b.includes(0)) return
      await expectSame(choose, [flags(numbers, a), floats(numbers, b), floats(numbers, full)])
      await expectSame(choose, [flags(numbers, a), wholes(numbers, b, -9, 9), wholes(numbers, full, -9, 9)])
    })
  })

  test('where of nothing against something is nothing, and writes nothing', async () => {
    const numbers = new Numbers(1)
    const choose = (condition: Tensor, x: Tensor, y: Tensor) => tf.where(condition as never, x, y)
    await expectSame(choose, [flags(numbers, [5, 1]), floats(numbers, [5, 0]), floats(numbers, [5, 1])], {
      gradient: false,
    })
    await expectSame(choose, [flags(numbers, []), floats(numbers, [0]), floats(numbers, [])], { gradient: false })
  })

  test('clipping, which compares and chooses, has the gradient that cpu has', async () => {
    await forCases((numbers) =>
      expectSame((x) => tf.clipByValue(x, -0.5, 0.3), [floats(numbers, [lengthOf(numbers), 3])]),
    )
  })

  test('a cast from and to any type equals cpu', async () => {
    await forCases(async (numbers) => {
      const shape = [lengthOf(numbers), lengthOf(numbers)]
      for (const dtype of ['float32', 'int32', 'bool'] as const) {
        for (const given of [floats(numbers, shape, -2, 2), wholes(numbers, shape, -300, 300), flags(numbers, shape)]) {
          await expectSame((x) => tf.cast(x, dtype), [given], { gradient: false })
        }
      }
    }, 20)
  })

  test('a clone has the elements, outlives its original, and is its own when that changes', () => {
    const original = tf.variable(tf.tensor1d([1, 2, 3]))
    const clone = tf.clone(original)
    tf.tidy(() => original.assign(tf.tensor1d([7, 8, 9])))
    original.dispose()
    expect([...clone.dataSync()]).toEqual([1, 2, 3])
    clone.dispose()
  })
})

describe('layout', () => {
  const shapeOf = (numbers: Numbers, ranks = 4): number[] => {
    return Array.from({ length: numbers.whole(1, ranks) }, () => [0, 1, 1, 2, 3, 5, 8][numbers.whole(0, 6)]!)
  }
  const fullShapeOf = (numbers: Numbers): number[] => shapeOf(numbers).map((length) => Math.max(1, length))

  test('transposing in any order equals cpu', async () => {
    await forCases(async (numbers) => {
      const shape = shapeOf(numbers, 5)
      const keys = shape.map(() => numbers.uniform())
      const perm = [...shape.keys()].toSorted((a, b) => keys[a]! - keys[b]!)
      await expectSame((x) => tf.transpose(x, perm), [floats(numbers, shape)])
      await expectSame((x) => tf.transpose(x, perm), [wholes(numbers, shape, -9, 9)])
      await expectSame((x) => tf.transpose(x, perm), [flags(numbers, shape)])
    })
  })

  test('tiling any axes equals cpu', async () => {
    await forCases(async (numbers) => {
      const shape = fullShapeOf(numbers)
      const reps = shape.map(() => numbers.whole(1, 3))
      await expectSame((x) => tf.tile(x, reps), [floats(numbers, shape)])
      await expectSame((x) => tf.tile(x, reps), [flags(numbers, shape)])
    })
  })

  test('concatenating along any axis equals cpu', async () => {
    await forCases(async (numbers) => {
      const shape = fullShapeOf(numbers)
      const axis = numbers.whole(0, shape.length - 1)
      const other = shape.with(axis, numbers.whole(1, 4))
      await expectSame((...x) => tf.concat(x, axis), [floats(numbers, shape), floats(numbers, other)])
      await expectSame((...x) => tf.concat(x, axis), [wholes(numbers, shape, 0, 9), wholes(numbers, other, 0, 9)])
      await expectSame((...x) => tf.stack(x, axis), [floats(numbers, shape), floats(numbers, shape)])
    })
  })

  test('splitting along any axis equals cpu', async () => {
    await forCases(async (numbers) => {
      const shape = fullShapeOf(numbers)
      const axis = numbers.whole(0, shape.length - 1)
      const sizes = [numbers.whole(1, 3), numbers.whole(1, 3), numbers.whole(1, 3)]
      const whole = shape.with(axis, sizes[0]! + sizes[1]! + sizes[2]!)
      for (const part of [0, 1, 2]) {
        await expectSame((x) => tf.split(x, sizes, axis)[part]!, [floats(numbers, whole)])
      }
    })
  })

  test('slicing any block equals cpu', async () => {
    await forCases(async (numbers) => {
      const shape = fullShapeOf(numbers)
      const begin = shape.map((length) => numbers.whole(0, length - 1))
      const size = shape.map((length, axis) => numbers.whole(1, length - begin[axis]!))
      await expectSame((x) => tf.slice(x, begin, size), [floats(numbers, shape)])
      await expectSame((x) => tf.slice(x, begin, size), [flags(numbers, shape)])
    })
  })

  test.each(['sum', 'mean'] as const)('%s over any axes equals cpu', async (name) => {
    await forCases(async (numbers) => {
      const shape = shapeOf(numbers)
      const some = [...shape.keys()].filter(() => numbers.uniform() < 0.5)
      const [axes, keepDims] = [some.length === 0 ? undefined : some, numbers.uniform() < 0.5]
      const isEmpty = shape.includes(0)
      if (name === 'sum' || !isEmpty) {
        await expectSame((x) => tf[name](x, axes, keepDims), [floats(numbers, shape)], { gradient: !isEmpty })
      }
      await expectSame((x) => tf.sum(x, axes, keepDims), [wholes(numbers, shape, -9, 9)])
    })
  })

  test('a mean of nothing is NaN, as in TensorFlow, where the cpu backend says 0', () => {
    const means = tf.tidy(() => tf.mean(tf.zeros([0, 2]), 0).dataSync())
    expect([...means]).toEqual([Number.NaN, Number.NaN])
  })

  test('a long sum keeps the digits that f32 holds', () => {
    const sum = tf.tidy(() => tf.sum(tf.fill([1 << 20], 0.1)).dataSync()[0]!)
    expect(sum).toBeCloseTo((1 << 20) * Math.fround(0.1), 1)
  })
})

describe('pooling', () => {
  test('has the gradients that cpu has', async () => {
    await forCases(async (numbers) => {
      const shape = [numbers.whole(1, 3), numbers.whole(3, 7), numbers.whole(3, 7), numbers.whole(1, 5)]
      const [filter, strides] = [numbers.whole(2, 3), numbers.whole(1, 3)]
      const pad = (['same', 'valid', 1] as const)[numbers.whole(0, 2)]!
      const rounding = pad === 1 ? 'floor' : undefined
      await expectSame((x) => tf.maxPool(x as Tensor4D, filter, strides, pad, rounding), [floats(numbers, shape)])
      await expectSame((x) => tf.avgPool(x as Tensor4D, filter, strides, pad, rounding), [floats(numbers, shape)])
    })
  })
})

describe('the registration', () => {
  test('has had every one of its kernels compared', () => {
    const { added, replaced } = registration
    // Layers and recurrent cells, which tfjs has nowhere, are held against its single operations in tests/policies.
    const layers = ['BiasLayer', 'BiasLayerGrad', 'DenseLayer', 'DenseLayerGrad']
    const cells = ['Gru', 'GruGrad', 'Lstm', 'LstmGrad']
    expect([...added, ...replaced].filter((name) => !kernelsSeen.has(name))).toEqual([...layers, ...cells])
    expect(added.length).toBeGreaterThan(3)
  })

  test('serves while the heap grows under it', async () => {
    const [a, b] = [new Numbers(1).floats(64), new Numbers(2).floats(64)]
    const product = () =>
      tf.tidy(() =>
        tf
          .matMul(tf.tensor2d(a, [8, 8]), tf.tensor2d(b, [8, 8]))
          .dataSync()
          .slice(),
      )
    const [wanted, bytes] = [product(), backend.wasm.asm.memory.buffer.byteLength]
    const large = tf.zeros([bytes / 4])
    expect(backend.wasm.asm.memory.buffer.byteLength).toBeGreaterThan(bytes)
    expect(product()).toEqual(wanted)
    large.dispose()
  })

  test('keeps the heap as large as it is, call after call', () => {
    const x = tf.randomNormal([64, 64])
    const step = () =>
      tf.tidy(() => {
        const loss = (w: Tensor) => tf.mean(tf.softplus(tf.tanh(tf.matMul(tf.tanh(tf.matMul(x, w as never)), x, true))))
        tf.grad(loss)(x)
      })
    for (let i = 0; i < 20; i++) step()
    const [{ numTensors, numBytes }, size] = [tf.memory(), backend.wasm.asm.memory.buffer.byteLength]
    for (let i = 0; i < 400; i++) step()
    expect(tf.memory()).toMatchObject({ numTensors, numBytes })
    expect(backend.wasm.asm.memory.buffer.byteLength).toBe(size)
    x.dispose()
  })

  test('is undone to the backend as it came, and can be of the missing kernels alone', () => {
    const { added, replaced } = registration
    registration.undo()
    expect(added.filter((name) => tf.getKernel(name, 'wasm') != null)).toEqual([])
    const theirs = replaced.map((name) => tf.getKernel(name, 'wasm').kernelFunc)
    const missing = registerWasmKernels(tf, backend, { which: 'missing' })
    expect([missing.added, missing.replaced]).toEqual([added, []])
    missing.undo()
    registration = registerWasmKernels(tf, backend)
    registration.undo()
    expect(replaced.map((name) => tf.getKernel(name, 'wasm').kernelFunc)).toEqual(theirs)
    registration = registerWasmKernels(tf, backend)
  })
})
