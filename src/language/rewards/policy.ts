/** Failure policy of rewards: the time limit of a call, the retries, and the result of a failure. */
import { checkCount } from '../../base/errors.ts'
import { choice, integer, number, resolveSettings, type SettingValues } from '../../base/settings.ts'
import {
  batchSizeOf,
  type ExcessKind,
  excessKinds,
  type FailureKind,
  failureKinds,
  isInTime,
  type Judgment,
  judge,
  judgeMany,
  mapBounded,
  partsOf,
  type Reward,
  RewardFailure,
  type RewardInput,
  withBatch,
  withinTime,
} from './reward.ts'

export const policySettings = {
  timeoutMs: number(30_000, 'maximum of milliseconds of one attempt', { above: 0, max: 2 ** 31 - 1 }),
  retries: integer(0, 'retries after a failed attempt', { min: 0 }),
  onFailure: choice(
    'mask',
    ['mask', 'fail'],
    'result of a failure: null, which leaves the sample out, or a RewardFailure, which fails the group',
  ),
}

/** Time limit, retries and result of failures. */
export type RewardPolicy = SettingValues<typeof policySettings>

/** Counts a reward's calls by outcome; `attempts` includes retries. */
export class RewardCounts {
  calls = 0
  attempts = 0
  /** Answers beyond a limit of their judge, by kind. */
  readonly excesses = Object.fromEntries(excessKinds.map((kind) => [kind, 0])) as Record<ExcessKind, number>
  /** Failed attempts, by kind. */
  readonly failures = Object.fromEntries(failureKinds.map((kind) => [kind, 0])) as Record<FailureKind, number>
}

/**
 * A reward with a failure policy. Each attempt has its own time limit, unless the reward is marked by `judgesInTime`,
 * and each failure is counted by kind in `counts`. After the last attempt the judgment has `value: null`, or a
 * RewardFailure is thrown if the policy says so. Calls aborted by the caller are not retried. A reward that
 * `judgesTogether` keeps doing so: each call has its own time limit, and is repeated for the inputs without a value, or
 * for the whole group.
 */
export function withPolicy(
  reward: Reward,
  policy: Partial<RewardPolicy> = {},
): Reward & { readonly counts: RewardCounts } {
  const { timeoutMs, retries, onFailure } = resolveSettings('reward policy', policySettings, policy)
  const limitMs = isInTime(reward) ? null : timeoutMs
  const counts = new RewardCounts()
  const size = batchSizeOf(reward)
  /** The judgments of one call, which `begin` makes. */
  const judgeCall = async (
    inputs: readonly RewardInput[],
    begin: (asked: readonly RewardInput[], signal: AbortSignal) => Promise<Judgment>[],
    signal: AbortSignal | undefined,
  ): Promise<Judgment[]> => {
    counts.calls += inputs.length
    const judgments = new Array<Judgment>(inputs.length)
    let open = inputs.map((_, i) => i)
    for (let attempt = 0; ; attempt++) {
      counts.attempts += open.length
      const asked = open.map((i) => inputs[i]!)
      const came = await withinTime((inner) => begin(asked, inner), asked.length, limitMs, signal)
      for (const [at, judgment] of came.entries()) {
        judgments[open[at]!] = judgment
        if (judgment.excess !== undefined) counts.excesses[judgment.excess]++
        if (judgment.failure !== undefined) counts.failures[judgment.failure]++
      }
      const missed = open.filter((i) => judgments[i]!.failure !== undefined)
      if (missed.length === 0) return judgments
      const { failure, error } = judgments[missed[0]!]!
      if (attempt < retries && failure !== 'aborted') {
        open = size === 'group' ? open : missed
        continue
      }
      if (onFailure === 'fail') throw new RewardFailure(failure!, error!)
      return judgments
    }
  }
  const policed: Reward = async (prompt, completion, example, signal) => {
    const input = { prompt, completion, example }
    return (await judgeCall([input], (_, inner) => [judge(reward, input, inner)], signal))[0]!
  }
  if (size !== null) {
    withBatch(
      policed,
      (inputs, signal) => judgeCall(inputs, (asked, inner) => judgeMany(reward, asked, inner), signal),
      size,
    )
  }
  return Object.assign(policed, { counts })
}

/**
 * Judges batches under a failure policy, at most `maxWorkers` samples at a time. Judgments are in the samples' order. A
 * RewardFailure ends the batch. A reward that `judgesTogether` gets as many samples per call as it takes, at most
 * `maxWorkers` calls at a time, and again those without a value; a reward of groups gets all samples as one group, and
 * again all of them.
 * @throws InputError if maxWorkers is not a whole number ≥ 1 or a setting is out of range.
 * @example
 * const judgeBatch = createAsyncBatchProcessor(accuracyReward(), { maxWorkers: 8, timeoutMs: 5000 })
 * const judgments = await judgeBatch([{ prompt: '1+1=', completion: '2', example: { prompt: '1+1=', answer: '2' } }])
 */
export function createAsyncBatchProcessor(
  reward: Reward,
  { maxWorkers = 4, ...policy }: { maxWorkers?: number } & Partial<RewardPolicy> = {},
): {
  (inputs: readonly RewardInput[], signal?: AbortSignal): Promise<Judgment[]>
  readonly counts: RewardCounts
} {
  checkCount('maxWorkers', maxWorkers)
  const policed = withPolicy(reward, policy)
  const size = batchSizeOf(reward) ?? 1
  const process = async (inputs: readonly RewardInput[], signal?: AbortSignal): Promise<Judgment[]> => {
    const judgeAll = (part: readonly RewardInput[]) => Promise.all(judgeMany(policed, part, signal))
    return (await mapBounded(partsOf(inputs, size), maxWorkers, judgeAll)).flat()
  }
  return Object.assign(process, { counts: policed.counts })
}
