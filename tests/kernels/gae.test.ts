import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { gae } from '../../src/kernels/advantage/gae.ts'
import * as fc from '../support/properties.ts'

interface Rollout {
  numSteps: number
  numLanes: number
  reward: Float32Array
  value: Float32Array
  nextValue: Float32Array
  terminated: Uint8Array
  truncated: Uint8Array
  valid: Uint8Array
}

interface Shape {
  numSteps: number
  numLanes: number
  seed: number
  /** Chance of each kind of end, and of a dead row. */
  endRate: number
  deadRate: number
}

const shapes: fc.Arbitrary<Shape> = fc.record({
  numSteps: fc.integer({ min: 1, max: 40 }),
  numLanes: fc.integer({ min: 1, max: 7 }),
  seed: fc.nat(),
  endRate: fc.constantFrom(0, 0.1, 0.4),
  deadRate: fc.constantFrom(0, 0.2),
})
const coefficient = fc.oneof(fc.constantFrom(0, 1), fc.double({ min: 0, max: 1, noNaN: true }))

function makeRollout({ numSteps, numLanes, seed, endRate, deadRate }: Shape): Rollout {
  const rows = numSteps * numLanes
  const random = new Random(seed)
  const fill = <A extends Float32Array | Uint8Array>(array: A, stream: number, of: () => number): A => {
    for (let row = 0; row < rows; row++) {
      random.draw(Stream.step, stream, 0, row)
      array[row] = of()
    }
    return array
  }
  const flag = (rate: number) => () => (random.uniform(2) < rate ? 1 : 0)
  return {
    numSteps,
    numLanes,
    reward: fill(new Float32Array(rows), 0, () => random.normal(0, 0)),
    value: fill(new Float32Array(rows), 1, () => random.uniform(0, -10, 10)),
    nextValue: fill(new Float32Array(rows), 2, () => random.uniform(0, -10, 10)),
    terminated: fill(new Uint8Array(rows), 3, flag(endRate)),
    truncated: fill(new Uint8Array(rows), 4, flag(endRate)),
    valid: fill(new Uint8Array(rows), 5, flag(1 - deadRate)),
  }
}

function run(rollout: Rollout, gamma: number, lambda: number) {
  const { numSteps, numLanes, reward, value, nextValue, terminated, truncated, valid } = rollout
  // NaN shows an element that was not written.
  const advantage = new Float32Array(numSteps * numLanes).fill(Number.NaN)
  const returns = new Float32Array(numSteps * numLanes).fill(Number.NaN)
  const carry = new Float32Array(numLanes).fill(Number.NaN)
  const read = { reward, value, nextValue, terminated, truncated, valid }
  gae({ advantage, return: returns, ...read }, carry, gamma, lambda, numSteps, numLanes)
  return { advantage, returns }
}

/** A[t] = Σ (γλ)^k δ of the valid rows of the lane from t to the end of its episode, in f64, with Σ |terms| beside it. */
function advantageTwin(rollout: Rollout, gamma: number, lambda: number, t: number, n: number) {
  const { numSteps, numLanes, reward, value, nextValue, terminated, truncated, valid } = rollout
  let sum = 0
  let size = 0
  let factor = 1
  for (let later = t; later < numSteps; later++) {
    const row = later * numLanes + n
    if (!valid[row]) continue
    const bootstrap = terminated[row] ? 0 : nextValue[row]!
    sum += factor * (reward[row]! + gamma * bootstrap - value[row]!)
    size += factor * (Math.abs(reward[row]!) + Math.abs(bootstrap) + Math.abs(value[row]!))
    if (terminated[row] || truncated[row]) break
    factor *= gamma * lambda
  }
  return { sum, size }
}

