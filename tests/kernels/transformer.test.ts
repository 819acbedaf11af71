import { describe, expect, test } from 'vitest'
import {
  attentionScratch,
  createKernels,
  INPUT_BLOCK,
  MATMUL_SCRATCH,
  quantizeRows,
  VOCABULARY_STEP,
} from '../../src/kernels/bind.ts'
import type { KernelBuild } from '../../src/kernels/kernels.ts'
import type { AttentionShape } from '../../src/kernels/transformer/attention.ts'
import * as fc from '../support/properties.ts'
import { type Argument, Bench, type Column, Numbers, strict } from './calls.ts'
import { builds, ignoresCompany, levels, matches, matchesRelaxed, numRowsOf, RUNS, rows, widthOf } from './laws.ts'

const plain = createKernels(new WebAssembly.Memory({ initial: 1 }), 'plain')
const all: KernelBuild[] = ['plain', ...builds]

describe('norm', () => {
  const forward = (numbers: Numbers, numRows: number) => {
    const width = widthOf(numbers)
    const x = numbers.floats(numRows * width, -3, 3)
    const [y, inverseRms] = [new Float32Array(x.length), new Float32Array(numRows)]
    return [y, inverseRms, x, numbers.floats(width, 0.5, 2), 1e-5, numRows, width] as const
  }
  const backward = (numbers: Numbers, numRows: number): Argument[] => {
    const [y, inverseRms, x, weight, epsilon, , width] = forward(numbers, numRows)
    plain.rmsNormForward(y, inverseRms, x, weight, epsilon, numRows, width)
    const [dx, dWeight, dy] = [x.length, width, x.length].map((length) => numbers.floats(length))
    return [dx!, dWeight!, dy!, x, weight, inverseRms, numRows, width, numbers.uniform() < 0.5]
  }
  // A row of one or two elements may be all but zero, and its factor 1 / √epsilon.
  const tolerance = { relative: 1e-5, scale: 100 }
  matches('rmsNormForward', (numbers) => [...forward(numbers, numRowsOf(numbers))], { relative: 2e-6 })
  matches('rmsNormBackward', (numbers) => backward(numbers, numRowsOf(numbers)), tolerance)

  ignoresCompany('rmsNormForward', {
    make: (numbers, numRows) => [...forward(numbers, numRows)],
    part([y, inverseRms, x, weight, epsilon, , width], first, count) {
      const row = width as number
      const some = [rows(y, first, count, row), rows(inverseRms, first, count), rows(x, first, count, row)]
      return [...some, weight!, epsilon!, count, row]
    },
    outputs: ([, , , , , , width]) => [
      [0, width as number],
      [1, 1],
    ],
  })
  ignoresCompany('rmsNormBackward', {
    make: backward,
    part([dx, dWeight, dy, x, weight, inverseRms, , width, accumulate], first, count) {
      const some = [dx, dy, x].map((column) => rows(column, first, count, width as number))
      const inverse = rows(inverseRms, first, count)
      return [some[0]!, dWeight!, some[1]!, some[2]!, weight!, inverse, count, width!, accumulate!]
    },
    outputs: ([, , , , , , , width]) => [[0, width as number]],
  })
})

describe('layer norm', () => {
  const forward = (numbers: Numbers, numRows: number): Argument[] => {
    const width = widthOf(numbers)
    const [x, weight, bias] = [numRows * width, width, width].map((length) => numbers.floats(length, -3, 3))
    return [new Float32Array(x!.length), x!, weight!, bias!, 1e-5, numRows, width]
  }
  const backward = (numbers: Numbers, numRows: number): Argument[] => {
    const [, x, weight, , epsilon, , width] = forward(numbers, numRows)
    const [dx, dWeight, dBias, dy] = [(x as Column).length, width as number, width as number, (x as Column).length].map(
      (length) => numbers.floats(length),
    )
    return [dx!, dWeight!, dBias!, dy!, x!, weight!, epsilon!, numRows, width!, numbers.uniform() < 0.5]
  }
  // In a row of two the elements may be all but equal, and the factor 1 / √epsilon.
  const tolerance = { relative: 2e-5, scale: 100 }
  matches('layerNormForward', (numbers) => forward(numbers, numRowsOf(numbers)), tolerance)
  matches('layerNormBackward', (numbers) => backward(numbers, numRowsOf(numbers)), tolerance)

  ignoresCompany('layerNormForward', {
    make: forward,
    part([y, x, weight, bias, epsilon, , width], first, count) {
      const some = [y, x].map((column) => rows(column, first, count, width as number))
      return [some[0]!, some[1]!, weight!, bias!, epsilon!, count, width!]
    },
    outputs: ([, , , , , , width]) => [[0, width as number]],
  })
  ignoresCompany('layerNormBackward', {
    make: backward,
    part([dx, dWeight, dBias, dy, x, weight, epsilon, , width, accumulate], first, count) {
      const some = [dx, dy, x].map((column) => rows(column, first, count, width as number))
      return [some[0]!, dWeight!, dBias!, some[1]!, some[2]!, weight!, epsilon!, count, width!, accumulate!]
    },
    outputs: ([, , , , , , , , width]) => [[0, width as number]],
  })
})

