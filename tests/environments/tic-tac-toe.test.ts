import { describe, expect, test } from 'vitest'
import { ticTacToe } from '../../src/environments/games/tic-tac-toe.ts'
import { lanesOf, resetAll } from '../support/lanes.ts'
import * as fc from '../support/properties.ts'

type State = { own: Int32Array; other: Int32Array }

const environment = ticTacToe()
const LINES = [
  [0, 1, 2],
  [3, 4, 5],
  [6, 7, 8],
  [0, 3, 6],
  [1, 4, 7],
  [2, 5, 8],
  [0, 4, 8],
  [2, 4, 6],
]
const bits = (squares: readonly number[]) => squares.reduce((sum, square) => sum | (1 << square), 0)
const holdsLine = (squares: number) => LINES.some((line) => line.every((square) => (squares >> square) & 1))

/** Chances of a game: won, drawn, lost by the lane. */
type Chances = readonly [won: number, drawn: number, lost: number]
const WON: Chances = [1, 0, 0]
const DRAWN: Chances = [0, 1, 0]
const LOST: Chances = [0, 0, 1]
const mean = (chances: readonly Chances[]) =>
  [0, 1, 2].map((k) => chances.reduce((sum, one) => sum + one[k]!, 0) / chances.length) as unknown as Chances
const freeOf = (taken: number) => [0, 1, 2, 3, 4, 5, 6, 7, 8].filter((square) => !((taken >> square) & 1))
const returnOf = ([won, , lost]: Chances) => won - lost

/** What comes of a position in which the lane is to move, if it moves at random or to the best return. */
function outcome(own: number, other: number, plays: 'random' | 'best'): Chances {
  const moves = freeOf(own | other).map((square) => afterMove(own | (1 << square), other, plays))
  return plays === 'random' ? mean(moves) : moves.reduce((a, b) => (returnOf(b) > returnOf(a) ? b : a))
}

function afterMove(own: number, other: number, plays: 'random' | 'best'): Chances {
  if (holdsLine(own)) return WON
  const free = freeOf(own | other)
  if (free.length === 0) return DRAWN
  return mean(
    free.map((square) => {
      const answered = other | (1 << square)
      if (holdsLine(answered)) return LOST
      return free.length === 1 ? DRAWN : outcome(own, answered, plays)
    }),
  )
}

/** Plays one game in each of many lanes; counts what came of those the lane began and of those it did not. */
function playMany(numLanes: number, seed: number, choose: (own: number, other: number, n: number) => number) {
  const lanes = lanesOf<State>(environment, numLanes, seed)
  resetAll(environment, lanes)
  const began = [...lanes.state.other].map((other) => other === 0)
  const counts = { first: [0, 0, 0], second: [0, 0, 0] }
  const isOver = new Uint8Array(numLanes)
  for (let t = 0; t < 5; t++) {
    for (let n = 0; n < numLanes; n++) {
      if (!isOver[n]) lanes.action[n] = choose(lanes.state.own[n]!, lanes.state.other[n]!, n)
    }
    lanes.step.fill(t)
    lanes.terminated.fill(0)
    environment.step(lanes, 0, numLanes)
    for (let n = 0; n < numLanes; n++) {
      if (!lanes.terminated[n]) continue
      isOver[n] = 1
      counts[began[n] ? 'first' : 'second'][1 - lanes.reward[n]!]!++
    }
  }
  expect(isOver.every((flag) => flag === 1)).toBe(true)
  return counts
}

/** Counts are within five standard errors of what the chances would have. */
function expectCounts(counts: readonly number[], chances: Chances) {
  const games = counts.reduce((sum, count) => sum + count, 0)
  for (const [k, chance] of chances.entries()) {
    const spread = 5 * Math.sqrt(games * chance * (1 - chance)) + 1e-6
    expect(Math.abs(counts[k]! - games * chance)).toBeLessThan(spread)
  }
}

