import { describe, expect, test } from 'vitest'
import {
  Activation,
  Combination,
  Comparison,
  convolutionScratch,
  createKernels,
  ElementMap,
  gruScratch,
  lstmScratch,
  MATMUL_SCRATCH,
} from '../../src/kernels/bind.ts'
import type { KernelBuild, Kernels } from '../../src/kernels/kernels.ts'
import * as fc from '../support/properties.ts'
import { type Argument, Bench, type Column, Numbers } from './calls.ts'
import { builds, expectClose, ignoresCompany, levels, matches, numRowsOf, plain, RUNS, rows, widthOf } from './laws.ts'

describe('binding', () => {
  test('a build that does not exist is refused by name', () => {
    const memory = new WebAssembly.Memory({ initial: 1 })
    expect(() => createKernels(memory, 'fast' as KernelBuild)).toThrow(
      'kernels: got "fast", expected best, or one of plain',
    )
  })

  test.each(builds)(
    'every kernel has a SIMD body, but those over tokens, groups, candidate sets, adapters, experts, parts of some families, gathered rows of quantized weights, stale, replayed and few rows (%s)',
    (build) => {
      const memory = new WebAssembly.Memory({ initial: 1 })
      const [bodies, compiled] = [createKernels(memory, 'plain'), createKernels(memory, build)]
      const names = Object.keys(bodies) as (keyof Kernels)[]
      expect(names.filter((name) => compiled[name] === bodies[name]).sort()).toEqual([
        ...[
          'activationBackward',
          'activationForward',
          'addActionNoise',
          'addLoad',
          'addShares',
          'addSharesBackward',
          'beginEpisodes',
          'capBackward',
          'capElements',
          'cappedBackward',
          'cappedForward',
          'cappedOfHalves',
          'changeVocabulary',
          'chooseByValue',
          'chooseExperts',
          'chooseExpertsBackward',
          'chosenBackward',
          'correctionWeights',
          'crossEntropyLoss',
        ],
        ...[
          'drawReplayNormal',
          'drawReplayUniform',
          'dropElements',
          'duelingForward',
          'evaluateByValue',
          'gatherBf16',
          'gatherNext',
          'gatherQuantized',
          'gatherQuantized4',
          'groupAdvantage',
        ],
        ...[
          'importanceWeights',
          'joinActions',
          'klPenalty',
          'listByExpert',
          'listReplayable',
          'maskVocabulary',
          'multiStepReturns',
          'noisyEvaluate',
          'overlongPenalty',
        ],
        ...[
          'policyLoss',
          'readRunning',
          'relabelGoals',
          'restrictVocabulary',
          'ropePart',
          'scaleElements',
          'scatterValues',
          'selectCandidates',
        ],
        ...[
          'shrinkActions',
          'sigmoidBackward',
          'sigmoidForward',
          'spreadActions',
          'spreadAdvantage',
          'squashedBackward',
          'squashedEvaluate',
          'squashedSample',
        ],
        ...[
          'stretchActions',
          'tanhBackward',
          'tdLoss',
          'tokenGae',
          'tokenRewards',
          'valueLoss',
          'valueOfBest',
          'weighAdvantages',
        ],
        ...['whitenTokens'],
      ])
      expect(Object.keys(compiled)).toEqual(names)
    },
  )

  test.each(builds)(
    'a product and its sum are rounded once in the relaxed build, and apart in the other (%s)',
    (build) => {
      const a = 1 + 2 ** -12
      const y = Float32Array.of(7)
      const given = [y, Float32Array.of(a), Float32Array.of(a), Float32Array.of(-(1 + 2 ** -11)), 1, 1, 1, 0, 0, 0]
      const { columns } = new Bench(build).call('denseForward', given)
      expect([...columns[0]!]).toEqual([build === 'relaxed' ? 2 ** -24 : 0])
    },
  )

  test('a column outside the memory is refused', () => {
    const kernels = createKernels(new WebAssembly.Memory({ initial: 1 }), 'simd')
    expect(() => kernels.globalNorm(new Float32Array(4), 4)).toThrow('outside the memory')
  })

  test.each(builds)('unshared memory serves as shared memory does (%s)', (build) => {
    const numbers = new Numbers(1)
    const given = dense(numbers, 33, 9, 13, Activation.tanh)
    const shared = new Bench(build).call('denseForward', given)
    expect(new Bench(build, false).call('denseForward', given)).toEqual(shared)
  })
})

function dense(numbers: Numbers, rows: number, inputs: number, outputs: number, activation: number): Argument[] {
  const [yFrom, xFrom] = [numbers.whole(0, 3), numbers.whole(0, 3)]
  const y = numbers.floats((yFrom + rows) * outputs)
  const x = numbers.floats((xFrom + rows) * inputs, -2, 2)
  const weight = numbers.floats(inputs * outputs)
  return [y, x, weight, numbers.floats(outputs), rows, inputs, outputs, activation, yFrom, xFrom]
}

describe('dense', () => {
  matches(
    'denseForward',
    (numbers) => dense(numbers, numRowsOf(numbers), widthOf(numbers), widthOf(numbers), numbers.whole(0, 2)),
    { relative: 1e-5, scale: 8 },
    400,
  )

  ignoresCompany('denseForward', {
    make(numbers, numRows) {
      const [numInputs, numOutputs] = [widthOf(numbers), widthOf(numbers)]
      const y = new Float32Array(numRows * numOutputs)
      const weight = numbers.floats(numInputs * numOutputs)
      const x = numbers.floats(numRows * numInputs)
      return [y, x, weight, numbers.floats(numOutputs), numRows, numInputs, numOutputs, numbers.whole(0, 2), 0, 0]
    },
    part: ([y, x, weight, bias, , numInputs, numOutputs, activation], first, count) => {
      return [y!, x!, weight!, bias!, count, numInputs!, numOutputs!, activation!, 0, first]
    },
    outputs: ([, , , , , , numOutputs]) => [[0, numOutputs as number]],
  })

  test.each(builds)(
    'tanh is good to a few units in the last place, odd, never beyond 1, and NaN of NaN (%s)',
    (build) => {
      const numbers = new Numbers(5)
      const tiny = numbers.floats(1000, -1e-3, 1e-3)
      const x = Float32Array.of(...tiny, ...numbers.floats(3000, -10, 10), 0, 1e-40, 1e30, Number.POSITIVE_INFINITY)
      const given = Float32Array.of(...x, ...x.map((value) => -value), Number.NaN)
      const layer = [new Float32Array(given.length), given, Float32Array.of(1), Float32Array.of(0)]
      const y = new Bench(build).call('denseForward', [...layer, given.length, 1, 1, Activation.tanh, 0, 0]).columns[0]!
      for (const [i, value] of x.entries()) {
        const expected = Math.tanh(value)
        expect(Math.abs(y[i]! - expected)).toBeLessThanOrEqual(5e-7 * Math.abs(expected))
        expect(Math.abs(y[i]!)).toBeLessThanOrEqual(1)
        expect(y[x.length + i]).toBe(-y[i]! + 0)
      }
      expect(y.at(-1)).toBeNaN()
    },
  )

  matches(
    'denseBackwardWeights',
    (numbers) => {
      const [rows, inputs, outputs] = [numRowsOf(numbers), widthOf(numbers), widthOf(numbers)]
      const xFrom = numbers.whole(0, 3)
      const dWeight = numbers.floats(inputs * outputs)
      const dBias = numbers.floats(outputs)
      const dy = numbers.floats(rows * outputs)
      return [dWeight, dBias, dy, numbers.floats((xFrom + rows) * inputs), rows, inputs, outputs, xFrom]
    },
    { relative: 1e-5, scale: 8 },
    400,
  )

  matches(
    'denseBackwardInput',
    (numbers) => {
      const [rows, inputs, outputs] = [numRowsOf(numbers), widthOf(numbers), widthOf(numbers)]
      const weight = numbers.floats(inputs * outputs)
      const workspace = numbers.floats((outputs + 1) * inputs)
      const [dx, dy, x] = [numbers.floats(rows * inputs), numbers.floats(rows * outputs), numbers.floats(rows * inputs)]
      return [dx, dy, weight, workspace, x, rows, inputs, outputs, numbers.uniform() < 0.5, numbers.whole(0, 2)]
    },
    { relative: 1e-5, scale: 8, workspace: [3] },
    400,
  )

  ignoresCompany('denseBackwardInput', {
    make(numbers, numRows) {
      const [numInputs, numOutputs] = [widthOf(numbers), widthOf(numbers)]
      const weight = numbers.floats(numInputs * numOutputs)
      const workspace = new Float32Array((numOutputs + 1) * numInputs)
      const [dx, x] = [numbers.floats(numRows * numInputs), numbers.floats(numRows * numInputs)]
      const dy = numbers.floats(numRows * numOutputs)
      const [accumulate, activation] = [numbers.uniform() < 0.5, numbers.whole(0, 2)]
      return [dx, dy, weight, workspace, x, numRows, numInputs, numOutputs, accumulate, activation]
    },
    part([dx, dy, weight, workspace, x, , numInputs, numOutputs, ...how], first, count) {
      const [some, outputs] = [dx, x].map((column) => rows(column, first, count, numInputs as number))
      const gradients = rows(dy, first, count, numOutputs as number)
      return [some!, gradients, weight!, workspace!, outputs!, count, numInputs!, numOutputs!, ...how]
    },
    outputs: ([, , , , , , numInputs]) => [[0, numInputs as number]],
  })
})

