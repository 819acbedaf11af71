import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { spaceWidth } from '../../src/base/space.ts'
import type { Lanes } from '../../src/environments/environment.ts'
import { breakout } from '../../src/environments/minatar/breakout.ts'
import { createWorld, type EpisodeCohort, mlp, reset, step, store } from '../../src/index.ts'
import type { KernelBuild } from '../../src/kernels/kernels.ts'
import { lanesOf, resetAll, UNWRITTEN } from '../support/lanes.ts'
import * as fc from '../support/properties.ts'

/** Paddle column, ball cell, trail cell, bricks, direction, strike, over: `record_minatar.py` says how they are coded. */
type Snapshot = [number, number, number, number, number, number, number]

interface Episode {
  seed: number
  policy: string
  actions: number[]
  rewards: number[]
  states: Snapshot[]
}

// Recorded by tests/golden/record_minatar.py, which says how.
const recorded = JSON.parse(readFileSync(new URL('../golden/breakout-minatar.json', import.meta.url), 'utf8'))
const episodes: Episode[] = recorded.episodes

const NAMES = ['ballX', 'ballY', 'direction', 'trailX', 'trailY', 'paddle', 'strike', 'lastAction'] as const
type State = Record<(typeof NAMES)[number], Uint8Array> & { bricks: Uint32Array }
const WIDTH = 400

const plain = breakout({ stickyActionProbability: 0 })

function putState({ state }: Lanes<State>, n: number, snapshot: Snapshot): void {
  const [paddle, ball, trail, bricks, direction, strike] = snapshot
  state.paddle[n] = paddle
  state.ballX[n] = ball % 10
  state.ballY[n] = Math.floor(ball / 10)
  state.trailX[n] = trail % 10
  state.trailY[n] = Math.floor(trail / 10)
  state.bricks[n] = bricks
  state.direction[n] = direction
  state.strike[n] = strike
}

/** What a recorded state looks like: 10 × 10 × 4. */
function picture([paddle, ball, trail, bricks]: Snapshot): number[] {
  const seen = new Array<number>(WIDTH).fill(0)
  seen[4 * (90 + paddle)] = 1
  seen[4 * ball + 1] = 1
  seen[4 * trail + 2] = 1
  for (let place = 0; place < 30; place++) if ((bricks >> place) & 1) seen[4 * (10 + place) + 3] = 1
  return seen
}

function rowOf(observation: Float32Array, n: number): number[] {
  return [...observation.subarray(n * WIDTH, (n + 1) * WIDTH)]
}

describe('against MinAtar', () => {
  test.each(episodes.map((episode) => [episode.seed, episode.policy, episode] as const))(
    'the whole episode of seed %d (%s) is the recorded one in every cell, hidden state, reward and flag',
    (_, _policy, { actions, rewards, states }) => {
      const lanes = lanesOf<State>(plain, 1)
      putState(lanes, 0, states[0]!)
      for (const [t, action] of actions.entries()) {
        lanes.action[0] = action
        lanes.terminated[0] = 0
        plain.step(lanes, 0, 1)
        const next = states[t + 1]!
        expect(rowOf(lanes.observation, 0)).toEqual(picture(next))
        expect([lanes.state.direction[0], lanes.state.strike[0], lanes.terminated[0]]).toEqual(next.slice(4))
        expect(lanes.reward[0]).toBe(rewards[t])
      }
    },
  )

  test('both recorded starts are drawn, as often as each other, and no other', () => {
    const lanes = lanesOf<State>(plain, 4000)
    resetAll(plain, lanes)
    const starts = [30, 39].map((cell) => episodes.find(({ states }) => states[0]![1] === cell)!.states[0]!)
    let fromLeft = 0
    for (let n = 0; n < 4000; n++) {
      const start = starts[lanes.state.ballX[n] === 0 ? 0 : 1]!
      expect(lanes.state.direction[n]).toBe(start[4])
      expect(rowOf(lanes.observation, n)).toEqual(picture(start))
      if (start === starts[0]) fromLeft++
    }
    expect(Math.abs(fromLeft - 2000)).toBeLessThan(5 * Math.sqrt(1000)) // Five standard errors.
  })
})

