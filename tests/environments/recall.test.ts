import { describe, expect, test } from 'vitest'
import { recall } from '../../src/environments/classic/recall.ts'
import { lanesOf, resetAll } from '../support/lanes.ts'
import * as fc from '../support/properties.ts'

type State = { cue: Uint32Array }

/** Plays one episode in every lane with the actions that `choose` gives. Returns what each lane saw, step by step. */
function play(
  parameters: { numCues: number; delay: number },
  numLanes: number,
  seed: number,
  choose: (seen: readonly number[][], n: number) => number,
) {
  const environment = recall(parameters)
  const lanes = lanesOf<State>(environment, numLanes, seed)
  const width = parameters.numCues + 1
  resetAll(environment, lanes)
  const seen: number[][][] = Array.from({ length: numLanes }, () => [])
  const rewards: number[][] = Array.from({ length: numLanes }, () => [])
  const ends: number[][] = Array.from({ length: numLanes }, () => [])
  for (let t = 0; t < environment.maxEpisodeSteps!; t++) {
    for (let n = 0; n < numLanes; n++) {
      seen[n]!.push([...lanes.observation.subarray(n * width, (n + 1) * width)])
      lanes.action[n] = choose(seen[n]!, n)
    }
    lanes.step.fill(t)
    lanes.terminated.fill(0)
    environment.step(lanes, 0, numLanes)
    for (let n = 0; n < numLanes; n++) {
      rewards[n]!.push(lanes.reward[n]!)
      ends[n]!.push(lanes.terminated[n]!)
    }
  }
  return { seen, rewards, ends, cues: [...lanes.state.cue] }
}

const parameters = fc.record({ numCues: fc.integer({ min: 2, max: 9 }), delay: fc.nat(12) })
const returnOf = (rewards: readonly number[]) => rewards.reduce((sum, reward) => sum + reward, 0)

describe('an episode', () => {
  test('shows the cue in its first step, nothing for the delay, and the question last', () => {
    fc.assert(
      fc.property(parameters, fc.nat(), (given, seed) => {
        const { numCues, delay } = given
        const { seen, ends, cues } = play(given, 5, seed, () => 0)
        const nothing = new Array<number>(numCues + 1).fill(0)
        for (const [n, cue] of cues.entries()) {
          const first = nothing.with(cue, 1)
          expect(seen[n]).toEqual([first, ...new Array(delay).fill(nothing), nothing.with(numCues, 1)])
          expect(ends[n]).toEqual([...new Array(delay + 1).fill(0), 1])
        }
      }),
      { numRuns: 30 },
    )
  })

  test('returns 1 to who remembers and 0 to who answers wrong, whatever they did before', () => {
    fc.assert(
      fc.property(parameters, fc.nat(), (given, seed) => {
        const { numCues, delay } = given
        const noise = (t: number, n: number) => (seed + 3 * t + 5 * n) % numCues
        const cueOf = (seen: readonly number[][]) => seen[0]!.indexOf(1)
        const right = play(given, 5, seed, (seen, n) =>
          seen.length === delay + 2 ? cueOf(seen) : noise(seen.length, n),
        )
        const wrong = play(given, 5, seed, (seen) =>
          seen.length === delay + 2 ? (cueOf(seen) + 1) % numCues : cueOf(seen),
        )
        expect(right.rewards.map(returnOf)).toEqual(new Array(5).fill(1))
        expect(wrong.rewards.map(returnOf)).toEqual(new Array(5).fill(0))
      }),
      { numRuns: 30 },
    )
  })
})

test('every cue is shown as often, so any answer without memory is right once in numCues', () => {
  const numLanes = 8000
  const { cues } = play({ numCues: 4, delay: 0 }, numLanes, 3, () => 0)
  for (let answer = 0; answer < 4; answer++) {
    const right = cues.filter((cue) => cue === answer).length
    expect(Math.abs(right - numLanes / 4)).toBeLessThan(5 * Math.sqrt((numLanes * 3) / 16)) // Five standard errors.
  }
})

test('the specification follows the settings', () => {
  expect(recall().parameters).toEqual({ numCues: 4, delay: 10 })
  const { observationSpace, actionSpace, maxEpisodeSteps } = recall({ numCues: 7, delay: 3 })
  expect(observationSpace).toMatchObject({ kind: 'box', shape: [8] })
  expect(actionSpace).toEqual({ kind: 'discrete', n: 7 })
  expect(maxEpisodeSteps).toBe(5)
  expect(() => recall({ numCues: 1 })).toThrow('Recall-v0.numCues: got 1, expected a whole number ≥ 2')
})

test('more cues than a plan could ever hold are refused where they are set', () => {
  expect(recall({ numCues: 65_536 }).actionSpace).toEqual({ kind: 'discrete', n: 65_536 })
  for (const numCues of [65_537, 100_000_000, 4_294_967_296]) {
    expect(() => recall({ numCues })).toThrow(
      `Recall-v0.numCues: got ${numCues}, expected a whole number ≥ 2 and ≤ 65536`,
    )
  }
})
