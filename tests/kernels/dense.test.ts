import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { Activation, denseBackwardInput, denseBackwardWeights, denseForward } from '../../src/kernels/dense/dense.ts'
import * as fc from '../support/properties.ts'

const UNTOUCHED = -77

interface Case {
  numRows: number
  numInputs: number
  numOutputs: number
  xFrom: number
  yFrom: number
  x: Float32Array
  weight: Float32Array
  bias: Float32Array
  /** A gradient by the outputs. */
  dy: Float32Array
}

const cases: fc.Arbitrary<Case> = fc
  .record({
    numRows: fc.integer({ min: 0, max: 6 }),
    numInputs: fc.integer({ min: 1, max: 10 }),
    numOutputs: fc.integer({ min: 1, max: 10 }),
    xFrom: fc.integer({ min: 0, max: 3 }),
    yFrom: fc.integer({ min: 0, max: 3 }),
    seed: fc.nat(),
  })
  .map((shape) => {
    const random = new Random(shape.seed)
    const normals = (stream: number, length: number) =>
      Float32Array.from({ length }, (_, i) => {
        random.draw(Stream.step, stream, 0, i)
        return random.normal(0, 0)
      })
    const { numRows, numInputs, numOutputs, xFrom } = shape
    return {
      ...shape,
      x: normals(0, (xFrom + numRows) * numInputs),
      weight: normals(1, numInputs * numOutputs),
      bias: normals(2, numOutputs),
      dy: normals(3, numRows * numOutputs),
    }
  })
const activations = fc.constantFrom(...Object.values(Activation))

const activate = (sum: number, activation: number) =>
  activation === Activation.tanh ? Math.tanh(sum) : activation === Activation.relu ? Math.max(0, sum) : sum

/** One output, by the formula, in f64. */
function outputTwin(c: Case, row: number, j: number, activation: number): number {
  const products = Array.from(
    { length: c.numInputs },
    (_, k) => c.x[(c.xFrom + row) * c.numInputs + k]! * c.weight[k * c.numOutputs + j]!,
  )
  return activate(products.reduce((sum, product) => sum + product, 0) + c.bias[j]!, activation)
}

function forward(c: Case, activation: number): Float32Array {
  const y = new Float32Array((c.yFrom + c.numRows + 1) * c.numOutputs).fill(UNTOUCHED)
  denseForward(y, c.x, c.weight, c.bias, c.numRows, c.numInputs, c.numOutputs, activation, c.yFrom, c.xFrom)
  return y
}

/** dx of a layer over outputs x of `activation` below it. */
function backwardInput(
  dx: Float32Array,
  dy: Float32Array,
  weight: Float32Array,
  x: Float32Array,
  { numRows, numInputs, numOutputs }: Pick<Case, 'numRows' | 'numInputs' | 'numOutputs'>,
  accumulate: boolean,
  activation: number,
): void {
  const workspace = new Float32Array((numOutputs + 1) * numInputs)
  denseBackwardInput(dx, dy, weight, workspace, x, numRows, numInputs, numOutputs, accumulate, activation)
}

/** From the gradient by a layer's outputs to that by its sums, through a layer above that changes nothing. */
function bySums(dy: Float32Array, y: Float32Array, { numRows, numOutputs }: Case, activation: number): Float32Array {
  const identity = Float32Array.from({ length: numOutputs ** 2 }, (_, i) => (i % (numOutputs + 1) === 0 ? 1 : 0))
  const dSum = new Float32Array(dy.length).fill(Number.NaN)
  backwardInput(dSum, dy, identity, y, { numRows, numInputs: numOutputs, numOutputs }, false, activation)
  return dSum
}

// Two rows, three inputs, five outputs; every figure of torch below is of these.
const golden: Case = {
  numRows: 2,
  numInputs: 3,
  numOutputs: 5,
  xFrom: 0,
  yFrom: 0,
  x: Float32Array.of(1, -0.5, 0.25, 0.75, 2, -1),
  weight: Float32Array.of(
    ...[0.5, -1, 0.25, 1.5, -0.125],
    ...[1, 0.75, -0.5, 0.25, 2],
    ...[-0.25, 0.5, 1, -1.5, 0.375],
  ),
  bias: Float32Array.of(0.125, -0.25, 0.5, 1, -1),
  dy: Float32Array.of(...[1, -2, 0.5, 0.25, 1], ...[-1, 0.75, 2, -0.5, 3]),
}

