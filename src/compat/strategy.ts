/**
 * Strategies: what an algorithm wants of each transition. All algorithms that learn from tokens read the same columns, so a
 * strategy is what it needs to be told, and the rest is one path: the policy is asked, the transition is checked, and becomes a
 * turn of an episode buffer.
 */
import { algorithmPresets } from '../algorithms/losses/loss-presets.ts'
import { InputError, show, unknownWord } from '../base/errors.ts'
import type { EpisodeBuffer } from '../tables/episodes/episode-buffer.ts'

/** A transition by the names of other systems: ids that were seen, ids that were chosen, and what came of them. */
export interface TransitionData {
  readonly obs: readonly number[]
  readonly act: readonly number[]
  /** Null where it cannot be told. */
  readonly rew: number | null
  /** Null behind an end that shows nothing. */
  readonly nextObs: readonly number[] | null
  /** The episode is over. */
  readonly done: boolean
  /** It is over because it was cut off. */
  readonly timeout?: boolean
  /** Of each id of `act`, in nats. */
  readonly logprob?: readonly number[]
  /** The critic's value of `obs`. */
  readonly value?: number
  /** Of the distribution that `act` was drawn from, in nats. */
  readonly entropy?: number
}

const REQUIRED = ['obs', 'act', 'rew', 'nextObs', 'done'] as const
const OPTIONAL = ['timeout', 'logprob', 'value', 'entropy'] as const

/**
 * Refuses what is no transition.
 * @throws TypeError for an array; InputError for keys that are missing or unknown, and for values that are of another kind.
 */
export function validateTransitionData(transition: unknown): asserts transition is TransitionData {
  const expected = `an object with ${REQUIRED.join(', ')}, and perhaps ${OPTIONAL.join(', ')}`
  if (Array.isArray(transition)) throw new TypeError(`transition: got an array, expected ${expected}`)
  if (typeof transition !== 'object' || transition === null) {
    throw new InputError('transition', show(transition), expected)
  }
  const known: readonly string[] = [...REQUIRED, ...OPTIONAL]
  for (const key of Object.keys(transition)) if (!known.includes(key)) throw unknownWord('transition, key', key, known)
  for (const key of REQUIRED) {
    if ((transition as Record<string, unknown>)[key] === undefined) {
      throw new InputError(`transition, ${key}`, 'none', expected)
    }
  }
  const { act, done, timeout = false, logprob, value, entropy } = transition as TransitionData
  for (const [key, flag] of Object.entries({ done, timeout })) {
    if (typeof flag !== 'boolean') throw new InputError(`transition, ${key}`, show(flag), 'true or false')
  }
  if (timeout && !done)
    throw new InputError('transition, timeout', 'true, and done is false', 'done where it was cut off')
  if (logprob !== undefined && logprob?.length !== act.length) {
    const got = logprob?.length === undefined ? show(logprob) : `${logprob.length} numbers`
    throw new InputError('transition, logprob', got, `${act.length}, as many as ids of act`)
  }
  for (const [key, number] of Object.entries({ value, entropy })) {
    if (number !== undefined && !Number.isFinite(number)) {
      throw new InputError(`transition, ${key}`, show(number), 'a finite number')
    }
  }
}

/** What a policy answers: ids, and what it knows of them. */
export interface PolicyAnswer {
  readonly action: readonly number[]
  readonly logprob?: readonly number[]
  /** Number of the weights that chose the ids; −1, the default, where nobody knows. */
  readonly version?: number
  readonly value?: number
  readonly entropy?: number
}

/** A policy as a plain function of what is seen. */
export type PolicyFn = (observation: readonly number[], signal: AbortSignal) => PolicyAnswer | Promise<PolicyAnswer>

/** What an algorithm wants of each transition, and where it goes. */
export interface RolloutStrategy {
  readonly name: string
  /** The optional keys that it cannot do without. */
  readonly needs: readonly (typeof OPTIONAL)[number][]
  /** What the policy answers to an observation. @throws InputError for an answer without an action, or that lacks a need. */
  selectAction(policy: PolicyFn, observation: readonly number[], signal: AbortSignal): Promise<PolicyAnswer>
  /**
   * Adds a checked transition to a buffer. `value` and `entropy` are checked and go no further: whoever learns works them out
   * under the weights that are trained.
   * @throws as `validateTransitionData`, and InputError for a need that is missing.
   */
  storeTransition(buffer: EpisodeBuffer, transition: TransitionData, version?: number): void
}

/** The names of the strategies: those of the losses. */
export const strategies: readonly string[] = Object.keys(algorithmPresets)

/**
 * The strategy of that name.
 * @throws InputError that names the nearest one.
 * @example const strategy = createStrategy('grpo')
 */
export function createStrategy(name: string): RolloutStrategy {
  if (!strategies.includes(name)) throw unknownWord('strategy', name, strategies)
  const needs: RolloutStrategy['needs'] = name === 'ppo' ? ['logprob', 'value'] : ['logprob']
  return {
    name,
    needs,
    async selectAction(policy, observation, signal) {
      const answer = await policy(observation, signal)
      const subject = `answer of the policy, under strategy ${name}`
      const known = ['action', 'logprob', 'version', 'value', 'entropy']
      if (typeof answer !== 'object' || answer === null || !Array.isArray(answer.action)) {
        throw new InputError(subject, show(answer), `an object with ${known.join(', ')}`)
      }
      for (const key of Object.keys(answer)) if (!known.includes(key)) throw unknownWord(`${subject}, key`, key, known)
      checkNeeds(subject, needs, answer)
      return answer
    },
    storeTransition(buffer, transition, version = -1) {
      validateTransitionData(transition)
      checkNeeds(`transition, under strategy ${name}`, needs, transition)
      const { obs, act, rew, done, timeout = false, logprob } = transition
      const recorded = logprob === undefined ? {} : { logprob, version }
      const ends = { terminated: done && !timeout, truncated: timeout }
      buffer.add({ observation: obs, action: act, reward: rew, ...ends, ...recorded })
    },
  }
}

function checkNeeds(subject: string, needs: readonly string[], given: object): void {
  for (const key of needs) {
    if ((given as Record<string, unknown>)[key] === undefined) throw new InputError(`${subject}, ${key}`, 'none', 'one')
  }
}