describe('convolution', () => {
  /** Sizes at which a body may turn, the columns by name, and the workspace. */
  const drawn = (numbers: Numbers, numRows: number) => {
    const side = () => numbers.whole(1, numRows > 40 ? 3 : 12)
    const [height, width, channels, kernelSize] = [side(), side(), numbers.whole(1, 9), numbers.whole(1, 5)]
    const filters = numRows > 40 ? numbers.whole(1, 5) : widthOf(numbers)
    const image = { height, width, channels, filters, kernelSize }
    const pixels = height * width
    return {
      sizes: Object.values(image),
      x: (count: number) => numbers.floats(count * pixels * channels),
      y: (count: number) => numbers.floats(count * pixels * filters),
      weight: numbers.floats(kernelSize ** 2 * channels * filters),
      bias: numbers.floats(filters),
      workspace: numbers.floats(convolutionScratch(image)),
    }
  }
  const rowsOf = (numbers: Numbers) => numbers.whole(0, 3)

  matches(
    'convolutionForward',
    (numbers) => {
      const [numRows, xFrom] = [rowsOf(numbers), numbers.whole(0, 2)]
      const { sizes, x, y, weight, bias, workspace } = drawn(numbers, numRows)
      return [y(numRows), x(xFrom + numRows), weight, bias, workspace, ...sizes, numRows, xFrom]
    },
    { relative: 1e-5, scale: 8, workspace: [4] },
    200,
  )
  matches(
    'convolutionBackwardWeights',
    (numbers) => {
      const [numRows, xFrom] = [rowsOf(numbers), numbers.whole(0, 2)]
      const { sizes, x, y, weight, bias, workspace } = drawn(numbers, numRows)
      return [weight, bias, y(numRows), x(xFrom + numRows), workspace, ...sizes, numRows, xFrom]
    },
    { relative: 1e-5, scale: 8, workspace: [4] },
    200,
  )
  matches(
    'convolutionBackwardInput',
    (numbers) => {
      const numRows = rowsOf(numbers)
      const { sizes, x, y, weight, workspace } = drawn(numbers, numRows)
      return [x(numRows), y(numRows), weight, workspace, x(numRows), ...sizes, numRows]
    },
    { relative: 1e-5, scale: 8, workspace: [3] },
    200,
  )

  const widthIn = (given: readonly Argument[], channels: number) =>
    [5, 6, channels].reduce((product, place) => product * (given[place] as number), 1)
  ignoresCompany(
    'convolutionForward',
    {
      make(numbers, numRows) {
        const { sizes, x, y, weight, bias, workspace } = drawn(numbers, numRows)
        return [y(numRows), x(numRows), weight, bias, workspace, ...sizes, numRows, 0]
      },
      part: (given, first, count) => given.with(-2, count).with(-1, first),
      outputs: (given) => [[0, widthIn(given, 8)]],
    },
    40,
  )
  ignoresCompany(
    'convolutionBackwardInput',
    {
      make(numbers, numRows) {
        const { sizes, x, y, weight, workspace } = drawn(numbers, numRows)
        return [x(numRows), y(numRows), weight, workspace, x(numRows), ...sizes, numRows]
      },
      part(given, first, count) {
        const [inputs, outputs] = [widthIn(given, 7), widthIn(given, 8)]
        const parts = [0, 1, 4].map((index) => rows(given[index], first, count, index === 1 ? outputs : inputs))
        return given.with(0, parts[0]!).with(1, parts[1]!).with(4, parts[2]!).with(-1, count)
      },
      outputs: (given) => [[0, widthIn(given, 7)]],
    },
    40,
  )
})

describe('matmul', () => {
  /** C, A, B, bias, scratch; the sizes; which sides lie transposed; and whether C is added to. */
  const product = (numbers: Numbers, numRows: number, numColumns: number, depth: number): Argument[] => {
    const bias = numbers.uniform() < 0.5 ? numbers.floats(numColumns) : new Float32Array(0)
    const sides = [numbers.uniform() < 0.5, numbers.uniform() < 0.5, numbers.uniform() < 0.3]
    const [a, b] = [numbers.floats(numRows * depth), numbers.floats(depth * numColumns)]
    const scratch = new Float32Array(MATMUL_SCRATCH)
    return [numbers.floats(numRows * numColumns), a, b, bias, scratch, numRows, numColumns, depth, ...sides]
  }

  matches(
    'matmul',
    (numbers) => product(numbers, numRowsOf(numbers), widthOf(numbers), numbers.whole(0, 40)),
    { relative: 1e-5, scale: 8, workspace: [4] },
    400,
  )

  matches(
    'matmul',
    (numbers) => {
      // Beyond one part of B: 256 of the depth, 512 columns, and 96 rows of A.
      const depth = [255, 256, 257, 520][numbers.whole(0, 3)]!
      return product(numbers, numbers.whole(1, 103), [7, 131, 515, 1030][numbers.whole(0, 3)]!, depth)
    },
    { relative: 2e-5, scale: 8, workspace: [4] },
    20,
  )

  ignoresCompany('matmul', {
    make(numbers, numRows) {
      const given = product(numbers, numRows, widthOf(numbers), [3, 64, 257][numbers.whole(0, 2)]!)
      given[8] = false // Rows of a transposed A lie across it.
      return given
    },
    part([c, a, b, bias, scratch, , numColumns, depth, ...sides], first, count) {
      const [some, rowsOfA] = [rows(c, first, count, numColumns as number), rows(a, first, count, depth as number)]
      return [some, rowsOfA, b!, bias!, scratch!, count, numColumns!, depth!, ...sides]
    },
    outputs: ([, , , , , , numColumns]) => [[0, numColumns as number]],
  })
})

describe('elements', () => {
  const bounds = {
    [ElementMap.tanh]: 10,
    [ElementMap.exp]: 20,
    [ElementMap.log]: 1e6,
    [ElementMap.softplus]: 30,
    [ElementMap.erf]: 5,
  } as const

  for (const [name, map] of Object.entries(ElementMap)) {
    matches(
      'mapElements',
      (numbers) => {
        const [length, bound] = [numRowsOf(numbers), bounds[map]]
        const x = numbers.floats(length, map === ElementMap.log ? 1e-3 : -bound, bound)
        // Softplus and the exponential of what is far below 0 are small: their digits count, not their distance.
        return [new Float32Array(length), x, map, length]
      },
      { relative: 2e-6, scale: name === 'exp' || name === 'softplus' ? 0 : 1 },
    )
  }

  test.each(builds)('of the ends of f32 are what they are in the plain body (%s)', (build) => {
    const x = Float32Array.of(0, -0, 1e-45, -1e-45, 1e-38, 88.5, 89, 200, -87, -100, -200, 3.4e38, -3.4e38)
    const ends = Float32Array.of(...x, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NaN, 1)
    for (const map of Object.values(ElementMap)) {
      const given: Argument[] = [new Float32Array(ends.length), ends, map, ends.length]
      const [got, wanted] = [new Bench(build).call('mapElements', given), plain.call('mapElements', given)]
      expectClose(`mapElements ${map}`, got, wanted, { relative: 2e-6, scale: 1e-37 })
    }
  })

  /** Two operands, of which each is whole, one row, one column or one element. */
  const pair = (numbers: Numbers, out: Column, kind: number): Argument[] => {
    const [numRows, width] = [numRowsOf(numbers) % 32, widthOf(numbers)]
    const operand = () => {
      const [row, step] = [numbers.whole(0, 1) * width, numbers.whole(0, 1)]
      const values = numbers.floats(numRows * width + 1).map((value) => Math.round(value * 3))
      return { values: values.map((value, i) => (i === 5 ? Number.NaN : value)), row, step }
    }
    const [a, b] = [operand(), operand()]
    const Written = out.constructor as new (length: number) => Column
    const into = new Written(numRows * width)
    return [into, a.values, b.values, kind, numRows, width, a.row, a.step, b.row, b.step]
  }
  for (const combination of Object.values(Combination)) {
    matches('combineRows', (numbers) => pair(numbers, new Float32Array(), combination), { relative: 0 })
  }
  for (const comparison of Object.values(Comparison)) {
    matches('compareRows', (numbers) => pair(numbers, new Uint8Array(), comparison), { relative: 0 })
  }

  matches(
    'selectElements',
    (numbers) => {
      const length = numRowsOf(numbers)
      const [a, b] = [numbers.floats(length), numbers.floats(length)]
      return [new Float32Array(length), numbers.flags(length, 0.5), a, b, length]
    },
    { relative: 0 },
  )

  matches(
    'flagsToFloats',
    (numbers) => {
      const length = numRowsOf(numbers)
      return [new Float32Array(length), numbers.flags(length, 0.5), length]
    },
    { relative: 0 },
  )
})

