import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { discountedReturns } from '../../src/kernels/advantage/returns.ts'
import * as fc from '../support/properties.ts'

/** One row of one lane: reward, value of what follows, terminated, truncated, valid. */
type Row = [reward: number, nextValue: number, terminated: number, truncated: number, valid: number]

function run(rows: Row[], numLanes: number, gamma: number): Float32Array {
  const returns = new Float32Array(rows.length).fill(Number.NaN)
  const rollout = {
    return: returns,
    reward: Float32Array.from(rows, (row) => row[0]),
    nextValue: Float32Array.from(rows, (row) => row[1]),
    terminated: Uint8Array.from(rows, (row) => row[2]),
    truncated: Uint8Array.from(rows, (row) => row[3]),
    valid: Uint8Array.from(rows, (row) => row[4]),
  }
  discountedReturns(rollout, new Float32Array(numLanes), gamma, rows.length / numLanes, numLanes)
  return returns
}

/** G[t] as a sum from t on, in f64: the valid rows of one lane in order. With Σ |terms| beside it. */
function returnTwin(rows: Row[], t: number, gamma: number): { sum: number; size: number } {
  let sum = 0
  let size = 0
  let factor = 1
  for (let later = t; later < rows.length; later++) {
    const [reward, nextValue, terminated, truncated] = rows[later]!
    const cut = !terminated && (truncated || later === rows.length - 1)
    sum += factor * (reward + (cut ? gamma * nextValue : 0))
    size += factor * (Math.abs(reward) + Math.abs(nextValue))
    if (terminated || truncated) break
    factor *= gamma
  }
  return { sum, size }
}

describe('discountedReturns', () => {
  test('equals the sum of discounted rewards over the rest of the episode', () => {
    const shapes = fc.record({
      numSteps: fc.integer({ min: 1, max: 40 }),
      numLanes: fc.integer({ min: 1, max: 6 }),
      seed: fc.nat(),
      endRate: fc.constantFrom(0, 0.1, 0.4),
      deadRate: fc.constantFrom(0, 0.2),
    })
    const gammas = fc.oneof(fc.constantFrom(0, 1), fc.double({ min: 0, max: 1, noNaN: true }))
    fc.assert(
      fc.property(shapes, gammas, ({ numSteps, numLanes, seed, endRate, deadRate }, gamma) => {
        const random = new Random(seed)
        const rows = Array.from({ length: numSteps * numLanes }, (_, i): Row => {
          random.draw(Stream.step, 0, 0, i)
          const [reward, nextValue] = [Math.fround(random.normal(0, 0)), Math.fround(10 * random.normal(0, 1))]
          const end = random.uniform(2)
          return [reward, nextValue, +(end < endRate), +(end > 1 - endRate), +(random.uniform(3) >= deadRate)]
        })
        const returns = run(rows, numLanes, gamma)
        for (let n = 0; n < numLanes; n++) {
          const lane = rows.map((row, i) => ({ row, i })).filter(({ i }) => i % numLanes === n)
          const valid = lane.filter(({ row }) => row[4] === 1)
          for (const { row, i } of lane) if (row[4] === 0) expect(returns[i]).toBe(0)
          for (const [t, { i }] of valid.entries()) {
            const { sum, size } = returnTwin(
              valid.map(({ row }) => row),
              t,
              gamma,
            )
            // Each of up to 40 steps rounds the carry to f32.
            expect(Math.abs(returns[i]! - sum)).toBeLessThanOrEqual(40 * 2 ** -24 * size)
          }
        }
      }),
      { numRuns: 200 },
    )
  })

  test('ends with the reward alone in a terminal state', () => {
    expect([
      ...run(
        [
          [1, 9, 0, 0, 1],
          [2, 9, 1, 0, 1],
          [4, 9, 0, 1, 1],
        ],
        1,
        0.5,
      ),
    ]).toEqual([2, 2, 8.5])
  })

  test('bootstraps where the episode was truncated and in the last row', () => {
    expect([
      ...run(
        [
          [1, 9, 0, 0, 1],
          [2, 8, 0, 1, 1],
          [4, 16, 0, 0, 1],
        ],
        1,
        0.5,
      ),
    ]).toEqual([4, 6, 12])
  })

  test('takes an end of both kinds for a terminal state', () => {
    expect([...run([[2, 8, 1, 1, 1]], 1, 0.5)]).toEqual([2])
  })

  test('bootstraps in the last valid row of a lane whose last rows are dead', () => {
    expect([
      ...run(
        [
          [1, 9, 0, 0, 1],
          [2, 8, 0, 0, 1],
          [7, 7, 0, 0, 0],
        ],
        1,
        0.5,
      ),
    ]).toEqual([4, 6, 0])
  })
})
