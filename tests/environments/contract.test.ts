/** Every environment of the package is checked, what its steps allocate too: where faults are put in, they do. */
import { describe, expect, test } from 'vitest'
import {
  actionRepeat,
  frameStack,
  predatorPrey,
  rescaleAction,
  timeLimit,
  wrap,
} from '../../src/entries/environments.ts'
import { checkEnvironment } from '../../src/environments/checks/check.ts'
import { environments } from '../../src/environments/registry.ts'
import { breakout, cartPole, pendulum, ticTacToe } from '../../src/index.ts'
import { assert, integer, property } from '../support/properties.ts'
import { isThorough } from '../support/tiers.ts'

const LANES = isThorough ? 4096 : 256

describe(`every environment keeps its contract with ${LANES} lanes`, () => {
  test.each(environments.map((factory) => [factory.id, factory()] as const))('%s', async (_, environment) => {
    await environment.prepare?.()
    // A step of MuJoCo takes thousands of times as long as another's.
    const numLanes = environment.prepare === undefined ? LANES : LANES / 64
    const { checks, holds } = checkEnvironment(environment, { numLanes, steps: 4, seed: 3 })
    expect(checks.filter(({ status }) => status === 'failed')).toEqual([])
    expect(holds).toBe(true)
  })
})

test.each([
  ['frames of a pole', wrap(cartPole(), frameStack({ frames: 3 }))],
  ['frames of pictures', wrap(breakout(), frameStack({ frames: 2 }))],
  ['actions again and again', wrap(pendulum({ maxEpisodeSteps: 21 }), actionRepeat({ times: 4 }))],
  ['both', wrap(cartPole(), actionRepeat({ times: 3 }), frameStack({ frames: 2 }))],
  ['a game of several', wrap(predatorPrey(), actionRepeat({ times: 2 }), frameStack({ frames: 2 }))],
  ['masks', wrap(ticTacToe(), frameStack({ frames: 2 }))],
  ['actions of another size', wrap(pendulum(), rescaleAction(), timeLimit({ maxEpisodeSteps: 20 }))],
])('what lies around an environment keeps its contract: %s', (_, environment) => {
  const { checks } = checkEnvironment(environment, { numLanes: 12 * (environment.numPlayers ?? 1), steps: 40 })
  expect(checks.filter(({ status }) => status === 'failed')).toEqual([])
})

/** Other seeds each time, which a failure names. */
if (import.meta.env.MODE === 'properties') {
  describe('100,000 steps with actions at random find no fault', () => {
    const plain = environments.map((factory) => [factory.id, factory()] as const)
    test.each(plain.filter(([, { prepare }]) => prepare === undefined))('%s', (_, environment) => {
      const { numPlayers = 1 } = environment
      const numLanes = Math.ceil(100 / numPlayers) * numPlayers
      const anySeed = integer({ min: 0, max: 2 ** 32 - 1 })
      const holds = (seed: number) => {
        const { checks } = checkEnvironment(environment, { numLanes, steps: 1000, seed })
        expect(checks.filter(({ status }) => status === 'failed')).toEqual([])
      }
      assert(property(anySeed, holds), { numRuns: 0.15 }) // Three seeds.
    })
  })
}
