/** Mountain cars and the acrobot beside Gymnasium; CartPole and Pendulum, whose steps are kernels, have files of their own. */
import { describe, expect, test } from 'vitest'
import { acrobot } from '../../src/environments/classic/acrobot.ts'
import { mountainCar } from '../../src/environments/classic/mountain-car.ts'
import { mountainCarContinuous } from '../../src/environments/classic/mountain-car-continuous.ts'
import type { EnvironmentDefinition } from '../../src/environments/environment.ts'
import { lanesOf, resetAll } from '../support/lanes.ts'
import { compareEpisode, expectSpecification, recordingOf } from '../support/recorded.ts'

type State = Record<string, Float64Array | Float32Array>

const CAR = ['position', 'velocity']
const ACROBOT = ['angle1', 'angle2', 'velocity1', 'velocity2']
const cars = recordingOf('mountain-car-v0')
const throttled = recordingOf('mountain-car-continuous-v0')
const swung = recordingOf('acrobot-v1')

test.each([
  [mountainCar(), cars],
  [mountainCarContinuous(), throttled],
  [acrobot(), swung],
] as const)('the specification of $id is the one of Gymnasium', expectSpecification)

describe('MountainCar-v0', () => {
  test.each(cars.episodes.map((episode) => [episode.seed, episode.policy, episode] as const))(
    'goes through the whole episode of seed %d (%s) within 1e-12, in f64',
    (_, _policy, episode) => {
      const apart = compareEpisode(mountainCar(), CAR, episode, { free: true })
      expect(apart.steps).toBeGreaterThan(90)
      expect(apart.state).toBeLessThan(1e-12)
      expect(apart.observation).toBeLessThan(1e-7) // The last bit of f32.
      expect(apart.reward).toBe(0)
    },
  )

  test('is not at the goal where the car is too slow', () => {
    const lanes = lanesOf<State>(mountainCar(), 1)
    const stepAt = (environment: EnvironmentDefinition) => {
      lanes.state.position![0] = 0.49
      lanes.state.velocity![0] = 0.03
      lanes.action[0] = 1
      lanes.terminated[0] = 0
      environment.step(lanes, 0, 1)
      return lanes.terminated[0]
    }
    expect([stepAt(mountainCar()), stepAt(mountainCar({ goalVelocity: 0.04 }))]).toEqual([1, 0])
    expect(stepAt(mountainCar({ goalVelocity: 0.02 }))).toBe(1)
  })
})

describe('MountainCarContinuous-v0', () => {
  const [within, beyond] = [throttled.episodes.filter(({ policy }) => policy !== 'beyond'), throttled.episodes[1]!]

  // Gymnasium's first step is in f64, since its starting state is: from the second on all is in f32, as ours.
  test.each(within.map((episode) => [episode.policy, episode] as const))(
    'goes through the whole episode %s from its second step on with the same bits, in f32',
    (_, episode) => {
      const apart = compareEpisode(mountainCarContinuous(), CAR, episode, { free: true, from: 1 })
      expect(apart.steps).toBeGreaterThan(50)
      expect([apart.state, apart.observation]).toEqual([0, 0])
      expect(apart.reward).toBeLessThan(1e-7) // Ours is f32.
      expect(compareEpisode(mountainCarContinuous(), CAR, episode, { free: true, to: 1 }).state).toBeLessThan(1e-7)
    },
  )

  test('takes a force beyond its bounds as one at them', () => {
    expect(beyond.policy).toBe('beyond')
    const lanes = lanesOf<State>(mountainCarContinuous(), 2)
    lanes.state.position!.fill(-0.5)
    lanes.action.set([1.7, 1])
    mountainCarContinuous().step(lanes, 0, 2)
    expect(lanes.state.velocity![0]).toBe(lanes.state.velocity![1])
    expect([...lanes.reward]).toEqual([Math.fround(-0.1), Math.fround(-0.1)])
    // Where Gymnasium clips the force its arithmetic is of Python's floats: a bit of f32 apart now and then.
    const { states, actions } = beyond
    for (const [t, action] of actions.entries()) {
      lanes.state.position!.fill(states[t]![0]!)
      lanes.state.velocity!.fill(states[t]![1]!)
      lanes.action.fill((action as number[])[0]!)
      mountainCarContinuous().step(lanes, 0, 1)
      expect(Math.abs(lanes.state.position![0]! - states[t + 1]![0]!)).toBeLessThan(1e-7)
    }
  })

  test('is not at the goal where the car is too slow', () => {
    const environment = mountainCarContinuous({ goalVelocity: 0.05 })
    const lanes = lanesOf<State>(environment, 2)
    lanes.state.position!.fill(0.44)
    lanes.state.velocity!.set([0.06, 0.03])
    environment.step(lanes, 0, 2)
    expect([...lanes.terminated]).toEqual([1, 0])
    expect([...lanes.reward]).toEqual([100, 0])
  })
})

describe('Acrobot-v1', () => {
  test.each(swung.episodes.map((episode) => [episode.seed, episode.policy, episode] as const))(
    'takes each state of the episode of seed %d (%s) to the recorded next one within 1e-12, in f64',
    (_, _policy, episode) => {
      const apart = compareEpisode(acrobot(), ACROBOT, episode, { free: false })
      expect(apart.state).toBeLessThan(1e-12)
      expect(apart.observation).toBeLessThan(2e-7)
      expect(apart.reward).toBe(0)
    },
  )

  test('stays within 1e-9 of the recorded episodes for 60 steps of its own', () => {
    for (const episode of swung.episodes) {
      const to = Math.min(60, episode.actions.length)
      expect(compareEpisode(acrobot(), ACROBOT, episode, { free: true, to }).state).toBeLessThan(1e-9)
    }
  })
})

describe('a new episode', () => {
  const starts: [EnvironmentDefinition, Record<string, readonly [low: number, high: number]>][] = [
    [mountainCar(), { position: [-0.6, -0.4], velocity: [0, 0] }],
    [mountainCarContinuous(), { position: [-0.6, -0.4], velocity: [0, 0] }],
    [acrobot(), Object.fromEntries(ACROBOT.map((name) => [name, [-0.1, 0.1]]))],
  ]
  test.each(starts)('of $id starts uniformly where Gymnasium has it start', (environment, ranges) => {
    const numLanes = 4000
    const lanes = lanesOf<State>(environment, numLanes)
    resetAll(environment, lanes)
    for (const [name, [low, high]] of Object.entries(ranges)) {
      const column = [...lanes.state[name]!]
      const mean = column.reduce((sum, x) => sum + x, 0) / numLanes
      expect(Math.min(...column)).toBeGreaterThanOrEqual(Math.fround(low))
      expect(Math.max(...column)).toBeLessThanOrEqual(Math.fround(high))
      const range = high - low
      expect(Math.abs(mean - (low + high) / 2)).toBeLessThanOrEqual((5 * range) / Math.sqrt(12 * numLanes))
      if (range > 0) expect(Math.max(...column) - Math.min(...column)).toBeGreaterThan(0.99 * range)
    }
    expect(lanes.observation.every(Number.isFinite)).toBe(true)
  })
})
