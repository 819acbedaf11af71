import { describe, expect, test } from 'vitest'
import {
  accuracyReward,
  f1ScoreReward,
  formatReward,
  keywordReward,
  lengthReward,
} from '../../../src/language/rewards/basic.ts'
import { codeReward } from '../../../src/language/rewards/code/code.ts'
import { withPolicy } from '../../../src/language/rewards/policy.ts'
import { remoteReward } from '../../../src/language/rewards/remote.ts'
import { isInTime } from '../../../src/language/rewards/reward.ts'
import { coherenceVerifier, factualVerifier, lengthVerifier } from '../../../src/language/rewards/verifiers.ts'
import { type Bounds, count, countOrNone, expectBounds, from0, from0to1 } from '../../support/bounds.ts'

const milliseconds: Bounds = [
  [0.1, 2 ** 31 - 1],
  [0, 2 ** 31],
]

test('rewards of the text alone end by themselves, and what asks a server does not', () => {
  const alone = [lengthReward(), keywordReward({ keywords: ['x'] }), accuracyReward(), f1ScoreReward(), formatReward()]
  expect(alone.map(isInTime)).toEqual(alone.map(() => true))
  expect(isInTime(remoteReward({ url: 'http://localhost:1' }))).toBe(false)
})

describe('the ranges of settings', () => {
  test('of rewards', () => {
    expectBounds(lengthReward.settings, { targetLength: count, tolerance: from0 })
    expectBounds(keywordReward.settings, { bonusMultiplier: from0 })
    const similarityThreshold: Bounds = [
      [1e-9, 1],
      [0, 1.001],
    ]
    expectBounds(accuracyReward.settings, { similarityThreshold })
    expectBounds(codeReward.settings, {
      maxSteps: [
        [100_000, 1e12],
        [99_999, 1e12 + 1],
      ],
      memoryLimitMib: [
        [16, 1024],
        [15, 1025],
      ],
    })
  })

  test('of a reward model behind HTTP, and of the policy for failures', () => {
    const maxAnswerBytes: Bounds = [
      [100, 2 ** 30],
      [99, 2 ** 30 + 1],
    ]
    const remote = { timeoutMs: milliseconds, retries: countOrNone, retryDelayMs: from0, batchSize: count }
    expectBounds(remoteReward.settings, { ...remote, maxAnswerBytes })
    for (const [key, [accepted, refused]] of Object.entries({ timeoutMs: milliseconds, retries: countOrNone })) {
      for (const value of accepted) expect(() => withPolicy(() => 1, { [key]: value })).not.toThrow()
      for (const value of refused) expect(() => withPolicy(() => 1, { [key]: value })).toThrow(`reward policy.${key}`)
    }
  })

  test('of verifiers', () => {
    expectBounds(lengthVerifier.settings, { minLength: countOrNone, maxLength: count })
    expectBounds(coherenceVerifier.settings, { minCoherenceScore: from0to1 })
    expectBounds(factualVerifier.settings, { minFactualScore: from0to1, maxUncertaintyCount: countOrNone })
  })
})