describe('rope', () => {
  const turned = (numbers: Numbers, numRows: number): Argument[] => {
    const [heads, half] = [numbers.whole(1, 3), [1, 2, 3, 4, 6, 8, 17][numbers.whole(0, 6)]!]
    const angles = numbers.floats(20 * half, -9, 9)
    const position = numbers.wholes(numRows, 0, 19)
    const x = numbers.floats(numRows * heads * 2 * half)
    const inverse = numbers.uniform() < 0.5
    return [x, angles.map(Math.cos), angles.map(Math.sin), position, numRows, heads, 2 * half, inverse]
  }
  matches('rope', (numbers) => turned(numbers, numRowsOf(numbers)), { relative: 3e-7 })
  ignoresCompany('rope', {
    make: turned,
    part([x, cosine, sine, position, , heads, headWidth, inverse], first, count) {
      const some = rows(x, first, count, (heads as number) * (headWidth as number))
      return [some, cosine!, sine!, rows(position, first, count), count, heads!, headWidth!, inverse!]
    },
    outputs: ([, , , , , heads, headWidth]) => [[0, (heads as number) * (headWidth as number)]],
  })

  test('turning back undoes turning', () => {
    const given = turned(new Numbers(4), 9)
    const bench = new Bench('plain')
    const there = bench.call('rope', [...given.slice(0, 7), false])
    const back = bench.call('rope', [there.columns[0]!, ...given.slice(1, 7), true]).columns[0]!
    for (const [i, value] of back.entries()) expect(value).toBeCloseTo((given[0] as Column)[i]!, 6)
  })
})

describe('swiglu', () => {
  const far = (numbers: Numbers, length: number) =>
    numbers.floats(length, -1, 1).map((x) => x * [1, 10, 100][length % 3]!)
  const forward = (numbers: Numbers, length: number): Argument[] => {
    return [new Float32Array(length), far(numbers, length), numbers.floats(length), length]
  }
  const backward = (numbers: Numbers, length: number): Argument[] => {
    return [far(numbers, length), numbers.floats(length), numbers.floats(length), length]
  }
  const tolerance = { relative: 2e-6, scale: 4 }
  matches('swigluForward', (numbers) => forward(numbers, numRowsOf(numbers)), tolerance)
  matches('swigluBackward', (numbers) => backward(numbers, numRowsOf(numbers)), tolerance)
  const part = (given: readonly Argument[], first: number, count: number): Argument[] => [
    ...given.slice(0, 3).map((column) => rows(column, first, count)),
    count,
  ]
  ignoresCompany('swigluForward', { make: forward, part, outputs: () => [[0, 1]] })
  ignoresCompany('swigluBackward', {
    make: backward,
    part,
    outputs: () => [
      [0, 1],
      [1, 1],
    ],
  })
})

