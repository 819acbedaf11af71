/**
 * The losses of Tinker's protocol: their derivatives against differences of their sums. That they are torch's is shown by
 * `tests/outside/tinker-sdk.test.ts`.
 */
import { describe, expect, test } from 'vitest'
import { findTinkerLoss, tinkerLosses } from '../../../src/agents/tinker/tinker-losses.ts'

const LOGPROBS = [-1, -2, -0.3, -4, -1.5, -0.7]
const INPUTS = {
  // Ratios below, within and above the clip, with both signs of the advantage.
  logprobs: [-1.5, -1.6, -0.2, -4.05, -1.1, -0.7],
  advantages: [1, 1, -1, 2, -0.5, 0],
}
const MASK = { sequence_ratio_mask: [0, 1, 1, 1, 1, 0] }

function evaluate(name: string, logprobs: readonly number[], inputs: Record<string, number[]>, given = {}) {
  const { loss, config } = findTinkerLoss(name, given)
  const written = {
    elementwise: new Float32Array(logprobs.length),
    dLogprob: new Float32Array(logprobs.length),
  }
  loss.of(Float32Array.from(logprobs), inputs, config, written)
  return written
}

const sum = (values: Iterable<number>) => [...values].reduce((a, b) => a + b, 0)

describe('the losses of the protocol', () => {
  test.each([
    ['cross_entropy', { weights: [1, 0.5, 0, 2, -1, 1] }, {}],
    ['importance_sampling', INPUTS, {}],
    ['ppo', INPUTS, {}],
    ['ppo', INPUTS, { clip_low_threshold: 0.99, clip_high_threshold: 1.01 }],
    ['dro', INPUTS, { beta: 0.05 }],
  ] as const)('%s has the derivative of its sum', (name, inputs, config) => {
    const given = inputs as unknown as Record<string, number[]>
    const { dLogprob } = evaluate(name, LOGPROBS, given, config)
    for (let t = 0; t < LOGPROBS.length; t++) {
      const at = (change: number) =>
        sum(evaluate(name, LOGPROBS.with(t, LOGPROBS[t]! + change), given, config).elementwise)
      expect(dLogprob[t], `token ${t}`).toBeCloseTo((at(1e-2) - at(-1e-2)) / 2e-2, 3)
    }
  })

  test('cispo weighs log-probabilities by the clipped ratio, which it does not differentiate', () => {
    const { elementwise, dLogprob } = evaluate('cispo', LOGPROBS, INPUTS)
    const weights = LOGPROBS.map((logprob, t) => {
      const ratio = Math.exp(logprob - INPUTS.logprobs[t]!)
      return Math.min(Math.max(ratio, 0.8), 1.2) * INPUTS.advantages[t]!
    })
    weights.forEach((weight, t) => {
      expect(dLogprob[t]).toBeCloseTo(-weight, 6)
      expect(elementwise[t]).toBeCloseTo(-weight * LOGPROBS[t]!, 6)
    })
  })

  test("gspo has one ratio for a sequence: the mask's mean of log-ratios", () => {
    const ratio = Math.exp(sum([1, 2, 3, 4].map((t) => LOGPROBS[t]! - INPUTS.logprobs[t]!)) / 4)
    const free = { clip_low_threshold: 0.1, clip_high_threshold: 10 }
    const { elementwise, dLogprob } = evaluate('gspo', LOGPROBS, { ...INPUTS, ...MASK }, free)
    const expected = INPUTS.advantages.map((advantage, t) =>
      MASK.sequence_ratio_mask[t] === 0 ? 0 : -ratio * advantage,
    )
    for (const [t, value] of expected.entries()) {
      expect(dLogprob[t]).toBeCloseTo(value, 6)
      expect(elementwise[t]).toBeCloseTo(value, 6)
    }
    // Clipped: no token with a positive advantage is learned from.
    const { dLogprob: bound } = evaluate(
      'gspo',
      LOGPROBS,
      { ...INPUTS, ...MASK },
      { clip_high_threshold: ratio - 0.01 },
    )
    expect([...bound].map((value) => value > 0)).toEqual([false, false, true, false, true, false])
  })

  test('a datum has clip thresholds of its own, one or one per token', () => {
    const own = { ...INPUTS, clip_low_threshold: [0.99], clip_high_threshold: LOGPROBS.map(() => 1.01) }
    const config = { clip_low_threshold: 0.99, clip_high_threshold: 1.01 }
    expect(evaluate('ppo', LOGPROBS, own)).toEqual(evaluate('ppo', LOGPROBS, INPUTS, config))
    expect(evaluate('ppo', LOGPROBS, own)).not.toEqual(evaluate('ppo', LOGPROBS, INPUTS))
  })

  test('is refused by an unknown name, and for settings that are unknown, missing or no numbers', () => {
    expect(() => findTinkerLoss('stable_reinforce')).toThrow(/loss_fn: got "?stable_reinforce"?, expected/)
    expect(() => findTinkerLoss('ppo', { clip_low: 1 })).toThrow('clip_low_threshold')
    expect(() => findTinkerLoss('dro')).toThrow('loss_fn_config.beta of dro: got null, expected a finite number')
    expect(() => findTinkerLoss('ppo', { clip_low_threshold: 'x' })).toThrow('expected a finite number')
    expect(Object.keys(tinkerLosses)).toHaveLength(6)
  })
})