describe('layout', () => {
  matches(
    'transposeMatrices',
    (numbers) => {
      const [count, height, width] = [numbers.whole(0, 3), widthOf(numbers), widthOf(numbers)]
      const size = count * height * width
      return [new Float32Array(size), numbers.floats(size), count, height, width]
    },
    { relative: 0 },
  )

  matches(
    'copyRows',
    (numbers) => {
      const [count, width] = [numRowsOf(numbers), widthOf(numbers)]
      const [outRow, xRow] = [width + numbers.whole(0, 3), width + numbers.whole(0, 3)]
      const [outFrom, xFrom] = [numbers.whole(0, 5), numbers.whole(0, 5)]
      const [out, x] = [numbers.floats(outFrom + count * outRow), numbers.floats(xFrom + count * xRow)]
      return [out, x, count, width, outRow, xRow, outFrom, xFrom]
    },
    { relative: 0 },
  )

  matches(
    'sumMiddle',
    (numbers) => {
      const [count, depth, width] = [numbers.whole(0, 3), numRowsOf(numbers), widthOf(numbers)]
      return [new Float32Array(count * width), numbers.floats(count * depth * width), count, depth, width]
    },
    { relative: 1e-5 },
  )

  matches(
    'addToSegments',
    (numbers) => {
      const [numRows, width, numSegments] = [numRowsOf(numbers), widthOf(numbers), numbers.whole(1, 6)]
      const [sums, x] = [numbers.floats(numSegments * width), numbers.floats(numRows * width)]
      return [sums, x, numbers.wholes(numRows, -1, numSegments), numRows, width, numSegments]
    },
    { relative: 1e-5 },
  )

  /** Patches, images, and the fourteen numbers of a convolution of them. */
  const patches = (numbers: Numbers): Argument[] => {
    const [height, width, channels] = [numbers.whole(1, 7), numbers.whole(1, 7), widthOf(numbers) % 13]
    const count = numbers.whole(0, 3)
    const [filterHeight, filterWidth] = [numbers.whole(1, 3), numbers.whole(1, 3)]
    const steps = Array.from({ length: 4 }, () => numbers.whole(1, 2))
    const [padTop, padLeft] = [numbers.whole(0, 2), numbers.whole(0, 2)]
    const [outHeight, outWidth] = [numbers.whole(0, 6), numbers.whole(0, 6)]
    const rowsOfPatches = numbers.floats(count * outHeight * outWidth * filterHeight * filterWidth * channels)
    const sizes = [count, height, width, channels, outHeight, outWidth, filterHeight, filterWidth]
    return [rowsOfPatches, numbers.floats(count * height * width * channels), ...sizes, ...steps, padTop, padLeft]
  }
  matches('unfoldPatches', patches, { relative: 0 })
  matches(
    'addDepthwise',
    (numbers) => {
      const [, images, count, height, width, channels, ...sizes] = patches(numbers)
      const [multiplier, outHeight, outWidth] = [numbers.whole(1, 3), sizes[0] as number, sizes[1] as number]
      const outChannels = multiplier * (channels as number)
      const outputs = numbers.floats((count as number) * outHeight * outWidth * outChannels)
      const filter = numbers.floats((sizes[2] as number) * (sizes[3] as number) * outChannels)
      return [outputs, images!, filter, numbers.whole(0, 2), multiplier, count!, height!, width!, channels!, ...sizes]
    },
    { relative: 1e-5 },
  )
  matches(
    'foldPatches',
    (numbers) => {
      const [rowsOfPatches, images, ...sizes] = patches(numbers)
      return [images!, rowsOfPatches!, ...sizes]
    },
    { relative: 1e-6 },
  )
})

/** State columns, observation, reward, flags and pushes of carts. */
function carts(numbers: Numbers, numLanes: number): Argument[] {
  const state = [2.6, 3, 0.25, 3].map((bound) => numbers.floats(numLanes, -bound, bound))
  const written = [new Float32Array(4 * numLanes), new Float32Array(numLanes), new Uint8Array(numLanes)]
  return [...state, ...written, numbers.wholes(numLanes, 0, 1), 0, numLanes]
}

describe('recurrent', () => {
  for (const [cell, numGates, numKept, states] of [
    ['gru', 3, 4, 1],
    ['lstm', 4, 5, 2],
  ] as const) {
    /** Arguments for either direction; `continues` and `carried` are at times of no elements. Many lanes have few steps. */
    const drawn = (numbers: Numbers, numLanes: number) => {
      const [length, units] = numLanes > 100 ? [2, numbers.whole(1, 9)] : [numbers.whole(1, 5), numbers.whole(1, 18)]
      const width = states * units
      const flags = numbers.flags(numbers.uniform() < 0.2 ? 0 : numLanes * length, 0.8)
      return {
        after: numbers.floats(numLanes * length * width),
        gates: numbers.floats(numLanes * length * numKept * units, 0, 1),
        x: numbers.floats(numLanes * length * numGates * units, -3, 3),
        dAfter: numbers.floats(numLanes * length * width),
        weight: numbers.floats(units * numGates * units),
        bias: numbers.floats(numGates * units),
        begins: [
          numbers.floats(numLanes * length * width),
          Float32Array.from(flags),
          numbers.floats(numbers.uniform() < 0.3 ? 0 : numLanes * width),
        ],
        scratch: new Float32Array((numGates === 3 ? gruScratch : lstmScratch)(numLanes, length, units)),
        sizes: [numLanes, length, units],
      }
    }
    const forward = (numbers: Numbers, numLanes: number): Argument[] => {
      const { after, gates, x, weight, bias, begins, scratch, sizes } = drawn(numbers, numLanes)
      return [after, gates, x, weight, bias, ...begins, scratch, ...sizes]
    }
    const backward = (numbers: Numbers, numLanes: number): Argument[] => {
      const { x, after, gates, dAfter, weight, bias, begins, scratch, sizes } = drawn(numbers, numLanes)
      return [x, weight.slice(), bias, dAfter, after, gates, weight, ...begins, scratch, ...sizes]
    }
    /** The same call for some lanes alone: every column but the `shared` ones has as many elements for each lane. */
    const part = (shared: readonly number[]) => (given: readonly Argument[], first: number, count: number) => {
      const numLanes = given.at(-3) as number
      return given.map((argument, index) => {
        if (index === given.length - 3) return count
        if (typeof argument !== 'object' || shared.includes(index)) return argument
        return rows(argument, first, count, argument.length / numLanes)
      })
    }
    const widthIn = (given: readonly Argument[], index: number) =>
      (given[index] as Column).length / (given.at(-3) as number)
    const lanesOf = (numbers: Numbers) => numbers.whole(0, 20)

    matches(`${cell}Forward`, (numbers) => forward(numbers, lanesOf(numbers)), { relative: 2e-6, workspace: [8] }, 80)
    ignoresCompany(
      `${cell}Forward`,
      {
        make: forward,
        part: part([3, 4, 8]),
        outputs: (given) => [0, 1].map((index) => [index, widthIn(given, index)]),
      },
      40,
    )
    test.each([...builds, ...levels])(`${cell}Backward gives no gradient nearer to 0 than 1e-30 (%s)`, (build) => {
      const given = backward(new Numbers(4), 6)
      const [dX, dWeight, , dAfter] = given as Float32Array[]
      for (const [tiny, sum] of [
        [1e-32, 0],
        [1e-20, 1e-24],
      ] as const) {
        const call = given.with(1, new Float32Array(dWeight!.length)).with(
          3,
          dAfter!.map(() => tiny),
        )
        const [got, added] = new Bench(build).call(`${cell}Backward`, call).columns as Float32Array[]
        expect(got).toHaveLength(dX!.length)
        for (const column of [got!, added!]) expect(Math.max(...column.map(Math.abs)) > sum).toBe(sum > 0)
      }
    })
    matches(
      `${cell}Backward`,
      (numbers) => backward(numbers, lanesOf(numbers)),
      { relative: 2e-5, workspace: [10] },
      80,
    )
    ignoresCompany(
      `${cell}Backward`,
      {
        make: backward,
        part: part([1, 2, 6, 10]),
        outputs: (given) => [[0, widthIn(given, 0)]],
      },
      40,
    )
  }
})