describe('attention', () => {
  const KEYS = 44
  const heads = (numbers: Numbers) => {
    const numKeyHeads = numbers.whole(1, 2)
    const headWidth = [2, 4, 6, 8, 12, 16, 18, 32, 34][numbers.whole(0, 8)]!
    return { numHeads: numKeyHeads * numbers.whole(1, 3), numKeyHeads, headWidth }
  }
  /** More heads a key head than rows run together, or so many that no two tokens do. */
  const manyHeads = (numbers: Numbers) => {
    const [numKeyHeads, each] = [numbers.whole(1, 2), [24, 25, 48, 49, 60][numbers.whole(0, 4)]!]
    return { numHeads: numKeyHeads * each, numKeyHeads, headWidth: [2, 6, 8][numbers.whole(0, 2)]! }
  }
  /** Workspace that holds what another call left. */
  const scratch = (shape: AttentionShape, context: number) =>
    new Float32Array(attentionScratch(shape, context)).fill(Number.NaN)
  const forward = (numbers: Numbers, numRows: number) => {
    const { numHeads, numKeyHeads, headWidth } = heads(numbers)
    const first = numbers.wholes(numRows, 0, KEYS - 1)
    const position = first.map((row) => numbers.whole(0, KEYS - 1 - row))
    const sizes = [numRows, numHeads, numKeyHeads, headWidth] as const
    const q = numbers.floats(numRows * numHeads * headWidth, -2, 2)
    const [k, v] = [numbers.floats(KEYS * numKeyHeads * headWidth), numbers.floats(KEYS * numKeyHeads * headWidth)]
    const [out, logSum] = [new Float32Array(q.length), new Float32Array(numRows * numHeads)]
    const scores = scratch({ numHeads, numKeyHeads, headWidth }, KEYS)
    return [out, logSum, q, k, v, scores, first, position, ...sizes] as const
  }
  type Attention = ReturnType<typeof forward>
  /** Rows of sequences, with a window or without, as a batch and a prompt have them; the first may begin within its sequence. */
  const sequences = (numbers: Numbers) => {
    const isMany = numbers.uniform() < 0.2
    const { numHeads, numKeyHeads, headWidth } = isMany ? manyHeads(numbers) : heads(numbers)
    const window = numbers.uniform() < 0.4 ? numbers.whole(1, 40) : Infinity
    const length = () => {
      if (!isMany && numbers.uniform() < 0.3) return [47, 127, 128, 129, 257][numbers.whole(0, 4)]!
      return numbers.whole(1, isMany ? 10 : 20) ** numbers.whole(1, isMany ? 1 : 2)
    }
    const lengths = Array.from({ length: numbers.whole(1, 4) }, length)
    const [begin, context] = [numbers.whole(0, lengths[0]! - 1), Math.max(...lengths)]
    const places = lengths.flatMap((length, sequence) => {
      const before = lengths.slice(0, sequence).reduce((sum, each) => sum + each, 0)
      return Array.from(
        { length },
        (_, at) => [before + Math.max(0, at - window + 1), Math.min(at, window - 1)] as const,
      )
    })
    const [numKeys, rows] = [places.length, places.slice(begin)]
    const [first, position] = [0, 1].map((part) => Int32Array.from(rows, (row) => row[part]!))
    const sizes = [rows.length, numHeads, numKeyHeads, headWidth] as const
    const q = numbers.floats(rows.length * numHeads * headWidth, -2, 2)
    const [k, v] = [0, 1].map(() => numbers.floats(numKeys * numKeyHeads * headWidth))
    const [out, logSum] = [new Float32Array(q.length), new Float32Array(rows.length * numHeads)]
    const scores = scratch({ numHeads, numKeyHeads, headWidth }, context)
    return [out, logSum, q, k!, v!, scores, first!, position!, ...sizes] as const
  }
  const backward = (numbers: Numbers, given: Attention): Argument[] => {
    const [out, logSum, q, k, v, scores, first, position, ...sizes] = given
    const [numRows, numHeads, numKeyHeads, headWidth] = sizes
    const shape = { numHeads, numKeyHeads, headWidth }
    plain.attentionForward(out, logSum, q, k, v, scores, first, position, shape, numRows)
    const [dk, dv] = [numbers.floats(k.length), numbers.floats(v.length)]
    const [dq, dOut] = [numbers.floats(q.length), numbers.floats(q.length)]
    return [dq, dk, dv, dOut, out, q, k, v, logSum, scores, first, position, ...sizes]
  }
  const some = (numbers: Numbers) => numbers.whole(0, 9)
  matches('attentionForward', (numbers) => [...forward(numbers, some(numbers))], { relative: 1e-5, workspace: [5] })
  matches('attentionBackward', (numbers) => backward(numbers, forward(numbers, some(numbers))), {
    relative: 2e-5,
    scale: 8,
    workspace: [9],
  })
  describe('of rows that follow one another', () => {
    matches('attentionForward', (numbers) => [...sequences(numbers)], { relative: 1e-5, workspace: [5] }, 60)
    const tolerance = { relative: 2e-5, scale: 40, workspace: [9] }
    matches('attentionBackward', (numbers) => backward(numbers, sequences(numbers)), tolerance, 60)

    test.each([...builds, ...levels])('nothing is written beyond the workspace (%s)', (build) => {
      const bench = new Bench(build)
      const numbers = new Numbers(3)
      for (const [numHeads, headWidth] of [
        [1, 2],
        [3, 2],
        [1, 96],
        [24, 6],
        [49, 4],
        [60, 4],
      ] as const) {
        for (const context of [3, 49, 145, 289]) {
          const needed = attentionScratch({ numHeads, numKeyHeads: 1, headWidth }, context)
          const scores = new Float32Array(needed + 20_000).fill(7, needed)
          // The last ones that run together see one key more than panels of keys have.
          const rows = context - 1
          const sizes = [rows, numHeads, 1, headWidth] as const
          const position = Int32Array.from({ length: rows }, (_, row) => row + 1)
          const q = numbers.floats(rows * numHeads * headWidth)
          const [k, v] = [numbers.floats(context * headWidth), numbers.floats(context * headWidth)]
          const [out, logSum] = [new Float32Array(q.length), new Float32Array(rows * numHeads)]
          const given = [out, logSum, q, k, v, scores, new Int32Array(rows), position, ...sizes] as const
          for (const { columns, at } of [
            { columns: bench.call('attentionForward', [...given]).columns, at: 5 },
            { columns: bench.call('attentionBackward', backward(numbers, given)).columns, at: 9 },
          ]) {
            expect([numHeads, headWidth, context, columns[at]!.subarray(needed).every((each) => each === 7)]).toEqual([
              ...[numHeads, headWidth, context],
              true,
            ])
          }
        }
      }
    })

    test.each(all)('a row has the bits that it has alone (%s)', (build) => {
      const bench = new Bench(build)
      fc.assert(
        fc.property(fc.integer({ min: 0, max: 2 ** 31 }), (seed) => {
          const given = sequences(new Numbers(seed))
          const [out, logSum, q, k, v, scores, first, position, numRows, numHeads, ...sizes] = given
          const together = bench.call('attentionForward', [...given]).columns
          const width = out.length / numRows
          for (let row = seed % 7; row < numRows; row += 7) {
            const of = (column: Column, each: number) => column.subarray(row * each, (row + 1) * each)
            const inputs = [of(q, width), k, v, scores, of(first, 1), of(position, 1)]
            const alone = [of(out, width), of(logSum, numHeads), ...inputs, 1, numHeads, ...sizes]
            const wanted = bench.call('attentionForward', alone).columns
            expect(of(together[0]!, width)).toEqual(wanted[0])
            expect(of(together[1]!, numHeads)).toEqual(wanted[1])
          }
        }),
        { numRuns: Math.ceil(RUNS / 10) },
      )
    })

    test.each(all)('gradients of keys are those that the rows add one by one (%s)', (build) => {
      const bench = new Bench(build)
      fc.assert(
        fc.property(fc.integer({ min: 0, max: 2 ** 31 }), (seed) => {
          const numbers = new Numbers(seed)
          const given = backward(numbers, sequences(numbers))
          const together = bench.call('attentionBackward', given).columns
          const [, dk, dv, , , , k, v, , scores] = given as Column[]
          const [numRows, numHeads, ...sizes] = given.slice(12) as number[]
          const width = (given[0] as Column).length / numRows!
          let [keys, values] = [dk!, dv!]
          for (let row = 0; row < numRows!; row++) {
            const of = (at: number, each: number) => (given[at] as Column).subarray(row * each, (row + 1) * each)
            const columns = [
              of(3, width),
              of(4, width),
              of(5, width),
              k!,
              v!,
              of(8, numHeads!),
              scores!,
              of(10, 1),
              of(11, 1),
            ]
            const alone = bench.call('attentionBackward', [
              of(0, width),
              keys,
              values,
              ...columns,
              1,
              numHeads!,
              ...sizes,
            ])
            ;[keys, values] = [alone.columns[1]!, alone.columns[2]!]
            expect((together[0] as Column).subarray(row * width, (row + 1) * width)).toEqual(alone.columns[0])
          }
          expect(together.slice(1, 3)).toEqual([keys, values])
        }),
        { numRuns: Math.ceil(RUNS / 30) },
      )
    })
  })

  const ofHalves = ([out, logSum, q, k, v, scores, first, position, ...sizes]: Attention) => {
    const [, , numKeyHeads, headWidth] = sizes
    const numKeys = k.length / (numKeyHeads * headWidth)
    const everyRow = Int32Array.from({ length: numKeys }, (_, row) => row)
    const [keys, values] = [k, v].map((column) => {
      plain.roundToHalves(column, column.length)
      const halves = new Uint32Array(column.length / 2)
      plain.placeHalves(halves, column, everyRow, numKeys, numKeyHeads, headWidth)
      return halves
    })
    const work = new Float32Array(2 * numKeys * headWidth)
    const wide = [out, logSum, q, k, v, scores, first, position, ...sizes]
    return { wide, halves: [out, logSum, q, keys!, values!, scores, work, first, position, ...sizes] }
  }
  matches('attentionOfHalves', (numbers) => ofHalves(forward(numbers, some(numbers))).halves, {
    relative: 1e-5,
    workspace: [5, 6],
  })

  test.each(all)('over keys and values in bf16 has the bits that the same numbers have in f32 (%s)', (build) => {
    const bench = new Bench(build)
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 31 }), (seed) => {
        const numbers = new Numbers(seed)
        const { wide, halves } = ofHalves(seed % 2 === 0 ? forward(numbers, seed % 10) : sequences(numbers))
        const [wanted, got] = [bench.call('attentionForward', wide), bench.call('attentionOfHalves', halves)]
        expect(got.columns.slice(0, 2)).toEqual(wanted.columns.slice(0, 2))
      }),
      { numRuns: RUNS },
    )
  })

  matches(
    'roundToHalves',
    (numbers) => {
      const x = numbers.floats(numbers.whole(0, 70), -1e3, 1e3)
      if (x.length > 9) x.set([0, -0, Infinity, -Infinity, NaN, 1e-40, 3.4e38, 1.00390625, 1.01171875])
      return [x, x.length]
    },
    { relative: 0 },
  )
  matches(
    'placeHalves',
    (numbers) => {
      const [numRows, numHeads, headWidth] = [numbers.whole(0, 5), numbers.whole(1, 3), 2 * numbers.whole(1, 20)]
      const out = new Uint32Array(5 * numHeads * (headWidth / 2))
      const index = Int32Array.from([4, 2, 0, 1, 3].slice(0, numRows))
      return [out, numbers.floats(numRows * numHeads * headWidth), index, numRows, numHeads, headWidth]
    },
    { relative: 0 },
  )

  test('numbers in bf16 are those that PyTorch rounds to', () => {
    // torch.tensor(x).bfloat16().float(): ties to even, too large ones to infinity.
    const x = Float32Array.of(1.00390625, 1.01171875, 3.14159274, -0.1, 3.4e38, 1e-40)
    plain.roundToHalves(x, x.length)
    expect(Array.from(x)).toEqual([1, 1.015625, 3.140625, -0.10009765625, Infinity, 9.183549615799121e-41])
  })

  ignoresCompany(
    'attentionForward',
    {
      make: (numbers, numRows) => [...forward(numbers, numRows)],
      part([out, logSum, q, k, v, scores, first, position, , numHeads, numKeyHeads, headWidth], from, count) {
        const width = (numHeads as number) * (headWidth as number)
        const outputs = [rows(out, from, count, width), rows(logSum, from, count, numHeads as number)]
        const places = [rows(first, from, count), rows(position, from, count)]
        const inputs = [rows(q, from, count, width), k!, v!, scores!, ...places]
        return [...outputs, ...inputs, count, numHeads!, numKeyHeads!, headWidth!]
      },
      outputs: ([, , , , , , , , , numHeads, , headWidth]) => [
        [0, (numHeads as number) * (headWidth as number)],
        [1, numHeads as number],
      ],
    },
    60,
  )

  test.each(all)('keys before a sequence and after a row are never looked at (%s)', (build) => {
    const bench = new Bench(build)
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 31 }), (seed) => {
        const given = forward(new Numbers(seed), 1)
        const [out, logSum, q, k, v, scores, first, position, ...sizes] = given
        const width = k.length / KEYS
        const [begin, end] = [first[0]! * width, (first[0]! + position[0]! + 1) * width]
        const hide = (column: Float32Array) => column.map((x, i) => (i >= begin && i < end ? x : Number.NaN))
        const hidden = bench.call('attentionForward', [
          ...[out, logSum, q, hide(k), hide(v), scores, first, position],
          ...sizes,
        ])
        const wanted = bench.call('attentionForward', [...given])
        expect(hidden.columns.slice(0, 2)).toEqual(wanted.columns.slice(0, 2))
        expect(hidden.columns[0]!.some(Number.isNaN)).toBe(false)
      }),
      { numRuns: RUNS },
    )
  })
})

