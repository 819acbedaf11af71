import { expect, test } from 'vitest'
import { settingsOf } from '../../bench/control/cells.ts'
import { learn } from '../support/learn.ts'

/** `npm run learn` trains; `npm run control` trains all three algorithms and environments for 1M steps. */
const isLong = import.meta.env.MODE === 'learn'

test.runIf(isLong)(
  'TD3 comes to a return of 3,500 on HalfCheetah-v5 within 100,000 steps',
  async () => {
    const settings = settingsOf({ algorithm: 'td3', environment: 'HalfCheetah-v5' })
    const { evaluation } = await learn(
      'HalfCheetah-v5',
      { ...settings, totalSteps: '100000', seed: '1', threads: '1' },
      20,
    )
    console.log(`HalfCheetah-v5 by td3, seed 1: ${evaluation.toFixed(0)}`)
    expect(evaluation).toBeGreaterThanOrEqual(3500) // Recorded: 4280 ± 224 over 20 episodes.
  },
  7_200_000,
)
