import { describe, expect, test } from 'vitest'
import { klPenalty, overlongPenalty } from '../../src/kernels/advantage/shaping.ts'
import { tokenGae, tokenRewards, whitenTokens } from '../../src/kernels/advantage/tokens.ts'
import { spansOf } from '../../src/kernels/spans.ts'
import * as fc from '../support/properties.ts'
import { Numbers, strict } from './calls.ts'

/** Two answers with prompts, one of them with a tool's tokens in its middle, and one without a token that counts. */
const spans = spansOf(Int32Array.of(0, 5, 7, 11))
const counted = Uint8Array.of(0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0)

function gae(reward: Float32Array, value: Float32Array | null, gamma: number, lambda: number) {
  const [advantage, returns] = [new Float32Array(11).fill(9), new Float32Array(11).fill(9)]
  strict(tokenGae)(advantage, returns, reward, value, counted, spans, gamma, lambda, 3)
  return { advantage, returns }
}

/** Counted tokens of each answer, in order. */
const answers = [
  [1, 2, 4],
  [7, 8, 9],
]

describe('tokenGae', () => {
  const close = (a: number, b: number) => Math.abs(a - b) < 1e-5

  test('is the sum of the discounted errors to come, over counted tokens only', () => {
    fc.assert(
      fc.property(fc.nat(), fc.constantFrom(0, 0.5, 0.95, 1), fc.constantFrom(0.9, 1), (seed, lambda, gamma) => {
        const numbers = new Numbers(seed)
        const [reward, value] = [numbers.floats(11), numbers.floats(11)]
        const { advantage, returns } = gae(reward, value, gamma, lambda)
        for (const tokens of answers) {
          tokens.forEach((token, k) => {
            let sum = 0
            for (let j = k; j < tokens.length; j++) {
              const next = j + 1 < tokens.length ? value[tokens[j + 1]!]! : 0
              const error = reward[tokens[j]!]! + gamma * next - value[tokens[j]!]!
              sum += (gamma * lambda) ** (j - k) * error
            }
            expect(close(advantage[token]!, sum)).toBe(true)
            expect(close(returns[token]!, sum + value[token]!)).toBe(true)
          })
        }
        for (let t = 0; t < 11; t++) if (counted[t] === 0) expect([advantage[t], returns[t]]).toEqual([0, 0])
      }),
    )
  })

  test('with λ = 1 it is the discounted return less the value, with λ = 0 the one-step error', () => {
    const numbers = new Numbers(2)
    const [reward, value] = [numbers.floats(11), numbers.floats(11)]
    const returns = gae(reward, null, 0.9, 1).advantage
    const long = gae(reward, value, 0.9, 1).advantage
    const short = gae(reward, value, 0.9, 0).advantage
    expect(returns[2]).toBeCloseTo(reward[2]! + 0.9 * reward[4]!, 6)
    for (const t of answers.flat()) expect(long[t]).toBeCloseTo(returns[t]! - value[t]!, 6)
    expect(short[2]).toBeCloseTo(reward[2]! + 0.9 * value[4]! - value[2]!, 6)
  })

  test('an answer has the same bits alone and in company', () => {
    const numbers = new Numbers(4)
    const [reward, value] = [numbers.floats(11), numbers.floats(11)]
    const all = gae(reward, value, 0.99, 0.95)
    const [advantage, returns] = [new Float32Array(11), new Float32Array(11)]
    strict(tokenGae)(
      advantage,
      returns,
      reward,
      value,
      counted,
      { begin: spans.begin.subarray(2), end: spans.end.subarray(2) },
      0.99,
      0.95,
      1,
    )
    expect(advantage.slice(7)).toEqual(all.advantage.slice(7))
    expect(returns.slice(7)).toEqual(all.returns.slice(7))
  })
})

describe('tokenRewards', () => {
  test('the reward comes at the last counted token, the penalty at each', () => {
    const old = Float32Array.from({ length: 11 }, (_, t) => -t / 4)
    const reference = new Float32Array(11).fill(-1)
    const given = [Float64Array.of(2, 5, -1), old] as const
    const token = new Float32Array(11).fill(9)
    strict(tokenRewards)(token, ...given, null, counted, spans, 0.5, 3)
    expect([...token]).toEqual([0, 0, 0, 0, 2, 0, 0, 0, 0, -1, 0])
    strict(tokenRewards)(token, ...given, reference, counted, spans, 0.5, 3)
    // −0.5 · (ℓ_old − ℓ_ref) = −0.5 · (1 − t / 4)
    expect([...token]).toEqual([0, -0.375, -0.25, 0, 2, 0, 0, 0.375, 0.5, -1 + 0.625, 0])
  })
})

describe('whitenTokens', () => {
  test('gives the counted tokens mean 0 and deviation 1, and leaves the others', () => {
    const advantage = new Numbers(6).floats(11, -3, 9)
    const before = advantage.slice()
    strict(whitenTokens)(advantage, counted, spans, 3)
    const inside = answers.flat().map((t) => advantage[t]!)
    const mean = inside.reduce((a, b) => a + b) / 6
    expect(mean).toBeCloseTo(0, 6)
    expect(inside.reduce((sum, a) => sum + (a - mean) ** 2, 0) / 5).toBeCloseTo(1, 5)
    for (let t = 0; t < 11; t++) if (counted[t] === 0) expect(advantage[t]).toBe(before[t])
  })

  test('advantages that do not vary become 0, one alone too', () => {
    const equal = new Float32Array(11).fill(0.1)
    strict(whitenTokens)(equal, counted, spans, 3)
    for (const t of answers.flat()) expect(equal[t]).toBeCloseTo(0, 6)
    const one = Float32Array.of(7)
    strict(whitenTokens)(one, Uint8Array.of(1), spansOf([0, 1]), 1)
    expect([...one]).toEqual([0])
  })
})

describe('overlongPenalty', () => {
  test('costs nothing up to the cache, then rises in a straight line to the factor', () => {
    const lengths = [1, 6, 7, 8, 10, 12]
    const bounds = spansOf([0, ...lengths.map((_, i) => lengths.slice(0, i + 1).reduce((a, b) => a + b))])
    const reward = new Float64Array(6).fill(1)
    const known = Uint8Array.of(1, 1, 1, 1, 1, 1)
    // maxLength 10, cache 4: free up to 6 tokens; 10 cost all, and longer no more.
    strict(overlongPenalty)(reward, known, new Uint8Array(44).fill(1), bounds, 10, 4, 2, 6)
    expect([...reward]).toEqual([1, 1, 0.5, 0, -1, -1])
  })

  test('counts the tokens that the policy chose, and does not make up a reward', () => {
    const reward = Float64Array.of(1, Number.NaN)
    const mask = Uint8Array.of(0, 0, 1, 1, 1, 1)
    strict(overlongPenalty)(reward, Uint8Array.of(1, 0), mask, spansOf([0, 4, 6]), 4, 4, 1, 2)
    expect([...reward]).toEqual([0.5, Number.NaN])
  })
})

describe('klPenalty', () => {
  test('takes the sum of the log-ratios to the reference, over tokens of the loss mask', () => {
    const [old, reference] = [Float32Array.of(-1, -2, -3, -4), Float32Array.of(-1.5, -2, -1, -4.25)]
    const reward = Float64Array.of(1, 2)
    strict(klPenalty)(
      reward,
      Uint8Array.of(1, 0),
      old,
      reference,
      Uint8Array.of(0, 1, 1, 1),
      spansOf([0, 3, 4]),
      0.5,
      2,
    )
    expect([...reward]).toEqual([1 - 0.5 * (0 - 2), 2])
  })
})
