/**
 * Environments that are a transition table, like Gymnasium's toy text: finitely many states, with the outcomes of each state and action.
 * A lane's state is one number; its observation is the number's digits, each one-hot.
 */
import { assert } from '../../base/errors.ts'
import { Stream } from '../../base/random.ts'
import { box, discrete } from '../../base/space.ts'
import type { EnvironmentModel, State } from '../environment.ts'

/** One outcome of an action in a state. */
export interface Outcome {
  readonly probability: number
  readonly next: number
  readonly reward: number
  readonly terminated: boolean
}

export interface Transitions {
  readonly numStates: number
  readonly numActions: number
  /** Outcomes of action a in state s, at `s * numActions + a`; their probabilities add up to 1. */
  readonly outcomes: readonly (readonly Outcome[])[]
  /** Initial states, chosen uniformly. */
  readonly starts: readonly number[]
  /** Whether action a is legal in state s, at `s * numActions + a`. Default: all are, and there is no mask. */
  readonly legal?: readonly boolean[]
}

export const TRANSITION_STATE = { at: 'u32' } as const

/** Lists the outcomes of every action in every state. */
export function listOutcomes(
  numStates: number,
  numActions: number,
  of: (state: number, action: number) => readonly Outcome[],
): (readonly Outcome[])[] {
  return Array.from({ length: numStates * numActions }, (_, i) => of(Math.floor(i / numActions), i % numActions))
}

/**
 * The environment of a transition table. `digits` are the sizes of a state number's digits, most significant first. An observation is as
 * wide as their sum, with a 1 for each digit. A step uses one random number if it has several outcomes.
 */
export function transitionModel(
  { numStates, numActions, outcomes, starts, legal }: Transitions,
  options: { digits: readonly number[]; maxEpisodeSteps: number; returnThreshold: number | null },
): EnvironmentModel<State<typeof TRANSITION_STATE>> {
  const { digits, maxEpisodeSteps, returnThreshold } = options
  const width = digits.reduce((sum, size) => sum + size, 0)
  assert(
    digits.reduce((product, size) => product * size, 1) === numStates,
    `the digits ${digits} of ${numStates} states`,
  )
  const ones = new Uint16Array(numStates * digits.length)
  for (let state = 0; state < numStates; state++) markDigits(ones, state, digits)
  const flat = outcomes.flat()
  /** Outcomes of state and action i are those from `first[i]` to `first[i + 1]`. */
  const first = new Uint32Array(outcomes.length + 1)
  for (const [i, list] of outcomes.entries()) first[i + 1] = first[i]! + list.length
  const next = Uint32Array.from(flat, (outcome) => outcome.next)
  const rewards = Float32Array.from(flat, (outcome) => outcome.reward)
  const ends = Uint8Array.from(flat, (outcome) => (outcome.terminated ? 1 : 0))
  const below = Float64Array.from(
    outcomes.flatMap((list) =>
      list.map((_, k) => list.slice(0, k + 1).reduce((sum, each) => sum + each.probability, 0)),
    ),
  )

  const masks = Uint8Array.from(legal ?? [], Number)
  const show = (observation: Float32Array, actionMask: Uint8Array, n: number, state: number) => {
    observation.fill(0, n * width, (n + 1) * width)
    for (let k = 0; k < digits.length; k++) observation[n * width + ones[state * digits.length + k]!] = 1
    if (masks.length === 0) return
    for (let a = 0; a < numActions; a++) actionMask[n * numActions + a] = masks[state * numActions + a]!
  }
  return {
    observationSpace: box({ low: 0, high: 1, shape: [width] }),
    actionSpace: discrete(numActions),
    actionMask: legal !== undefined,
    maxEpisodeSteps,
    returnThreshold,
    reset({ state, observation, actionMask, lane, episode, random }, rows, count) {
      for (let i = 0; i < count; i++) {
        const n = rows[i]!
        random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
        state.at[n] = starts[Math.floor(random.uniform(0) * starts.length)]!
        show(observation, actionMask, n, state.at[n]!)
      }
    },
    step({ state, observation, actionMask, reward, terminated, action, lane, episode, step, random }, from, to) {
      const { at } = state
      for (let n = from; n < to; n++) {
        const i = at[n]! * numActions + action[n]!
        let k = first[i]!
        const last = first[i + 1]! - 1
        if (k < last) {
          random.draw(Stream.step, lane[n]!, episode[n]!, step[n]!)
          const drawn = random.uniform(0)
          while (k < last && drawn >= below[k]!) k++
        }
        at[n] = next[k]!
        reward[n] = rewards[k]!
        terminated[n] = ends[k]!
        show(observation, actionMask, n, at[n]!)
      }
    },
  }
}

/** Writes the positions of a state's ones in an observation. */
function markDigits(ones: Uint16Array, state: number, digits: readonly number[]): void {
  let left = state
  let end = digits.reduce((sum, size) => sum + size, 0)
  for (let k = digits.length - 1; k >= 0; k--) {
    end -= digits[k]!
    ones[state * digits.length + k] = end + (left % digits[k]!)
    left = Math.floor(left / digits[k]!)
  }
}