describe('a game at random', () => {
  // A choice of ours that has nothing to do with the environment's numbers.
  let word = 1
  const random = (own: number, other: number) => {
    const free = freeOf(own | other)
    word = (Math.imul(word, 1664525) + 1013904223) >>> 0
    return free[Math.floor((word / 2 ** 32) * free.length)]!
  }
  const counts = playMany(40_000, 5, random)

  test('is won by who begins in 58.5 %, drawn in 12.7 %, lost in 28.8 %', () => {
    const exact = outcome(0, 0, 'random')
    expect(exact.map((chance) => Math.round(chance * 1000) / 10)).toEqual([58.5, 12.7, 28.8])
    expectCounts(counts.first, exact)
    expectCounts(counts.second, [exact[2], exact[1], exact[0]])
  })

  test('is begun by the lane in half of the games', () => {
    const first = counts.first.reduce((sum, count) => sum + count, 0)
    expect(Math.abs(first - 20_000)).toBeLessThan(5 * 100)
  })
})

test('the best play returns 0.960 on average, and 0.995 where it begins', () => {
  const first = outcome(0, 0, 'best')
  const second = mean(freeOf(0).map((square) => outcome(0, 1 << square, 'best')))
  expect(returnOf(first)).toBeCloseTo(0.995, 3)
  expect(returnOf(mean([first, second]))).toBeCloseTo(0.96, 3)
  const known = new Map<number, number>()
  const choose = (own: number, other: number) => {
    const position = own * 512 + other
    let best = known.get(position)
    if (best === undefined) {
      const value = (square: number) => returnOf(afterMove(own | (1 << square), other, 'best'))
      best = freeOf(own | other).reduce((a, b) => (value(b) > value(a) ? b : a))
      known.set(position, best)
    }
    return best
  }
  const counts = playMany(4000, 6, choose)
  expectCounts(counts.first, first)
  expectCounts(counts.second, second)
})

describe('by property', () => {
  test('the mask is the free squares, the board is what was played, and the end is a line or a full board', () => {
    fc.assert(
      fc.property(fc.nat(), fc.array(fc.nat(8), { minLength: 5, maxLength: 5 }), (seed, wishes) => {
        const lanes = lanesOf<State>(environment, 4, seed)
        const { state, observation, actionMask, action, reward, terminated } = lanes
        resetAll(environment, lanes)
        const played = [0, 0, 0, 0]
        const over = [false, false, false, false]
        for (let t = 0; t < 5; t++) {
          const before = [...state.other]
          for (let n = 0; n < 4; n++) {
            const own = state.own[n]!
            const other = state.other[n]!
            const free = freeOf(own | other)
            expect([...actionMask.subarray(9 * n, 9 * n + 9)]).toEqual(
              Array.from({ length: 9 }, (_, square) => (free.includes(square) ? 1 : 0)),
            )
            const marks = Array.from({ length: 9 }, (_, square) => [(own >> square) & 1, (other >> square) & 1])
            expect([...observation.subarray(18 * n, 18 * n + 18)]).toEqual(marks.flat())
            expect(own & other).toBe(0)
            expect(own).toBe(played[n])
            if (over[n]) continue
            action[n] = free[(wishes[t]! + n) % free.length]!
            played[n]! |= 1 << action[n]!
          }
          lanes.step.fill(t)
          terminated.fill(0)
          environment.step(lanes, 0, 4)
          for (let n = 0; n < 4; n++) {
            const own = state.own[n]!
            const other = state.other[n]!
            const wasOver = over[n]
            over[n] = holdsLine(own) || holdsLine(other) || (own | other) === 511
            expect(terminated[n]).toBe(over[n] && !wasOver ? 1 : 0)
            expect(reward[n]).toBe(wasOver ? 0 : holdsLine(own) ? 1 : holdsLine(other) ? -1 : 0)
            const answers = (other ^ before[n]!).toString(2).replaceAll('0', '').length
            expect(answers).toBe(wasOver || holdsLine(own) || (own | before[n]!) === 511 ? 0 : 1)
          }
        }
        expect(over).toEqual([true, true, true, true])
      }),
      { numRuns: 200 },
    )
  })
})

