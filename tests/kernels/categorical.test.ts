import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import {
  categoricalBackward,
  categoricalEvaluate,
  categoricalMode,
  categoricalSample,
} from '../../src/kernels/distribution/categorical.ts'
import { drawUniform } from '../../src/kernels/distribution/draw.ts'
import * as fc from '../support/properties.ts'

const sum = (x: ArrayLike<number>) => Array.from(x).reduce((total, value) => total + value, 0)

/** log p of the segments of one row of logits, by the formula, in f64. */
function logProbabilities(logits: ArrayLike<number>, sizes: readonly number[]): number[][] {
  let start = 0
  return sizes.map((size) => {
    const segment = Array.from(logits).slice(start, start + size)
    start += size
    const max = Math.max(...segment)
    const logTotal = max + Math.log(sum(segment.map((z) => Math.exp(z - max))))
    return segment.map((z) => z - logTotal)
  })
}

const logprobTwin = (logits: ArrayLike<number>, sizes: readonly number[], action: ArrayLike<number>) =>
  sum(logProbabilities(logits, sizes).map((segment, c) => segment[action[c]!]!))

const entropyTwin = (logits: ArrayLike<number>, sizes: readonly number[]) =>
  -sum(logProbabilities(logits, sizes).map((segment) => sum(segment.map((logp) => Math.exp(logp) * logp))))

interface Case {
  sizes: number[]
  numRows: number
  from: number
  logits: Float32Array
  action: Int32Array
  uniform: Float32Array
}

/** Logits (numRows × Σ sizes), actions (rows from `from` on) and uniform numbers. */
const cases: fc.Arbitrary<Case> = fc
  .record({
    sizes: fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 1, maxLength: 4 }),
    numRows: fc.integer({ min: 1, max: 5 }),
    from: fc.integer({ min: 0, max: 3 }),
    spread: fc.constantFrom(0, 1, 10, 1000),
    seed: fc.nat(),
  })
  .map(({ sizes, numRows, from, spread, seed }) => {
    const random = new Random(seed)
    const draw = (stream: number, i: number) => {
      random.draw(stream, 0, 0, i)
      return random.uniform(0)
    }
    return {
      sizes,
      numRows,
      from,
      logits: Float32Array.from({ length: numRows * sum(sizes) }, (_, i) => spread * (draw(0, i) - 0.5)),
      action: Int32Array.from({ length: (from + numRows) * sizes.length }, (_, i) =>
        Math.floor(sizes[i % sizes.length]! * draw(1, i)),
      ),
      uniform: Float32Array.from({ length: numRows * sizes.length }, (_, i) => draw(2, i)),
    }
  })

function evaluate({ sizes, numRows, from, logits, action }: Omit<Case, 'uniform'>) {
  const logprob = new Float32Array(numRows)
  const entropy = new Float32Array(numRows)
  const segments = Int32Array.from(sizes)
  categoricalEvaluate(logprob, entropy, action, logits, segments, numRows, sizes.length, sum(sizes), from)
  return { logprob, entropy }
}

function sample({ sizes, numRows, from, logits, uniform }: Omit<Case, 'action'>) {
  const action = new Int32Array((from + numRows) * sizes.length).fill(-7)
  const logprob = new Float32Array(from + numRows).fill(Number.NaN)
  const segments = Int32Array.from(sizes)
  categoricalSample(action, logprob, logits, uniform, segments, numRows, sizes.length, sum(sizes), from)
  return { action, logprob }
}

// sizes [3, 2, 4], three rows; every figure below is of these.
const golden = {
  sizes: [3, 2, 4],
  numRows: 3,
  from: 0,
  logits: Float32Array.of(
    ...[0.5, -1.25, 2, 0, 3.5, -0.75, 1, 1, 0.25],
    ...[-4, 8, 0.125, 1, -1, 2, -2, 0, 0.5],
    ...[0, 0, 0, 0, 0, 0, 0, 0, 0],
  ),
  action: Int32Array.of(2, 0, 3, 0, 1, 0, 1, 1, 2),
}

