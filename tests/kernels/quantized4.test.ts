import { describe, expect, test } from 'vitest'
import {
  bytesIn4Bits,
  createKernels,
  dequantizeRows4,
  INPUT_BLOCK,
  MATMUL_SCRATCH,
  quantizeRows4,
} from '../../src/kernels/bind.ts'
import type { KernelBuild } from '../../src/kernels/kernels.ts'
import { type Argument, Bench, Numbers, strict } from './calls.ts'
import { builds, ignoresCompany, levels, matches, RUNS, rows, widthOf } from './laws.ts'

const plain = createKernels(new WebAssembly.Memory({ initial: 1 }), 'plain')
const all: KernelBuild[] = ['plain', ...builds]

/** Random weights (numRows × width) in 4 bits; those of the first row are so small that their scales are subnormal in f16. */
function quantized(numbers: Numbers, numRows: number, width: number): Uint8Array {
  const values = new Uint8Array(bytesIn4Bits(numRows, width))
  const x = numbers.floats(numRows * width, -3, 3).map((weight, i) => (i < width ? weight * 2 ** -18 : weight))
  strict(quantizeRows4)(values, x, numRows, width)
  return values
}

describe('weights in 4 bits', () => {
  /*
   * gguf 0.19.0 (llama.cpp's Python package):
   * x = np.array([((i * 37) % 101 - 50) / (17 if i < 32 else 900) for i in range(64)], np.float32).reshape(1, 64)
   * q = quants.quantize(x, GGMLQuantizationType.Q4_0); a block is the scale in f16, then 16 bytes
   */
  const GOLDEN = [
    [226, 53, 224, 70, 172, 242, 88, 189, 19, 121, 223, 53, 139, 224, 70, 172, 242, 104],
    [248, 158, 116, 15, 185, 83, 253, 151, 49, 235, 133, 47, 202, 100, 14, 168, 66, 253],
  ]
  // quants.dequantize(q, GGMLQuantizationType.Q4_0)[0, [0, 1, 12, 31, 32, 47, 49, 63]]
  const STAND_FOR = [
    ...[-2.94140625, -0.7353515625, -0.7353515625, -0.7353515625],
    ...[0.0272216796875, -0.034027099609375, 0.054443359375, -0.047637939453125],
  ]

  test("are llama.cpp's Q4_0, sixteen rows side by side", () => {
    const row = Float32Array.from({ length: 64 }, (_, i) => (((i * 37) % 101) - 50) / (i < 32 ? 17 : 900))
    for (const place of [0, 5, 15, 17]) {
      const x = new Float32Array(18 * 64)
      x.set(row, place * 64)
      const values = new Uint8Array(bytesIn4Bits(18, 64))
      expect(values.length).toBe(2 * 2 * 16 * 18)
      strict(quantizeRows4)(values, x, 18, 64)
      const lane = place % 16
      for (const [block, [low, high, ...bytes]] of GOLDEN.entries()) {
        const at = (2 * Math.floor(place / 16) + block) * 288
        const got = bytes.map((_, i) => values[at + 64 * Math.floor(i / 4) + 4 * lane + (i % 4)])
        expect(got).toEqual(bytes)
        expect([...values.subarray(at + 256 + 2 * lane, at + 258 + 2 * lane)]).toEqual([low, high])
      }
      const back = new Float32Array(18 * 64)
      strict(dequantizeRows4)(back, values, 18, 64)
      expect([0, 1, 12, 31, 32, 47, 49, 63].map((k) => back[place * 64 + k])).toEqual(STAND_FOR)
      back.fill(0, place * 64, place * 64 + 64)
      expect(back.every((value) => value === 0)).toBe(true)
    }
  })

  test('are within half a step of what they were, but for those of the sign that has one step less: within one', () => {
    const [numRows, width] = [19, 70]
    const x = new Numbers(3).floats(numRows * width, -2, 2)
    x.fill(0, width, 2 * width)
    const [values, back] = [new Uint8Array(bytesIn4Bits(numRows, width)), new Float32Array(x.length)]
    strict(quantizeRows4)(values, x, numRows, width)
    plain.dequantizeRows4(back, values, numRows, width)
    let farthest = 0
    for (let row = 0; row < numRows; row++) {
      for (let first = 0; first < width; first += 32) {
        const [from, to] = [row * width + first, row * width + Math.min(width, first + 32)]
        const largest = x.subarray(from, to).reduce((most, value) => (Math.abs(value) > Math.abs(most) ? value : most))
        const step = Math.abs(largest) / 8
        for (let i = from; i < to; i++) {
          const isBeyond = x[i]! * largest < 0 && Math.abs(x[i]!) > 7.5 * step
          // The scale is rounded to 11 bits.
          const apart = (isBeyond ? 1 : 0.5) * step + Math.abs(x[i]!) * 2 ** -10
          expect(Math.abs(back[i]! - x[i]!), `${x[i]} of ${largest}`).toBeLessThanOrEqual(apart)
          farthest = Math.max(farthest, Math.abs(back[i]! - x[i]!))
        }
      }
    }
    expect(farthest).toBeGreaterThan(0.1)
    const again = new Uint8Array(values.length)
    strict(quantizeRows4)(again, back, numRows, width)
    expect(again).toEqual(values)
  })

  matches(
    'dequantizeRows4',
    (numbers) => {
      const [numRows, width] = [numbers.whole(0, 40), [1, 7, 16, 17, 32, 40, 64][numbers.whole(0, 6)]!]
      return [new Float32Array(numRows * width), quantized(numbers, numRows, width), numRows, width]
    },
    { relative: 0 },
    RUNS / 3,
  )

  /** `few`: rows, columns and depth at which native bodies read the bytes alone; else any. */
  const product = (numbers: Numbers, few: boolean): Argument[] => {
    const numRows = numbers.whole(1, few ? 9 : 20)
    const [numColumns, depth] = few
      ? [16 * numbers.whole(1, 5), 4 * numbers.whole(1, 20)]
      : [widthOf(numbers), widthOf(numbers)]
    const values = quantized(numbers, numColumns, depth)
    const accumulate = numbers.whole(0, 1) === 1
    const bias = numbers.floats(numbers.whole(0, 1) * numColumns)
    const [c, a] = [numbers.floats(numRows * numColumns), numbers.floats(numRows * depth)]
    const workspace = [new Float32Array(numColumns * depth), new Float32Array(MATMUL_SCRATCH)] as const
    return [c, a, values, bias, ...workspace, numRows, numColumns, depth, accumulate]
  }
  const loose = { relative: 2e-5, scale: 20, workspace: [4, 5] }
  matches('matmulQuantized4', (numbers) => product(numbers, false), loose, RUNS / 10)
  describe('few rows', () => matches('matmulQuantized4', (numbers) => product(numbers, true), loose, RUNS / 10))

  test.each([...all, ...levels])('a product with them has the bits of one with what they stand for (%s)', (build) => {
    const bench = new Bench(build)
    for (const numRows of [1, 2, 5, 8, 9]) {
      const given = product(new Numbers(numRows), true)
      const [c, a, values, bias, dequantized, scratch, , numColumns, depth, accumulate] = given
      const sizes = [((a as Float32Array).length / (depth as number)) | 0, numColumns!, depth!] as const
      const whole = bench.call('dequantizeRows4', [dequantized!, values!, numColumns!, depth!]).columns[0]!
      const expected = bench.call('matmul', [c!, a!, whole, bias!, scratch!, ...sizes, false, true, accumulate!])
      expect(bench.call('matmulQuantized4', given).columns[0]).toEqual(expected.columns[0])
    }
  })
})

