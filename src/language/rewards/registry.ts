/** Rewards and verifiers by name: built-in ones and those that users register. */
import { checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import type { Settings, SettingValues } from '../../base/settings.ts'
import { accuracyReward, f1ScoreReward, formatReward, keywordReward, lengthReward } from './basic.ts'
import { codeReward } from './code/code.ts'
import { composeRewards, type RewardPart } from './compose.ts'
import { mathAccuracyReward } from './maths/maths.ts'
import { modelReward } from './model.ts'
import { remoteReward } from './remote.ts'
import { defineReward, type Reward, type RewardFactory, type RewardOptions } from './reward.ts'
import {
  applyVerifiersToReward,
  builtInVerifiers,
  defineVerifier,
  VerificationPipeline,
  type Verifier,
  type VerifierFactory,
} from './verifiers.ts'

const builtInRewards = [
  lengthReward,
  keywordReward,
  accuracyReward,
  f1ScoreReward,
  formatReward,
  mathAccuracyReward,
  codeReward,
  modelReward,
  remoteReward,
] as unknown as readonly RewardFactory[]

/** Factories of one kind by id, the built-in ones first. */
class Registry<F extends { readonly id: string }> {
  readonly #noun: string
  readonly #builtIn: readonly F[]
  readonly #added = new Map<string, F>()

  constructor(noun: string, builtIn: readonly F[]) {
    this.#noun = noun
    this.#builtIn = builtIn
  }

  add(factory: F): void {
    if (this.ids().includes(factory.id)) {
      const expected = `a name that is not taken; taken: ${this.ids().join(', ')}`
      throw new InputError(`${this.#noun} id`, show(factory.id), expected)
    }
    this.#added.set(factory.id, factory)
  }

  ids(): string[] {
    return [...this.#builtIn.map(({ id }) => id), ...this.#added.keys()]
  }

  find(id: string): F {
    const found = this.#builtIn.find((factory) => factory.id === id) ?? this.#added.get(id)
    if (found === undefined) throw unknownWord(this.#noun, id, this.ids())
    return found
  }

  clear(): void {
    this.#added.clear()
  }
}

const rewards = new Registry<RewardFactory>('reward', builtInRewards)
const verifiers = new Registry<VerifierFactory>('verifier', builtInVerifiers)

/**
 * Defines a reward and registers it under its id.
 * @throws InputError for an id that is taken.
 * @example
 * reward({
 *   id: 'brief',
 *   settings: { most: whole(20, 'characters at most', { min: 1 }) },
 *   make: ({ most }) => (prompt, completion) => (completion.length <= most ? 1 : 0),
 * })
 */
export function reward<S extends Settings>(options: RewardOptions<S>): RewardFactory<S> {
  checkGiven('options of reward', options, ['id', 'settings', 'make'])
  const factory = defineReward(options)
  rewards.add(factory as unknown as RewardFactory)
  return factory
}

/** Defines a verifier and registers it under its id. @throws InputError for an id that is taken. */
export function verifier<S extends Settings>(options: {
  id: string
  settings: S
  make(parameters: SettingValues<S>): Verifier
}): VerifierFactory<S> {
  checkGiven('options of verifier', options, ['id', 'settings', 'make'])
  const factory = defineVerifier(options)
  verifiers.add(factory as unknown as VerifierFactory)
  return factory
}

/** The factory of a reward. @throws InputError for an unknown id; names the nearest. */
export function getRewardFunction(id: string): RewardFactory {
  return rewards.find(id)
}

/** The factory of a verifier. @throws InputError for an unknown id; names the nearest. */
export function getVerifierFunction(id: string): VerifierFactory {
  return verifiers.find(id)
}

/** The ids of all rewards and verifiers. */
export function listRegisteredFunctions(): { rewards: string[]; verifiers: string[] } {
  return { rewards: rewards.ids(), verifiers: verifiers.ids() }
}

/** Removes what `reward()` and `verifier()` registered. Built-in ones stay. */
export function clearRegistries(): void {
  rewards.clear()
  verifiers.clear()
}

/** A verifier by name, with its parameters. */
export interface VerifierConfig {
  readonly name: string
  readonly params?: Readonly<Record<string, unknown>>
}

/** A reward's name, parameters and weight, and the verifiers that must pass. */
export interface RewardConfig {
  readonly name: string
  /** Default 1. */
  readonly weight?: number
  readonly params?: Readonly<Record<string, unknown>>
  readonly verifiers?: readonly VerifierConfig[]
  /** The value if a verifier fails; default 0. */
  readonly verifierPenalty?: number
}

/**
 * The reward of a configuration, or the weighted sum of several, each a component under its name.
 * @throws InputError for an unknown or repeated name, or a wrong parameter.
 * @example
 * const judge = createConfiguredRewardFunction([
 *   { name: 'accuracy', verifiers: [{ name: 'noEmptyResponse' }] },
 *   { name: 'length', weight: 0.1, params: { targetLength: 20 } },
 * ])
 */
export function createConfiguredRewardFunction(configuration: RewardConfig | readonly RewardConfig[]): Reward {
  checkGiven('configuration of createConfiguredRewardFunction', configuration, [])
  const list = [configuration].flat() as RewardConfig[]
  const parts: Record<string, RewardPart> = {}
  for (const { name, weight = 1, params, verifiers: wanted = [], verifierPenalty } of list) {
    if (Object.hasOwn(parts, name)) throw new InputError('rewards', `${show(name)} twice`, 'each name once')
    const bare = rewards.find(name)(params as never)
    const part = wanted.length === 0 ? bare : applyVerifiersToReward(bare, verifiersOf(wanted), verifierPenalty)
    parts[name] = { reward: part, weight }
  }
  return composeRewards(parts)
}

/** A pipeline of verifiers by name. @throws InputError for an unknown or repeated name, or a wrong parameter. */
export function createCustomVerifierPipeline(configurations: readonly VerifierConfig[]): VerificationPipeline {
  checkGiven('configurations of createCustomVerifierPipeline', configurations, 'a list')
  return new VerificationPipeline(verifiersOf(configurations))
}

function verifiersOf(configurations: readonly VerifierConfig[]): Record<string, Verifier> {
  const made: Record<string, Verifier> = {}
  for (const { name, params } of configurations) {
    if (Object.hasOwn(made, name)) throw new InputError('verifiers', `${show(name)} twice`, 'each name once')
    made[name] = verifiers.find(name)(params as never)
  }
  return made
}
