import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { gae } from '../../src/kernels/advantage/gae.ts'
import { vtrace } from '../../src/kernels/advantage/vtrace.ts'
import * as fc from '../support/properties.ts'

interface Rollout {
  numSteps: number
  numLanes: number
  logprob: Float32Array
  oldLogprob: Float32Array
  reward: Float32Array
  value: Float32Array
  nextValue: Float32Array
  terminated: Uint8Array
  truncated: Uint8Array
  valid: Uint8Array
}

const INPUTS = [
  'logprob',
  'oldLogprob',
  'reward',
  'value',
  'nextValue',
  'terminated',
  'truncated',
  'valid',
] as const satisfies (keyof Rollout)[]

interface Shape {
  numSteps: number
  numLanes: number
  seed: number
  /** Chance of each kind of end, and of a dead row. */
  endRate: number
  deadRate: number
}

interface Settings {
  gamma: number
  lambda: number
  rhoMax: number
  cMax: number
}

const shapes: fc.Arbitrary<Shape> = fc.record({
  numSteps: fc.integer({ min: 1, max: 40 }),
  numLanes: fc.integer({ min: 1, max: 7 }),
  seed: fc.nat(),
  endRate: fc.constantFrom(0, 0.1, 0.4),
  deadRate: fc.constantFrom(0, 0.2),
})
const coefficient = fc.oneof(fc.constantFrom(0, 1), fc.double({ min: 0, max: 1, noNaN: true }))
const clip = fc.oneof(fc.constantFrom(1, Infinity), fc.double({ min: 0.1, max: 3, noNaN: true }))
const settings: fc.Arbitrary<Settings> = fc.record({
  gamma: coefficient,
  lambda: coefficient,
  rhoMax: clip,
  cMax: clip,
})

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
    logprob: fill(new Float32Array(rows), 6, () => random.uniform(0, -1, 0)),
    oldLogprob: fill(new Float32Array(rows), 7, () => random.uniform(0, -1, 0)),
    reward: fill(new Float32Array(rows), 0, () => random.normal(0, 0)),
    value: fill(new Float32Array(rows), 1, () => random.uniform(0, -10, 10)),
    nextValue: fill(new Float32Array(rows), 2, () => random.uniform(0, -10, 10)),
    terminated: fill(new Uint8Array(rows), 3, flag(endRate)),
    truncated: fill(new Uint8Array(rows), 4, flag(endRate)),
    valid: fill(new Uint8Array(rows), 5, flag(1 - deadRate)),
  }
}

function run(rollout: Rollout, { gamma, lambda, rhoMax, cMax }: Settings) {
  const { numSteps, numLanes, terminated, truncated, valid } = rollout
  const { logprob, oldLogprob, reward, value, nextValue } = rollout
  // NaN shows an element that was not written.
  const advantage = new Float32Array(numSteps * numLanes).fill(Number.NaN)
  const returns = new Float32Array(numSteps * numLanes).fill(Number.NaN)
  const carry = new Float32Array(numLanes).fill(Number.NaN)
  const read = { logprob: oldLogprob, reward, value, nextValue, terminated, truncated, valid }
  vtrace({ advantage, return: returns, ...read }, carry, logprob, gamma, lambda, rhoMax, cMax, numSteps, numLanes)
  return { advantage, returns }
}

/** One lane of a rollout. */
function laneOf(rollout: Rollout, n: number): Rollout {
  const lane = { ...rollout, numLanes: 1 }
  const some = <A extends Float32Array | Uint8Array>(x: A) => x.filter((_, row) => row % rollout.numLanes === n) as A
  for (const name of INPUTS) Object.assign(lane, { [name]: some(rollout[name]) })
  return lane
}

/**
 * Of a lane's row `from`, in f64: eq. 1 without its value, Σ γ^k (Π c) δ of the valid rows to the end of the episode,
 * with Σ |terms| beside it.
 */
