import { readFileSync } from 'node:fs'
import { afterAll, describe, expect, test } from 'vitest'
import { Random } from '../../src/base/random.ts'
import { pendulum } from '../../src/environments/classic/pendulum.ts'
import type { Lanes } from '../../src/environments/environment.ts'
import { createKernels } from '../../src/kernels/bind.ts'
import { pendulumStep, SPEED_LIMIT, TORQUE_LIMIT, wrap } from '../../src/kernels/physics/pendulum.ts'
import * as fc from '../support/properties.ts'

interface Episode {
  seed: number
  policy: string
  states: [angle: number, angularVelocity: number][]
  observations: [number, number, number][]
  actions: [number][]
  rewards: number[]
  terminated: boolean
  truncated: boolean
}

// Recorded by tests/golden/record_gymnasium.py, which says how.
const recorded = JSON.parse(readFileSync(new URL('../golden/pendulum-v1.json', import.meta.url), 'utf8'))
const episodes: Episode[] = recorded.episodes
const GRAVITY = 10

type State = { angle: Float32Array; angularVelocity: Float32Array }

function makeLanes(numLanes: number, seed = 1): Lanes<State> {
  return {
    state: { angle: new Float32Array(numLanes), angularVelocity: new Float32Array(numLanes) },
    observation: new Float32Array(3 * numLanes).fill(Number.NaN),
    action: new Float32Array(numLanes),
    actionMask: new Uint8Array(0),
    reward: new Float32Array(numLanes).fill(Number.NaN),
    terminated: new Uint8Array(numLanes),
    truncated: new Uint8Array(numLanes),
    died: new Uint8Array(0),
    births: new Uint8Array(0),
    answersLater() {},
    present: numLanes,
    lane: Uint32Array.from({ length: numLanes }, (_, n) => n),
    episode: new Uint32Array(numLanes),
    step: new Int32Array(numLanes),
    random: new Random(seed),
    kernels: createKernels(new WebAssembly.Memory({ initial: 0 }), 'plain'),
  }
}

const apart = (actual: number, expected: number) => Math.abs(actual - expected) / Math.max(1, Math.abs(expected))

/** The distance of two angles on the circle, in rad. Ours is kept in one turn, Gymnasium's is not. */
function angleApart(a: number, b: number): number {
  const turns = (a - b) / (2 * Math.PI)
  return Math.abs(turns - Math.round(turns)) * 2 * Math.PI
}

describe('the specification', () => {
  test('is the one of Gymnasium', () => {
    const environment = pendulum()
    expect(environment.id).toBe(recorded.environment)
    expect(environment.maxEpisodeSteps).toBe(recorded.max_episode_steps)
    expect(environment.returnThreshold).toBe(recorded.reward_threshold)
    for (const [space, expected] of [
      [environment.observationSpace, recorded.observation_space],
      [environment.actionSpace, recorded.action_space],
    ]) {
      const { shape, low, high } = expected
      expect(space).toEqual({ kind: 'box', shape, low, high })
    }
  })

  test('can shorten episodes and change gravity', () => {
    expect(pendulum({ maxEpisodeSteps: 7 }).maxEpisodeSteps).toBe(7)
    const speedAfterOne = (gravity: number) => {
      const lanes = makeLanes(1)
      lanes.state.angle[0] = Math.PI / 2
      pendulum({ gravity }).step(lanes, 0, 1)
      return lanes.state.angularVelocity[0]!
    }
    // 3 g / 2 l · sin(π/2) · 0.05 s
    expect(speedAfterOne(10)).toBeCloseTo(0.75, 6)
    expect(speedAfterOne(2)).toBeCloseTo(0.15, 6)
  })
})

