import { describe, expect, test } from 'vitest'
import { narrowBf16, widenBf16 } from '../../src/base/half.ts'
import { bytesIn4Bits, createKernels, MATMUL_SCRATCH, quantizeRows, quantizeRows4 } from '../../src/kernels/bind.ts'
import type { KernelBuild } from '../../src/kernels/kernels.ts'
import { type Argument, Bench, Numbers } from './calls.ts'
import { builds, levels, matches, RUNS, widthOf } from './laws.ts'

const plain = createKernels(new WebAssembly.Memory({ initial: 1 }), 'plain')
const all: KernelBuild[] = ['plain', ...builds]

describe('weights in bf16', () => {
  matches(
    'widenWeights',
    (numbers) => {
      const values = narrowBf16(numbers.floats(numbers.whole(0, 3000), -3, 3))
      return [new Float32Array(values.length), values, values.length]
    },
    { relative: 0 },
    RUNS / 3,
  )

  /** `few`: rows, columns and depth at which native bodies read the halves alone; else any. */
  const product = (numbers: Numbers, few: boolean): Argument[] => {
    const numRows = numbers.whole(1, few ? 9 : 20)
    const [numColumns, depth] = few
      ? [16 * numbers.whole(1, 5) + numbers.whole(0, 1) * 7, 2 * numbers.whole(1, 40)]
      : [widthOf(numbers), widthOf(numbers)]
    const values = narrowBf16(numbers.floats(numColumns * depth, -3, 3))
    const accumulate = numbers.whole(0, 1) === 1
    const bias = numbers.floats(numbers.whole(0, 1) * numColumns)
    const [c, a] = [numbers.floats(numRows * numColumns), numbers.floats(numRows * depth)]
    const workspace = [new Float32Array(numColumns * depth), new Float32Array(MATMUL_SCRATCH)] as const
    return [c, a, values, bias, ...workspace, numRows, numColumns, depth, accumulate]
  }
  const loose = { relative: 2e-5, scale: 20, workspace: [4, 5] }
  matches('matmulBf16', (numbers) => product(numbers, false), loose, RUNS / 10)
  describe('few rows', () => matches('matmulBf16', (numbers) => product(numbers, true), loose, RUNS / 10))

  test.each([...all, ...levels])('a product with them has the bits of one with the same in f32 (%s)', (build) => {
    const bench = new Bench(build)
    for (const numRows of [1, 2, 5, 8, 9, 70]) {
      const given = product(new Numbers(numRows), true)
      const [, , values, bias, , scratch, , numColumns, depth, accumulate] = given
      const numbers = new Numbers(7)
      const c = numbers.floats(numRows * (numColumns as number))
      const a = numbers.floats(numRows * (depth as number))
      const sizes = [numRows, numColumns!, depth!] as const
      const whole = widenBf16(values as Uint16Array)
      const expected = bench.call('matmul', [c, a, whole, bias!, scratch!, ...sizes, false, true, accumulate!])
      const workspace = new Float32Array(whole.length)
      const got = bench.call('matmulBf16', [c, a, values!, bias!, workspace, scratch!, ...sizes, accumulate!])
      expect(got.columns[0]).toEqual(expected.columns[0])
    }
  })

  test.each([...all, ...levels])('more columns than become f32 at once do not change the bits (%s)', (build) => {
    const bench = new Bench(build)
    const [numColumns, depth] = [1043, 24]
    const weights = new Numbers(3).floats(numColumns * depth, -3, 3)
    const [bytes, scale] = [new Uint8Array(weights.length), new Float32Array(numColumns)]
    quantizeRows(bytes, scale, weights, numColumns, depth)
    const nibbles = new Uint8Array(bytesIn4Bits(numColumns, depth))
    quantizeRows4(nibbles, weights, numColumns, depth)
    const [of8, of4] = [new Float32Array(weights.length), new Float32Array(weights.length)]
    plain.dequantizeRows(of8, bytes, scale, numColumns, depth)
    plain.dequantizeRows4(of4, nibbles, numColumns, depth)
    const halves = narrowBf16(weights)
    const workspace = [new Float32Array(512 * depth), new Float32Array(MATMUL_SCRATCH)] as const
    for (const numRows of [1, 7, 9, 65]) {
      const numbers = new Numbers(numRows)
      const [a, bias] = [numbers.floats(numRows * depth), numbers.floats(numColumns)]
      const c = new Float32Array(numRows * numColumns)
      const sizes = [numRows, numColumns, depth] as const
      const whole = (b: Float32Array) =>
        bench.call('matmul', [c, a, b, bias, workspace[1], ...sizes, false, true, false]).columns[0]
      const got8 = bench.call('matmulQuantized', [c, a, bytes, scale, bias, ...workspace, ...sizes, false])
      const got4 = bench.call('matmulQuantized4', [c, a, nibbles, bias, ...workspace, ...sizes, false])
      const got16 = bench.call('matmulBf16', [c, a, halves, bias, ...workspace, ...sizes, false])
      expect(got8.columns[0]).toEqual(whole(of8))
      expect(got4.columns[0]).toEqual(whole(of4))
      expect(got16.columns[0]).toEqual(whole(widenBf16(halves)))
    }
  })
})

test('rows that are gathered by index are those of the whole matrix in f32', () => {
  const [numRows, width] = [37, 40]
  const weights = new Numbers(5).floats(numRows * width, -2, 2)
  const index = Uint32Array.of(36, 0, 17, 17, 5)
  const expected = (whole: Float32Array) =>
    [...index].flatMap((row) => [...whole.subarray(row * width, (row + 1) * width)])
  const [x, whole] = [new Float32Array(index.length * width), new Float32Array(weights.length)]

  const halves = narrowBf16(weights)
  plain.gatherBf16(x, halves, index, index.length, width)
  expect([...x]).toEqual(expected(widenBf16(halves)))

  const [bytes, scale] = [new Uint8Array(weights.length), new Float32Array(numRows)]
  quantizeRows(bytes, scale, weights, numRows, width)
  plain.dequantizeRows(whole, bytes, scale, numRows, width)
  plain.gatherQuantized(x, bytes, scale, index, index.length, width)
  expect([...x]).toEqual(expected(whole))

  const nibbles = new Uint8Array(bytesIn4Bits(numRows, width))
  quantizeRows4(nibbles, weights, numRows, width)
  plain.dequantizeRows4(whole, nibbles, numRows, width)
  plain.gatherQuantized4(x, nibbles, index, index.length, width)
  expect([...x]).toEqual(expected(whole))
})