describe('denseForward', () => {
  test('equals the f64 formula within one rounding to f32', () => {
    fc.assert(
      fc.property(cases, activations, (c, activation) => {
        const y = forward(c, activation)
        for (let row = 0; row < c.numRows; row++) {
          for (let j = 0; j < c.numOutputs; j++) {
            const expected = outputTwin(c, row, j, activation)
            const tolerance = 2 ** -24 * Math.abs(expected) + 1e-14
            expect(Math.abs(y[(c.yFrom + row) * c.numOutputs + j]! - expected)).toBeLessThanOrEqual(tolerance)
          }
        }
      }),
      { numRuns: 300 },
    )
  })

  test('writes its rows from `yFrom` on and no other', () => {
    fc.assert(
      fc.property(cases, (c) => {
        const y = forward(c, Activation.tanh)
        const written = [...y].map((value) => Math.abs(value) <= 1)
        const expected = written.map((_, i) => {
          const row = Math.floor(i / c.numOutputs)
          return row >= c.yFrom && row < c.yFrom + c.numRows
        })
        expect(written).toEqual(expected)
      }),
    )
  })

  test('gives a row the same bits alone and in company, whatever its place', () => {
    fc.assert(
      fc.property(cases, activations, (c, activation) => {
        const together = forward(c, activation)
        for (let row = 0; row < c.numRows; row++) {
          const alone = forward({ ...c, numRows: 1, xFrom: c.xFrom + row, yFrom: 0 }, activation)
          const first = (c.yFrom + row) * c.numOutputs
          expect([...alone.subarray(0, c.numOutputs)]).toEqual([...together.subarray(first, first + c.numOutputs)])
        }
      }),
    )
  })

  test('gives an output the same bits whether four are summed at a time or one', () => {
    fc.assert(
      fc.property(cases, (c) => {
        const together = forward(c, Activation.linear)
        for (let j = 0; j < c.numOutputs; j++) {
          const weight = c.weight.filter((_, i) => i % c.numOutputs === j)
          const alone = forward({ ...c, numOutputs: 1, weight, bias: c.bias.subarray(j, j + 1) }, Activation.linear)
          for (let row = c.yFrom; row < c.yFrom + c.numRows; row++) {
            expect(alone[row]).toBe(together[row * c.numOutputs + j])
          }
        }
      }),
    )
  })
})

