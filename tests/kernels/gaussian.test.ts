import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { drawNormal } from '../../src/kernels/distribution/draw.ts'
import {
  gaussianBackward,
  gaussianEvaluate,
  gaussianMode,
  gaussianSample,
} from '../../src/kernels/distribution/gaussian.ts'
import * as fc from '../support/properties.ts'

const sum = (x: number[]) => x.reduce((total, value) => total + value, 0)

/** log of the density of a normal, summed over the dimensions, in f64. */
function logprobTwin(action: ArrayLike<number>, mean: ArrayLike<number>, logStd: ArrayLike<number>): number {
  return sum(
    Array.from(logStd, (_, k) => {
      const variance = Math.exp(logStd[k]!) ** 2
      return -((action[k]! - mean[k]!) ** 2) / (2 * variance) - Math.log(Math.sqrt(2 * Math.PI * variance))
    }),
  )
}

const entropyTwin = (logStd: ArrayLike<number>) =>
  sum(Array.from(logStd, (s) => 0.5 * Math.log(2 * Math.PI * Math.E * Math.exp(s) ** 2)))

interface Case {
  width: number
  numRows: number
  from: number
  mean: Float32Array
  logStd: Float32Array
  normal: Float32Array
}

const cases: fc.Arbitrary<Case> = fc
  .record({
    width: fc.integer({ min: 1, max: 6 }),
    numRows: fc.integer({ min: 1, max: 5 }),
    from: fc.integer({ min: 0, max: 3 }),
    seed: fc.nat(),
  })
  .map(({ width, numRows, from, seed }) => {
    const random = new Random(seed)
    const draw = (stream: number, i: number, scale: number) => {
      random.draw(stream, 0, 0, i)
      return scale * random.normal(0, 0)
    }
    return {
      width,
      numRows,
      from,
      mean: Float32Array.from({ length: numRows * width }, (_, i) => draw(0, i, 3)),
      logStd: Float32Array.from({ length: width }, (_, i) => draw(1, i, 0.5)),
      normal: Float32Array.from({ length: numRows * width }, (_, i) => draw(2, i, 1)),
    }
  })

function sample({ width, numRows, from, mean, logStd, normal }: Case) {
  const action = new Float32Array((from + numRows) * width).fill(-7)
  const logprob = new Float32Array(from + numRows).fill(-7)
  gaussianSample(action, logprob, mean, logStd, normal, numRows, width, from)
  return { action, logprob }
}

function evaluate({ width, numRows, from, mean, logStd }: Omit<Case, 'normal'>, action: Float32Array) {
  const logprob = new Float32Array(numRows)
  const entropy = new Float32Array(numRows)
  gaussianEvaluate(logprob, entropy, action, mean, logStd, numRows, width, from)
  return { logprob, entropy }
}

// Three rows of two; every figure below is of these.
const golden = {
  width: 2,
  numRows: 3,
  from: 0,
  mean: Float32Array.of(0.5, -1.25, 2, 0, -0.75, 3.5),
  logStd: Float32Array.of(-0.5, 0.25),
}
const goldenAction = Float32Array.of(0, -1, 2.5, 1.5, -0.75, 0.125)

describe('gaussianEvaluate', () => {
  test('gives the logprob and the entropy that torch gives', () => {
    const { logprob, entropy } = evaluate(golden, goldenAction)
    // d = torch.distributions.Independent(torch.distributions.Normal(mean, logStd.exp()), 1)
    // d.log_prob(a); d.entropy()
    const logprobs = [-1.94661637808, -2.61000928714, -5.0422587143]
    for (let row = 0; row < 3; row++) {
      expect(logprob[row]).toBeCloseTo(logprobs[row]!, 6)
      expect(entropy[row]).toBeCloseTo(2.58787706641, 6)
    }
  })

  test('is the f64 formula rounded once', () => {
    fc.assert(
      fc.property(cases, (c) => {
        const { action } = sample(c)
        const { logprob, entropy } = evaluate(c, action)
        for (let row = 0; row < c.numRows; row++) {
          const a = action.subarray((c.from + row) * c.width, (c.from + row + 1) * c.width)
          const expected = logprobTwin(a, c.mean.subarray(row * c.width, (row + 1) * c.width), c.logStd)
          expect(Math.abs(logprob[row]! - expected)).toBeLessThanOrEqual(2 ** -24 * Math.abs(expected) + 1e-12)
          const expectedEntropy = entropyTwin(c.logStd)
          expect(Math.abs(entropy[row]! - expectedEntropy)).toBeLessThanOrEqual(
            2 ** -24 * Math.abs(expectedEntropy) + 1e-12,
          )
        }
      }),
    )
  })
})

