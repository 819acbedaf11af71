import { readFileSync } from 'node:fs'
import { afterAll, describe, expect, test } from 'vitest'
import { Random } from '../../src/base/random.ts'
import { cartPole } from '../../src/environments/classic/cart-pole.ts'
import type { Lanes } from '../../src/environments/environment.ts'
import { createKernels } from '../../src/kernels/bind.ts'
import { ANGLE_LIMIT, cartPoleStep, POSITION_LIMIT } from '../../src/kernels/physics/cart-pole.ts'

interface Episode {
  seed: number
  policy: string
  states: [number, number, number, number][]
  observations: [number, number, number, number][]
  actions: number[]
  rewards: number[]
  terminated: boolean
  truncated: boolean
}

// Recorded by tests/golden/record_gymnasium.py, which says how.
const recorded = JSON.parse(readFileSync(new URL('../golden/cart-pole-v1.json', import.meta.url), 'utf8'))
const episodes: Episode[] = recorded.episodes
const NAMES = ['position', 'velocity', 'angle', 'angularVelocity'] as const

type State = Record<(typeof NAMES)[number], Float32Array>

function makeLanes(numLanes: number, seed = 1): Lanes<State> {
  return {
    state: Object.fromEntries(NAMES.map((name) => [name, new Float32Array(numLanes)])) as State,
    observation: new Float32Array(4 * numLanes).fill(Number.NaN),
    action: new Int32Array(numLanes),
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

/** How far a state is from leaving, in m or rad: near 0, the last bit of f32 decides. */
function fromLimit(state: readonly number[]): number {
  return Math.min(Math.abs(Math.abs(state[0]!) - POSITION_LIMIT), Math.abs(Math.abs(state[2]!) - ANGLE_LIMIT))
}

const apart = (actual: number, expected: number) => Math.abs(actual - expected) / Math.max(1, Math.abs(expected))

describe('the specification', () => {
  test('is the one of Gymnasium', () => {
    const environment = cartPole()
    expect(environment.id).toBe(recorded.environment)
    expect(environment.maxEpisodeSteps).toBe(recorded.max_episode_steps)
    expect(environment.returnThreshold).toBe(recorded.reward_threshold)
    expect(environment.actionSpace).toEqual({ kind: 'discrete', n: recorded.action_space.n })
    const { observationSpace } = environment
    if (observationSpace.kind !== 'box') throw new Error('not a box')
    expect(observationSpace.shape).toEqual(recorded.observation_space.shape)
    for (const side of ['low', 'high'] as const) {
      const bounds = recorded.observation_space[side].map((bound: number | string) =>
        Math.fround(typeof bound === 'string' ? Number(bound.replace('inf', 'Infinity')) : bound),
      )
      expect(observationSpace[side].map(Math.fround)).toEqual(bounds)
    }
  })

  test('can shorten and lengthen episodes', () => {
    expect(cartPole({ maxEpisodeSteps: 7 }).maxEpisodeSteps).toBe(7)
    expect(() => cartPole({ maxEpisodeSteps: 0 })).toThrow(
      'CartPole-v1.maxEpisodeSteps: got 0, expected a whole number ≥ 1',
    )
  })
})

describe('one step in f32', () => {
  // All recorded steps at once, one a lane.
  const steps = episodes.flatMap(({ states, observations, actions, rewards, terminated }) =>
    actions.map((action, t) => ({
      action,
      state: states[t]!,
      next: states[t + 1]!,
      observation: observations[t + 1]!,
      reward: rewards[t]!,
      terminated: terminated && t === actions.length - 1,
    })),
  )
  const lanes = makeLanes(steps.length)
  for (const [n, { state, action }] of steps.entries()) {
    for (const [k, name] of NAMES.entries()) lanes.state[name][n] = state[k]!
    lanes.action[n] = action
  }
  cartPole().step(lanes, 0, steps.length)

  test('takes every recorded state to the recorded next one, within 1e-6 of max(1, |x|)', () => {
    let worst = 0
    for (const [n, { next, observation }] of steps.entries()) {
      for (const [k, name] of NAMES.entries()) {
        worst = Math.max(worst, apart(lanes.state[name][n]!, next[k]!))
        worst = Math.max(worst, apart(lanes.observation[4 * n + k]!, Math.fround(observation[k]!)))
        expect(lanes.observation[4 * n + k]).toBe(lanes.state[name][n])
      }
    }
    console.info(`CartPole-v1: ${steps.length} single steps in f32, at most ${worst.toExponential(1)} apart`)
    expect(steps.length).toBeGreaterThan(5000)
    expect(worst).toBeLessThan(1e-6)
  })

  test('pays the recorded reward', () => {
    for (const [n, { reward }] of steps.entries()) expect(lanes.reward[n]).toBe(reward)
  })

  test('ends the recorded episodes and no others, but for states within 1e-5 of a limit', () => {
    const near = steps.filter(({ next }) => fromLimit(next) <= 1e-5)
    console.info(`CartPole-v1: ${near.length} of ${steps.length} states within 1e-5 of a limit are not compared`)
    expect(near.length).toBeLessThan(5)
    let ends = 0
    for (const [n, { next, terminated }] of steps.entries()) {
      if (fromLimit(next) <= 1e-5) continue
      expect(lanes.terminated[n]).toBe(terminated ? 1 : 0)
      if (terminated) ends++
    }
    expect(ends).toBeGreaterThan(15)
    expect(lanes.truncated.every((flag) => flag === 0)).toBe(true)
  })

  test('moves the lanes of its range and no others', () => {
    const few = makeLanes(5)
    cartPole().step(few, 1, 4)
    expect([...few.reward]).toEqual([Number.NaN, 1, 1, 1, Number.NaN])
    expect([...few.state.velocity].map((v) => v !== 0)).toEqual([false, true, true, true, false])
  })
})

describe('whole episodes in f64', () => {
  const lines: string[] = []
  afterAll(() => console.info(lines.join('\n')))
  test.each(episodes.map((episode) => [episode.seed, episode.policy, episode] as const))(
    'of seed %d (%s) stay within 1e-6 of the recording for 200 steps, with its flags',
    (_, policy, episode) => {
      const state = episode.states[0]!.map((x) => Float64Array.of(x)) as [
        Float64Array,
        Float64Array,
        Float64Array,
        Float64Array,
      ]
      const observation = new Float32Array(4)
      const reward = new Float32Array(1)
      const terminated = new Uint8Array(1)
      let worst = 0
      let worstOfAll = 0
      for (const [t, action] of episode.actions.entries()) {
        cartPoleStep(...state, observation, reward, terminated, Int32Array.of(action), 0, 1)
        const next = episode.states[t + 1]!
        for (let k = 0; k < 4; k++) worstOfAll = Math.max(worstOfAll, apart(state[k]![0]!, next[k]!))
        if (t >= 200) continue
        worst = worstOfAll
        expect(terminated[0]).toBe(episode.terminated && t === episode.actions.length - 1 ? 1 : 0)
        for (let k = 0; k < 4; k++) expect(observation[k]).toBe(Math.fround(state[k]![0]!))
      }
      expect(worst).toBeLessThan(1e-6)
      if (episode.actions.length > 200) {
        const figures = `${worst.toExponential(1)} apart after 200 steps, ${worstOfAll.toExponential(1)} after all`
        lines.push(`CartPole-v1 seed ${episode.seed} (${policy}), ${episode.actions.length} steps: ${figures}`)
      }
    },
  )
})

test('the time limit cuts an episode off at the recorded step, and none before it', () => {
  const { maxEpisodeSteps } = cartPole()
  const { kernels } = makeLanes(1)
  let cut = 0
  for (const { actions, truncated } of episodes) {
    for (let t = 0; t < actions.length; t++) {
      const flag = new Uint8Array(1)
      kernels.limitSteps(flag, Int32Array.of(t), maxEpisodeSteps!, 0, 1)
      expect(flag[0]).toBe(truncated && t === actions.length - 1 ? 1 : 0)
    }
    if (truncated) cut++
  }
  expect(cut).toBeGreaterThanOrEqual(4)
})

describe('a new episode', () => {
  test('starts anywhere in [−0.05, 0.05) in all four', () => {
    const numLanes = 4000
    const lanes = makeLanes(numLanes)
    cartPole().reset(lanes, Uint32Array.from(lanes.lane), numLanes)
    for (const [k, name] of NAMES.entries()) {
      const column = lanes.state[name]
      const mean = column.reduce((sum, x) => sum + x, 0) / numLanes
      expect(Math.min(...column)).toBeGreaterThanOrEqual(-Math.fround(0.05))
      expect(Math.max(...column)).toBeLessThanOrEqual(Math.fround(0.05))
      expect(Math.min(...column)).toBeLessThan(-0.049)
      expect(Math.max(...column)).toBeGreaterThan(0.049)
      expect(Math.abs(mean)).toBeLessThan((5 * 0.1) / Math.sqrt(12 * numLanes)) // Five standard errors.
      for (let n = 0; n < numLanes; n++) expect(lanes.observation[4 * n + k]).toBe(column[n])
    }
    expect(new Set(NAMES.flatMap((name) => [...lanes.state[name]])).size).toBeGreaterThan(0.99 * 4 * numLanes)
  })

  test('depends on seed, lane and episode alone, and leaves the lanes not listed as they were', () => {
    const start = (lane: number, episode: number, seed: number, place: number) => {
      const lanes = makeLanes(3, seed)
      lanes.lane[place] = lane
      lanes.episode[place] = episode
      cartPole().reset(lanes, Uint32Array.of(place, 99), 1)
      const others = [0, 1, 2].filter((n) => n !== place)
      for (const n of others) for (const name of NAMES) expect(lanes.state[name][n]).toBe(0)
      return NAMES.map((name) => lanes.state[name][place])
    }
    expect(start(8, 2, 1, 0)).toEqual(start(8, 2, 1, 2))
    for (const other of [start(9, 2, 1, 0), start(8, 3, 1, 0), start(8, 2, 2, 0)]) {
      expect(other).not.toEqual(start(8, 2, 1, 0))
    }
  })
})