describe('gae', () => {
  // The carry is rounded to f32 at each step: each term may be off by 2^-24 once a step, up to 40 steps.
  const TOLERANCE = 40 * 2 ** -24

  test('equals the sum of discounted errors over the rest of the episode', () => {
    fc.assert(
      fc.property(shapes, coefficient, coefficient, (shape, gamma, lambda) => {
        const rollout = makeRollout(shape)
        const { advantage, returns } = run(rollout, gamma, lambda)
        for (let t = 0; t < shape.numSteps; t++) {
          for (let n = 0; n < shape.numLanes; n++) {
            const row = t * shape.numLanes + n
            const value = rollout.value[row]!
            if (!rollout.valid[row]) {
              expect(advantage[row]).toBe(0)
              expect(returns[row]).toBe(value)
              continue
            }
            const { sum, size } = advantageTwin(rollout, gamma, lambda, t, n)
            expect(Math.abs(advantage[row]! - sum)).toBeLessThanOrEqual(TOLERANCE * size)
            expect(Math.abs(returns[row]! - (sum + value))).toBeLessThanOrEqual(TOLERANCE * (size + Math.abs(value)))
          }
        }
      }),
      { numRuns: 200 },
    )
  })

  test('with λ = 1 it is the discounted return less the value, with λ = 0 the one-step error', () => {
    const rollout = makeRollout({ numSteps: 12, numLanes: 1, seed: 3, endRate: 0, deadRate: 0 })
    const { numSteps, reward, value, nextValue } = rollout
    for (let t = 0; t < numSteps - 1; t++) nextValue[t] = value[t + 1]!
    const whole = run(rollout, 0.9, 1).advantage
    const step = run(rollout, 0.9, 0).advantage
    let discounted = nextValue[numSteps - 1]!
    for (let t = numSteps - 1; t >= 0; t--) {
      discounted = reward[t]! + 0.9 * discounted
      expect(whole[t]).toBeCloseTo(discounted - value[t]!, 4)
      expect(step[t]).toBeCloseTo(reward[t]! + 0.9 * nextValue[t]! - value[t]!, 5)
    }
  })

  test('gives the figures that numpy gives for one lane with both kinds of end', () => {
    const rollout: Rollout = {
      numSteps: 6,
      numLanes: 1,
      reward: Float32Array.of(1, -0.5, 2, 0.25, -1, 3),
      value: Float32Array.of(0.5, 1, -1, 2, 0.75, 0.25),
      nextValue: Float32Array.of(1, -1, 9, 0.75, 0.125, 1.5),
      terminated: Uint8Array.of(0, 0, 1, 0, 0, 0),
      truncated: Uint8Array.of(0, 0, 0, 0, 1, 0),
      valid: new Uint8Array(6).fill(1),
    }
    const { advantage, returns } = run(rollout, 0.99, 0.95)
    // A = np.zeros(6)
    // for t in range(6):
    //     f = 1.0
    //     for k in range(t, 6):
    //         A[t] += f * (r[k] + 0.99 * (0 if term[k] else nv[k]) - v[k])
    //         if term[k] or trunc[k]: break
    //         f *= 0.99 * 0.95
    // A.tolist(); (A + v).tolist()
    const advantages = [1.80177575, 0.3315, 3, -2.536988125, -1.62625, 4.235]
    const sums = [2.30177575, 1.3315, 2, -0.536988125, -0.87625, 4.485]
    for (let t = 0; t < 6; t++) {
      expect(advantage[t]).toBeCloseTo(advantages[t]!, 6)
      expect(returns[t]).toBeCloseTo(sums[t]!, 6)
    }
  })

  const twoSteps = (flags: Partial<Rollout>): Rollout => ({
    numSteps: 2,
    numLanes: 1,
    reward: Float32Array.of(1, 100),
    value: Float32Array.of(2, 50),
    nextValue: Float32Array.of(8, 400),
    terminated: new Uint8Array(2),
    truncated: new Uint8Array(2),
    valid: Uint8Array.of(1, 1),
    ...flags,
  })

  test('takes nothing of what follows a terminal state, not even a value left there', () => {
    const { advantage } = run(twoSteps({ terminated: Uint8Array.of(1, 0) }), 0.5, 0.5)
    expect(advantage[0]).toBe(1 - 2)
  })

  test('keeps the bootstrap of a truncated row and stops the sum there', () => {
    const { advantage } = run(twoSteps({ truncated: Uint8Array.of(1, 0) }), 0.5, 0.5)
    expect(advantage[0]).toBe(1 + 0.5 * 8 - 2)
  })

  test('takes an end of both kinds for a terminal state', () => {
    const { advantage } = run(twoSteps({ terminated: Uint8Array.of(1, 0), truncated: Uint8Array.of(1, 0) }), 0.5, 0.5)
    expect(advantage[0]).toBe(1 - 2)
  })

  test('goes on to the next row of an episode that did not end', () => {
    const { advantage } = run(twoSteps({}), 0.5, 0.5)
    expect(advantage[1]).toBe(100 + 0.5 * 400 - 50)
    expect(advantage[0]).toBe(1 + 0.5 * 8 - 2 + 0.25 * 250)
  })

  test('lets the sum pass through dead rows: the others are bit for bit as if they were not there', () => {
    fc.assert(
      fc.property(shapes, coefficient, coefficient, fc.nat(), (shape, gamma, lambda, seed) => {
        const whole = makeRollout({ ...shape, numLanes: 1, deadRate: 0 })
        const sparse = makeRollout({ ...shape, seed, numSteps: 3 * shape.numSteps, numLanes: 1, deadRate: 0 })
        sparse.valid.fill(0)
        for (let t = 0; t < shape.numSteps; t++) {
          const row = 3 * t + ((seed + t) % 3)
          sparse.valid[row] = 1
          for (const name of ['reward', 'value', 'nextValue', 'terminated', 'truncated'] as const) {
            sparse[name][row] = whole[name][t]!
          }
        }
        const { advantage, returns } = run(sparse, gamma, lambda)
        const isValid = (_: number, row: number) => sparse.valid[row] === 1
        const expected = run(whole, gamma, lambda)
        expect([...advantage.filter(isValid)]).toEqual([...expected.advantage])
        expect([...returns.filter(isValid)]).toEqual([...expected.returns])
      }),
    )
  })

  test('treats each lane as if it were alone, bit for bit', () => {
    const rollout = makeRollout({ numSteps: 30, numLanes: 5, seed: 4, endRate: 0.1, deadRate: 0.1 })
    const together = run(rollout, 0.99, 0.95)
    for (let n = 0; n < 5; n++) {
      const ofLane = <A extends Float32Array | Uint8Array>(x: A) => x.filter((_, row) => row % 5 === n) as A
      const alone = run(
        {
          numSteps: 30,
          numLanes: 1,
          reward: ofLane(rollout.reward),
          value: ofLane(rollout.value),
          nextValue: ofLane(rollout.nextValue),
          terminated: ofLane(rollout.terminated),
          truncated: ofLane(rollout.truncated),
          valid: ofLane(rollout.valid),
        },
        0.99,
        0.95,
      )
      expect([...ofLane(together.advantage)]).toEqual([...alone.advantage])
    }
  })
})
