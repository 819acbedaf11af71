import { describe, expect, test } from 'vitest'
import { adamStep, globalNorm } from '../../src/kernels/optimizer/adam.ts'
import { NUM_SLOTS, sumSlots } from '../../src/kernels/optimizer/slots.ts'
import * as fc from '../support/properties.ts'

interface Setting {
  learningRate: number
  beta1: number
  beta2: number
  epsilon: number
  weightDecay: number
}

/** Steps of the kernel from zero moments; `gradients` are one column a step. */
function run(initial: Float32Array, gradients: Float32Array[], scale: number, s: Setting) {
  const weight = initial.slice()
  const moment = new Float32Array(weight.length)
  const squareMoment = new Float32Array(weight.length)
  const history = gradients.map((gradient, index) => {
    const [correction1, correction2] = [1 - s.beta1 ** (index + 1), 1 - s.beta2 ** (index + 1)]
    adamStep(weight, moment, squareMoment, gradient, scale, s.learningRate, s, correction1, correction2, weight.length)
    return weight.slice()
  })
  return { history, weight, moment, squareMoment }
}

/** Algorithm 1 of Kingma and Ba with the decay of Loshchilov and Hutter, for one weight, in f64. */
function weightTwin(initial: number, gradients: number[], s: Setting): number {
  let [w, m, v] = [initial, 0, 0]
  for (const [index, g] of gradients.entries()) {
    m = s.beta1 * m + (1 - s.beta1) * g
    v = s.beta2 * v + (1 - s.beta2) * g ** 2
    const mHat = m / (1 - s.beta1 ** (index + 1))
    const vHat = v / (1 - s.beta2 ** (index + 1))
    w = w * (1 - s.learningRate * s.weightDecay) - (s.learningRate * mHat) / (Math.sqrt(vHat) + s.epsilon)
  }
  return w
}

const setting = { learningRate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-5, weightDecay: 0 }

describe('adamStep', () => {
  const initial = Float32Array.of(0.5, -1.25, 2, 0)
  // The last gradient is small beside epsilon.
  const gradients = [1, 2, 3, 4, 5, 6].map((s) =>
    Float32Array.of(Math.sin(s), Math.sin(2 * s), Math.sin(3 * s), 1e-6 * s),
  )

  test.each([
    // w = torch.tensor([0.5, -1.25, 2, 0], requires_grad=True)
    // opt = torch.optim.Adam([w], lr=0.01, betas=(0.9, 0.999), eps=1e-5)
    // for s in range(1, 7):
    //     w.grad = 0.5 * torch.tensor([sin(s), sin(2 * s), sin(3 * s), 1e-6 * s]); opt.step()
    [
      'Adam',
      0,
      [0.490000237673, -1.25999978005, 1.99000141703, -0.00047619047619],
      [0.471328475781, -1.26151116563, 1.99201469532, -0.00624349594593],
    ],
    // opt = torch.optim.AdamW([w], lr=0.01, betas=(0.9, 0.999), eps=1e-5, weight_decay=0.01)
    [
      'AdamW',
      0.01,
      [0.489950237673, -1.25987478005, 1.98980141703, -0.00047619047619],
      [0.471040554878, -1.26075591382, 1.99081932712, -0.0062423257733],
    ],
  ])('steps as torch.optim.%s does', (_, weightDecay, afterOne, afterSix) => {
    const { history, moment, squareMoment } = run(initial, gradients, 0.5, { ...setting, weightDecay })
    // Six roundings of weights below 4 to f32: 6 · 2^-23.
    for (let i = 0; i < 4; i++) {
      expect(Math.abs(history[0]![i]! - afterOne[i]!)).toBeLessThan(3e-7)
      expect(Math.abs(history[5]![i]! - afterSix[i]!)).toBeLessThan(8e-7)
    }
    // opt.state[w]['exp_avg']; opt.state[w]['exp_avg_sq']
    const moments = [-0.027955531858, -0.0194056357914, -0.0199956216639, 8.914845e-7]
    const squares = [0.000779052279128, 0.000757861003515, 0.000385169379289, 2.27237692413e-14]
    for (let i = 0; i < 4; i++) {
      expect(Math.abs(moment[i]! / moments[i]! - 1)).toBeLessThan(5e-6)
      expect(Math.abs(squareMoment[i]! / squares[i]! - 1)).toBeLessThan(1e-6)
    }
  })

  test('follows a f64 twin over many steps', () => {
    const value = fc.float({ min: -3, max: 3, noNaN: true })
    const settings = fc.record({
      learningRate: fc.double({ min: 1e-4, max: 0.05, noNaN: true }),
      beta1: fc.constantFrom(0, 0.9),
      beta2: fc.constantFrom(0.9, 0.999),
      epsilon: fc.constantFrom(1e-3, 1e-5),
      weightDecay: fc.constantFrom(0, 0.1),
    })
    fc.assert(
      fc.property(
        value,
        fc.array(value, { minLength: 1, maxLength: 25, size: 'max' }),
        settings,
        (initial, gradients, s) => {
          const columns = gradients.map((g) => Float32Array.of(g))
          const { weight } = run(Float32Array.of(initial), columns, 1, s)
          // A step rounds the weight (below 8) and the moments to f32; the direction of a step is below 30 in size.
          const tolerance = gradients.length * (2 ** -21 + s.learningRate * 30 * 2 ** -22)
          expect(Math.abs(weight[0]! - weightTwin(initial, gradients, s))).toBeLessThan(tolerance)
        },
      ),
      { numRuns: 300 },
    )
  })

  test('scales the gradient before anything else: halves of doubles change nothing', () => {
    const doubled = gradients.map((gradient) => gradient.map((g) => 2 * g))
    expect(run(initial, doubled, 0.5, setting).weight).toEqual(run(initial, gradients, 1, setting).weight)
  })

  test('leaves elements beyond `length` alone, and weights without gradient and decay where they are', () => {
    const [weight, moment, squareMoment] = [Float32Array.of(1, 2), Float32Array.of(0, 5), Float32Array.of(0, 6)]
    adamStep(weight, moment, squareMoment, Float32Array.of(0, 9), 1, 0.1, setting, 0.1, 0.001, 1)
    expect([...weight, ...moment, ...squareMoment]).toEqual([1, 2, 0, 5, 0, 6])
  })
})

