/**
 * Filters over groups: which groups of samples are worth learning from. They run after the reward, since most of them
 * ask for it; a sample that has not been judged yet is an error, and one whose reward is unknown counts as unknown, not
 * as 0.
 */
import type { Part } from '../../base/definition.ts'
import { checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import { fraction, number, readSettingTexts, type Settings, type SettingValues } from '../../base/settings.ts'
import { maker } from './reward.ts'

/** What filters see of a sample; a `Sample` of a table is one. */
export interface GroupSample {
  /** Null where the reward could not be told. */
  readonly reward: number | null
  readonly response: string
  /** Tokens of the response. */
  readonly responseLength: number
  /** A sample that is still `pending` cannot have been judged. */
  readonly status?: string
}

/** Whether a group is kept, and if not, why. */
export interface FilterDecision {
  readonly keep: boolean
  /** In one word, for the count; absent where the group is kept. */
  readonly reason?: string
}

/** Decides on a group; false is a drop without a reason of its own. */
export type GroupFilter = (group: readonly GroupSample[]) => boolean | FilterDecision

const kept: FilterDecision = { keep: true }

function keptIf(condition: boolean, reason: string): FilterDecision {
  return condition ? kept : { keep: false, reason }
}

/** The rewards that are known. */
function knownRewards(group: readonly GroupSample[]): number[] {
  checkGroup(group)
  return group.map(({ reward }) => reward).filter((reward) => reward !== null)
}

function checkGroup(group: readonly GroupSample[]): void {
  checkGiven('group', group, 'a list')
  if (group.length === 0) throw new InputError('group', 'no sample', 'at least one')
  for (const { reward, status } of group) {
    if (status !== 'pending' && (reward === null || Number.isFinite(reward))) continue
    const got = status === 'pending' ? 'none yet' : show(reward)
    throw new InputError('reward of a sample in a filter', got, 'a number, or null: filters run after the reward')
  }
}

function meanOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}

/**
 * Keeps groups whose known rewards differ: where all are the same there is nothing to compare, and every advantage is
 * 0. Same means within 1e-9 of their size, as sums of equal parts may differ in the last digits.
 */
export function checkRewardNonzeroStd(group: readonly GroupSample[]): FilterDecision {
  const rewards = knownRewards(group)
  if (rewards.length < 2) return { keep: false, reason: 'unknown_reward' }
  const [low, high] = [Math.min(...rewards), Math.max(...rewards)]
  return keptIf(high - low > 1e-9 * Math.max(1, Math.abs(low), Math.abs(high)), 'zero_std')
}

/** Keeps groups whose known rewards have a mean of at least `threshold`. */
export function checkMinReward(group: readonly GroupSample[], threshold = 0.5): FilterDecision {
  const rewards = knownRewards(group)
  if (rewards.length === 0) return { keep: false, reason: 'unknown_reward' }
  return keptIf(meanOf(rewards) >= threshold, 'low_reward')
}

/** Keeps groups of which at least this share of responses are distinct. */
export function checkResponseDiversity(group: readonly GroupSample[], minUniqueRatio = 0.5): FilterDecision {
  checkGroup(group)
  const distinct = new Set(group.map(({ response }) => response)).size
  return keptIf(distinct / group.length >= minUniqueRatio, 'low_diversity')
}

/** Keeps groups all of whose responses have a length in tokens from `minTokens` to `maxTokens`. */
export function checkReasonableLength(group: readonly GroupSample[], minTokens = 10, maxTokens = 2048): FilterDecision {
  checkGroup(group)
  if (group.some(({ responseLength }) => responseLength < minTokens)) return { keep: false, reason: 'too_short' }
  return keptIf(
    group.every(({ responseLength }) => responseLength <= maxTokens),
    'too_long',
  )
}

/** Keeps groups in which some known reward is above 0. */
export function checkAnySuccess(group: readonly GroupSample[]): FilterDecision {
  const rewards = knownRewards(group)
  if (rewards.length === 0) return { keep: false, reason: 'unknown_reward' }
  return keptIf(
    rewards.some((reward) => reward > 0),
    'no_success',
  )
}

/** Keeps groups whose rewards differ, with some success, and half of whose responses are distinct. */
export function checkQualityAndDiversity(group: readonly GroupSample[]): FilterDecision {
  for (const check of [checkRewardNonzeroStd, checkAnySuccess, checkResponseDiversity]) {
    const decision = check(group)
    if (!decision.keep) return decision
  }
  return kept
}

/**
 * `checkMinReward` with this threshold.
 * @throws InputError if it is not finite.
 */
export function makeThresholdFilter(threshold: number): GroupFilter {
  if (!Number.isFinite(threshold)) throw new InputError('threshold', show(threshold), 'a finite number')
  return (group) => checkMinReward(group, threshold)
}

/**
 * `checkReasonableLength` with these bounds, in tokens.
 * @throws InputError if they are not 0 ≤ minTokens ≤ maxTokens.
 */