describe('vocabulary', () => {
  const distribution = (numbers: Numbers, numRows: number) => {
    const size = [1, 3, 4, 63, 64, 65, 200][numbers.whole(0, 6)]!
    const spread = [1e-3, 1, 10][numbers.whole(0, 2)]!
    const each = () => new Float32Array(numRows)
    return {
      ...{ size, logits: numbers.floats(numRows * size, -spread, spread), each },
      ...{ target: numbers.wholes(numRows, 0, size - 1), inverse: Math.fround(numbers.uniform(0.5, 2)) },
    }
  }
  const sums = (numbers: Numbers, numRows: number): Argument[] => {
    const { size, logits, each, target, inverse } = distribution(numbers, numRows)
    return [each(), each(), each(), each(), logits, target, inverse, numRows, 0, size]
  }
  const evaluated = (numbers: Numbers, numRows: number): Argument[] => {
    const { columns } = new Bench('plain').call('sumVocabulary', sums(numbers, numRows))
    return [new Float32Array(numRows), new Float32Array(numRows), ...(columns.slice(0, 4) as Column[]), numRows]
  }
  const backward = (numbers: Numbers, numRows: number): Argument[] => {
    const { size, logits, each, target, inverse } = distribution(numbers, numRows)
    const [max, sum, weighted, targetLogit, logprob, entropy] = [each(), each(), each(), each(), each(), each()]
    plain.sumVocabulary(max, sum, weighted, targetLogit, logits, target, inverse, numRows, 0, size)
    plain.evaluateVocabulary(logprob, entropy, max, sum, weighted, targetLogit, numRows)
    const [dLogprob, dEntropy] = [numbers.floats(numRows), numbers.floats(numRows)]
    return [logits, dLogprob, dEntropy, entropy, max, sum, target, inverse, numRows, 0, size]
  }
  const tolerance = { relative: 3e-6, scale: 8 }
  matches('sumVocabulary', (numbers) => sums(numbers, numbers.whole(0, 9)), tolerance)
  matches('evaluateVocabulary', (numbers) => evaluated(numbers, numbers.whole(0, 9)), tolerance)
  matchesRelaxed('sampleVocabulary', (numbers) => {
    const [numRows, count] = [numbers.whole(0, 9), [1, 5, 64, 70, 200][numbers.whole(0, 4)]!]
    const [token, targetLogit, logits] = [
      new Int32Array(numRows),
      new Float32Array(numRows),
      numbers.floats(numRows * count),
    ]
    const sums = [new Float32Array(numRows).fill(1), numbers.floats(numRows, 0.1, count), numbers.floats(numRows, 0, 1)]
    return [token, targetLogit, logits, ...sums, numbers.uniform(0.5, 2), numRows, count]
  })
  matches('vocabularyBackward', (numbers) => backward(numbers, numbers.whole(0, 9)), tolerance)
  matches(
    'modeOfVocabulary',
    (numbers) => {
      const numRows = numbers.whole(0, 9)
      const { size, logits, inverse } = distribution(numbers, numRows)
      return [new Int32Array(numRows), new Float32Array(numRows), logits.map(Math.round), inverse, numRows, size]
    },
    { relative: 1e-7 },
  )

  ignoresCompany(
    'sumVocabulary',
    {
      make: sums,
      part([max, sum, weighted, targetLogit, logits, target, inverse, , first, size], from, count) {
        const outputs = [max, sum, weighted, targetLogit].map((column) => rows(column, from, count))
        const inputs = [rows(logits, from, count, size as number), rows(target, from, count)]
        return [...outputs, ...inputs, inverse!, count, first!, size!]
      },
      outputs: () => [0, 1, 2, 3].map((argument) => [argument, 1]),
    },
    60,
  )

  test.each(all)('logits in chunks give the bits of the whole (%s)', (build) => {
    const bench = new Bench(build)
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 31 }), (seed) => {
        const numbers = new Numbers(seed)
        const size = numbers.whole(1, 5 * VOCABULARY_STEP)
        const [logits, each] = [numbers.floats(size, -9, 9), new Float32Array(1)]
        const target = numbers.wholes(1, 0, size - 1)
        const whole = bench.call('sumVocabulary', [each, each, each, each, logits, target, 0.8, 1, 0, size])
        let state: Column[] = [each, each, each, each]
        const chunk = VOCABULARY_STEP * numbers.whole(1, 3)
        for (let first = 0; first < size; first += chunk) {
          const part = logits.slice(first, first + chunk)
          const call = bench.call('sumVocabulary', [...state, part, target, 0.8, 1, first, part.length])
          state = call.columns.slice(0, 4) as Column[]
        }
        expect(state).toEqual(whole.columns.slice(0, 4))
      }),
      { numRuns: RUNS },
    )
  })

  test.each(all)('logprob and entropy are those of the softmax, and their gradient its own (%s)', (build) => {
    const bench = new Bench(build)
    const logits = new Numbers(3).floats(100, -4, 4)
    const [target, inverse, byLogprob, byEntropy] = [17, 0.7, 0.3, -1.2]
    const softmax = (z: readonly number[]) => {
      const total = z.reduce((sum, x) => sum + Math.exp(x * inverse), 0)
      const logp = z.map((x) => x * inverse - Math.log(total))
      return { logprob: logp[target]!, entropy: -logp.reduce((sum, x) => sum + Math.exp(x) * x, 0) }
    }
    const each = new Float32Array(1)
    const state = bench
      .call('sumVocabulary', [each, each, each, each, logits, Int32Array.of(target), inverse, 1, 0, 100])
      .columns.slice(0, 4) as Column[]
    const [logprob, entropy] = bench.call('evaluateVocabulary', [each, each, ...state, 1]).columns
    const wanted = softmax([...logits])
    expect(logprob![0]).toBeCloseTo(wanted.logprob, 5)
    expect(entropy![0]).toBeCloseTo(wanted.entropy, 5)
    const [max, sum] = state
    const derivatives = [Float32Array.of(byLogprob), Float32Array.of(byEntropy), entropy!]
    const [gradient] = bench.call('vocabularyBackward', [
      ...[logits, ...derivatives, max!, sum!, Int32Array.of(target)],
      ...[inverse, 1, 0, 100],
    ]).columns
    for (const j of [0, target, 99]) {
      const loss = (step: number) => {
        const { logprob, entropy } = softmax([...logits].map((x, i) => (i === j ? x + step : x)))
        return byLogprob * logprob + byEntropy * entropy
      }
      expect(gradient![j]).toBeCloseTo((loss(1e-4) - loss(-1e-4)) / 2e-4, 5)
    }
  })

  test.each(all)('samples are tokens by their probabilities, and never one of probability 0 (%s)', (build) => {
    const bench = new Bench(build)
    const logits = Float32Array.of(-2000, 0, Math.log(2), -2000, Math.log(5), -2000)
    const [max, sum] = [Float32Array.of(Math.log(5)), Float32Array.of(8 / 5)]
    const choose = (uniform: number) => {
      const given = [new Int32Array(1), new Float32Array(1), logits, max, sum, Float32Array.of(uniform), 1, 1, 6]
      const [token, targetLogit] = bench.call('sampleVocabulary', given).columns
      expect(targetLogit![0]).toBe(logits[token![0]!])
      return token![0]
    }
    expect([0, 0.12, 0.13, 0.37, 0.38, 1 - 2 ** -24].map(choose)).toEqual([1, 1, 2, 2, 4, 4])
    // Rounding may leave the threshold above every sum: the last possible token it is.
    sum[0] = 1.7
    expect(choose(1 - 2 ** -24)).toBe(4)
  })
})