describe('sticky actions', () => {
  /** How far the paddle gets when it is told to go right for `steps` steps from column 4, on average. */
  function paddles(stickyActionProbability: number, steps: number): Uint8Array {
    const environment = breakout({ stickyActionProbability })
    const lanes = lanesOf<State>(environment, 4000)
    resetAll(environment, lanes)
    lanes.action.fill(2)
    for (let t = 0; t < steps; t++) {
      lanes.step.fill(t)
      environment.step(lanes, 0, 4000)
    }
    return lanes.state.paddle
  }

  test('at 0 never, and at 1 always, does a lane repeat the action before; before the first it did nothing', () => {
    expect(new Set(paddles(0, 3))).toEqual(new Set([7]))
    expect(new Set(paddles(1, 3))).toEqual(new Set([4]))
  })

  test('repeat with the probability asked for, 0.1 as MinAtar has it', () => {
    expect(breakout().parameters).toMatchObject({ stickyActionProbability: 0.1 })
    const stayed = paddles(0.1, 1).filter((column) => column === 4).length
    expect(Math.abs(stayed - 400)).toBeLessThan(5 * Math.sqrt(4000 * 0.1 * 0.9))
    // Once it moves it goes on: what it repeats from then on is moving. Two steps without moving happen at 0.1².
    const stayedTwice = paddles(0.1, 2).filter((column) => column === 4).length
    expect(Math.abs(stayedTwice - 40)).toBeLessThan(5 * Math.sqrt(40))
  })
})

describe('by property', () => {
  test('whatever is done, everything stays in the grid and rewards are the bricks that went', () => {
    fc.assert(
      fc.property(fc.nat(), fc.array(fc.nat(2), { maxLength: 300 }), (seed, actions) => {
        const environment = breakout({ stickyActionProbability: 0.3 })
        const lanes = lanesOf<State>(environment, 3, seed)
        const { state } = lanes
        resetAll(environment, lanes)
        for (const [t, action] of actions.entries()) {
          // The second lane follows the ball, so that it lives longer.
          const before = state.bricks.slice()
          const rows = state.ballY.slice()
          const toBall = Math.sign(state.ballX[1]! - state.paddle[1]!)
          lanes.action.set([action, toBall === 0 ? 0 : toBall < 0 ? 1 : 2, 2 - action])
          lanes.terminated.fill(0)
          lanes.step.fill(t)
          environment.step(lanes, 0, 3)
          for (let n = 0; n < 3; n++) {
            for (const name of ['ballX', 'ballY', 'trailX', 'trailY', 'paddle'] as const) {
              expect(state[name][n]).toBeLessThan(10)
            }
            const row = rowOf(lanes.observation, n)
            const ones = [0, 1, 2, 3].map((channel) => row.filter((x, k) => x === 1 && k % 4 === channel).length)
            const bricks = state.bricks[n]!.toString(2).replaceAll('0', '').length
            expect(ones).toEqual([1, 1, 1, bricks])
            expect(row.every((x) => x === 0 || x === 1)).toBe(true)
            const gone = before[n]!.toString(2).replaceAll('0', '').length - bricks
            expect(lanes.reward[n]).toBe(before[n] === 0 ? 0 : gone) // With none left the next three rows come.
            expect(lanes.terminated[n]).toBe(rows[n] !== 9 && state.ballY[n] === 9 ? 1 : 0)
          }
        }
      }),
      { numRuns: 50 },
    )
  })

  test('a lost ball stays where it is, for as long as the lane is held', () => {
    const lost = episodes.find(({ states }) => states.at(-1)![6] === 1)!.states.at(-1)!
    const lanes = lanesOf<State>(plain, 3)
    for (let n = 0; n < 3; n++) putState(lanes, n, n === 1 ? lost : episodes[0]!.states[0]!)
    for (let t = 0; t < 5; t++) {
      lanes.action.fill(1)
      plain.step(lanes, 0, 3)
      expect(rowOf(lanes.observation, 1)).toEqual(picture(lost))
      expect([lanes.reward[1], lanes.terminated[1]]).toEqual([0, 0])
    }
  })

  test('the lanes of its range move, and no others', () => {
    const lanes = lanesOf<State>(plain, 5)
    resetAll(plain, lanes)
    lanes.observation.fill(UNWRITTEN)
    plain.step(lanes, 1, 4)
    expect([...lanes.reward]).toEqual([Number.NaN, 0, 0, 0, Number.NaN])
    expect([...lanes.state.ballY]).toEqual([3, 4, 4, 4, 3])
    for (const n of [0, 4]) expect(rowOf(lanes.observation, n)).toEqual(new Array(WIDTH).fill(UNWRITTEN))
    for (const n of [1, 2, 3]) expect(rowOf(lanes.observation, n)).not.toContain(UNWRITTEN)
  })
})

