import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Activation, bestKernelBuild, createKernels, type KernelBuild, type Kernels } from '../../src/kernels/bind.ts'
import { type Argument, Bench, type Column, Numbers, type Outcome } from './calls.ts'

/** Cases a property. */
const RUNS = 150

const builds: KernelBuild[] = bestKernelBuild() === 'relaxed' ? ['simd', 'relaxed'] : ['simd']
const plain = new Bench('plain')

/** How far a number may be from its plain twin's: relative to the larger of its size and `scale`. */
interface Tolerance {
  readonly relative: number
  readonly scale?: number
  /** Arguments that are workspace: what a body leaves there is its own. */
  readonly workspace?: readonly number[]
}

function expectClose(name: string, got: Outcome, wanted: Outcome, { relative, scale = 1, workspace = [] }: Tolerance): void {
  wanted.columns.forEach((column, index) => {
    if (column === undefined || workspace.includes(index)) return
    const other = got.columns[index]!
    for (let i = 0; i < column.length; i++) {
      const a = other[i]!
      const b = column[i]!
      if (Object.is(a, b) || Math.abs(a - b) <= relative * Math.max(scale, Math.abs(b))) continue
      throw new Error(`${name}: element ${i} of argument ${index} is ${a}, its plain twin's ${b}`)
    }
  })
  if (typeof wanted.result === 'number') {
    const difference = Math.abs((got.result as number) - wanted.result)
    if (!(Object.is(got.result, wanted.result) || difference <= relative * Math.max(scale, Math.abs(wanted.result)))) {
      throw new Error(`${name} returned ${got.result}, its plain twin ${wanted.result}`)
    }
  }
}

/** Every build of the kernel against its plain body, on fresh arguments. */
function matches(name: keyof Kernels, make: (numbers: Numbers) => Argument[], tolerance: Tolerance, runs = RUNS): void {
  test.each(builds)(`${name} equals its plain body (%s)`, (build) => {
    const bench = new Bench(build)
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 31 }), fc.integer({ min: 0, max: 7 }), (seed, shift) => {
        const given = make(new Numbers(seed))
        expectClose(name, bench.call(name, given, shift), plain.call(name, given, shift), tolerance)
      }),
      { numRuns: runs },
    )
  })
}

/** What a row's result may not depend on. */
interface RowLaw {
  /** Arguments for `numRows` rows. */
  make(numbers: Numbers, numRows: number): Argument[]
  /** The same call for rows `first` to `first + count` alone. */
  part(given: readonly Argument[], first: number, count: number): Argument[]
  /** The outputs by row, [argument, elements a row] each. */
  outputs(given: readonly Argument[]): [number, number][]
}

/** Same bits for a row whatever rows are beside it, however many, and wherever it stands. */
function ignoresCompany(name: keyof Kernels, { make, part, outputs }: RowLaw, runs = RUNS): void {
  test.each(builds)(`${name} gives a row the same bits alone and in company (%s)`, (build) => {
    const bench = new Bench(build)
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 2 ** 31 }),
        fc.oneof(fc.integer({ min: 1, max: 40 }), fc.constant(1000)),
        fc.integer({ min: 0, max: 7 }),
        (seed, numRows, shift) => {
          const numbers = new Numbers(seed)
          const given = make(numbers, numRows)
          const all = bench.call(name, given)
          const first = numbers.whole(0, numRows - 1)
          for (const count of [1, numbers.whole(1, numRows - first)]) {
            const some = bench.call(name, part(given, first, count), shift)
            for (const [argument, width] of outputs(given)) {
              const wanted = all.columns[argument]!.slice(first * width, (first + count) * width)
              expect(some.columns[argument]!.slice(0, count * width)).toEqual(wanted)
            }
          }
        },
      ),
      { numRuns: runs },
    )
  })
}

function rows(column: Argument | undefined, first: number, count: number, width = 1): Column {
  return (column as Column).slice(first * width, (first + count) * width)
}

const numRowsOf = (numbers: Numbers): number => [0, 1, 2, 3, 4, 5, 6, 7, 31, 64, 65, 255, 256][numbers.whole(0, 12)]!
const widthOf = (numbers: Numbers): number => [1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 31, 32, 33, 64, 65][numbers.whole(0, 14)]!

describe('binding', () => {
  test('a build that does not exist is refused by name', () => {
    const memory = new WebAssembly.Memory({ initial: 1 })
    expect(() => createKernels(memory, 'fast' as KernelBuild)).toThrow('kernels: got "fast", expected plain')
  })

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

  matches(
    'activationBackward',
    (numbers) => {
      const length = numRowsOf(numbers)
      return [numbers.floats(length), numbers.floats(length), length, numbers.whole(0, 2)]
    },
    { relative: 1e-6 },
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
      const transposed = new Float32Array(weight.length)
      const dx = numbers.floats(rows * inputs)
      const dy = numbers.floats(rows * outputs)
      return [dx, dy, weight, transposed, rows, inputs, outputs, numbers.uniform() < 0.5]
    },
    { relative: 1e-5, scale: 8, workspace: [3] },
    400,
  )

  ignoresCompany('denseBackwardInput', {
    make(numbers, numRows) {
      const [numInputs, numOutputs] = [widthOf(numbers), widthOf(numbers)]
      const weight = numbers.floats(numInputs * numOutputs)
      const transposed = new Float32Array(weight.length)
      const dx = numbers.floats(numRows * numInputs)
      const dy = numbers.floats(numRows * numOutputs)
      return [dx, dy, weight, transposed, numRows, numInputs, numOutputs, numbers.uniform() < 0.5]
    },
    part([dx, dy, weight, transposed, , numInputs, numOutputs, accumulate], first, count) {
      const some = rows(dx, first, count, numInputs as number)
      const gradients = rows(dy, first, count, numOutputs as number)
      return [some, gradients, weight!, transposed!, count, numInputs!, numOutputs!, accumulate!]
    },
    outputs: ([, , , , , numInputs]) => [[0, numInputs as number]],
  })
})

/** State columns, observation, reward, flags and pushes of carts. */
function carts(numbers: Numbers, numLanes: number): Argument[] {
  const state = [2.6, 3, 0.25, 3].map((bound) => numbers.floats(numLanes, -bound, bound))
  const written = [new Float32Array(4 * numLanes), new Float32Array(numLanes), new Uint8Array(numLanes)]
  return [...state, ...written, numbers.wholes(numLanes, 0, 1), 0, numLanes]
}

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
    make: carts,
    part: (given, first, count) => [
      ...given.slice(0, 4).map((column) => rows(column, first, count)),
      ...[4, 1, 1].map((width, index) => rows(given[4 + index], first, count, width)),
      rows(given[7], first, count),
      0,
      count,
    ],
    outputs: () => [0, 1, 2, 3, 4, 5, 6].map((argument) => [argument, argument === 4 ? 4 : 1]),
  })
})