describe('physics', () => {
  matches('cartPoleStep', (numbers) => carts(numbers, numRowsOf(numbers)), { relative: 2e-6 }, 400)

  matches(
    'cartPoleStep',
    (numbers) => {
      const given = carts(numbers, 40)
      given[2] = numbers.floats(40, -100, 100) // Lanes whose episode is over may go on turning.
      return [...given.slice(0, 8), numbers.whole(0, 20), numbers.whole(20, 40)]
    },
    { relative: 2e-5 },
  )

  ignoresCompany('cartPoleStep', {
    make(numbers, numLanes) {
      const given = carts(numbers, numLanes)
      // Poles that stand, and some that have fallen or turned over, beside one another.
      given[2] = (given[2] as Float32Array).map((angle) => angle * [1, 1, 1, 1, 1, 4, 400][numbers.whole(0, 6)]!)
      return given
    },
    part: (given, first, count) => [
      ...given.slice(0, 4).map((column) => rows(column, first, count)),
      ...[4, 1, 1].map((width, index) => rows(given[4 + index], first, count, width)),
      rows(given[7], first, count),
      0,
      count,
    ],
    outputs: () => [0, 1, 2, 3, 4, 5, 6].map((argument) => [argument, argument === 4 ? 4 : 1]),
  })

  /** Starts of the episodes of some of the lanes. */
  const starts = (numbers: Numbers, numLanes: number): Argument[] => {
    const words = () => Uint32Array.from({ length: numLanes }, () => numbers.whole(0, 2 ** 32 - 1))
    const written = [1, 1, 1, 1, 4].map((width) => numbers.floats(width * numLanes))
    const list = Uint32Array.from([...new Array(numLanes).keys()].filter(() => numbers.uniform() < 0.6))
    const keys = [numbers.whole(0, 2 ** 32 - 1), numbers.whole(0, 2 ** 21 - 1)]
    return [...written, new Uint32Array(4), words(), words(), list, ...keys, list.length]
  }
  matches('cartPoleReset', (numbers) => starts(numbers, numRowsOf(numbers)), { relative: 0, workspace: [5] })

  test.each(builds)('cartPoleReset starts an episode with the same bits alone and in company (%s)', (build) => {
    const bench = new Bench(build)
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 31 }), fc.integer({ min: 1, max: 40 }), (seed, numLanes) => {
        const given = starts(new Numbers(seed), numLanes)
        const list = given[8] as Uint32Array
        const all = bench.call('cartPoleReset', given)
        for (const n of list) {
          const alone = bench.call('cartPoleReset', [...given.slice(0, 8), Uint32Array.of(n), ...given.slice(9, 11), 1])
          for (const [argument, width] of [1, 1, 1, 1, 4].entries()) {
            expect(rows(alone.columns[argument], n, 1, width)).toEqual(rows(all.columns[argument], n, 1, width))
          }
        }
      }),
      { numRuns: RUNS },
    )
  })
})

describe('pendulum', () => {
  const pendulums = (numbers: Numbers, numLanes: number): Argument[] => {
    const speed = numbers.floats(numLanes, -8, 8)
    const written = [new Float32Array(3 * numLanes), new Float32Array(numLanes)]
    return [numbers.floats(numLanes, -3, 3), speed, ...written, numbers.floats(numLanes, -3, 3), 10, 0, numLanes]
  }

  matches('pendulumStep', (numbers) => [...pendulums(numbers, 50).slice(0, 5), 9.81, numbers.whole(0, 25), 50], {
    relative: 2e-6,
    scale: 4,
    wraps: [0],
  })

  matches('pendulumStep', (numbers) => pendulums(numbers, numRowsOf(numbers)), { relative: 2e-6, scale: 4, wraps: [0] })

  ignoresCompany('pendulumStep', {
    make: pendulums,
    part: (given, first, count) => [
      ...[1, 1, 3, 1, 1].map((width, index) => rows(given[index], first, count, width)),
      10,
      0,
      count,
    ],
    outputs: () => [0, 1, 2, 3].map((argument) => [argument, argument === 2 ? 3 : 1]),
  })
})

/** Sizes of one to three choices, and logits of `numRows` rows. */
function categories(numbers: Numbers, numRows: number): { sizes: Int32Array; numLogits: number; logits: Float32Array } {
  const choices = numbers.whole(1, 3)
  const sizes = Int32Array.from({ length: choices }, () => [1, 2, 3, 5, 8, 64][numbers.whole(0, 5)]!)
  const numLogits = sizes.reduce((sum, size) => sum + size, 0)
  const spread = [1e-3, 1, 10][numbers.whole(0, 2)]!
  return { sizes, numLogits, logits: numbers.floats(numRows * numLogits, -spread, spread) }
}

function chosen(numbers: Numbers, sizes: Int32Array, numRows: number): Int32Array {
  return Int32Array.from({ length: numRows * sizes.length }, (_, i) => numbers.whole(0, sizes[i % sizes.length]! - 1))
}

/** Arguments of categoricalSample; uniform numbers keep away from the boundaries, where rounding decides. */
function sample(numbers: Numbers, numRows: number, from: number): Argument[] {
  const { sizes, numLogits, logits } = categories(numbers, numRows)
  const uniform = new Float32Array(numRows * sizes.length)
  let start = 0
  for (let i = 0; i < uniform.length; i++) {
    const segment = logits.slice(start, start + sizes[i % sizes.length]!)
    const total = segment.reduce((sum, z) => sum + Math.exp(z), 0)
    let far = false
    while (!far) {
      uniform[i] = numbers.uniform()
      let cumulative = 0
      far = segment.every((z) => {
        cumulative += Math.exp(z) / total
        return Math.abs(cumulative - uniform[i]!) > 1e-5 || cumulative > 0.9999999
      })
    }
    start += segment.length
  }
  const action = new Int32Array((from + numRows) * sizes.length)
  const logprob = new Float32Array(from + numRows)
  return [action, logprob, logits, uniform, sizes, numRows, sizes.length, numLogits, from]
}

describe('categorical', () => {
  const evaluated = (numbers: Numbers, numRows: number, from: number): Argument[] => {
    const { sizes, numLogits, logits } = categories(numbers, numRows)
    const action = chosen(numbers, sizes, from + numRows)
    const [logprob, entropy] = [new Float32Array(numRows), new Float32Array(numRows)]
    return [logprob, entropy, action, logits, sizes, numRows, sizes.length, numLogits, from]
  }
  const backward = (numbers: Numbers, numRows: number, from: number): Argument[] => {
    const { sizes, numLogits, logits } = categories(numbers, numRows)
    const action = chosen(numbers, sizes, from + numRows)
    const [dLogprob, dEntropy] = [numbers.floats(numRows), numbers.floats(numRows)]
    const dLogits = new Float32Array(logits.length)
    return [dLogits, dLogprob, dEntropy, action, logits, sizes, numRows, sizes.length, numLogits, from]
  }
  const tolerance = { relative: 2e-6, scale: 4 }
  matches(
    'maskLogits',
    (numbers) => {
      const [n, width, from] = [numRowsOf(numbers), widthOf(numbers), numbers.whole(0, 3)]
      return [numbers.floats(n * width), numbers.flags((from + n) * width, 0.5), n, width, from]
    },
    { relative: 0 },
  )

  matches('categoricalSample', (numbers) => sample(numbers, numRowsOf(numbers), numbers.whole(0, 3)), tolerance)
  matches('categoricalEvaluate', (numbers) => evaluated(numbers, numRowsOf(numbers), numbers.whole(0, 3)), tolerance)
  matches('categoricalBackward', (numbers) => backward(numbers, numRowsOf(numbers), numbers.whole(0, 3)), tolerance)
  matches(
    'categoricalMode',
    (numbers) => {
      const given = sample(numbers, numRowsOf(numbers), numbers.whole(0, 3))
      return [...given.slice(0, 3), ...given.slice(4)]
    },
    tolerance,
  )

  ignoresCompany('categoricalSample', {
    make: (numbers, numRows) => sample(numbers, numRows, 0),
    part([action, logprob, logits, uniform, sizes, , numChoices, numLogits], first, count) {
      const some = [rows(logits, first, count, numLogits as number), rows(uniform, first, count, numChoices as number)]
      const shifted = [new Int32Array((action as Column).length), new Float32Array((logprob as Column).length)]
      return [...shifted, ...some, sizes!, count, numChoices!, numLogits!, 0]
    },
    outputs: ([, , , , , , numChoices]) => [
      [0, numChoices as number],
      [1, 1],
    ],
  })

  ignoresCompany('categoricalEvaluate', {
    make: (numbers, numRows) => evaluated(numbers, numRows, 0),
    part([logprob, entropy, action, logits, sizes, , numChoices, numLogits], first, count) {
      const some = rows(logits, first, count, numLogits as number)
      return [logprob!, entropy!, action!, some, sizes!, count, numChoices!, numLogits!, first]
    },
    outputs: () => [
      [0, 1],
      [1, 1],
    ],
  })

  ignoresCompany('categoricalBackward', {
    make: (numbers, numRows) => backward(numbers, numRows, 0),
    part([dLogits, dLogprob, dEntropy, action, logits, sizes, , numChoices, numLogits], first, count) {
      const width = numLogits as number
      const gradients = [rows(dLogprob, first, count), rows(dEntropy, first, count)]
      const some = [rows(dLogits, first, count, width), ...gradients, action!, rows(logits, first, count, width)]
      return [...some, sizes!, count, numChoices!, numLogits!, first]
    },
    outputs: ([, , , , , , , , numLogits]) => [[0, numLogits as number]],
  })

  test.each(builds)('evaluate gives the bits that sample wrote (%s)', (build) => {
    const bench = new Bench(build)
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 31 }), fc.integer({ min: 1, max: 70 }), (seed, numRows) => {
        const given = sample(new Numbers(seed), numRows, 2)
        const [action, logprob] = bench.call('categoricalSample', given).columns
        const [, , logits, , sizes, , numChoices, numLogits, from] = given
        const written = [new Float32Array(numRows), new Float32Array(numRows)]
        const again = [...written, action!, logits!, sizes!, numRows, numChoices!, numLogits!, from!]
        expect(bench.call('categoricalEvaluate', again).columns[0]).toEqual(logprob!.slice(2))
      }),
      { numRuns: RUNS },
    )
  })

  test.each(builds)('the ends of the uniform numbers choose the first and the last likely action (%s)', (build) => {
    const logits = new Float32Array([0.3, -0.2, 1.5, 0.3, -0.2, 1.5])
    const uniform = new Float32Array([0, 1 - 2 ** -24])
    const sizes = new Int32Array([3])
    const given = [new Int32Array(2), new Float32Array(2), logits, uniform, sizes, 2, 1, 3, 0]
    expect([...new Bench(build).call('categoricalSample', given).columns[0]!]).toEqual([0, 2])
  })
})