describe('weights in 8 bits', () => {
  const bytes = (numbers: Numbers): Argument[] => {
    const [numRows, width] = [numbers.whole(0, 9), [1, 7, 16, 17, 40][numbers.whole(0, 4)]!]
    const [x, values] = [numbers.floats(numRows * width, -3, 3), new Uint8Array(numRows * width)]
    const scale = new Float32Array(numRows)
    strict(quantizeRows)(values, scale, x, numRows, width)
    return [new Float32Array(x.length), values, scale, numRows, width]
  }
  matches('dequantizeRows', bytes, { relative: 0 })

  /** `few`: rows, columns and depth at which native bodies read the bytes alone; else any. */
  const product = (numbers: Numbers, few: boolean): Argument[] => {
    const numRows = numbers.whole(1, few ? 9 : 20)
    const [numColumns, depth] = few
      ? [16 * numbers.whole(1, 5), 4 * numbers.whole(1, 20)]
      : [widthOf(numbers), widthOf(numbers)]
    const [weights, scale] = [numbers.floats(numColumns * depth, -3, 3), new Float32Array(numColumns)]
    const values = new Uint8Array(weights.length)
    strict(quantizeRows)(values, scale, weights, numColumns, depth)
    const accumulate = numbers.whole(0, 1) === 1
    const bias = numbers.floats(numbers.whole(0, 1) * numColumns)
    const [c, a] = [numbers.floats(numRows * numColumns), numbers.floats(numRows * depth)]
    const workspace = [new Float32Array(weights.length), new Float32Array(MATMUL_SCRATCH)] as const
    return [c, a, values, scale, bias, ...workspace, numRows, numColumns, depth, accumulate]
  }
  const loose = { relative: 2e-5, scale: 20, workspace: [5, 6] }
  matches('matmulQuantized', (numbers) => product(numbers, false), loose, RUNS / 6)
  describe('few rows', () => matches('matmulQuantized', (numbers) => product(numbers, true), loose, RUNS / 6))

  test.each(all)('a product with them has the bits of one with what they stand for (%s)', (build) => {
    const bench = new Bench(build)
    for (const numRows of [1, 2, 5, 8, 9]) {
      const given = product(new Numbers(numRows), true)
      const [c, a, values, scale, bias, dequantized, scratch, , numColumns, depth, accumulate] = given
      const sizes = [((a as Float32Array).length / (depth as number)) | 0, numColumns!, depth!] as const
      const rows = [dequantized!, values!, scale!, numColumns!, depth!] as const
      const whole = bench.call('dequantizeRows', [...rows]).columns[0]!
      const expected = bench.call('matmul', [c!, a!, whole, bias!, scratch!, ...sizes, false, true, accumulate!])
      expect(bench.call('matmulQuantized', given).columns[0]).toEqual(expected.columns[0])
    }
  })

  test('are each within half a step of what they were, a 254th of the largest in the row', () => {
    const [x, values, scale] = [new Numbers(3).floats(5 * 33, -2, 2), new Uint8Array(5 * 33), new Float32Array(5)]
    x.fill(0, 66, 99)
    strict(quantizeRows)(values, scale, x, 5, 33)
    const back = new Float32Array(5 * 33)
    plain.dequantizeRows(back, values, scale, 5, 33)
    for (let row = 0; row < 5; row++) {
      const largest = Math.max(...x.subarray(row * 33, (row + 1) * 33).map(Math.abs))
      for (let i = row * 33; i < (row + 1) * 33; i++) {
        expect(Math.abs(back[i]! - x[i]!)).toBeLessThanOrEqual((largest / 254) * (1 + 1e-5))
      }
      const place = x.subarray(row * 33, (row + 1) * 33).findIndex((value) => Math.abs(value) === largest)
      expect(back[row * 33 + place]).toBeCloseTo(x[row * 33 + place]!, 4)
    }
    expect(back.subarray(66, 99)).toEqual(new Float32Array(33))
  })
})