describe('one step in f32', () => {
  // All recorded steps at once, one a lane.
  const steps = episodes.flatMap(({ states, observations, actions, rewards }) =>
    actions.map(([action], t) => ({
      action,
      state: states[t]!,
      next: states[t + 1]!,
      observation: observations[t + 1]!,
      reward: rewards[t]!,
    })),
  )
  const lanes = makeLanes(steps.length)
  for (const [n, { state, action }] of steps.entries()) {
    lanes.state.angle[n] = wrap(state[0])
    lanes.state.angularVelocity[n] = state[1]
    lanes.action[n] = action
  }
  pendulum().step(lanes, 0, steps.length)

  test('takes every recorded state to the recorded next one, within 1e-6 of max(1, |x|)', () => {
    let worst = 0
    for (const [n, { next, observation }] of steps.entries()) {
      worst = Math.max(worst, angleApart(lanes.state.angle[n]!, next[0]))
      worst = Math.max(worst, apart(lanes.state.angularVelocity[n]!, next[1]))
      for (let k = 0; k < 3; k++) worst = Math.max(worst, apart(lanes.observation[3 * n + k]!, observation[k]!))
    }
    console.info(`Pendulum-v1: ${steps.length} single steps in f32, at most ${worst.toExponential(1)} apart`)
    expect(steps.length).toBeGreaterThan(5000)
    expect(worst).toBeLessThan(1e-6)
  })

  test('pays the recorded reward within 1e-6 of max(1, |reward|)', () => {
    let worst = 0
    for (const [n, { reward }] of steps.entries()) worst = Math.max(worst, apart(lanes.reward[n]!, reward))
    expect(worst).toBeLessThan(1e-6)
  })

  test('never ends an episode', () => {
    expect(lanes.terminated.every((flag) => flag === 0)).toBe(true)
    expect(lanes.truncated.every((flag) => flag === 0)).toBe(true)
    expect(episodes.some(({ terminated }) => terminated)).toBe(false)
  })

  test('moves the lanes of its range and no others', () => {
    const few = makeLanes(4)
    few.action.fill(1)
    pendulum().step(few, 1, 3)
    expect([...few.reward].map(Number.isNaN)).toEqual([true, false, false, true])
    expect([...few.state.angularVelocity].map((v) => v !== 0)).toEqual([false, true, true, false])
  })
})

describe('whole episodes in f64', () => {
  /** How far our free run in f64 gets from a recording at worst, over its first `steps` steps. */
  function drift({ states, actions, rewards }: Episode, steps = actions.length): number {
    const angle = Float64Array.of(wrap(states[0]![0]))
    const angularVelocity = Float64Array.of(states[0]![1])
    const [observation, reward] = [new Float32Array(3), new Float32Array(1)]
    let worst = 0
    for (let t = 0; t < steps; t++) {
      pendulumStep(angle, angularVelocity, observation, reward, Float32Array.of(actions[t]![0]), GRAVITY, 0, 1)
      const [recordedAngle, recordedVelocity] = states[t + 1]!
      const apartNow = [
        angleApart(angle[0]!, recordedAngle),
        apart(angularVelocity[0]!, recordedVelocity),
        apart(reward[0]!, rewards[t]!),
      ]
      worst = Math.max(worst, ...apartNow)
    }
    return worst
  }
  const figures: string[] = []
  afterAll(() => console.info(figures.join('\n')))

  // Gymnasium with float64 torques: all arithmetic of both is in f64. The swing-up hangs at the top, where the last bit
  // of f64 grows by e in five steps: it is held to 100 steps.
  const inF64: Episode[] = JSON.parse(
    readFileSync(new URL('../golden/pendulum-v1-f64.json', import.meta.url), 'utf8'),
  ).episodes
  test.each(inF64.map((episode) => [episode.seed, episode.policy, episode] as const))(
    'of seed %d (%s) stay within 1e-6 of Gymnasium in f64 for 200 steps',
    (seed, policy, episode) => {
      figures.push(`Pendulum-v1 in f64, seed ${seed} (${policy}): at most ${drift(episode).toExponential(1)} apart`)
      expect(episode.actions).toHaveLength(200)
      expect(drift(episode, policy === 'swing-up' ? 100 : 200)).toBeLessThan(1e-6)
    },
  )

  test('are at least 20 that are held to all 200 steps, some of which turn over', () => {
    const whole = inF64.filter(({ policy }) => policy !== 'swing-up')
    expect(whole.length).toBeGreaterThanOrEqual(20)
    expect(whole.some(({ states }) => states.some(([angle]) => Math.abs(angle) > 2 * Math.PI))).toBe(true)
  })

  // With float32 torques, as a user of Gymnasium hands them over, numpy 2 rounds 3 · torque to f32: 1e-8 a step.
  test.each(episodes.map((episode) => [episode.seed, episode.policy, episode] as const))(
    'of seed %d (%s) stay within 1e-6 of Gymnasium with f32 torques for 40 steps',
    (_, __, episode) => {
      expect(drift(episode, 40)).toBeLessThan(1e-6)
    },
  )
})

test('the time limit cuts an episode off at the recorded step, and none before it', () => {
  const { maxEpisodeSteps } = pendulum()
  const { kernels } = makeLanes(1)
  for (const { actions, truncated } of episodes) {
    expect(truncated).toBe(true)
    for (let t = 0; t < actions.length; t++) {
      const flag = new Uint8Array(1)
      kernels.limitSteps(flag, Int32Array.of(t), maxEpisodeSteps!, 0, 1)
      expect(flag[0]).toBe(t === actions.length - 1 ? 1 : 0)
    }
  }
})