describe('gaussian', () => {
  const drawn = (numbers: Numbers, numRows: number, from: number, width = [1, 2, 3, 6][numbers.whole(0, 3)]!) => ({
    width,
    action: numbers.floats((from + numRows) * width, -2, 2),
    mean: numbers.floats(numRows * width),
    logStd: numbers.floats(width, -2, 1),
    perRow: () => numbers.floats(numRows),
  })
  const sampled = (numbers: Numbers, numRows: number, from: number): Argument[] => {
    const { width, action, mean, logStd } = drawn(numbers, numRows, from)
    const normal = numbers.floats(numRows * width, -4, 4)
    return [action, new Float32Array(from + numRows), mean, logStd, normal, numRows, width, from]
  }
  const evaluated = (numbers: Numbers, numRows: number, from: number): Argument[] => {
    const { width, action, mean, logStd, perRow } = drawn(numbers, numRows, from)
    return [perRow(), perRow(), action, mean, logStd, numRows, width, from]
  }
  const backward = (numbers: Numbers, numRows: number, from: number): Argument[] => {
    const { width, action, mean, logStd, perRow } = drawn(numbers, numRows, from)
    const dMean = new Float32Array(mean.length)
    return [dMean, numbers.floats(width), perRow(), perRow(), action, mean, logStd, numRows, width, from]
  }
  const tolerance = { relative: 2e-6, scale: 32 }
  matches('gaussianSample', (numbers) => sampled(numbers, numRowsOf(numbers), numbers.whole(0, 3)), tolerance)
  matches('gaussianEvaluate', (numbers) => evaluated(numbers, numRowsOf(numbers), numbers.whole(0, 3)), tolerance)
  matches(
    'gaussianMode',
    (numbers) => {
      const given = sampled(numbers, numRowsOf(numbers), numbers.whole(0, 3))
      return [...given.slice(0, 4), ...given.slice(5)]
    },
    tolerance,
  )
  matches('gaussianBackward', (numbers) => backward(numbers, numRowsOf(numbers), numbers.whole(0, 3)), {
    relative: 1e-5,
    scale: 256,
  })

  ignoresCompany('gaussianSample', {
    make: (numbers, numRows) => sampled(numbers, numRows, 0),
    part([action, logprob, mean, logStd, normal, , width], first, count) {
      const w = width as number
      const some = [rows(mean, first, count, w), logStd!, rows(normal, first, count, w)]
      return [action!, logprob!, ...some, count, w, 0]
    },
    outputs: ([, , , , , , width]) => [
      [0, width as number],
      [1, 1],
    ],
  })

  ignoresCompany('gaussianBackward', {
    make: (numbers, numRows) => backward(numbers, numRows, 0),
    part([dMean, dLogStd, dLogprob, dEntropy, action, mean, logStd, , width], first, count) {
      const w = width as number
      const some = [rows(dMean, first, count, w), dLogStd!, rows(dLogprob, first, count), rows(dEntropy, first, count)]
      return [...some, action!, rows(mean, first, count, w), logStd!, count, w, first]
    },
    outputs: ([, , , , , , , , width]) => [[0, width as number]],
  })

  test.each(builds)('evaluate gives the bits that sample wrote, alone or in company (%s)', (build) => {
    const bench = new Bench(build)
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 31 }), fc.integer({ min: 1, max: 70 }), (seed, numRows) => {
        const given = sampled(new Numbers(seed), numRows, 2)
        const [action, logprob] = bench.call('gaussianSample', given).columns
        const [, , mean, logStd, , , width] = given
        const w = width as number
        const written = [new Float32Array(numRows), new Float32Array(numRows)]
        const again = bench.call('gaussianEvaluate', [...written, action!, mean!, logStd!, numRows, w, 2])
        expect(again.columns[0]).toEqual(logprob!.slice(2))
        const last = rows(mean, numRows - 1, 1, w)
        const alone = bench.call('gaussianEvaluate', [...written, action!, last, logStd!, 1, w, numRows + 1])
        expect(alone.columns[0]![0]).toBe(logprob![numRows + 1])
      }),
      { numRuns: RUNS },
    )
  })
})

describe('draws', () => {
  const draws = (numbers: Numbers, numRows: number, from: number): Argument[] => {
    const width = numbers.whole(1, 9)
    const words = () => Uint32Array.from({ length: from + numRows }, () => numbers.whole(0, 2 ** 32 - 1))
    const step = numbers.wholes(from + numRows, 0, 500)
    const keys = [numbers.whole(0, 2 ** 32 - 1), numbers.whole(0, 2 ** 21 - 1)]
    const into = new Float32Array(numRows * width)
    return [into, new Uint32Array(4), words(), words(), step, ...keys, numRows, width, from]
  }
  const given = (numbers: Numbers): Argument[] => draws(numbers, numRowsOf(numbers), numbers.whole(0, 3))
  matches('drawUniform', given, { relative: 0, workspace: [1] })
  matches('drawNormal', given, { relative: 2e-6, scale: 2, workspace: [1] })

  ignoresCompany('drawNormal', {
    make: (numbers, numRows) => draws(numbers, numRows, 0),
    part: ([into, words, lane, episode, step, key0, key1, , width], first, count) => {
      const some = rows(into, first, count, width as number)
      return [some, words!, lane!, episode!, step!, key0!, key1!, count, width!, first]
    },
    outputs: ([, , , , , , , , width]) => [[0, width as number]],
  })
})

describe('losses', () => {
  /** Rows that keep away from the corners of the loss, where rounding decides which side's gradient is taken. */
  const losses = (numbers: Numbers, numRows: number, from: number): Argument[] => {
    const clip = numbers.uniform(0.1, 0.3)
    const clipValue = numbers.uniform() < 0.5 ? Number.POSITIVE_INFINITY : numbers.uniform(0.1, 0.5)
    const whole = from + numRows
    const [entropy, advantage, returns, oldValue] = [1, 2, 3, 4].map(() => numbers.floats(whole, -2, 2))
    const oldLogprob = numbers.floats(whole, -2, 0)
    const logprob = new Float32Array(numRows)
    const value = new Float32Array(numRows)
    for (let row = 0; row < numRows; row++) {
      const i = from + row
      let near = true
      while (near) {
        logprob[row] = oldLogprob[i]! + numbers.uniform(-0.6, 0.6)
        value[row] = oldValue![i]! + numbers.uniform(-1, 1)
        const ratio = Math.exp(logprob[row]! - oldLogprob[i]!)
        const change = value[row]! - oldValue![i]!
        const error = value[row]! - returns![i]!
        const clippedError = oldValue![i]! + Math.min(Math.max(change, -clipValue), clipValue) - returns![i]!
        near =
          Math.abs(Math.abs(ratio - 1) - clip) < 1e-4 ||
          Math.abs(Math.abs(change) - clipValue) < 1e-4 ||
          (Math.abs(change) > clipValue && Math.abs(error * error - clippedError * clippedError) < 1e-4)
      }
    }
    const derivatives = [1, 2, 3].map(() => new Float32Array(numRows))
    const sums = new Float64Array(10).fill(0.5)
    const minibatch = [oldLogprob, oldValue!, advantage!, returns!]
    const settings = [0.1, 0.9, clip, clipValue, 0.01, 0.5, 1 / 256]
    const evaluated = [logprob, entropy!.slice(0, numRows), value]
    return [...derivatives, sums, ...evaluated, ...minibatch, ...settings, numRows, from, 5]
  }

  matches('ppoLoss', (numbers) => losses(numbers, numRowsOf(numbers), numbers.whole(0, 3)), { relative: 1e-5 }, 300)

  ignoresCompany('ppoLoss', {
    make: (numbers, numRows) => losses(numbers, numRows, 0),
    part: (given, first, count) => [
      ...given.slice(0, 3).map((column) => rows(column, first, count)),
      given[3]!,
      ...given.slice(4, 7).map((column) => rows(column, first, count)),
      ...given.slice(7, 18),
      count,
      first,
      0,
    ],
    outputs: () => [
      [0, 1],
      [1, 1],
      [2, 1],
    ],
  })

  const a2cRows = (numbers: Numbers, numRows: number, from: number): Argument[] => {
    const columns = [1, 2, 3].map(() => numbers.floats(numRows, -2, 2))
    const batch = [1, 2].map(() => numbers.floats(from + numRows, -2, 2))
    const derivatives = [1, 2, 3].map(() => new Float32Array(numRows))
    const sums = new Float64Array(8).fill(0.5)
    return [...derivatives, sums, ...columns, ...batch, 0.1, 0.9, 0.01, 0.7, 1 / 256, numRows, from, 5]
  }

  matches('a2cLoss', (numbers) => a2cRows(numbers, numRowsOf(numbers), numbers.whole(0, 3)), { relative: 1e-5 }, 300)

  ignoresCompany('a2cLoss', {
    make: (numbers, numRows) => a2cRows(numbers, numRows, 0),
    part: (given, first, count) => [
      ...given.slice(0, 3).map((column) => rows(column, first, count)),
      given[3]!,
      ...given.slice(4, 7).map((column) => rows(column, first, count)),
      ...given.slice(7, 14),
      count,
      first,
      0,
    ],
    outputs: () => [
      [0, 1],
      [1, 1],
      [2, 1],
    ],
  })

  matches(
    'klEstimates',
    (numbers) => {
      const numRows = 1 + numRowsOf(numbers)
      const spread = [1e-4, 0.1, 2][numbers.whole(0, 2)]!
      const old = numbers.floats(numRows, -2, 0)
      return [new Float64Array(3), old.map((logprob) => logprob + numbers.uniform(-spread, spread)), old, numRows]
    },
    { relative: 2e-6, scale: 1e-2 },
  )
})