describe('products of nibbles', () => {
  const rounded = (x: Float32Array, numRows: number, depth: number) => {
    const blocks = numRows * Math.ceil(depth / INPUT_BLOCK)
    const [input, inputScale] = [new Uint8Array(blocks * INPUT_BLOCK), new Float32Array(blocks)]
    plain.quantizeInputs(input, inputScale, x, numRows, depth)
    return [input, inputScale] as const
  }
  const product = (numbers: Numbers, numRows: number): Argument[] => {
    const numColumns = [1, 7, 16, 33, 48][numbers.whole(0, 4)]!
    const depth = [4, 9, 16, 32, 36, 64, 80][numbers.whole(0, 6)]!
    const values = quantized(numbers, numColumns, depth)
    const inputs = rounded(numbers.floats(numRows * depth, -3, 3), numRows, depth)
    const [c, bias] = [numbers.floats(numRows * numColumns), numbers.floats(numbers.whole(0, 1) * numColumns)]
    return [c, ...inputs, values, bias, numRows, numColumns, depth, numbers.uniform() < 0.5]
  }
  matches('matmulIntegers4', (numbers) => product(numbers, numbers.whole(1, 18)), { relative: 0 }, RUNS / 5)
  ignoresCompany(
    'matmulIntegers4',
    {
      make: product,
      part([c, input, inputScale, values, bias, , numColumns, depth, accumulate], first, count) {
        const blocks = Math.ceil((depth as number) / INPUT_BLOCK)
        const some = [rows(c, first, count, numColumns as number), rows(input, first, count, blocks * INPUT_BLOCK)]
        return [
          ...some,
          rows(inputScale, first, count, blocks),
          values!,
          bias!,
          count,
          numColumns!,
          depth!,
          accumulate!,
        ]
      },
      outputs: ([, , , , , , numColumns]) => [[0, numColumns as number]],
    },
    RUNS / 10,
  )

  test.each([...all, ...levels])('are those of what both stand for, the largest too (%s)', (build) => {
    const bench = new Bench(build)
    for (const depth of [16, 40, 1024]) {
      const [numRows, numColumns] = [3, 16]
      const [x, weights] = [new Numbers(depth).floats(numRows * depth), new Numbers(7).floats(numColumns * depth)]
      x.subarray(0, depth).fill(-2)
      weights.subarray(0, depth).fill(-1)
      const values = new Uint8Array(bytesIn4Bits(numColumns, depth))
      quantizeRows4(values, weights, numColumns, depth)
      const stands = new Float32Array(weights.length)
      dequantizeRows4(stands, values, numColumns, depth)
      const [input, inputScale] = rounded(x, numRows, depth)
      const c = new Float32Array(numRows * numColumns)
      const call = [c, input, inputScale, values, new Float32Array(0), numRows, numColumns, depth, false]
      const [got] = bench.call('matmulIntegers4', call).columns
      expect(got![0]).toBeCloseTo(2 * depth, 2)
      const blocks = Math.ceil(depth / INPUT_BLOCK)
      for (let row = 0; row < numRows; row++) {
        for (let column = 0; column < numColumns; column++) {
          let sum = 0
          for (let k = 0; k < depth; k++) {
            const byte = input[row * blocks * INPUT_BLOCK + k]!
            sum += ((byte << 24) >> 24) * inputScale[row * blocks + (k >> 5)]! * stands[column * depth + k]!
          }
          expect(Math.abs(got![row * numColumns + column]! - sum)).toBeLessThan(1e-5 * depth)
        }
      }
    }
  })
})
