import { describe, expect, test } from 'vitest'
import { InputError } from '../src/base/errors.ts'
import { boxMuller, checkSeed, philox4x32, Random, Stream, unitFromWord } from '../src/base/random.ts'
import * as fc from './support/properties.ts'

const MAX = 0xffffffff
const word = () => fc.integer({ min: 0, max: MAX })

/** Philox4x32-10 straight from the paper (section 3.3), in 64-bit whole numbers. */
function philoxTwin(counter: readonly number[], key: readonly number[]): number[] {
  const mask = 0xffffffffn
  let [c0, c1, c2, c3] = counter.map((c) => BigInt(c)) as [bigint, bigint, bigint, bigint]
  let [k0, k1] = key.map((k) => BigInt(k)) as [bigint, bigint]
  for (let round = 0; round < 10; round++) {
    const product0 = 0xd2511f53n * c0
    const product1 = 0xcd9e8d57n * c2
    c0 = (product1 >> 32n) ^ c1 ^ k0
    c1 = product1 & mask
    c2 = (product0 >> 32n) ^ c3 ^ k1
    c3 = product0 & mask
    k0 = (k0 + 0x9e3779b9n) & mask
    k1 = (k1 + 0xbb67ae85n) & mask
  }
  return [c0, c1, c2, c3].map(Number)
}

function philox(counter: readonly number[], key: readonly number[]): number[] {
  const words = new Uint32Array(4)
  philox4x32(words, counter[0]!, counter[1]!, counter[2]!, counter[3]!, key[0]!, key[1]!)
  return [...words]
}

/** The largest distance between the empirical distribution of `sample` and `distribution` (Kolmogorov, Smirnov). */
function kolmogorov(sample: number[], distribution: (x: number) => number): number {
  const sorted = sample.toSorted((a, b) => a - b)
  return sorted.reduce((worst, x, i) => {
    const expected = distribution(x)
    return Math.max(worst, expected - i / sorted.length, (i + 1) / sorted.length - expected)
  }, 0)
}

/** The normal distribution by erfc of Numerical Recipes (fractional error below 1.2e-7). */
function normalDistribution(x: number): number {
  const z = Math.abs(x) / Math.SQRT2
  const t = 1 / (1 + 0.5 * z)
  const coefficients = [
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223,
    0.17087277,
  ]
  const tail = 0.5 * t * Math.exp(-z * z + coefficients.reduceRight((sum, c) => sum * t + c, 0))
  return x < 0 ? tail : 1 - tail
}

const average = (x: number[]) => x.reduce((sum, value) => sum + value, 0) / x.length
/** Means of n draws lie within five of their standard errors (1 in 1.7 million draws of a right generator does not). */
const within = (deviation: number, n: number) => (5 * deviation) / Math.sqrt(n)