describe('products of whole numbers', () => {
  /** Inputs of blocks that are whole, short, all zeros, and too small for a scale. */
  const inputs = (numbers: Numbers, numRows: number, width: number): Float32Array => {
    const x = numbers.floats(numRows * width, -3, 3)
    if (numbers.uniform() < 0.3) x.fill(0, 0, Math.min(x.length, 40))
    if (numbers.uniform() < 0.3) x.fill(1e-36, Math.max(0, x.length - 20))
    return x
  }
  const rounded = (numbers: Numbers): Argument[] => {
    const [numRows, width] = [numbers.whole(0, 9), [1, 7, 16, 31, 32, 33, 64, 80][numbers.whole(0, 7)]!]
    const blocks = numRows * Math.ceil(width / INPUT_BLOCK)
    const [input, inputScale] = [new Uint8Array(blocks * INPUT_BLOCK), new Float32Array(blocks)]
    return [input, inputScale, inputs(numbers, numRows, width), numRows, width]
  }
  matches('quantizeInputs', rounded, { relative: 0 })

  const product = (numbers: Numbers, numRows: number): Argument[] => {
    const numColumns = [1, 7, 16, 33, 48][numbers.whole(0, 4)]!
    const depth = [4, 9, 16, 32, 36, 64, 80][numbers.whole(0, 6)]!
    const [weights, scale] = [numbers.floats(numColumns * depth, -3, 3), new Float32Array(numColumns)]
    const values = new Uint8Array(weights.length)
    strict(quantizeRows)(values, scale, weights, numColumns, depth)
    const blocks = numRows * Math.ceil(depth / INPUT_BLOCK)
    const [input, inputScale] = [new Uint8Array(blocks * INPUT_BLOCK), new Float32Array(blocks)]
    plain.quantizeInputs(input, inputScale, inputs(numbers, numRows, depth), numRows, depth)
    const [c, bias] = [numbers.floats(numRows * numColumns), numbers.floats(numbers.whole(0, 1) * numColumns)]
    const accumulate = numbers.uniform() < 0.5
    return [c, input, inputScale, values, scale, bias, numRows, numColumns, depth, accumulate]
  }
  matches('matmulIntegers', (numbers) => product(numbers, numbers.whole(1, 18)), { relative: 0 }, RUNS / 3)
  ignoresCompany(
    'matmulIntegers',
    {
      make: product,
      part([c, input, inputScale, values, scale, bias, , numColumns, depth, accumulate], first, count) {
        const blocks = Math.ceil((depth as number) / INPUT_BLOCK)
        const some = [rows(c, first, count, numColumns as number), rows(input, first, count, blocks * INPUT_BLOCK)]
        const factors = rows(inputScale, first, count, blocks)
        return [...some, factors, values!, scale!, bias!, count, numColumns!, depth!, accumulate!]
      },
      outputs: ([, , , , , , , numColumns]) => [[0, numColumns as number]],
    },
    RUNS / 6,
  )

  test.each(all)('are those of what the bytes stand for, largest bytes too (%s)', (build) => {
    const bench = new Bench(build)
    for (const depth of [16, 40, 4096]) {
      const [numRows, numColumns] = [3, 16]
      const [x, weights] = [new Numbers(depth).floats(numRows * depth), new Numbers(7).floats(numColumns * depth)]
      x.subarray(0, depth).fill(-2)
      weights.subarray(0, depth).fill(-1)
      const blocks = Math.ceil(depth / INPUT_BLOCK)
      const [values, scale] = [new Uint8Array(weights.length), new Float32Array(numColumns)]
      strict(quantizeRows)(values, scale, weights, numColumns, depth)
      const given = [new Uint8Array(numRows * blocks * INPUT_BLOCK), new Float32Array(numRows * blocks), x]
      const [input, inputScale] = bench.call('quantizeInputs', [...given, numRows, depth]).columns as [
        Uint8Array,
        Float32Array,
      ]
      const none = new Float32Array(0)
      const c = new Float32Array(numRows * numColumns)
      const call = [c, input, inputScale, values, scale, none, numRows, numColumns, depth, false]
      const [got] = bench.call('matmulIntegers', call).columns
      expect(got![0]).toBeCloseTo(2 * depth, 2)
      for (let row = 0; row < numRows; row++) {
        const at = row * blocks * INPUT_BLOCK
        const stands = (k: number) => ((input[at + k]! << 24) >> 24) * inputScale[row * blocks + (k >> 5)]!
        const apart = Array.from({ length: depth }, (_, k) => Math.abs(stands(k) - x[row * depth + k]!))
        // Half a step of the block's largest, which is at most 2.
        expect(Math.max(...apart)).toBeLessThanOrEqual((1 + 1e-5) / 127)
        for (let column = 0; column < numColumns; column++) {
          let sum = 0
          for (let k = 0; k < depth; k++) {
            sum += stands(k) * ((values[column * depth + k]! << 24) >> 24) * scale[column]!
          }
          expect(Math.abs(got![row * numColumns + column]! - sum)).toBeLessThan(1e-5 * depth)
        }
      }
    }
  })

  test.each(all)('a row with a number that is not finite comes to NaN, and no other does (%s)', (build) => {
    const bench = new Bench(build)
    for (const fault of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
      const x = new Float32Array(2 * 64).fill(1)
      x[70] = fault
      const given = [new Uint8Array(128), new Float32Array(4), x, 2, 64]
      const [input, inputScale] = bench.call('quantizeInputs', given).columns
      expect([...inputScale!].map(Number.isNaN)).toEqual([false, false, true, false])
      const [values, scale] = [new Uint8Array(16 * 64).fill(1), new Float32Array(16).fill(1)]
      const c = new Float32Array(32)
      const call = [c, input!, inputScale!, values, scale, new Float32Array(0), 2, 16, 64, false]
      const [got] = bench.call('matmulIntegers', call).columns
      expect([...got!].map(Number.isNaN)).toEqual([...Array(16).fill(false), ...Array(16).fill(true)])
    }
  })
})

describe('cache', () => {
  matches(
    'placeRows',
    (numbers) => {
      const [count, width] = [numbers.whole(0, 9), widthOf(numbers)]
      const places = Int32Array.from({ length: count }, (_, i) => (i * 7) % 30)
      return [numbers.floats(30 * width), numbers.floats(count * width), places, count, width]
    },
    { relative: 0 },
  )
})
