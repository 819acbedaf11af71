import { expect, test } from 'vitest'
import { cartPole } from '../../src/environments/classic/cart-pole.ts'
import { cartPolePosition } from '../../src/environments/classic/cart-pole-position.ts'
import { lanesOf, resetAll } from '../support/lanes.ts'

const NAMES = ['position', 'velocity', 'angle', 'angularVelocity'] as const
type State = Record<(typeof NAMES)[number], Float32Array>

test('has the limits of CartPole-v1, and shows the bounds of what it shows', () => {
  const whole = cartPole()
  const hidden = cartPolePosition()
  expect(hidden.id).toBe('CartPole-P-v1')
  expect(hidden.actionSpace).toEqual(whole.actionSpace)
  expect(hidden.maxEpisodeSteps).toBe(500)
  expect(hidden.returnThreshold).toBe(475)
  if (whole.observationSpace.kind !== 'box') throw new Error('not a box')
  const { low, high } = whole.observationSpace
  expect(hidden.observationSpace).toEqual({
    kind: 'box',
    shape: [2],
    low: [low[0], low[2]],
    high: [high[0], high[2]],
  })
})

test('moves as CartPole-v1 does, bit for bit, and shows position and angle only', () => {
  const numLanes = 50
  const whole = lanesOf<State>(cartPole(), numLanes)
  const hidden = lanesOf<State>(cartPolePosition(), numLanes)
  resetAll(cartPole(), whole)
  resetAll(cartPolePosition(), hidden)
  let ended = 0
  for (let t = 0; t < 60; t++) {
    for (const name of NAMES) expect(hidden.state[name]).toEqual(whole.state[name])
    for (let n = 0; n < numLanes; n++) {
      expect(hidden.observation[2 * n]).toBe(whole.observation[4 * n])
      expect(hidden.observation[2 * n + 1]).toBe(whole.observation[4 * n + 2])
      whole.action[n] = hidden.action[n] = (t + n * 7) % 3 === 0 ? 1 : 0
    }
    cartPole().step(whole, 0, numLanes)
    cartPolePosition().step(hidden, 0, numLanes)
    expect(hidden.reward).toEqual(whole.reward)
    expect(hidden.terminated).toEqual(whole.terminated)
    ended += hidden.terminated.reduce((sum, flag) => sum + flag, 0)
  }
  expect(ended).toBeGreaterThan(0)
})

test('moves the lanes of its range and no others', () => {
  const lanes = lanesOf<State>(cartPolePosition(), 5)
  cartPolePosition().step(lanes, 1, 4)
  expect([...lanes.reward]).toEqual([Number.NaN, 1, 1, 1, Number.NaN])
  expect([...lanes.observation].map(Number.isNaN)).toEqual([true, true, ...new Array(6).fill(false), true, true])
})