describe('the end', () => {
  test.each(LINES.map((line) => [line]))('a line on squares %j wins for the lane, and loses against it', (line) => {
    for (const last of line) {
      // The lane's last mark of the line; the opponent's two marks are elsewhere and make no line with any answer.
      const lanes = lanesOf<State>(environment, 1)
      const others = freeOf(bits(line)).slice(0, 2)
      lanes.state.own[0] = bits(line) ^ (1 << last)
      lanes.state.other[0] = bits(others)
      lanes.action[0] = last
      environment.step(lanes, 0, 1)
      expect([lanes.reward[0], lanes.terminated[0]]).toEqual([1, 1])
      expect(lanes.state.other[0]).toBe(bits(others)) // The opponent has no answer.
    }
    let lost = 0
    for (let seed = 0; seed < 40; seed++) {
      const lanes = lanesOf<State>(environment, 1, seed)
      const [first, second, ...rest] = freeOf(bits(line))
      lanes.state.own[0] = bits([first!])
      lanes.state.other[0] = bits(line.slice(0, 2))
      lanes.action[0] = second!
      environment.step(lanes, 0, 1)
      const completed = lanes.state.other[0] === bits(line)
      expect([lanes.reward[0], lanes.terminated[0]]).toEqual(completed ? [-1, 1] : [0, 0])
      if (completed) lost++
      expect(rest.length).toBe(4)
    }
    expect(lost).toBeGreaterThan(0) // One answer in five.
    expect(lost).toBeLessThan(40)
  })

  test('a full board without a line is a draw', () => {
    const lanes = lanesOf<State>(environment, 1)
    lanes.state.own[0] = bits([0, 1, 5, 6])
    lanes.state.other[0] = bits([2, 3, 4, 7])
    lanes.action[0] = 8
    environment.step(lanes, 0, 1)
    expect([lanes.reward[0], lanes.terminated[0]]).toEqual([0, 1])
    expect([...lanes.actionMask]).toEqual(new Array(9).fill(0))
  })

  test('a game that is over stays as it is, whatever the held lane does', () => {
    const lanes = lanesOf<State>(environment, 3)
    resetAll(environment, lanes)
    lanes.state.own[1] = bits([0, 1, 2])
    lanes.state.other[1] = bits([3, 4])
    lanes.action.set([0, 8, 0])
    environment.step(lanes, 0, 3)
    expect([lanes.state.own[1], lanes.state.other[1]]).toEqual([bits([0, 1, 2]), bits([3, 4])])
    expect([lanes.reward[1], lanes.terminated[1]]).toEqual([0, 0])
  })
})

test('the specification: nine squares, a mask, five steps', () => {
  expect(environment.observationSpace).toMatchObject({ kind: 'box', shape: [3, 3, 2] })
  expect(environment.actionSpace).toEqual({ kind: 'discrete', n: 9 })
  expect(environment.actionMask).toBe(true)
  expect(environment.maxEpisodeSteps).toBe(5)
})

test('the lanes of its range move, and no others', () => {
  const lanes = lanesOf<State>(environment, 5)
  resetAll(environment, lanes)
  lanes.action.set([4, 4, 4, 4, 4])
  lanes.state.other.fill(1)
  lanes.observation.fill(Number.NaN)
  environment.step(lanes, 1, 4)
  expect([...lanes.reward]).toEqual([Number.NaN, 0, 0, 0, Number.NaN])
  expect([...lanes.state.own]).toEqual([0, 16, 16, 16, 0])
  expect([0, 1, 2, 3, 4].map((n) => Number.isNaN(lanes.observation[18 * n]))).toEqual([true, false, false, false, true])
})