describe('categoricalEvaluate', () => {
  test('gives the logprob and the entropy that torch gives', () => {
    const { logprob, entropy } = evaluate(golden)
    // for c, s in enumerate(z.split([3, 2, 4], dim=1)):
    //     d = torch.distributions.Categorical(logits=s)
    //     logprob += d.log_prob(a[:, c]); entropy += d.entropy()
    const logprobs = [-5.48547456324, -14.4470624351, -3.17805383035]
    const entropies = [1.95196694204, 1.18144375909, 3.17805383035]
    for (let row = 0; row < 3; row++) {
      expect(logprob[row]).toBeCloseTo(logprobs[row]!, 5)
      expect(entropy[row]).toBeCloseTo(entropies[row]!, 5)
    }
  })

  test('is the f64 formula rounded once', () => {
    fc.assert(
      fc.property(cases, (c) => {
        const { logprob, entropy } = evaluate(c)
        const numLogits = sum(c.sizes)
        for (let row = 0; row < c.numRows; row++) {
          const logits = c.logits.subarray(row * numLogits, (row + 1) * numLogits)
          const first = (c.from + row) * c.sizes.length
          const expected = logprobTwin(logits, c.sizes, c.action.subarray(first, first + c.sizes.length))
          // One rounding to f32, and the cancellation of logits of up to 500 in f64.
          expect(Math.abs(logprob[row]! - expected)).toBeLessThanOrEqual(2 ** -24 * Math.abs(expected) + 1e-12)
          const expectedEntropy = entropyTwin(logits, c.sizes)
          expect(Math.abs(entropy[row]! - expectedEntropy)).toBeLessThanOrEqual(2 ** -24 * expectedEntropy + 1e-12)
        }
      }),
      { numRuns: 300 },
    )
  })

  test('stays finite for logits far apart, and does not change when all of a segment move together', () => {
    const at = (shift: number) =>
      evaluate({
        sizes: [3],
        numRows: 1,
        from: 0,
        logits: Float32Array.of(shift - 30_000, shift, shift + 1),
        action: Int32Array.of(0),
      })
    expect(at(0).logprob[0]).toBeCloseTo(-30_001.3125, 1)
    expect(at(0).entropy[0]).toBeCloseTo(0.582203, 5) // H of (1, e) / (1 + e)
    expect(at(4096)).toEqual(at(0))
  })
})