describe('optimizer', () => {
  const steps = (numbers: Numbers, length: number): Argument[] => {
    const columns = [
      numbers.floats(length),
      numbers.floats(length),
      numbers.floats(length, 0, 1),
      numbers.floats(length),
    ]
    const decay = numbers.uniform() < 0.5 ? 0 : 0.01
    return [...columns, numbers.uniform(0.1, 1), 2.5e-4, 0.9, 0.999, 1e-5, decay, 0.3, 0.01, length]
  }
  matches('adamStep', (numbers) => steps(numbers, numRowsOf(numbers)), { relative: 1e-6 })

  ignoresCompany('adamStep', {
    make: steps,
    part: (given, first, count) => [
      ...given.slice(0, 4).map((column) => rows(column, first, count)),
      ...given.slice(4, 12),
      count,
    ],
    outputs: () => [0, 1, 2].map((argument) => [argument, 1]),
  })

  const momentumOf = (numbers: Numbers) => [0, 0.9][numbers.whole(0, 1)]!
  const sgd = (numbers: Numbers, length: number): Argument[] => {
    const columns = [numbers.floats(length), numbers.floats(length), numbers.floats(length)]
    return [...columns, numbers.uniform(0.1, 1), 1e-2, momentumOf(numbers), [0, 0.01][numbers.whole(0, 1)]!, length]
  }
  matches('sgdStep', (numbers) => sgd(numbers, numRowsOf(numbers)), { relative: 5e-7 })

  ignoresCompany('sgdStep', {
    make: sgd,
    part: (given, first, count) => [
      ...given.slice(0, 3).map((column) => rows(column, first, count)),
      ...given.slice(3, 7),
      count,
    ],
    outputs: () => [0, 1].map((argument) => [argument, 1]),
  })

  const rmsprop = (numbers: Numbers, length: number): Argument[] => {
    const columns = [numbers.floats(length), numbers.floats(length), numbers.floats(length, 0, 1)]
    const decay = [0, 0.01][numbers.whole(0, 1)]!
    const rest = [numbers.uniform(0.1, 1), 1e-2, 0.99, momentumOf(numbers), 1e-5, decay, length]
    return [...columns, numbers.floats(length), ...rest]
  }
  matches('rmspropStep', (numbers) => rmsprop(numbers, numRowsOf(numbers)), { relative: 1e-6 })

  ignoresCompany('rmspropStep', {
    make: rmsprop,
    part: (given, first, count) => [
      ...given.slice(0, 4).map((column) => rows(column, first, count)),
      ...given.slice(4, 10),
      count,
    ],
    outputs: () => [0, 1, 2].map((argument) => [argument, 1]),
  })
  test.each([...builds, ...levels])(
    'adamStep lets both moments of a weight without gradients reach 0, and move nothing (%s)',
    (build) => {
      const bench = new Bench(build)
      const length = 300 // From 256 on native bodies are worth a call.
      let columns = [1, 0.1, 0.1, 0].map((value) => new Float32Array(length).fill(value))
      columns[2]!.fill(3e-30, length / 2)
      let before = columns
      for (let step = 0; step < 2000; step++) {
        before = columns
        const rates = [1, 2.5e-4, 0.9, 0.999, 1e-5, 0, 1, 1, length]
        columns = bench.call('adamStep', [...columns, ...rates]).columns.slice(0, 4) as Float32Array<ArrayBuffer>[]
      }
      expect([...columns[1]!]).toEqual(new Array(length).fill(0))
      expect(columns[0]).toEqual(before[0])
      expect(columns[2]![0]).toBeGreaterThan(0.01)
      expect([...columns[2]!.subarray(length / 2)]).toEqual(new Array(length / 2).fill(0))
    },
  )

  matches(
    'globalNorm',
    (numbers) => {
      const length = numRowsOf(numbers)
      return [numbers.floats(length), length]
    },
    { relative: 1e-13 },
  )

  matches(
    'clear',
    (numbers) => {
      const length = numbers.whole(0, 40)
      return [numbers.floats(length + numbers.whole(0, 8)), length]
    },
    { relative: 0 },
  )

  matches(
    'sumSlots',
    (numbers) => {
      const [numSlots, length] = [numbers.whole(0, 16), numbers.whole(0, 40)]
      const slots = numbers.floats(numSlots * length)
      const from = numbers.whole(0, length)
      const to = numbers.whole(from, length)
      return [numbers.uniform() < 0.5 ? slots : Float64Array.from(slots), numSlots, length, from, to]
    },
    { relative: 0 },
  )
})

describe('advantage', () => {
  const rollouts = (numbers: Numbers, numLanes: number, outputs: number): Argument[] => {
    const numSteps = numbers.whole(0, 9)
    const size = numSteps * numLanes
    const written = Array.from({ length: outputs }, () => new Float32Array(size))
    const read = Array.from({ length: outputs + 1 }, () => numbers.floats(size))
    const flags = [numbers.flags(size, 0.1), numbers.flags(size, 0.1), numbers.flags(size, 0.9)]
    const discounts = outputs === 2 ? [0.99, 0.95] : [0.9]
    return [...written, new Float32Array(numLanes), ...read, ...flags, ...discounts, numSteps, numLanes]
  }
  /** Lanes `first` to `first + count` of a time-major column. */
  const lanes = (column: Argument, numSteps: number, numLanes: number, first: number, count: number): Column => {
    const some = (column as Column).slice(0, numSteps * count)
    for (let t = 0; t < numSteps; t++) some.set(rows(column, t * numLanes + first, count), t * count)
    return some
  }
  matches('gae', (numbers) => rollouts(numbers, numRowsOf(numbers), 2), { relative: 2e-6, scale: 8 })
  matches('discountedReturns', (numbers) => rollouts(numbers, numRowsOf(numbers), 1), { relative: 2e-6, scale: 8 })

  /** Ratios within e^±spread. Clips bind both, one or none; the widest ratios are always clipped. */
  const offPolicy = (numbers: Numbers, numLanes: number, spread = [0.1, 1, 3][numbers.whole(0, 2)]!): Argument[] => {
    const given = rollouts(numbers, numLanes, 2)
    const oldLogprob = numbers.floats((given[0] as Column).length, -2, 0)
    const logprob = oldLogprob.map((old) => old + numbers.uniform(-spread, spread))
    const clip = () => [0.5, 1, 1.5, Number.POSITIVE_INFINITY][numbers.whole(0, spread > 1 ? 2 : 3)]!
    return [...given.slice(0, 3), logprob, oldLogprob, ...given.slice(3, 11), clip(), clip(), ...given.slice(11)]
  }
  matches('vtrace', (numbers) => offPolicy(numbers, numRowsOf(numbers)), { relative: 4e-6, scale: 8 }, 400)

  test.each(builds)('vtrace has the returns of gae on-policy, bit for bit (%s)', (build) => {
    const bench = new Bench(build)
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 31 }), (seed) => {
        const numbers = new Numbers(seed)
        const given = offPolicy(numbers, numRowsOf(numbers), 0)
        const clips = [1, [1, 1.5, Number.POSITIVE_INFINITY][numbers.whole(0, 2)]!]
        const corrected = bench.call('vtrace', [...given.slice(0, 13), ...clips, ...given.slice(15)])
        const wanted = bench.call('gae', [...given.slice(0, 3), ...given.slice(5, 13), ...given.slice(15)])
        expect(corrected.columns[1]).toEqual(wanted.columns[1])
      }),
      { numRuns: RUNS },
    )
  })

  const lawful = { gae: (numbers: Numbers, numLanes: number) => rollouts(numbers, numLanes, 2), vtrace: offPolicy }
  describe.each(['gae', 'vtrace'] as const)('%s', (name) => {
    test.each(builds)('gives a lane the same bits alone and in company (%s)', (build) => {
      const bench = new Bench(build)
      fc.assert(
        fc.property(fc.integer({ min: 0, max: 2 ** 31 }), fc.integer({ min: 1, max: 70 }), (seed, numLanes) => {
          const numbers = new Numbers(seed)
          const given = lawful[name](numbers, numLanes)
          const numSteps = given.at(-2) as number
          const all = bench.call(name, given)
          const first = numbers.whole(0, numLanes - 1)
          const cut = (column: Argument): Column => lanes(column, numSteps, numLanes, first, 1)
          const alone = given.map((argument, i) => (typeof argument === 'object' && i !== 2 ? cut(argument) : argument))
          const some = bench.call(name, [...alone.slice(0, -1), 1])
          for (const argument of [0, 1]) expect(some.columns[argument]).toEqual(cut(all.columns[argument]!))
        }),
        { numRuns: RUNS },
      )
    })
  })
})