describe('globalNorm', () => {
  test('is the length of the vector', () => {
    expect(globalNorm(Float32Array.of(3, 0, -4), 3)).toBe(5)
    expect(globalNorm(Float32Array.of(3, 4, 1e9), 2)).toBe(5)
    expect(globalNorm(new Float32Array(0), 0)).toBe(0)
    fc.assert(
      fc.property(fc.float32Array({ noNaN: true, noDefaultInfinity: true, maxLength: 50, size: 'max' }), (x) => {
        const expected = Math.hypot(...x)
        expect(Math.abs(globalNorm(x, x.length) - expected)).toBeLessThanOrEqual(1e-14 * expected)
      }),
    )
  })

  test('is summed in f64: squares beyond the range of f32 are none', () => {
    expect(globalNorm(Float32Array.of(1e30, 1e30), 2) / Math.SQRT2 / Math.fround(1e30)).toBeCloseTo(1, 14)
  })
})

describe('sumSlots', () => {
  /** Sums neighbors, then neighbors of the sums, until one is left; each sum is rounded to the column's type. */
  function pairwise(slots: number[][], round: (x: number) => number): number[] {
    if (slots.length === 1) return slots[0]!
    const sums = slots.flatMap((slot, i) => {
      if (i % 2 === 1) return []
      return [slots[i + 1] === undefined ? slot : slot.map((x, k) => round(x + slots[i + 1]![k]!))]
    })
    return pairwise(sums, round)
  }

  const slotLists = fc.integer({ min: 1, max: 5 }).chain((length) =>
    fc.array(fc.array(fc.float({ noNaN: true, min: -1e6, max: 1e6 }), { minLength: length, maxLength: length }), {
      minLength: 1,
      maxLength: NUM_SLOTS,
      size: 'max',
    }),
  )

  test.each([
    ['f32', Float32Array, Math.fround],
    ['f64', Float64Array, (x: number) => x],
  ] as const)('sums %s slots pairwise into the first, bit for bit', (_, ColumnArray, round) => {
    fc.assert(
      fc.property(slotLists, fc.double({ min: 0, max: 1, noNaN: true }), (slots, cut) => {
        const length = slots[0]!.length
        const column = ColumnArray.from([...slots.flat(), ...Array(length).fill(1e9)])
        const [from, to] = [Math.floor(cut * length), length]
        sumSlots(column, slots.length, length, 0, from)
        sumSlots(column, slots.length, length, from, to)
        // + 0: a sum of −0 and 0 may have either sign here.
        const first = Array.from(column.subarray(0, length), (x) => x + 0)
        expect(first).toEqual(pairwise(slots, round).map((x) => x + 0))
        // Slots that are not in use are left alone.
        expect([...column.subarray(slots.length * length)]).toEqual(Array(length).fill(1e9))
      }),
    )
  })
})
