/** Strategies: the fields of a transition that an algorithm needs. A strategy checks each transition and makes it a turn of an episode buffer. */
import { algorithmPresets } from '../algorithms/losses/loss-presets.ts'
import { InputError, show, unknownWord } from '../base/errors.ts'
import type { EpisodeBuffer } from '../tables/episodes/episode-buffer.ts'

/** A transition, in other systems' names: observed ids, chosen ids, and their result. */
export interface TransitionData {
  readonly obs: readonly number[]
  readonly act: readonly number[]
  /** Null if unknown. */
  readonly rew: number | null
  /** Null after an end without observation. */
  readonly nextObs: readonly number[] | null
  readonly done: boolean
  /** It is over because it was cut off. */
  readonly timeout?: boolean
  /** Of each id of `act`, in nats. */
  readonly logprob?: readonly number[]
  /** The critic's value of `obs`. */
  readonly value?: number
  /** Of the distribution of `act`, in nats. */
  readonly entropy?: number
}

const REQUIRED = ['obs', 'act', 'rew', 'nextObs', 'done'] as const
const OPTIONAL = ['timeout', 'logprob', 'value', 'entropy'] as const

/** Checks a transition. @throws TypeError for an array; InputError for missing or unknown keys, and wrong values. */
export function validateTransitionData(transition: unknown): asserts transition is TransitionData {
  const expected = `an object with ${REQUIRED.join(', ')}, and optionally ${OPTIONAL.join(', ')}`
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
    throw new InputError('transition, timeout', 'true, and done is false', 'done when it was cut off')
  if (logprob !== undefined && logprob?.length !== act.length) {
    const got = logprob?.length === undefined ? show(logprob) : `${logprob.length} numbers`
    throw new InputError('transition, logprob', got, `${act.length}, the number of ids in act`)
  }
  for (const [key, number] of Object.entries({ value, entropy })) {
    if (number !== undefined && !Number.isFinite(number)) {
      throw new InputError(`transition, ${key}`, show(number), 'a finite number')
    }
  }
}

/** A policy's answer: ids, and optional values. */
export interface PolicyAnswer {
  readonly action: readonly number[]
  readonly logprob?: readonly number[]
  /** Version of the weights that chose the ids; default −1: unknown. */
  readonly version?: number
  readonly value?: number
  readonly entropy?: number
}

/** A policy as a plain function of observations. */
export type PolicyFn = (observation: readonly number[], signal: AbortSignal) => PolicyAnswer | Promise<PolicyAnswer>

/** The fields of a transition that an algorithm requires, and how it stores a transition. */
export interface RolloutStrategy {
  readonly name: string
  /** The optional keys that it requires. */
  readonly needs: readonly (typeof OPTIONAL)[number][]
  /** The policy's answer to an observation. @throws InputError without an action or a required key. */
  selectAction(policy: PolicyFn, observation: readonly number[], signal: AbortSignal): Promise<PolicyAnswer>
  /** Adds a checked transition to a buffer, without `value` and `entropy`. @throws as `validateTransitionData` */
  storeTransition(buffer: EpisodeBuffer, transition: TransitionData, version?: number): void
}

/** The names of the strategies: those of the losses. */
export const strategies: readonly string[] = Object.keys(algorithmPresets)

/**
 * The strategy of a name.
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
    if ((given as Record<string, unknown>)[key] === undefined)
      throw new InputError(`${subject}, ${key}`, 'none', 'a value')
  }
}