describe('philox4x32', () => {
  // Random123 1.14, tests/kat_vectors, lines `philox4x32 10`.
  test.each([
    [
      [0, 0, 0, 0],
      [0, 0],
      [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8],
    ],
    [
      [MAX, MAX, MAX, MAX],
      [MAX, MAX],
      [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
    ],
    [
      [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
      [0xa4093822, 0x299f31d0],
      [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
    ],
  ])('gives the published words for counter %j and key %j', (counter, key, expected) => {
    expect(philox(counter, key)).toEqual(expected)
  })

  test('equals a 64-bit twin for any counter and key', () => {
    fc.assert(
      fc.property(fc.tuple(word(), word(), word(), word()), fc.tuple(word(), word()), (counter, key) => {
        expect(String(philox(counter, key))).toBe(String(philoxTwin(counter, key)))
      }),
      // A lost carry of the 32-bit halves shows once in 65 536 products; a run makes twenty.
      { numRuns: 20_000 },
    )
  })
})

describe('uniform numbers', () => {
  test('are the upper 24 bits of a word, exact in f32, in [0, 1)', () => {
    expect(unitFromWord(0)).toBe(0)
    expect(unitFromWord(MAX)).toBe(1 - 2 ** -24)
    expect(unitFromWord(0x80000000)).toBe(0.5)
    fc.assert(
      fc.property(word(), (w) => {
        const unit = unitFromWord(w)
        expect(Math.fround(unit)).toBe(unit)
        expect(Math.floor(unit * 2 ** 24)).toBe(w >>> 8)
      }),
    )
  })

  test('have the mean, the variance and the distribution of a uniform number', () => {
    const random = new Random(11)
    const sample: number[] = []
    for (let draw = 0; draw < 25_000; draw++) {
      random.draw(Stream.step, 3, 5, draw)
      for (let i = 0; i < 4; i++) sample.push(random.uniform(i))
    }
    const n = sample.length
    expect(Math.abs(average(sample) - 1 / 2)).toBeLessThan(within(Math.sqrt(1 / 12), n))
    expect(Math.abs(average(sample.map((x) => (x - 0.5) ** 2)) - 1 / 12)).toBeLessThan(within(Math.sqrt(1 / 180), n))
    // 1.95 / √n is passed by one right generator in a thousand.
    expect(kolmogorov(sample, (x) => x)).toBeLessThan(1.95 / Math.sqrt(n))
  })

  test('lie in [low, high) and reach towards both ends', () => {
    const random = new Random(2)
    const sample = Array.from({ length: 4000 }, (_, lane) => {
      random.draw(Stream.reset, lane, 0, 0)
      return random.uniform(2, -3, 5)
    })
    expect(Math.min(...sample)).toBeGreaterThanOrEqual(-3)
    expect(Math.max(...sample)).toBeLessThan(5)
    expect(Math.min(...sample)).toBeLessThan(-2.9)
    expect(Math.max(...sample)).toBeGreaterThan(4.9)
  })
})

describe('normal numbers', () => {
  test('have the moments and the distribution of a standard normal, and the two parts do not correlate', () => {
    const random = new Random(7)
    const first: number[] = []
    const second: number[] = []
    for (let draw = 0; draw < 20_000; draw++) {
      random.draw(Stream.step, 0, 0, draw)
      for (const index of [0, 2]) {
        first.push(random.normal(index, 0))
        second.push(random.normal(index, 1))
      }
    }
    for (const sample of [first, second]) {
      const n = sample.length
      expect(Math.abs(average(sample))).toBeLessThan(within(1, n))
      expect(Math.abs(average(sample.map((x) => x ** 2)) - 1)).toBeLessThan(within(Math.sqrt(2), n))
      expect(Math.abs(average(sample.map((x) => x ** 3)))).toBeLessThan(within(Math.sqrt(15), n))
      expect(Math.abs(average(sample.map((x) => x ** 4)) - 3)).toBeLessThan(within(Math.sqrt(96), n))
      expect(kolmogorov(sample, normalDistribution)).toBeLessThan(1.95 / Math.sqrt(n))
    }
    expect(Math.abs(average(first.map((x, i) => x * second[i]!)))).toBeLessThan(within(1, first.length))
  })

  test('are finite for every pair of words, the extreme ones included', () => {
    for (const radius of [0, 255, 256, MAX]) {
      for (const angle of [0, MAX]) {
        for (const part of [0, 1]) expect(Number.isFinite(boxMuller(radius, angle, part))).toBe(true)
      }
    }
    // The radius of word 0 is that of the smallest uniform number, 2^-24.
    expect(boxMuller(0, 0, 0)).toBeCloseTo(Math.sqrt(48 * Math.LN2), 12)
  })
})

describe('draws', () => {
  test('are the words of Philox at counter (draw, episode, lane, stream) under the halves of the seed', () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), fc.nat(4), word(), word(), word(), (seed, stream, lane, episode, draw) => {
        const random = new Random(seed)
        random.draw(stream, lane, episode, draw)
        const key = [Number(BigInt(seed) & 0xffffffffn), Number(BigInt(seed) >> 32n)]
        expect([...random.words]).toEqual(philoxTwin([draw, episode, lane, stream], key))
      }),
    )
  })

  test('share no word between streams, lanes, episodes, draws and seeds', () => {
    const seen = new Set<number>()
    let count = 0
    // 28 800 words: a right generator repeats one with a chance of 9 %; these seeds do not.
    for (const seed of [0, 1, 2 ** 32]) {
      const random = new Random(seed)
      for (const stream of Object.values(Stream)) {
        for (let lane = 0; lane < 8; lane++) {
          for (let episode = 0; episode < 8; episode++) {
            for (let draw = 0; draw < 8; draw++) {
              random.draw(stream, lane, episode, draw)
              for (const w of random.words) seen.add(w)
              count += 4
            }
          }
        }
      }
    }
    expect(count - seen.size).toBeLessThanOrEqual(2)
  })

  test('have five streams, each with a number of its own', () => {
    expect(new Set(Object.values(Stream)).size).toBe(Object.keys(Stream).length)
  })

  test('of neighboring lanes, episodes and streams do not correlate', () => {
    const random = new Random(13)
    const n = 20_000
    const at = (stream: number, lane: number, episode: number) =>
      Array.from({ length: n }, (_, draw) => {
        random.draw(stream, lane, episode, draw)
        return random.uniform(0) - 0.5
      })
    const base = at(Stream.reset, 0, 0)
    for (const other of [at(Stream.step, 0, 0), at(Stream.reset, 1, 0), at(Stream.reset, 0, 1)]) {
      expect(Math.abs(average(base.map((x, i) => x * other[i]!)))).toBeLessThan(within(1 / 12, n))
    }
  })

  test('do not depend on what was drawn before', () => {
    const random = new Random(99)
    random.draw(Stream.action, 4, 2, 17)
    const alone = [...random.words]
    for (let i = 0; i < 50; i++) random.draw(i % 5, i, 50 - i, 3 * i)
    random.draw(Stream.action, 4, 2, 17)
    expect([...random.words]).toEqual(alone)
  })
})

describe('seeds', () => {
  test.each([0, 1, 2 ** 32, Number.MAX_SAFE_INTEGER])('%d is one', (seed) => {
    expect(checkSeed(seed)).toBe(seed)
    expect(new Random(seed).seed).toBe(seed)
  })

  test.each([-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, '1', null, undefined])('%j is none', (seed) => {
    const make = () => new Random(seed as number)
    expect(make).toThrow(InputError)
    expect(make).toThrow(/^seed: got .+, expected a whole number from 0 to 9007199254740991$/)
  })
})
