/** Filters groups worth training on, after the reward. Samples need a judgment; an unknown reward is unknown, not 0. */
import type { Part } from '../../base/definition.ts'
import { checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import { fraction, number, readSettingTexts, type Settings, type SettingValues } from '../../base/settings.ts'
import { maker } from './reward.ts'

/** A filter's view of a sample; a table's `Sample` is one. */
export interface GroupSample {
  /** Null if unknown. */
  readonly reward: number | null
  readonly response: string
  readonly responseLength: number
  /** A `pending` sample has no judgment yet. */
  readonly status?: string
}

/** Whether a group is kept, and otherwise why not. */
export interface FilterDecision {
  readonly keep: boolean
  /** One word, for counting; absent if the group is kept. */
  readonly reason?: string
}

/** Decides on a group. False drops it without a specific reason. */
export type GroupFilter = (group: readonly GroupSample[]) => boolean | FilterDecision

const kept: FilterDecision = { keep: true }

function keptIf(condition: boolean, reason: string): FilterDecision {
  return condition ? kept : { keep: false, reason }
}

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

/** Keeps groups whose known rewards differ by more than a relative 1e-9: equal rewards make every advantage 0. */
export function checkRewardNonzeroStd(group: readonly GroupSample[]): FilterDecision {
  const rewards = knownRewards(group)
  if (rewards.length < 2) return { keep: false, reason: 'unknown_reward' }
  const [low, high] = [Math.min(...rewards), Math.max(...rewards)]
  return keptIf(high - low > 1e-9 * Math.max(1, Math.abs(low), Math.abs(high)), 'zero_std')
}

/** Keeps groups whose mean known reward is at least `threshold`. */
export function checkMinReward(group: readonly GroupSample[], threshold = 0.5): FilterDecision {
  const rewards = knownRewards(group)
  if (rewards.length === 0) return { keep: false, reason: 'unknown_reward' }
  return keptIf(meanOf(rewards) >= threshold, 'low_reward')
}

/** Keeps groups with at least this fraction of distinct responses. */
export function checkResponseDiversity(group: readonly GroupSample[], minUniqueRatio = 0.5): FilterDecision {
  checkGroup(group)
  const distinct = new Set(group.map(({ response }) => response)).size
  return keptIf(distinct / group.length >= minUniqueRatio, 'low_diversity')
}

/** Keeps groups whose responses all have `minTokens` to `maxTokens` tokens. */
export function checkReasonableLength(group: readonly GroupSample[], minTokens = 10, maxTokens = 2048): FilterDecision {
  checkGroup(group)
  if (group.some(({ responseLength }) => responseLength < minTokens)) return { keep: false, reason: 'too_short' }
  return keptIf(
    group.every(({ responseLength }) => responseLength <= maxTokens),
    'too_long',
  )
}

/** Keeps groups with a known reward above 0. */
export function checkAnySuccess(group: readonly GroupSample[]): FilterDecision {
  const rewards = knownRewards(group)
  if (rewards.length === 0) return { keep: false, reason: 'unknown_reward' }
  return keptIf(
    rewards.some((reward) => reward > 0),
    'no_success',
  )
}

/** Keeps groups with differing rewards, some success, and at least half of the responses distinct. */
export function checkQualityAndDiversity(group: readonly GroupSample[]): FilterDecision {
  for (const check of [checkRewardNonzeroStd, checkAnySuccess, checkResponseDiversity]) {
    const decision = check(group)
    if (!decision.keep) return decision
  }
  return kept
}

/** `checkMinReward` with this threshold. @throws InputError if it is not finite. */
export function makeThresholdFilter(threshold: number): GroupFilter {
  if (!Number.isFinite(threshold)) throw new InputError('threshold', show(threshold), 'a finite number')
  return (group) => checkMinReward(group, threshold)
}

/** `checkReasonableLength` with bounds in tokens. @throws InputError unless 0 ≤ minTokens ≤ maxTokens. */
export function makeLengthFilter(minTokens: number, maxTokens: number): GroupFilter {
  if (!(minTokens >= 0 && minTokens <= maxTokens)) {
    throw new InputError('minTokens, maxTokens', `${minTokens}, ${maxTokens}`, '0 ≤ minTokens ≤ maxTokens')
  }
  return (group) => checkReasonableLength(group, minTokens, maxTokens)
}

/** Makes the filters of an id from its settings. */
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

export const groupFilterIds: readonly string[] = ['none', ...builtIn.map(({ id }) => id)]

/** The filter of an id, or the given one, with settings; null for `none`. @throws InputError for an unknown id. */
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
 * Gives a filter an id, by which a run finds it in the module that exports it (`rl.filter=./two-right.mjs`). `make`
 * builds a filter from settings (`rl.filter.least=3`).
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

/** Counts kept groups, and dropped groups by reason. */
export class FilterCounts {
  kept = 0
  dropped = 0
  /** By reason; `dropped` for filters that return false. */
  readonly reasons: Record<string, number> = {}
}

/** Counts whether a group passes all filters. @throws InputError for a sample without reward, or a bad decision. */
export function admitGroup(
  group: readonly GroupSample[],
  filters: readonly GroupFilter[],
  counts: FilterCounts,
): FilterDecision {
  checkGroup(group) // Also without filters: a group without rewards must not pass.
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