function errorTwin(lane: Rollout, from: number, { gamma, lambda, rhoMax, cMax }: Settings) {
  let sum = 0
  let size = 0
  let factor = 1
  for (let t = from; t < lane.numSteps; t++) {
    if (!lane.valid[t]) continue
    const ratio = Math.exp(lane.logprob[t]!) / Math.exp(lane.oldLogprob[t]!)
    const bootstrap = lane.terminated[t] ? 0 : lane.nextValue[t]!
    const weight = factor * Math.min(rhoMax, ratio)
    sum += weight * (lane.reward[t]! + gamma * bootstrap - lane.value[t]!)
    size += weight * (Math.abs(lane.reward[t]!) + Math.abs(bootstrap) + Math.abs(lane.value[t]!))
    if (lane.terminated[t] || lane.truncated[t]) break
    factor *= gamma * lambda * Math.min(cMax, ratio)
  }
  return { sum, size }
}

/** ρ (r + γ v' − V) in f64, v' = nextValue and what later rows add to it, with Σ |terms| beside it. */
function advantageTwin(lane: Rollout, t: number, given: Settings) {
  const rho = Math.min(given.rhoMax, Math.exp(lane.logprob[t]!) / Math.exp(lane.oldLogprob[t]!))
  const isOver = lane.terminated[t] || lane.truncated[t]
  const later = isOver ? { sum: 0, size: 0 } : errorTwin(lane, t + 1, given)
  const bootstrap = lane.terminated[t] ? 0 : lane.nextValue[t]!
  const sum = rho * (lane.reward[t]! + given.gamma * (bootstrap + later.sum) - lane.value[t]!)
  const sizes = Math.abs(lane.reward[t]!) + Math.abs(bootstrap) + later.size + Math.abs(lane.value[t]!)
  return { sum, size: rho * sizes }
}

