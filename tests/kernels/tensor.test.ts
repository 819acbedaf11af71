import { describe, expect, test } from 'vitest'
import { ElementMap, mapElements } from '../../src/kernels/tensor/elements.ts'
import {
  addDepthwise,
  addToSegments,
  DepthwiseTarget,
  foldPatches,
  sumMiddle,
  transposeMatrices,
  unfoldPatches,
} from '../../src/kernels/tensor/layout.ts'
import { MATMUL_SCRATCH, matmul } from '../../src/kernels/tensor/matmul.ts'
import * as fc from '../support/properties.ts'
import { Numbers } from './calls.ts'

const none = new Float32Array(0)
const scratch = new Float32Array(MATMUL_SCRATCH)

describe('matmul', () => {
  // numpy: a @ b + [1, 0, -1]
  const a = [1, 2, 3, 4]
  const b = [1, 0, -1, 2, 1, 0.5]
  const product = [6, 2, -1, 12, 4, -2]
  const transposed = { a: [1, 3, 2, 4], b: [1, 2, 0, 1, -1, 0.5] }

  test.each([
    [false, false],
    [false, true],
    [true, false],
    [true, true],
  ])('is the product of both sides as they lie (transposed: %s, %s)', (aTransposed, bTransposed) => {
    const c = Float32Array.from({ length: 6 }, () => 100)
    const left = Float32Array.from(aTransposed ? transposed.a : a)
    const right = Float32Array.from(bTransposed ? transposed.b : b)
    const bias = Float32Array.of(1, 0, -1)
    matmul(c, left, right, bias, scratch, 2, 3, 2, aTransposed, bTransposed, false)
    expect([...c]).toEqual(product)
  })

  test('without a bias begins at 0, or at what C holds', () => {
    const c = Float32Array.from({ length: 6 }, () => 100)
    matmul(c, Float32Array.from(a), Float32Array.from(b), none, scratch, 2, 3, 2, false, false, true)
    expect([...c]).toEqual([105, 102, 100, 111, 104, 99])
    matmul(c, Float32Array.from(a), Float32Array.from(b), none, scratch, 2, 3, 2, false, false, false)
    expect([...c]).toEqual([5, 2, 0, 11, 4, -1])
  })
})

describe('mapElements', () => {
  const x = [-3, -1, -0.25, 0, 0.5, 1.5, 4]
  test.each([
    // python: [math.erf(x) for x in (-3, -1, -.25, 0, .5, 1.5, 4)]
    [
      'erf',
      [
        -0.9999779095030014, -0.8427007929497149, -0.2763263901682369, 0, 0.5204998778130465, 0.9661051464753108,
        0.9999999845827421,
      ],
    ],
    // python: [math.log1p(math.exp(x)) for x in …]
    [
      'softplus',
      [
        0.04858735157374206,
        0.31326168751822286,
        0.5759394198788436,
        Math.LN2,
        0.9740769841801067,
        1.7014132779827524,
        4.0181499279178094,
      ],
    ],
  ] as const)('%s agrees with Python', (name, wanted) => {
    const y = new Float32Array(x.length)
    mapElements(y, Float32Array.from(x), ElementMap[name], x.length)
    wanted.forEach((value, i) => {
      expect(y[i]).toBeCloseTo(value, 6)
    })
  })
})