export function makeLengthFilter(minTokens: number, maxTokens: number): GroupFilter {
  if (!(minTokens >= 0 && minTokens <= maxTokens)) {
    throw new InputError('minTokens, maxTokens', `${minTokens}, ${maxTokens}`, '0 ≤ minTokens ≤ maxTokens')
  }
  return (group) => checkReasonableLength(group, minTokens, maxTokens)
}

/** Makes filters of one id, and says which parameters they take. */
export interface GroupFilterFactory<S extends Settings = Settings> {
  (parameters?: Partial<SettingValues<S>>): GroupFilter
  readonly id: string
  readonly settings: S
}

const builtIn = [
  defineGroupFilter('reward-nonzero-std', checkRewardNonzeroStd),
  defineGroupFilter('any-success', checkAnySuccess),
  defineGroupFilter({
    id: 'min-reward',
    settings: { threshold: number(0.5, 'least mean of the known rewards') },
    make: ({ threshold }) => makeThresholdFilter(threshold),
  }),
  defineGroupFilter({
    id: 'response-diversity',
    settings: { minUniqueRatio: fraction(0.5, 'least fraction of distinct responses') },
    make:
      ({ minUniqueRatio }) =>
      (group) =>
        checkResponseDiversity(group, minUniqueRatio),
  }),
]

/** The ids of the filters that come with Colonnade. */
export const groupFilterIds: readonly string[] = ['none', ...builtIn.map(({ id }) => id)]

/**
 * The filter of that id, or the one that is given, with these settings as texts (`threshold=0.3`); null for `none`.
 * @throws InputError that names the nearest id, for settings that it has not declared, and for bad values.
 */
export function groupFilterOf(named: string | Part, settings: readonly string[]): GroupFilter | null {
  const id = typeof named === 'string' ? named : named.id
  const found = typeof named === 'string' ? builtIn.find((filter) => filter.id === named) : named
  if (found === undefined && id !== 'none') throw unknownWord('filter', id, groupFilterIds)
  const declared = (found as Partial<GroupFilterFactory> | undefined)?.settings
  const given = readSettingTexts('rl.filterSettings', `filter ${id}`, declared ?? {}, settings)
  if (found === undefined) return null
  if (declared === undefined) return found as GroupFilter
  const made = (found as GroupFilterFactory)(given as never)
  if (typeof made !== 'function') throw new InputError(`filter ${id}`, show(made), 'a function of a group')
  return made
}

/**
 * A filter with an id, by which a run finds it in the module that exports it (`rl.filter=./two-right.mjs`); or one that has
 * settings (`rl.filter.least=3`), from what they make.
 * @throws InputError without an id or a function.
 * @example
 * export const twoRight = defineGroupFilter('two-right', (group) => ({
 *   keep: group.filter(({ reward }) => reward === 1).length >= 2,
 *   reason: 'fewer_than_two',
 * }))
 * @example
 * export const right = defineGroupFilter({
 *   id: 'right',
 *   settings: { least: integer(2, 'right answers, at least', { min: 1 }) },
 *   make: ({ least }) => (group) => group.filter(({ reward }) => reward === 1).length >= least,
 * })
 */
export function defineGroupFilter(id: string, filter: GroupFilter): GroupFilter & { readonly id: string }
export function defineGroupFilter<S extends Settings>(options: {
  id: string
  settings: S
  make(parameters: SettingValues<S>): GroupFilter
}): GroupFilterFactory<S>
export function defineGroupFilter(
  given: string | { id: string; settings: Settings; make(parameters: never): GroupFilter },
  filter?: GroupFilter,
): Part {
  if (typeof given === 'object' && given !== null) return maker('filter', given) as Part
  if (typeof given !== 'string' || given === '')
    throw new InputError('filter id', show(given), 'a name, like two-right')
  if (typeof filter !== 'function') throw new InputError(`filter ${given}`, show(filter), 'a function of a group')
  return Object.assign((group: readonly GroupSample[]) => filter(group), { id: given })
}

/** Groups that were kept, and those that were dropped, by reason. */
export class FilterCounts {
  kept = 0
  dropped = 0
  /** By reason; a filter that answers just false counts as `dropped`. */
  readonly reasons: Record<string, number> = {}
}

/**
 * Whether a judged group passes all filters; the first that drops it names the reason. Counts it in `counts`.
 * @throws InputError if a sample has no reward yet, or a filter's answer is no decision.
 */
export function admitGroup(
  group: readonly GroupSample[],
  filters: readonly GroupFilter[],
  counts: FilterCounts,
): FilterDecision {
  checkGroup(group) // Also where there is no filter: before the reward there is nothing to admit.
  for (const filter of filters) {
    const answer = filter(group)
    const decision = typeof answer === 'boolean' ? { keep: answer } : answer
    if (typeof decision?.keep !== 'boolean') {
      throw new InputError('answer of a filter', show(answer), 'true, false or { keep, reason }')
    }
    if (decision.keep) continue
    const reason = decision.reason ?? 'dropped'
    counts.dropped++
    counts.reasons[reason] = (counts.reasons[reason] ?? 0) + 1
    return { keep: false, reason }
  }
  counts.kept++
  return kept
}