describe('rollout', () => {
  const EXACT = { relative: 0 }
  /** The lanes from a random one to a random one. */
  const span = (numbers: Numbers, numLanes: number): [number, number] => {
    const from = numbers.whole(0, numLanes)
    return [from, numbers.whole(from, numLanes)]
  }
  const partOf = (numbers: Numbers): number => [0, 0.02, 0.5, 0.98, 1][numbers.whole(0, 4)]!

  matches(
    'settleDead',
    (numbers) => {
      const n = numRowsOf(numbers)
      const phase = numbers.flags(n, partOf(numbers))
      return [numbers.flags(n), numbers.floats(n), numbers.flags(n), numbers.flags(n), phase, 1, ...span(numbers, n)]
    },
    EXACT,
  )

  matches(
    'limitSteps',
    (numbers) => {
      const n = numRowsOf(numbers)
      return [numbers.flags(n), numbers.wholes(n, 0, 20), numbers.whole(1, 22), ...span(numbers, n)]
    },
    EXACT,
  )

  matches(
    'closeRow',
    (numbers) => {
      const n = numRowsOf(numbers)
      const counts = () => Uint32Array.from({ length: n }, () => numbers.whole(0, 2 ** 32 - 1))
      const rowColumns = [counts(), counts(), numbers.wholes(n, 0, 9), numbers.floats(n), counts(), numbers.floats(n)]
      const episodes = [numbers.wholes(n, 0, 9), Float64Array.from(numbers.floats(n, 0, 1e6)), numbers.flags(n)]
      const transition = [numbers.floats(n), numbers.flags(n), numbers.flags(n), numbers.flags(n, partOf(numbers))]
      return [...rowColumns, ...episodes, counts(), counts(), ...transition, 4e9, 3, ...span(numbers, n)]
    },
    EXACT,
  )

  matches(
    'listRows',
    (numbers) => {
      const [n, width] = [numRowsOf(numbers), numbers.whole(1, 9)]
      const length = numbers.whole(0, 3)
      const list = [new Uint32Array(length + n), new Float32Array((length + n) * width)]
      const flags = [numbers.flags(n), numbers.flags(n, partOf(numbers)), numbers.flags(n, 0.9)]
      return [
        ...list,
        numbers.floats(n * width),
        ...flags,
        numbers.whole(0, 3),
        length,
        700,
        width,
        ...span(numbers, n),
      ]
    },
    EXACT,
  )

  matches(
    'completeNextValue',
    (numbers) => {
      const n = numRowsOf(numbers)
      const flags = [numbers.flags(n), numbers.flags(n), numbers.flags(n, 0.9)]
      return [numbers.floats(n), numbers.floats(n), ...flags, ...span(numbers, n)]
    },
    EXACT,
  )

  matches(
    'scatterValues',
    (numbers) => {
      const n = 1 + numRowsOf(numbers)
      const length = numbers.whole(0, n)
      return [numbers.floats(n), Uint32Array.from(numbers.wholes(length, 0, n - 1)), numbers.floats(length), length]
    },
    EXACT,
  )

  matches(
    'listPhase',
    (numbers) => {
      const n = numRowsOf(numbers)
      const phase = numbers.flags(n, partOf(numbers)).map((flag) => flag * numbers.whole(1, 2))
      return [new Uint32Array(n), phase, numbers.whole(0, 2), ...span(numbers, n)]
    },
    EXACT,
  )

  matches(
    'beginEpisodes',
    (numbers) => {
      const n = numRowsOf(numbers)
      const list = Uint32Array.from([...new Array(n).keys()].filter(() => numbers.uniform() < 0.3))
      const episode = Uint32Array.from({ length: n }, () => [0, 5, 2 ** 32 - 1][numbers.whole(0, 2)]!)
      const sums = Float64Array.from(numbers.floats(n))
      return [episode, numbers.wholes(n, 0, 9), sums, numbers.flags(n), list, numbers.whole(0, 2), list.length]
    },
    EXACT,
  )

  matches(
    'clearFlags',
    (numbers) => {
      const n = numRowsOf(numbers)
      return [numbers.flags(n), numbers.flags(n), ...span(numbers, n)]
    },
    EXACT,
  )

  matches(
    'listValid',
    (numbers) => {
      const n = numRowsOf(numbers)
      return [new Uint32Array(n), numbers.flags(n, partOf(numbers)), n]
    },
    EXACT,
  )

  matches(
    'shuffleRows',
    (numbers) => {
      const n = numRowsOf(numbers)
      const key = [numbers.whole(0, 9), numbers.whole(0, 9), numbers.whole(0, 2 ** 32 - 1), numbers.whole(0, 2 ** 20)]
      return [Uint32Array.from({ length: n }, (_, row) => row), new Uint32Array(4), n, ...key]
    },
    { relative: 0, workspace: [1] },
  )

  matches(
    'gatherRows',
    (numbers) => {
      const [n, width] = [1 + numRowsOf(numbers), numbers.whole(1, 9)]
      const count = numRowsOf(numbers)
      const order = Uint32Array.from(numbers.wholes(3 + count, 0, n - 1))
      const whole = numbers.uniform() < 0.5
      const gathered = whole ? new Int32Array(count * width) : new Float32Array(count * width)
      const source = whole ? numbers.wholes(n * width, -9, 9) : numbers.floats(n * width)
      return [gathered, source, order, 3, count, width]
    },
    EXACT,
  )

  matches(
    'findNonFinite',
    (numbers) => {
      const n = numRowsOf(numbers)
      const x = numbers.floats(n)
      if (n > 0 && numbers.uniform() < 0.7)
        x[numbers.whole(0, n - 1)] = [Number.NaN, Infinity, -Infinity][numbers.whole(0, 2)]!
      return [x, ...span(numbers, n)]
    },
    EXACT,
  )

  matches(
    'findBeyond',
    (numbers) => {
      const [n, width] = [numRowsOf(numbers), [1, 2, 3, 4, 5, 8, 13, 33][numbers.whole(0, 7)]!]
      const [low, high] = [numbers.floats(width, -9, -2), numbers.floats(width, 2, 9)]
      const x = numbers.floats(n * width, -2, 2)
      if (n > 0 && numbers.uniform() < 0.8) {
        const at = numbers.whole(0, n * width - 1)
        const k = at % width
        x[at] = [Number.NaN, Infinity, -Infinity, low[k]!, high[k]!, low[k]! - 1, high[k]! + 1][numbers.whole(0, 6)]!
      }
      return [x, low, high, width, ...span(numbers, n)]
    },
    EXACT,
  )

  matches(
    'findMiswritten',
    (numbers) => {
      const n = numRowsOf(numbers)
      const [reward, terminated, truncated] = [numbers.floats(n, -8, 8), numbers.flags(n), numbers.flags(n)]
      const at = numbers.whole(0, n - 1)
      const fault = numbers.whole(0, 4)
      if (n > 0 && fault === 0) reward[at] = [Number.NaN, Infinity, -8.5, 8.5, 8, -8][numbers.whole(0, 5)]!
      if (n > 0 && fault === 1) terminated[at] = numbers.whole(2, 255)
      if (n > 0 && fault === 2) truncated[at] = numbers.whole(2, 255)
      return [reward, terminated, truncated, 8, ...span(numbers, n)]
    },
    EXACT,
  )

  matches(
    'findOutside',
    (numbers) => {
      const [n, width] = [numRowsOf(numbers), numbers.whole(1, 3)]
      const x = numbers.wholes(n * width, 0, 2)
      if (n > 0 && numbers.uniform() < 0.7)
        x[numbers.whole(0, n * width - 1)] = [-1, 3, 5, -(2 ** 31)][numbers.whole(0, 3)]!
      return [x, new Int32Array(width).fill(3), width, ...span(numbers, n)]
    },
    EXACT,
  )

  matches(
    'gatherRows',
    (numbers) => {
      const [n, width, count] = [1 + numRowsOf(numbers), numbers.whole(1, 19), numRowsOf(numbers)]
      const order = Uint32Array.from(numbers.wholes(3 + count, 0, n - 1))
      return [new Uint8Array(count * width), numbers.flags(n * width, 0.5), order, 3, count, width]
    },
    EXACT,
  )

  /** Bytes, each of 0 to 255. */
  const bytesOf = (numbers: Numbers, count: number) => Uint8Array.from({ length: count }, () => numbers.whole(0, 255))
  /** Elements a row: around a vector of bytes, or as many as a small image has. */
  const bytesWide = (numbers: Numbers) => [1, 3, 15, 16, 17, 32, 47, 400][numbers.whole(0, 7)]!

  matches(
    'widenBytes',
    (numbers) => {
      const [from, length] = [numbers.whole(0, 33), numbers.whole(0, 70)]
      return [new Float32Array(length), bytesOf(numbers, from + length), from, length]
    },
    EXACT,
  )

  matches(
    'findByteBeyond',
    (numbers) => {
      const [n, width] = [numbers.whole(0, 20), bytesWide(numbers)] // Eight rows are looked at together.
      const lowest = numbers.whole(0, 1) * 9 // All are 0, or some are not.
      const low = Uint8Array.from({ length: width }, () => numbers.whole(0, lowest))
      const high = Uint8Array.from({ length: width }, () => numbers.whole(9, 255))
      const x = Uint8Array.from({ length: n * width }, (_, at) => numbers.whole(low[at % width]!, high[at % width]!))
      if (n > 0 && numbers.uniform() < 0.8) x[numbers.whole(0, n * width - 1)] = numbers.whole(0, 255)
      return [x, low, high, width, ...span(numbers, n)]
    },
    EXACT,
  )

  matches(
    'copyRows',
    (numbers) => {
      const [count, width] = [numRowsOf(numbers), bytesWide(numbers)]
      const [outRow, xRow] = [width + numbers.whole(0, 3), width + numbers.whole(0, 3)]
      const [outFrom, xFrom] = [numbers.whole(0, 5), numbers.whole(0, 5)]
      const [out, x] = [bytesOf(numbers, outFrom + count * outRow), bytesOf(numbers, xFrom + count * xRow)]
      return [out, x, count, width, outRow, xRow, outFrom, xFrom]
    },
    EXACT,
  )

  matches(
    'listRows',
    (numbers) => {
      const [n, width, length] = [numRowsOf(numbers), bytesWide(numbers), numbers.whole(0, 3)]
      const list = [new Uint32Array(length + n), new Uint8Array((length + n) * width)]
      const flags = [numbers.flags(n), numbers.flags(n, partOf(numbers)), numbers.flags(n, 0.9)]
      const ends = [numbers.whole(0, 3), length, 700, width, ...span(numbers, n)]
      return [...list, bytesOf(numbers, n * width), ...flags, ...ends]
    },
    EXACT,
  )

  /** Sizes of an action's dimensions, choices of `n` lanes and a mask of which a `part` is legal. */
  const masked = (numbers: Numbers, n: number, part: number) => {
    const sizes = numbers.wholes(numbers.whole(1, 3), 1, 5)
    const choices = Int32Array.from({ length: n * sizes.length }, (_, i) =>
      numbers.whole(0, sizes[i % sizes.length]! - 1),
    )
    const maskWidth = sizes.reduce((sum, size) => sum + size, 0)
    return { sizes, choices, mask: numbers.flags(n * maskWidth, part), phase: numbers.flags(n, 0.3) }
  }

  matches(
    'findIllegal',
    (numbers) => {
      const n = numRowsOf(numbers)
      const { sizes, choices, mask, phase } = masked(numbers, n, 0.98)
      return [choices, mask, phase, 0, sizes, sizes.length, ...span(numbers, n)]
    },
    EXACT,
  )

  matches(
    'findStuck',
    (numbers) => {
      const n = numRowsOf(numbers)
      const { sizes, mask, phase } = masked(numbers, n, 0.9)
      return [mask, phase, 0, sizes, sizes.length, ...span(numbers, n)]
    },
    EXACT,
  )

  matches(
    'clipRows',
    (numbers) => {
      const [n, width] = [numRowsOf(numbers), numbers.whole(1, 3)]
      const x = numbers.floats(n * width, -3, 3)
      if (n > 0) x[numbers.whole(0, n * width - 1)] = Number.NaN
      const bounds = [numbers.floats(width, -2, -1), numbers.floats(width, 1, 2)]
      return [new Float32Array(n * width), x, ...bounds, width, ...span(numbers, n)]
    },
    EXACT,
  )
})