describe('vtrace', () => {
  // The carry is rounded to f32 at each of up to 40 steps, and the output: each term may be off by 2^-24 each time.
  const TOLERANCE = 41 * 2 ** -24

  test('equals eq. 1 and the advantage of section 4.2, lane by lane', () => {
    fc.assert(
      fc.property(shapes, settings, (shape, given) => {
        const rollout = makeRollout(shape)
        const { advantage, returns } = run(rollout, given)
        for (let n = 0; n < shape.numLanes; n++) {
          const lane = laneOf(rollout, n)
          for (let t = 0; t < shape.numSteps; t++) {
            const row = t * shape.numLanes + n
            const value = rollout.value[row]!
            if (!rollout.valid[row]) {
              expect(advantage[row]).toBe(0)
              expect(returns[row]).toBe(value)
              continue
            }
            const error = errorTwin(lane, t, given)
            expect(Math.abs(returns[row]! - (value + error.sum))).toBeLessThanOrEqual(
              TOLERANCE * (error.size + Math.abs(value)),
            )
            const { sum, size } = advantageTwin(lane, t, given)
            expect(Math.abs(advantage[row]! - sum)).toBeLessThanOrEqual(TOLERANCE * size)
          }
        }
      }),
      { numRuns: 200 },
    )
  })

  test('gives the figures that numpy gives for one lane with both kinds of end', () => {
    const rollout: Rollout = {
      numSteps: 6,
      numLanes: 1,
      logprob: Float32Array.of(-0.5, -1, -0.25, -2, -0.75, -1.5),
      oldLogprob: Float32Array.of(-1, -0.75, -0.5, -1.5, -0.75, -1),
      reward: Float32Array.of(1, -0.5, 2, 0.25, -1, 3),
      value: Float32Array.of(0.5, 1, -1, 2, 0.75, 0.25),
      nextValue: Float32Array.of(1, -1, 9, 0.75, 0.125, 1.5),
      terminated: Uint8Array.of(0, 0, 1, 0, 0, 0),
      truncated: Uint8Array.of(0, 0, 0, 0, 1, 0),
      valid: new Uint8Array(6).fill(1),
    }
    const { advantage, returns } = run(rollout, { gamma: 0.99, lambda: 0.95, rhoMax: 1.25, cMax: 1 })
    // ratio = np.exp(logprob - old); rho = np.minimum(1.25, ratio); c = 0.95 * np.minimum(1, ratio)
    // b = np.where(term, 0, nv); vs = v.copy()
    // for s in range(6):
    //     for t in range(s, 6):
    //         vs[s] += 0.99**(t - s) * np.prod(c[s:t]) * rho[t] * (r[t] + 0.99 * b[t] - v[t])
    //         if term[t] or trunc[t]: break
    // later = np.array([0 if term[t] else nv[t] if trunc[t] or t == 5 else vs[t + 1] for t in range(6)])
    // (rho * (r + 0.99 * later - v)).tolist(); vs.tolist()
    const advantages = [2.861804839159614, 0.9520839573047926, 3.75, -1.5875864201645717, -1.62625, 2.568657343883002]
    const targets = [3.121971677761306, 1.807519061947163, 2.75, 0.4612389188606332, -0.87625, 2.818657343883002]
    for (let t = 0; t < 6; t++) {
      expect(advantage[t]).toBeCloseTo(advantages[t]!, 6)
      expect(returns[t]).toBeCloseTo(targets[t]!, 6)
    }
  })

  test('gives the targets of GAE(λ) on-policy, bit for bit, for any clips of at least 1', () => {
    const atLeast1 = fc.oneof(fc.constantFrom(1, Infinity), fc.double({ min: 1, max: 3, noNaN: true }))
    fc.assert(
      fc.property(shapes, coefficient, coefficient, atLeast1, atLeast1, (shape, gamma, lambda, rhoMax, cMax) => {
        const rollout = makeRollout(shape)
        rollout.logprob.set(rollout.oldLogprob)
        const { numSteps, numLanes, reward, value, nextValue, terminated, truncated, valid } = rollout
        const wanted = new Float32Array(reward.length)
        const columns = { advantage: new Float32Array(reward.length), return: wanted }
        const read = { reward, value, nextValue, terminated, truncated, valid }
        gae({ ...columns, ...read }, new Float32Array(numLanes), gamma, lambda, numSteps, numLanes)
        expect(run(rollout, { gamma, lambda, rhoMax, cMax }).returns).toEqual(wanted)
      }),
    )
  })

  test('on-policy its advantage is that of GAE with λ = 1, and with a smaller λ it is not', () => {
    const rollout = makeRollout({ numSteps: 20, numLanes: 3, seed: 9, endRate: 0.1, deadRate: 0 })
    rollout.logprob.set(rollout.oldLogprob)
    const { numSteps, numLanes, reward, value, nextValue, terminated, truncated, valid } = rollout
    // The two agree where a row's next value is the value of the row after it, as a rollout has it.
    for (let row = 0; row < (numSteps - 1) * numLanes; row++) nextValue[row] = value[row + numLanes]!
    const apart = (lambda: number): number => {
      const wanted = new Float32Array(reward.length)
      const columns = { advantage: wanted, return: new Float32Array(reward.length) }
      const read = { reward, value, nextValue, terminated, truncated, valid }
      gae({ ...columns, ...read }, new Float32Array(numLanes), 0.9, lambda, numSteps, numLanes)
      const { advantage } = run(rollout, { gamma: 0.9, lambda, rhoMax: 1, cMax: 1 })
      return Math.max(...advantage.map((each, row) => Math.abs(each - wanted[row]!)))
    }
    expect(apart(1)).toBeLessThan(1e-4)
    expect(apart(0.5)).toBeGreaterThan(0.1)
  })

  const twoSteps = (flags: Partial<Rollout>): Rollout => ({
    numSteps: 2,
    numLanes: 1,
    logprob: Float32Array.of(Math.log(2), Math.log(4)),
    oldLogprob: Float32Array.of(0, 0),
    reward: Float32Array.of(1, 100),
    value: Float32Array.of(2, 50),
    nextValue: Float32Array.of(8, 400),
    terminated: new Uint8Array(2),
    truncated: new Uint8Array(2),
    valid: Uint8Array.of(1, 1),
    ...flags,
  })
  const half = { gamma: 0.5, lambda: 0.5, rhoMax: 1, cMax: 1 }
  const first = ({ advantage, returns }: ReturnType<typeof run>) => [advantage[0], returns[0]]

  test('takes nothing of what follows a terminal state, not even a value left there', () => {
    const rollout = twoSteps({ terminated: Uint8Array.of(1, 0) })
    expect(first(run(rollout, half))).toEqual([1 - 2, 1])
  })

  test('keeps the bootstrap of a truncated row and stops the sum there', () => {
    const rollout = twoSteps({ truncated: Uint8Array.of(1, 0) })
    expect(first(run(rollout, half))).toEqual([1 + 0.5 * 8 - 2, 1 + 0.5 * 8])
  })

  test('takes an end of both kinds for a terminal state', () => {
    const rollout = twoSteps({ terminated: Uint8Array.of(1, 0), truncated: Uint8Array.of(1, 0) })
    expect(first(run(rollout, half))).toEqual([1 - 2, 1])
  })

  test('the advantage takes all of what the next target adds, the target λ of it', () => {
    const error = 100 + 0.5 * 400 - 50
    const { advantage, returns } = run(twoSteps({}), half)
    expect([...advantage]).toEqual([1 + 0.5 * (8 + error) - 2, error])
    expect([...returns]).toEqual([1 + 0.5 * 8 + 0.25 * error, 50 + error])
  })

  test('clips the weight of an error by rhoMax and that of later ones by cMax', () => {
    const error = 3 * (100 + 0.5 * 400 - 50)
    const { advantage, returns } = run(twoSteps({}), { ...half, rhoMax: 3, cMax: 1.5 })
    expect(advantage[1]).toBe(error)
    expect(advantage[0]).toBeCloseTo(2 * (1 + 0.5 * (8 + error) - 2), 3)
    expect(returns[0]).toBeCloseTo(2 + 2 * (1 + 0.5 * 8 - 2) + 0.25 * 1.5 * error, 3)
  })

  test('lets the sum pass through dead rows: the others are bit for bit as if they were not there', () => {
    fc.assert(
      fc.property(shapes, settings, fc.nat(), (shape, given, seed) => {
        const whole = makeRollout({ ...shape, numLanes: 1, deadRate: 0 })
        const sparse = makeRollout({ ...shape, seed, numSteps: 3 * shape.numSteps, numLanes: 1, deadRate: 0 })
        sparse.valid.fill(0)
        for (let t = 0; t < shape.numSteps; t++) {
          const row = 3 * t + ((seed + t) % 3)
          for (const name of INPUTS) sparse[name][row] = whole[name][t]!
        }
        const { advantage, returns } = run(sparse, given)
        const isValid = (_: number, row: number) => sparse.valid[row] === 1
        const expected = run(whole, given)
        expect([...advantage.filter(isValid)]).toEqual([...expected.advantage])
        expect([...returns.filter(isValid)]).toEqual([...expected.returns])
      }),
    )
  })

  test('treats each lane as if it were alone, bit for bit', () => {
    const rollout = makeRollout({ numSteps: 30, numLanes: 5, seed: 4, endRate: 0.1, deadRate: 0.1 })
    const given = { gamma: 0.99, lambda: 0.95, rhoMax: 1, cMax: 1 }
    const together = run(rollout, given)
    for (let n = 0; n < 5; n++) {
      const isLane = (_: number, row: number) => row % 5 === n
      const alone = run(laneOf(rollout, n), given)
      expect(together.advantage.filter(isLane)).toEqual(alone.advantage)
      expect(together.returns.filter(isLane)).toEqual(alone.returns)
    }
  })
})
