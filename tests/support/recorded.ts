/** Compares recordings of Gymnasium's environments with ours. */
import { readFileSync } from 'node:fs'
import { expect } from 'vitest'
import { spaceWidth } from '../../src/base/space.ts'
import type { EnvironmentDefinition } from '../../src/environments/environment.ts'
import { lanesOf } from './lanes.ts'

/** An episode as `tests/golden/record_gymnasium.py` writes it: T + 1 states and observations, T actions and rewards. */
export interface RecordedEpisode {
  readonly seed: number
  readonly policy: string
  readonly states: readonly (readonly number[])[]
  readonly observations: readonly (readonly number[])[]
  readonly actions: readonly (number | readonly number[])[]
  readonly rewards: readonly number[]
  readonly terminated: boolean
  readonly truncated: boolean
}

/** A file of recorded episodes, with the environment's specification. */
export interface Recording {
  readonly environment: string
  readonly max_episode_steps: number
  readonly reward_threshold: number | null
  readonly observation_space: { readonly shape: number[]; readonly low: number[]; readonly high: number[] }
  readonly action_space: {
    readonly n?: number
    readonly shape?: number[]
    readonly low: number[]
    readonly high: number[]
  }
  readonly episodes: readonly RecordedEpisode[]
}

/** Reads `tests/golden/<name>.json`. */
export function recordingOf(name: string): Recording {
  return JSON.parse(readFileSync(new URL(`../golden/${name}.json`, import.meta.url), 'utf8'))
}

/** Expects the same id, limit, threshold and spaces. */
export function expectSpecification(environment: EnvironmentDefinition, recorded: Recording): void {
  const { n, shape, low, high } = recorded.action_space
  expect(environment.id).toBe(recorded.environment)
  expect(environment.maxEpisodeSteps).toBe(recorded.max_episode_steps)
  expect(environment.returnThreshold).toBe(recorded.reward_threshold)
  expect(environment.actionSpace).toEqual(n === undefined ? { kind: 'box', shape, low, high } : { kind: 'discrete', n })
  const seen = recorded.observation_space
  expect(environment.observationSpace).toEqual({
    kind: 'box',
    shape: seen.shape,
    low: seen.low.map(Math.fround),
    high: seen.high.map(Math.fround),
  })
}

/** The largest difference between ours and the recorded, relative to the larger of 1 and the recorded. */
export interface Apart {
  state: number
  observation: number
  reward: number
  steps: number
}

/**
 * Replays recorded steps, each from its recorded state (`free` false) or from ours (true), and returns the differences.
 * Flags must be equal. `names` are the state columns in the recorded order.
 */
export function compareEpisode(
  environment: EnvironmentDefinition,
  names: readonly string[],
  { states, observations, actions, rewards, terminated }: RecordedEpisode,
  { free, from = 0, to = actions.length }: { free: boolean; from?: number; to?: number },
): Apart {
  const lanes = lanesOf<Record<string, Float64Array | Float32Array>>(environment, 1)
  const width = spaceWidth(environment.observationSpace)
  const worst: Apart = { state: 0, observation: 0, reward: 0, steps: 0 }
  const note = (part: 'state' | 'observation' | 'reward', ours: number, theirs: number) => {
    worst[part] = Math.max(worst[part], Math.abs(ours - theirs) / Math.max(1, Math.abs(theirs)))
  }
  const place = (t: number) => {
    for (const [k, name] of names.entries()) lanes.state[name]![0] = states[t]![k]!
  }
  place(from)
  for (let t = from; t < to; t++) {
    if (!free) place(t)
    const action = actions[t]!
    lanes.action[0] = typeof action === 'number' ? action : action[0]!
    lanes.terminated[0] = 0
    lanes.step[0] = t
    environment.step(lanes, 0, 1)
    for (const [k, name] of names.entries()) note('state', lanes.state[name]![0]!, states[t + 1]![k]!)
    for (let k = 0; k < width; k++) note('observation', lanes.observation[k]!, Math.fround(observations[t + 1]![k]!))
    note('reward', lanes.reward[0]!, rewards[t]!)
    expect(lanes.terminated[0]).toBe(terminated && t === actions.length - 1 ? 1 : 0)
    expect(lanes.truncated[0]).toBe(0)
    worst.steps++
  }
  return worst
}