describe('gaussianBackward', () => {
  test('gives the gradient that torch gives, and adds that of the log standard deviation', () => {
    const { mean, logStd } = golden
    const dMean = new Float32Array(6).fill(Number.NaN)
    const dLogStd = Float32Array.of(10, 20)
    const [dLogprob, dEntropy] = [Float32Array.of(1.5, -0.5, 2), Float32Array.of(0.25, 1, -3)]
    gaussianBackward(dMean, dLogStd, dLogprob, dEntropy, goldenAction, mean, logStd, 3, 2, 0)
    // (torch.tensor([1.5, -0.5, 2]) @ d.log_prob(a) + torch.tensor([0.25, 1, -3]) @ d.entropy()).backward()
    // mean.grad; logStd.grad
    const expected = [-2.03871137134, 0.227448997392, -0.679570457115, -0.454897994784, 0, -4.09408195306]
    for (const [i, d] of expected.entries()) expect(dMean[i]).toBeCloseTo(d, 6)
    expect(dLogStd[0]).toBeCloseTo(10 - 4.07042954289, 5)
    expect(dLogStd[1]).toBeCloseTo(20 + 8.44204184875, 5)
  })

  test('equals the central differences of the formula', () => {
    const H = 1e-5
    fc.assert(
      fc.property(cases, (c) => {
        const { width, numRows, from, mean, logStd } = c
        const { action } = sample(c)
        const dMean = new Float32Array(mean.length).fill(Number.NaN)
        const dLogStd = new Float32Array(width)
        const dLogprob = new Float32Array(numRows).map((_, row) => 1 - 0.75 * row)
        const dEntropy = new Float32Array(numRows).map((_, row) => row - 0.5)
        gaussianBackward(dMean, dLogStd, dLogprob, dEntropy, action, mean, logStd, numRows, width, from)
        const objective = (means: number[], deviations: number[]) =>
          sum(
            Array.from(dLogprob, (d, row) => {
              const a = action.subarray((from + row) * width, (from + row + 1) * width)
              const m = means.slice(row * width, (row + 1) * width)
              return d * logprobTwin(a, m, deviations) + dEntropy[row]! * entropyTwin(deviations)
            }),
          )
        const [m, s] = [Array.from(mean), Array.from(logStd)]
        for (let i = 0; i < m.length; i++) {
          const d = (objective(m.with(i, m[i]! + H), s) - objective(m.with(i, m[i]! - H), s)) / (2 * H)
          // The objective is quadratic in the means: only f64 noise and one rounding to f32 remain.
          expect(Math.abs(dMean[i]! - d)).toBeLessThan(1e-6 * Math.max(1, Math.abs(d)))
        }
        for (let k = 0; k < width; k++) {
          const d = (objective(m, s.with(k, s[k]! + H)) - objective(m, s.with(k, s[k]! - H))) / (2 * H)
          expect(Math.abs(dLogStd[k]! - d)).toBeLessThan(1e-6 * Math.max(1, Math.abs(d)))
        }
      }),
    )
  })
})