describe('layout', () => {
  test('a transposed transpose is what it was', () => {
    const x = new Numbers(1).floats(2 * 3 * 5)
    const [once, twice] = [new Float32Array(30), new Float32Array(30)]
    transposeMatrices(once, x, 2, 3, 5)
    transposeMatrices(twice, once, 2, 5, 3)
    expect(twice).toEqual(x)
    expect(once[1]).toBe(x[5])
  })

  test('sums go over the middle', () => {
    const out = new Float32Array(4)
    sumMiddle(out, Float32Array.of(1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60), 2, 3, 2)
    expect([...out]).toEqual([9, 12, 90, 120])
  })

  test('rows of segments that do not exist are left out', () => {
    const sums = Float32Array.of(1, 1, 0, 0)
    addToSegments(sums, Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8), Int32Array.of(0, -1, 2, 0), 4, 2, 2)
    expect([...sums]).toEqual([9, 11, 0, 0])
  })

  test('patches of images, padded', () => {
    const patches = new Float32Array(2 * 2 * 2 * 4).fill(Number.NaN)
    const images = Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8)
    const sizes = { height: 2, width: 2, channels: 1, outHeight: 2, outWidth: 2, filterHeight: 2, filterWidth: 2 }
    const steps = { strideHeight: 1, strideWidth: 1, dilationHeight: 1, dilationWidth: 1, padTop: 0, padLeft: 1 }
    unfoldPatches(patches, images, { ...sizes, ...steps }, 2)
    const first = [0, 1, 0, 3, 1, 2, 3, 4, 0, 3, 0, 0, 3, 4, 0, 0]
    expect([...patches]).toEqual([...first, ...[0, 5, 0, 7, 5, 6, 7, 8, 0, 7, 0, 0, 7, 8, 0, 0]])
  })

  test('a depthwise convolution multiplies each channel by filters of its own, and its gradients are its adjoints', () => {
    // One image of 2 × 2 pixels with two channels, two filters each, of 1 × 2 taps; beyond the right edge there is nothing.
    const sizes = { height: 2, width: 2, channels: 2, outHeight: 2, outWidth: 2, filterHeight: 1, filterWidth: 2 }
    const steps = { strideHeight: 1, strideWidth: 1, dilationHeight: 1, dilationWidth: 1, padTop: 0, padLeft: 0 }
    const geometry = { ...sizes, ...steps }
    const x = Float32Array.of(1, 10, 2, 20, 3, 30, 4, 40)
    const weight = Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8)
    const y = new Float32Array(16).fill(0.5)
    addDepthwise(y, x, weight, geometry, DepthwiseTarget.output, 2, 1)
    const first = [1 + 2 * 5, 2 + 2 * 6, 30 + 20 * 7, 40 + 20 * 8, 2, 4, 60, 80]
    const second = [3 + 4 * 5, 6 + 4 * 6, 90 + 40 * 7, 120 + 40 * 8, 4, 8, 120, 160]
    expect([...y]).toEqual([...first, ...second].map((value) => value + 0.5))
    const product = (a: Float32Array, b: Float32Array) => a.reduce((sum, value, i) => sum + value * b[i]!, 0)
    const dy = new Numbers(4).floats(16)
    const [dx, dWeight] = [new Float32Array(8), new Float32Array(8)]
    addDepthwise(dy, dx, weight, geometry, DepthwiseTarget.input, 2, 1)
    addDepthwise(dy, x, dWeight, geometry, DepthwiseTarget.filter, 2, 1)
    const whole = product(dy, y) - 0.5 * dy.reduce((sum, value) => sum + value, 0)
    expect(product(dx, x)).toBeCloseTo(whole, 3)
    expect(product(dWeight, weight)).toBeCloseTo(whole, 3)
  })

  test('folding is the adjoint of unfolding: (unfold x) · p = x · (fold p)', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 31 }), (seed) => {
        const numbers = new Numbers(seed)
        const [height, width, channels] = [numbers.whole(1, 6), numbers.whole(1, 6), numbers.whole(1, 3)]
        const [outHeight, outWidth] = [numbers.whole(1, 5), numbers.whole(1, 5)]
        const [filterHeight, filterWidth] = [numbers.whole(1, 3), numbers.whole(1, 3)]
        const [strideHeight, strideWidth] = [numbers.whole(1, 2), numbers.whole(1, 2)]
        const [dilationHeight, dilationWidth] = [numbers.whole(1, 2), numbers.whole(1, 2)]
        const [padTop, padLeft] = [numbers.whole(0, 2), numbers.whole(0, 2)]
        const count = numbers.whole(1, 3)
        const x = numbers.floats(count * height * width * channels)
        const p = numbers.floats(count * outHeight * outWidth * filterHeight * filterWidth * channels)
        const [unfolded, folded] = [new Float32Array(p.length), new Float32Array(x.length)]
        const sizes = { height, width, channels, outHeight, outWidth, filterHeight, filterWidth }
        const steps = { strideHeight, strideWidth, dilationHeight, dilationWidth, padTop, padLeft }
        unfoldPatches(unfolded, x, { ...sizes, ...steps }, count)
        foldPatches(folded, p, { ...sizes, ...steps }, count)
        const dot = (u: Float32Array, v: Float32Array) => u.reduce((sum, value, i) => sum + value * v[i]!, 0)
        expect(dot(unfolded, p)).toBeCloseTo(dot(x, folded), 3)
      }),
    )
  })
})
