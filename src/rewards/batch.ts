/** Whole batches under a policy for failures: sample by sample, or as many in one call as the reward takes. */
import { resolveSettings } from '../settings.ts'
import {
  attemptAll,
  type Batch,
  batchOf,
  checkCount,
  isInTime,
  type Judgment,
  judge,
  mapBounded,
  policySettings,
  type Reward,
  RewardCounts,
  RewardFailure,
  type RewardInput,
  type RewardPolicy,
  withinTime,
  withPolicy,
} from './reward.ts'

/**
 * Judges whole batches under a policy for failures, at most `maxWorkers` samples at a time; judgments come in the
 * order of the samples. A RewardFailure ends the batch. A reward that `judgesTogether` is called for as many samples as it
 * takes, at most `maxWorkers` calls at a time, and again for those without a value; one of groups takes all of them as one
 * group, and is called again for all.
 * @throws InputError if maxWorkers is not a whole number ≥ 1, or a setting of the policy is out of its range.
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
  const batched = batchOf(reward)
  if (batched !== undefined) return batchProcessor(batched, isInTime(reward), maxWorkers, policy)
  const policed = withPolicy(reward, policy)
  const process = (inputs: readonly RewardInput[], signal?: AbortSignal): Promise<Judgment[]> =>
    mapBounded(inputs, maxWorkers, (input) => judge(policed, input, signal))
  return Object.assign(process, { counts: policed.counts })
}

/** `createAsyncBatchProcessor` of a reward that judges several samples in one call. */
function batchProcessor(
  { judgeAll, size }: Batch,
  endsInTime: boolean,
  maxWorkers: number,
  policy: Partial<RewardPolicy>,
): ReturnType<typeof createAsyncBatchProcessor> {
  const { timeoutMs, retries, onFailure } = resolveSettings('reward policy', policySettings, policy)
  const limitMs = endsInTime ? null : timeoutMs
  const counts = new RewardCounts()
  const judgePart = async (inputs: readonly RewardInput[], signal: AbortSignal | undefined): Promise<Judgment[]> => {
    counts.calls += inputs.length
    const judgments = new Array<Judgment>(inputs.length)
    let open = inputs.map((_, i) => i)
    for (let attempt = 0; ; attempt++) {
      counts.attempts += open.length
      const asked = open.map((i) => inputs[i]!)
      const all = (judgment: Judgment): Judgment[] => asked.map(() => judgment)
      const came = await withinTime((inner) => attemptAll(judgeAll, asked, inner), all, limitMs, signal)
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
  const process = async (inputs: readonly RewardInput[], signal?: AbortSignal): Promise<Judgment[]> => {
    if (inputs.length === 0) return []
    const most = size === 'group' ? inputs.length : size
    const parts = Array.from({ length: Math.ceil(inputs.length / most) }, (_, i) =>
      inputs.slice(i * most, (i + 1) * most),
    )
    return (await mapBounded(parts, maxWorkers, (part) => judgePart(part, signal))).flat()
  }
  return Object.assign(process, { counts })
}