describe('categoricalBackward', () => {
  test('gives the gradient that torch gives', () => {
    const { sizes, numRows, from, logits, action } = golden
    const dLogits = new Float32Array(27).fill(Number.NaN)
    const [dLogprob, dEntropy] = [Float32Array.of(1.5, -0.5, 2), Float32Array.of(0.25, 1, -3)]
    categoricalBackward(dLogits, dLogprob, dEntropy, action, logits, Int32Array.from(sizes), numRows, 3, 9, from)
    // (torch.tensor([1.5, -0.5, 2]) @ logprob + torch.tensor([0.25, 1, -3]) @ entropy).backward(); z.grad
    const expected = [
      ...[-0.215061621275, -0.023929157121, 0.238990778396, 1.48092804977, -1.48092804977],
      ...[-0.0738599766763, -0.59036995588, -0.59036995588, 1.25459988844],
      ...[-0.499923245832, 0.496742060116, 0.00318118571661, 0.230411368182, -0.230411368182],
      ...[-0.494849884348, 0.0533072578027, 0.197293655373, 0.244248971173],
      ...[-2 / 3, 4 / 3, -2 / 3, -1, 1, -0.5, -0.5, 1.5, -0.5],
    ]
    for (const [i, d] of expected.entries()) expect(dLogits[i]).toBeCloseTo(d, 6)
  })

  test('equals the central differences of the formula', () => {
    fc.assert(
      fc.property(
        cases,
        fc.double({ min: -2, max: 2, noNaN: true }),
        fc.double({ min: -2, max: 2, noNaN: true }),
        (c, a, b) => {
          const numLogits = sum(c.sizes)
          const dLogits = new Float32Array(c.logits.length).fill(Number.NaN)
          const dLogprob = new Float32Array(c.numRows).map((_, row) => a + row)
          const dEntropy = new Float32Array(c.numRows).map((_, row) => b - row)
          const segments = Int32Array.from(c.sizes)
          const { action, logits, numRows, from } = c
          categoricalBackward(
            dLogits,
            dLogprob,
            dEntropy,
            action,
            logits,
            segments,
            numRows,
            c.sizes.length,
            numLogits,
            from,
          )
          for (let row = 0; row < numRows; row++) {
            const z = Array.from(logits.subarray(row * numLogits, (row + 1) * numLogits))
            const first = (from + row) * c.sizes.length
            const chosen = action.subarray(first, first + c.sizes.length)
            const objective = (at: number[]) =>
              dLogprob[row]! * logprobTwin(at, c.sizes, chosen) + dEntropy[row]! * entropyTwin(at, c.sizes)
            for (let j = 0; j < numLogits; j++) {
              const h = 1e-4
              const difference = (objective(z.with(j, z[j]! + h)) - objective(z.with(j, z[j]! - h))) / (2 * h)
              // h² / 6 of third derivatives below about 20, f64 noise 1e-12 / h, and one rounding to f32.
              expect(Math.abs(dLogits[row * numLogits + j]! - difference)).toBeLessThan(1e-6)
            }
          }
        },
      ),
    )
  })
})

describe('categoricalSample', () => {
  test('inverts the cumulative distribution', () => {
    fc.assert(
      fc.property(cases, (c) => {
        const { action } = sample(c)
        const numLogits = sum(c.sizes)
        for (let row = 0; row < c.numRows; row++) {
          const segments = logProbabilities(c.logits.subarray(row * numLogits, (row + 1) * numLogits), c.sizes)
          for (const [k, segment] of segments.entries()) {
            const chosen = action[(c.from + row) * c.sizes.length + k]!
            const u = c.uniform[row * c.sizes.length + k]!
            const below = sum(segment.slice(0, chosen).map(Math.exp))
            expect(u).toBeGreaterThanOrEqual(below - 1e-12)
            expect(u).toBeLessThan(below + Math.exp(segment[chosen]!) + 1e-12)
          }
        }
      }),
      { numRuns: 300 },
    )
  })

  test('writes the logprob that evaluating the actions gives, bit for bit', () => {
    fc.assert(
      fc.property(cases, (c) => {
        const { action, logprob } = sample(c)
        expect([...logprob.subarray(c.from)]).toEqual([...evaluate({ ...c, action }).logprob])
      }),
      { numRuns: 300 },
    )
  })

  test('writes the rows from `from` on and no other', () => {
    const { action, logprob } = sample({ ...golden, from: 2, uniform: new Float32Array(9) })
    expect([...action.subarray(0, 6)]).toEqual(Array(6).fill(-7))
    expect([...logprob.subarray(0, 2)]).toEqual([Number.NaN, Number.NaN])
    expect(action.subarray(6).every((chosen) => chosen >= 0)).toBe(true)
  })

  test('chooses with the frequencies of the distribution, each choice independently', () => {
    const n = 40_000
    const random = new Random(21)
    const uniform = new Float32Array(n * 2)
    const lane = new Uint32Array(n).map((_, i) => i)
    const zero = new Uint32Array(n)
    drawUniform(uniform, new Uint32Array(4), lane, zero, new Int32Array(n), random.key0, random.key1, n, 2, 0)
    const row = [0.5, -1, 1.25, 0.75, -0.5]
    const logits = Float32Array.from({ length: n * 5 }, (_, i) => row[i % 5]!)
    const { action } = sample({ sizes: [3, 2], numRows: n, from: 0, logits, uniform })
    const counts = [0, 0, 0, 0, 0, 0]
    for (let i = 0; i < n; i++) counts[2 * action[2 * i]! + action[2 * i + 1]!]!++
    const [first, second] = logProbabilities(row, [3, 2])
    const expected = first!.flatMap((a) => second!.map((b) => n * Math.exp(a + b)))
    const chiSquare = sum(counts.map((count, i) => (count - expected[i]!) ** 2 / expected[i]!))
    expect(chiSquare).toBeLessThan(20.5) // 5 degrees of freedom: passed by one right sampler in a thousand.
  })

  test('never chooses what has no probability, at either end of [0, 1)', () => {
    for (const u of [0, 0.5, 1 - 2 ** -24]) {
      const logits = Float32Array.of(-3e38, 0, -3e38, 0, -3e38)
      const { action, logprob } = sample({ sizes: [5], numRows: 1, from: 0, logits, uniform: Float32Array.of(u) })
      expect(action[0]).toBe(u < 0.5 ? 1 : 3)
      expect(logprob[0]).toBeCloseTo(-Math.LN2, 6)
    }
  })

  test('with one choice takes it, at no cost', () => {
    const uniform = Float32Array.of(0.9)
    const { action, logprob } = sample({ sizes: [1], numRows: 1, from: 0, logits: Float32Array.of(-5), uniform })
    expect([action[0], logprob[0]]).toEqual([0, 0])
  })
})