describe('episodes', () => {
  matches(
    'accountEpisodes',
    (numbers) => {
      const [n, ring] = [numRowsOf(numbers), numbers.whole(1, 9)]
      const written = [new Float64Array(3), new Float64Array(ring), new Float64Array(ring)]
      const flags = [numbers.flags(n, 0.05), numbers.flags(n, 0.05), numbers.flags(n, 0.9)]
      const rollout = [numbers.floats(n, 0, 500), numbers.wholes(n, 0, 500), ...flags]
      return [...written, ...rollout, numbers.whole(0, 20), numbers.uniform(100, 400), n]
    },
    { relative: 0 },
  )
})

describe('statistics', () => {
  matches(
    'meanAndDeviation',
    (numbers) => {
      const numRows = numRowsOf(numbers)
      return [new Float64Array(2), numbers.floats(numRows, 3, 5), numRows]
    },
    { relative: 1e-12 },
  )

  matches(
    'explainedVariance',
    (numbers) => {
      const numRows = numRowsOf(numbers)
      const returns = numbers.uniform() < 0.1 ? numbers.floats(numRows).fill(0.1) : numbers.floats(numRows)
      return [numbers.floats(numRows), returns, numbers.flags(numRows, 0.8), numRows]
    },
    { relative: 1e-10 },
  )

  /** Moments of no rows or of some, and a batch. */
  const merged = (numbers: Numbers, width: number): Argument[] => {
    const numRows = numRowsOf(numbers)
    const isFirst = numbers.uniform() < 0.3
    const count = Float64Array.of(isFirst ? 0 : numbers.whole(1, 1000))
    const [mean, squares] = [numbers.floats(width, -5, 5), numbers.floats(width, 0, 1000)]
    const moments = [mean, squares].map((column) => (isFirst ? new Float64Array(width) : Float64Array.from(column)))
    const part = [0, 0.5, 1][numbers.whole(0, 2)]!
    return [...moments, count, numbers.floats(numRows * width, -3, 5), numbers.flags(numRows, part), numRows, width]
  }
  matches('updateRunning', (numbers) => merged(numbers, widthOf(numbers)), { relative: 0 })
  matches(
    'updateRunning',
    (numbers) => {
      const given = merged(numbers, widthOf(numbers))
      const { length } = given[3] as Float32Array
      return [...given.slice(0, 3), Uint8Array.from({ length }, () => numbers.whole(0, 255)), ...given.slice(4)]
    },
    { relative: 0 },
  )

  test.each(builds)('updateRunning gives a dimension the same bits alone and in company (%s)', (build) => {
    const bench = new Bench(build)
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 31 }), (seed) => {
        const numbers = new Numbers(seed)
        const width = widthOf(numbers)
        const given = merged(numbers, width)
        const all = bench.call('updateRunning', given)
        const k = numbers.whole(0, width - 1)
        const x = (given[3] as Column).filter((_, i) => i % width === k)
        const moments = [rows(given[0], k, 1), rows(given[1], k, 1)]
        const some = bench.call('updateRunning', [...moments, given[2]!, x, given[4]!, given[5]!, 1])
        for (const argument of [0, 1]) expect(some.columns[argument]).toEqual(rows(all.columns[argument], k, 1))
      }),
      { numRuns: RUNS },
    )
  })

  matches(
    'readRunning',
    (numbers) => {
      const width = widthOf(numbers)
      const moments = [numbers.floats(width, -9, 9), numbers.floats(width, 0, 99)].map((x) => Float64Array.from(x))
      const count = Float64Array.of(numbers.whole(0, 3))
      return [new Float32Array(width), new Float32Array(width), ...moments, count, 1e-8, width]
    },
    { relative: 0 },
  )

  const normalized = (numbers: Numbers, numRows: number, from: number): Argument[] => {
    const width = widthOf(numbers)
    const x = numbers.floats((from + numRows) * width, -20, 20)
    if (x.length > 0) x[numbers.whole(0, x.length - 1)] = [Number.NaN, Infinity, -Infinity][numbers.whole(0, 2)]!
    const clip = [0.5, 10, Number.POSITIVE_INFINITY][numbers.whole(0, 2)]!
    const moments = [numbers.floats(width, -5, 5), numbers.floats(width, 0.01, 5)]
    return [new Float32Array(numRows * width), x, ...moments, clip, numRows, width, from]
  }
  matches(
    'normalizeRows',
    (numbers) => normalized(numbers, numRowsOf(numbers), numbers.whole(0, 3)),
    { relative: 3e-7, scale: 1e-3 },
    400,
  )

  ignoresCompany('normalizeRows', {
    make: (numbers, numRows) => normalized(numbers, numRows, 0),
    part([y, x, center, deviation, clip, , width], first, count) {
      return [rows(y, first, count, width as number), x!, center!, deviation!, clip!, count, width!, first]
    },
    outputs: ([, , , , , , width]) => [[0, width as number]],
  })
})