describe('the gradients', () => {
  // y = f(x @ W + b); (y * dy).sum().backward()
  // y; x.grad; W.grad; b.grad
  test.each([
    [
      'linear',
      [0.0625, -1.5, 1.25, 2, -2.03125, 2.75, 0, -1.3125, 4.125, 2.53125],
      [2.875, 1.3125, -0.75, -1.875, 4.4375, 4.5],
      [0.25, -1.4375, 2, -0.125, 3.25, -2.5, 2.5, 3.75, -1.125, 5.5, 1.25, -1.25, -1.875, 0.5625, -2.75],
      [0, -1.25, 2.5, -0.25, 4],
    ],
    [
      'tanh',
      [
        0.0624187467475, -0.905148253645, 0.848283639958, 0.964027580076, -0.966170173467, 0.991859724568, 0,
        -0.864906617721, 0.999477619362, 0.987420195726,
      ],
      [0.912696745979, 0.792386293484, -0.291076041703, -0.642297747276, 0.44422675198, 0.911836549943],
      [
        0.98394318497, 0.201086722153, 0.518112247025, 0.0172710230652, 0.122768249316, -0.530480523586, 1.68070663892,
        0.937642453946, -0.0098758415015, 0.11675054448, 0.265240261793, -0.840353319462, -0.468821226973,
        0.00493792075075, -0.0583752722401,
      ],
      [0.979889613275, 0.388586722153, 0.644080518336, 0.0171404620159, 0.14151926712],
    ],
    [
      'relu',
      [0.0625, 0, 1.25, 2, 0, 2.75, 0, 0, 4.125, 2.53125],
      [1, 0.8125, -0.125, -1.625, 4.875, 2.125],
      [0.25, 0, 0.5, -0.125, 2.25, -2.5, 0, -0.25, -1.125, 6, 1.25, 0, 0.125, 0.5625, -3],
      [0, 0, 0.5, -0.25, 3],
    ],
  ] as const)('of a layer with %s are those of torch', (name, outputs, byInput, byWeight, byBias) => {
    const { numRows, numInputs, numOutputs, x, weight } = golden
    const y = forward(golden, Activation[name]).subarray(0, 10)
    const dSum = bySums(golden.dy, y, golden, Activation[name])
    const dWeight = new Float32Array(15)
    const dBias = new Float32Array(5)
    const dx = new Float32Array(6).fill(Number.NaN)
    denseBackwardWeights(dWeight, dBias, dSum, x, numRows, numInputs, numOutputs, 0)
    backwardInput(dx, dSum, weight, x, golden, false, Activation.linear)
    for (const [actual, expected] of [
      [y, outputs],
      [dx, byInput],
      [dWeight, byWeight],
      [dBias, byBias],
    ] as const) {
      expect(actual).toHaveLength(expected.length)
      for (const [i, value] of expected.entries()) expect(actual[i]).toBeCloseTo(value, 5)
    }
  })

  test('equal the central differences of the formula', () => {
    const H = 1e-5
    fc.assert(
      fc.property(cases, activations, (c, activation) => {
        // The kink of relu has no derivative: such draws, one in ten thousand, show nothing.
        const outputs = Array.from({ length: c.numRows * c.numOutputs }, (_, i) =>
          outputTwin(c, Math.floor(i / c.numOutputs), i % c.numOutputs, Activation.linear),
        )
        fc.pre(outputs.every((sum) => Math.abs(sum) > 1e-3))
        const y = forward({ ...c, yFrom: 0 }, activation)
        const dSum = bySums(c.dy, y, c, activation)
        const dWeight = new Float32Array(c.weight.length)
        const dBias = new Float32Array(c.bias.length)
        const dx = new Float32Array(c.numRows * c.numInputs).fill(Number.NaN)
        denseBackwardWeights(dWeight, dBias, dSum, c.x, c.numRows, c.numInputs, c.numOutputs, c.xFrom)
        backwardInput(dx, dSum, c.weight, c.x, c, false, Activation.linear)

        const wide = {
          ...c,
          x: Float64Array.from(c.x),
          weight: Float64Array.from(c.weight),
          bias: Float64Array.from(c.bias),
        }
        const objective = () => {
          let sum = 0
          for (let i = 0; i < c.dy.length; i++) {
            const [row, j] = [Math.floor(i / c.numOutputs), i % c.numOutputs]
            sum += c.dy[i]! * outputTwin(wide as unknown as Case, row, j, activation)
          }
          return sum
        }
        const check = (column: Float64Array, gradient: Float32Array, first: number) => {
          for (let i = 0; i < gradient.length; i++) {
            const at = column[first + i]!
            column[first + i] = at + H
            const above = objective()
            column[first + i] = at - H
            const below = objective()
            column[first + i] = at
            const difference = (above - below) / (2 * H)
            // Rounding of y and of dSum to f32, over up to ten terms of size about 10.
            expect(Math.abs(gradient[i]! - difference)).toBeLessThan(2e-5 * Math.max(1, Math.abs(difference)))
          }
        }
        check(wide.weight, dWeight, 0)
        check(wide.bias, dBias, 0)
        check(wide.x, dx, c.xFrom * c.numInputs)
      }),
    )
  })

  test('by weights are added to what was there', () => {
    fc.assert(
      fc.property(cases, (c) => {
        const run = (initial: number) => {
          const dWeight = new Float32Array(c.weight.length).map((_, i) => initial * (i + 1))
          const dBias = new Float32Array(c.bias.length).map((_, i) => initial * (i + 1))
          denseBackwardWeights(dWeight, dBias, c.dy, c.x, c.numRows, c.numInputs, c.numOutputs, c.xFrom)
          return [dWeight, dBias]
        }
        const [from0, from1] = [run(0), run(1)]
        for (const part of [0, 1]) {
          for (const [i, value] of from0[part]!.entries()) expect(from1[part]![i]! - (i + 1)).toBeCloseTo(value, 4)
        }
      }),
    )
  })

  test('by inputs replace what was there, or are added to it when told so', () => {
    fc.assert(
      fc.property(cases, (c) => {
        const length = c.numRows * c.numInputs
        const run = (initial: number, accumulate: boolean) => {
          const dx = new Float32Array(length).map((_, i) => initial * (i + 1))
          backwardInput(dx, c.dy, c.weight, c.x, c, accumulate, Activation.linear)
          return [...dx]
        }
        const plain = run(0, false)
        expect(run(5, false)).toEqual(plain)
        const added = run(5, true)
        for (const [i, value] of plain.entries()) expect(added[i]! - 5 * (i + 1)).toBeCloseTo(value, 4)
      }),
    )
  })

  test('by inputs go through the activation below once all are summed', () => {
    const shape = { numRows: 1, numInputs: 3, numOutputs: 1 }
    const run = (accumulate: boolean, activation: number) => {
      const dx = Float32Array.of(4, 4, 4)
      const [dy, weight] = [Float32Array.of(2), Float32Array.of(1, 2, 3)]
      backwardInput(dx, dy, weight, Float32Array.of(0.5, 0, -0.5), shape, accumulate, activation)
      return [...dx]
    }
    expect(run(false, Activation.linear)).toEqual([2, 4, 6])
    expect(run(false, Activation.tanh)).toEqual([1.5, 4, 4.5])
    expect(run(true, Activation.tanh)).toEqual([4.5, 8, 7.5])
    expect(run(true, Activation.relu)).toEqual([6, 0, 0])
  })
})