describe('the limits', () => {
  test('hold for any state and torque: speed within ±8, angle within a turn, torques beyond ±2 as those at ±2', () => {
    const angles = fc.float({ min: -100, max: 100, noNaN: true })
    const speeds = fc.float({ min: -8, max: 8, noNaN: true })
    const torques = fc.float({ min: -1000, max: 1000, noNaN: true })
    fc.assert(
      fc.property(angles, speeds, torques, (start, speed, torque) => {
        const step = (applied: number) => {
          const [angle, angularVelocity] = [Float64Array.of(start), Float64Array.of(speed)]
          const [observation, reward] = [new Float32Array(3), new Float32Array(1)]
          pendulumStep(angle, angularVelocity, observation, reward, Float32Array.of(applied), GRAVITY, 0, 1)
          return { angle: angle[0]!, speed: angularVelocity[0]!, observation: [...observation], reward: reward[0]! }
        }
        const after = step(torque)
        expect(Math.abs(after.speed)).toBeLessThanOrEqual(SPEED_LIMIT)
        expect(Math.abs(after.angle)).toBeLessThanOrEqual(Math.PI)
        expect(after.reward).toBeLessThanOrEqual(0)
        expect(after.reward).toBeGreaterThan(-16.2737)
        expect(step(Math.max(-TORQUE_LIMIT, Math.min(TORQUE_LIMIT, torque)))).toEqual(after)
      }),
    )
  })

  test('wrap gives the same angle, in [−π, π)', () => {
    const angles = fc.oneof(
      fc.double({ min: -1e4, max: 1e4, noNaN: true }),
      fc.integer({ min: -50, max: 50 }).map((halves) => halves * Math.PI),
    )
    fc.assert(
      fc.property(angles, (angle) => {
        const wrapped = wrap(angle)
        expect(wrapped).toBeGreaterThanOrEqual(-Math.PI)
        expect(wrapped).toBeLessThan(Math.PI)
        // Angles of 1e4 have a last bit of 2e-12.
        expect(angleApart(wrapped, angle)).toBeLessThan(1e-11)
      }),
      { numRuns: 2000 },
    )
  })
})

describe('a new episode', () => {
  test('starts at any angle, with a speed in [−1, 1)', () => {
    const numLanes = 4000
    const lanes = makeLanes(numLanes)
    pendulum().reset(lanes, Uint32Array.from(lanes.lane), numLanes)
    for (const [column, limit] of [
      [lanes.state.angle, Math.PI],
      [lanes.state.angularVelocity, 1],
    ] as const) {
      const mean = column.reduce((sum, x) => sum + x, 0) / numLanes
      expect(Math.min(...column)).toBeGreaterThanOrEqual(-Math.fround(limit))
      expect(Math.max(...column)).toBeLessThanOrEqual(Math.fround(limit))
      expect(Math.min(...column)).toBeLessThan(-0.99 * limit)
      expect(Math.max(...column)).toBeGreaterThan(0.99 * limit)
      expect(Math.abs(mean)).toBeLessThan((5 * 2 * limit) / Math.sqrt(12 * numLanes)) // Five standard errors.
    }
    const { angle, angularVelocity } = lanes.state
    const correlation = angle.reduce((sum, x, n) => sum + x * angularVelocity[n]!, 0) / numLanes
    expect(Math.abs(correlation)).toBeLessThan((5 * Math.PI) / 3 / Math.sqrt(numLanes))
    for (let n = 0; n < numLanes; n++) {
      expect(lanes.observation[3 * n]).toBe(Math.fround(Math.cos(lanes.state.angle[n]!)))
      expect(lanes.observation[3 * n + 1]).toBe(Math.fround(Math.sin(lanes.state.angle[n]!)))
      expect(lanes.observation[3 * n + 2]).toBe(lanes.state.angularVelocity[n])
    }
  })

  test('depends on seed, lane and episode alone, and leaves the lanes not listed as they were', () => {
    const start = (lane: number, episode: number, seed: number, place: number) => {
      const lanes = makeLanes(3, seed)
      lanes.lane[place] = lane
      lanes.episode[place] = episode
      pendulum().reset(lanes, Uint32Array.of(place, 99), 1)
      for (const n of [0, 1, 2]) if (n !== place) expect(lanes.state.angle[n]).toBe(0)
      return [lanes.state.angle[place], lanes.state.angularVelocity[place]]
    }
    expect(start(8, 2, 1, 0)).toEqual(start(8, 2, 1, 2))
    for (const other of [start(9, 2, 1, 0), start(8, 3, 1, 0), start(8, 2, 2, 0)]) {
      expect(other).not.toEqual(start(8, 2, 1, 0))
    }
  })
})