test('the specification: a picture of 10 × 10 × 4 and MinAtar’s minimal three actions', () => {
  const environment = breakout()
  expect(environment.id).toBe('Breakout-MinAtar')
  expect(environment.observationSpace).toMatchObject({ kind: 'box', shape: [10, 10, 4] })
  expect(spaceWidth(environment.observationSpace)).toBe(WIDTH)
  expect(environment.actionSpace).toEqual({ kind: 'discrete', n: 3 })
  expect(environment.maxEpisodeSteps).toBe(1000)
  expect(() => breakout({ stickyActionProbability: 1.5 })).toThrow(
    'Breakout-MinAtar.stickyActionProbability: got 1.5, expected a number ≥ 0 and ≤ 1',
  )
})

test.each(['simd', 'relaxed', 'native'] as const)(
  'the compiled bodies (%s) play the plain ones’ episodes, to the byte, for any number of lanes',
  async (build) => {
    for (const numLanes of [1, 6, 131]) {
      const make = (kernels: KernelBuild) =>
        createWorld({ environment: breakout(), policy: mlp({ hidden: [1] }), numLanes, seed: 5, kernels })
      const [plain, compiled] = [await make('plain'), await make(build)]
      const [ours, theirs] = [compiled.cohort() as EpisodeCohort, plain.cohort() as EpisodeCohort]
      let rewards = 0
      for (let t = 0; t < 120; t++) {
        for (const world of [plain, compiled]) {
          const { action, observation } = world.cohort() as EpisodeCohort
          reset(world)
          // Most actions follow the ball, so that bricks break; some do not, so that balls are lost.
          for (let n = 0; n < numLanes; n++) {
            const seen = observation.current.subarray(n * WIDTH, (n + 1) * WIDTH)
            const [paddle, ball] = [0, 1].map((channel) => seen.findIndex((x, k) => k % 4 === channel && x === 1) >> 2)
            const way = (ball! % 10) - (paddle! % 10)
            action.chosen[n] = (n + t) % 11 === 0 ? t % 3 : way < 0 ? 1 : way > 0 ? 2 : 0
          }
          step(world)
        }
        expect(ours.observation.next).toEqual(theirs.observation.next)
        expect(ours.transition.reward).toEqual(theirs.transition.reward)
        expect(ours.transition.terminated).toEqual(theirs.transition.terminated)
        expect(ours.state).toEqual(theirs.state)
        rewards += ours.transition.reward.reduce((sum, reward) => sum + reward, 0)
        for (const world of [plain, compiled]) store(world)
      }
      expect(rewards).toBeGreaterThan(0)
      expect(ours.episode.episode.reduce((sum, episode) => sum + episode, 0)).toBeGreaterThan(0)
    }
  },
)

test.each(['simd', 'relaxed', 'native'] as const)(
  'the compiled bodies (%s) make the plain ones’ steps from states that play seldom reaches',
  async (build) => {
    const numLanes = 500
    const random = new Random(4)
    const make = (kernels: KernelBuild) =>
      createWorld({ environment: breakout(), policy: mlp({ hidden: [1] }), numLanes, seed: 5, kernels })
    const worlds = [await make('plain'), await make(build)] as const
    for (const world of worlds) {
      const { state, action } = world.cohort() as EpisodeCohort
      const { ballX, ballY, direction, paddle, bricks, strike, lastAction } = state as unknown as State
      reset(world)
      for (let n = 0; n < numLanes; n++) {
        random.draw(Stream.step, n, 0, 0)
        const [place, kind, brick, act] = random.words as unknown as [number, number, number, number]
        ballX[n] = place % 10
        ballY[n] = [0, 1, 2, 3, 4, 8][(place >>> 8) % 6]!
        direction[n] = kind % 4
        strike[n] = (kind >>> 2) % 2
        lastAction[n] = (kind >>> 3) % 3
        paddle[n] = Math.max(0, Math.min(9, ballX[n]! + ((kind >>> 8) % 3) - 1))
        bricks[n] = (kind >>> 16) % 4 === 0 ? 0 : brick >>> 2
        action.chosen[n] = act % 3
      }
      step(world)
    }
    const [theirs, ours] = worlds.map((world) => world.cohort() as EpisodeCohort) as [EpisodeCohort, EpisodeCohort]
    expect(ours.state).toEqual(theirs.state)
    expect(ours.observation.next).toEqual(theirs.observation.next)
    expect(ours.transition).toEqual(theirs.transition)
  },
)