describe('gaussianSample', () => {
  test('scales and shifts the normal numbers', () => {
    fc.assert(
      fc.property(cases, (c) => {
        const { action } = sample(c)
        for (let i = 0; i < c.normal.length; i++) {
          const expected = c.mean[i]! + Math.exp(c.logStd[i % c.width]!) * c.normal[i]!
          expect(action[c.from * c.width + i]).toBe(Math.fround(expected))
        }
        expect(action.subarray(0, c.from * c.width).every((x) => x === -7)).toBe(true)
      }),
    )
  })

  test('writes the logprob that evaluating the stored actions gives, bit for bit', () => {
    fc.assert(
      fc.property(cases, (c) => {
        const { action, logprob } = sample(c)
        expect([...logprob.subarray(c.from)]).toEqual([...evaluate(c, action).logprob])
        expect([...logprob.subarray(0, c.from)]).toEqual(Array(c.from).fill(-7))
      }),
      { numRuns: 300 },
    )
  })

  test('has the mean, the deviation and the independence that it says', () => {
    const n = 20_000
    const random = new Random(5)
    const normal = new Float32Array(3 * n)
    const lane = new Uint32Array(n).map((_, i) => i)
    const zero = new Uint32Array(n)
    drawNormal(normal, new Uint32Array(4), lane, zero, new Int32Array(n), random.key0, random.key1, n, 3, 0)
    const means = [2, -1, 0.5]
    const mean = Float32Array.from({ length: 3 * n }, (_, i) => means[i % 3]!)
    const logStd = Float32Array.of(-1, 0, 0.5)
    const { action, logprob } = sample({ width: 3, numRows: n, from: 0, mean, logStd, normal })
    const z = [0, 1, 2].map((k) =>
      Array.from({ length: n }, (_, i) => (action[3 * i + k]! - means[k]!) / Math.exp(logStd[k]!)),
    )
    // Five standard errors each.
    for (let k = 0; k < 3; k++) {
      expect(Math.abs(sum(z[k]!) / n)).toBeLessThan(5 / Math.sqrt(n))
      expect(Math.abs(sum(z[k]!.map((x) => x * x)) / n - 1)).toBeLessThan(5 * Math.sqrt(2 / n))
      const other = z[(k + 1) % 3]!
      expect(Math.abs(sum(z[k]!.map((x, i) => x * other[i]!)) / n)).toBeLessThan(5 / Math.sqrt(n))
    }
    // The entropy is the mean of −logprob, whose variance is ½ a dimension.
    expect(Math.abs(-sum(Array.from(logprob)) / n - entropyTwin(logStd))).toBeLessThan(5 * Math.sqrt(1.5 / n))
  })
})

test('gaussianMode takes the mean, with the logprob that evaluating it gives bit for bit', () => {
  fc.assert(
    fc.property(cases, (c) => {
      const action = new Float32Array((c.from + c.numRows) * c.width).fill(-7)
      const logprob = new Float32Array(c.from + c.numRows)
      gaussianMode(action, logprob, c.mean, c.logStd, c.numRows, c.width, c.from)
      expect([...action.subarray(c.from * c.width)]).toEqual([...c.mean])
      expect([...logprob.subarray(c.from)]).toEqual([...evaluate(c, action).logprob])
    }),
  )
})

describe('drawNormal', () => {
  test('gives each lane, episode and step numbers of its own, wherever its row stands', () => {
    const random = new Random(77)
    const width = 5
    const draw = (numRows: number, from: number, lane: number[], episode: number[], step: number[]) => {
      const normal = new Float32Array(numRows * width)
      const columns = [Uint32Array.from(lane), Uint32Array.from(episode), Int32Array.from(step)] as const
      drawNormal(normal, new Uint32Array(4), ...columns, random.key0, random.key1, numRows, width, from)
      return normal
    }
    const [lane, episode, step] = [
      [0, 1, 0, 7, 7],
      [0, 0, 1, 3, 3],
      [0, 0, 0, 41, 42],
    ]
    const together = draw(5, 0, lane, episode, step)
    expect(new Set(together).size).toBe(5 * width)
    for (let row = 0; row < 5; row++) {
      const alone = draw(1, row, lane, episode, step)
      expect([...alone]).toEqual([...together.subarray(row * width, (row + 1) * width)])
      // A step owns two blocks of four words; a pair of words gives two numbers.
      for (let k = 0; k < width; k++) {
        random.draw(Stream.action, lane[row]!, episode[row]!, 2 * step[row]! + Math.floor(k / 4))
        const first = k % 4 < 2 ? 0 : 2
        expect(alone[k]).toBe(Math.fround(random.normal(first, k % 2 === 0 ? 0 : 1)))
      }
    }
  })
})