describe('categoricalMode', () => {
  test('chooses the first of the most probable, with the logprob that evaluating it gives bit for bit', () => {
    fc.assert(
      fc.property(cases, (c) => {
        const numLogits = sum(c.sizes)
        const action = new Int32Array((c.from + c.numRows) * c.sizes.length).fill(-7)
        const logprob = new Float32Array(c.from + c.numRows)
        const segments = Int32Array.from(c.sizes)
        categoricalMode(action, logprob, c.logits, segments, c.numRows, c.sizes.length, numLogits, c.from)
        for (let row = 0; row < c.numRows; row++) {
          let start = row * numLogits
          for (const [k, size] of c.sizes.entries()) {
            const segment = Array.from(c.logits.subarray(start, start + size))
            expect(action[(c.from + row) * c.sizes.length + k]).toBe(segment.indexOf(Math.max(...segment)))
            start += size
          }
        }
        expect([...logprob.subarray(c.from)]).toEqual([...evaluate({ ...c, action }).logprob])
      }),
    )
  })
})

describe('drawUniform', () => {
  test('gives each lane, episode and step numbers of its own, wherever its row stands', () => {
    const random = new Random(2 ** 40 + 5)
    const width = 6
    const draw = (numRows: number, from: number, lane: number[], episode: number[], step: number[]) => {
      const uniform = new Float32Array(numRows * width)
      const columns = [Uint32Array.from(lane), Uint32Array.from(episode), Int32Array.from(step)] as const
      drawUniform(uniform, new Uint32Array(4), ...columns, random.key0, random.key1, numRows, width, from)
      return uniform
    }
    const lane = [0, 1, 0, 7, 7]
    const episode = [0, 0, 1, 3, 3]
    const step = [0, 0, 0, 41, 42]
    const together = draw(5, 0, lane, episode, step)
    expect(new Set(together).size).toBe(5 * width)
    for (let row = 0; row < 5; row++) {
      const alone = draw(1, row, lane, episode, step)
      expect([...alone]).toEqual([...together.subarray(row * width, (row + 1) * width)])
      // A step owns two blocks of four: six numbers take the first and half of the second.
      for (let k = 0; k < width; k++) {
        random.draw(Stream.action, lane[row]!, episode[row]!, 2 * step[row]! + Math.floor(k / 4))
        expect(alone[k]).toBe(random.uniform(k % 4))
      }
    }
  })
})
