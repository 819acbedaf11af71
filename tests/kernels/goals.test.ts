import { describe, expect, test } from 'vitest'
import { createKernels, isGoalReached } from '../../src/kernels/bind.ts'

const kernels = createKernels(new WebAssembly.Memory({ initial: 1 }), 'plain')
const goal = { achieved: 1, desired: 2, width: 1, tolerance: 0.5, ends: true }

/**
 * A ring of 3 lanes and 5 steps whose oldest step is the second. An observation is [10 · row, what is achieved, the goal]; the goal is
 * never reached. Lane 0 goes on throughout; lane 1 is truncated at its second step, lane 2 terminated there.
 */
const ORDER = [1, 2, 3, 4, 0]
function ring() {
  const rows = Array.from({ length: 15 }, (_, row) => ({ lane: row % 3, t: ORDER.indexOf(Math.floor(row / 3)) }))
  const isOver = ({ lane, t }: { lane: number; t: number }) => lane > 0 && t > 1
  return {
    reward: new Float32Array(15).fill(-1),
    terminated: Uint8Array.from(rows, ({ lane, t }) => Number(lane === 2 && t === 1)),
    truncated: Uint8Array.from(rows, ({ lane, t }) => Number(lane === 1 && t === 1)),
    valid: new Uint8Array(15).fill(1),
    lane: Uint32Array.from(rows, ({ lane }) => lane),
    episode: Uint32Array.from(rows, (row) => Number(isOver(row))),
    step: Int32Array.from(rows, (row) => (isOver(row) ? row.t - 2 : row.t)),
    observation: Float32Array.from(rows.flatMap(({ lane, t }, row) => [10 * row, 100 * lane + t, -1])),
    finalObservation: Float32Array.from(rows.flatMap((_, row) => [10 * row, 777, -1])),
  }
}

/** What the row at time t of a lane becomes in each of `count` draws: its goals before and after, reward and discount. */
function drawn(lane: number, t: number, count: number, fraction = 1, given = goal, first = 4, step = 7, keys = [1, 2]) {
  const replay = ring()
  const row = 3 * ORDER[t]! + lane
  const next = 3 * ORDER[(t + 1) % 5]! + lane
  const copies = (from: Float32Array, at: number) =>
    Float32Array.from({ length: 3 * count }, (_, i) => from[3 * at + (i % 3)]!)
  const after = replay.truncated[row] === 1 ? copies(replay.finalObservation, row) : copies(replay.observation, next)
  const block = {
    observation: copies(replay.observation, row),
    nextObservation: after,
    return: new Float32Array(count).fill(-1),
    discount: new Float32Array(count).fill(0.9),
  }
  const rows = new Uint32Array(count + first).fill(row)
  kernels.relabelGoals(
    block,
    replay,
    given,
    new Uint32Array(4),
    rows,
    first,
    count,
    fraction,
    3,
    step,
    keys[0]!,
    keys[1]!,
  )
  return Array.from({ length: count }, (_, i) => ({
    goals: [block.observation[3 * i + 2]!, block.nextObservation[3 * i + 2]!],
    reward: block.return[i]!,
    discount: block.discount[i]!,
    rest: [...block.observation.slice(3 * i, 3 * i + 2)],
  }))
}

const goalsOf = (rows: ReturnType<typeof drawn>) =>
  [...new Set(rows.map(({ goals }) => goals[0]!))].sort((a, b) => a - b)

describe('a row is given', () => {
  test('each goal that its own episode reached in the same step or later, equally often', () => {
    const rows = drawn(0, 1, 600)
    expect(goalsOf(rows)).toEqual([2, 3, 4]) // The newest row's next observation is not there.
    for (const wanted of [2, 3, 4]) {
      const share = rows.filter(({ goals }) => goals[0] === wanted).length / 600
      expect(Math.abs(share - 1 / 3)).toBeLessThan(0.08)
    }
    for (const { goals, reward, discount, rest } of rows) {
      expect(goals[1]).toBe(goals[0])
      expect([reward, discount]).toEqual(goals[0] === 2 ? [0, 0] : [-1, Math.fround(0.9)])
      expect(rest).toEqual([10 * 3 * ORDER[1]!, 1])
    }
  })

  test('what was seen last where the episode was truncated, and nothing of the next one', () => {
    expect(goalsOf(drawn(1, 0, 200))).toEqual([101, 777])
    expect(goalsOf(drawn(1, 1, 50))).toEqual([777])
    expect(goalsOf(drawn(2, 0, 50))).toEqual([201])
    expect(goalsOf(drawn(2, 2, 200))).toEqual([203, 204])
  })

  test('its own goal where the episode terminated, and as often as the fraction leaves it', () => {
    expect(goalsOf(drawn(2, 1, 50))).toEqual([-1])
    const kept = drawn(0, 0, 1000, 0.3).filter(({ goals }) => goals[0] === -1)
    expect(Math.abs(kept.length / 1000 - 0.7)).toBeLessThan(0.05)
    expect(new Set(kept.map(({ reward }) => reward))).toEqual(new Set([-1]))
  })

  test('the same goal in whatever block it stands, and another one in another step or with another seed', () => {
    const goals = (first: number, count: number, step = 7, keys = [1, 2]) =>
      drawn(0, 0, count, 0.5, goal, first, step, keys).map(({ goals: [wanted] }) => wanted)
    expect(goals(0, 60).slice(24)).toEqual(goals(24, 36))
    expect(goals(0, 60, 8)).not.toEqual(goals(0, 60))
    for (const keys of [
      [3, 2],
      [1, 3],
    ])
      expect(goals(0, 60, 7, keys)).not.toEqual(goals(0, 60))
  })

  test('a discount where episodes do not end with their goals', () => {
    for (const { discount } of drawn(0, 3, 20, 1, { ...goal, ends: false })) expect(discount).toBe(Math.fround(0.9))
  })
})

test('a goal is reached within its tolerance, over all its elements', () => {
  const place = { achieved: 0, desired: 2, width: 2, tolerance: 0.5, ends: false }
  expect(isGoalReached(Float32Array.of(9, 1, 1, 1.25, 1.25), 1, place)).toBe(true)
  expect(isGoalReached(Float32Array.of(9, 1, 1, 1.5, 1.25), 1, place)).toBe(false)
  expect(isGoalReached(Float32Array.of(1, 1, 1.5, 1), 0, place)).toBe(true)
})
