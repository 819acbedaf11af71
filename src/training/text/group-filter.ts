/** Which of the sampled groups are learned from: the filters of `rewards/filters.ts` over trajectories. */
import type { GroupFilterName } from '../../algorithms/rl.ts'
import {
  admitGroup,
  checkAnySuccess,
  checkMinReward,
  checkResponseDiversity,
  checkRewardNonzeroStd,
  FilterCounts,
  type GroupFilter,
} from '../../rewards/filters.ts'
import type { Trajectories } from '../../tables/trajectories.ts'
import type { Tokenizer } from '../../text/tokenizer.ts'

const filters: Readonly<Record<Exclude<GroupFilterName, 'none'>, GroupFilter>> = {
  'reward-nonzero-std': checkRewardNonzeroStd,
  'any-success': checkAnySuccess,
  'min-reward': checkMinReward,
  'response-diversity': checkResponseDiversity,
}

/**
 * Judges the groups that are not among `admitted` yet: those that pass are added to it, the others counted in `drops` by
 * reason. Returns the rows of the groups that are kept, and how many groups were dropped.
 */
export function refuseGroups(
  trajectories: Trajectories,
  tokenizer: Tokenizer,
  filter: Exclude<GroupFilterName, 'none'>,
  admitted: Set<number>,
  drops: Record<string, number>,
): { keep: number[]; dropped: number } {
  const groups = new Map<number, number[]>()
  for (const row of trajectories.order()) {
    const { group } = trajectories.row(row)
    groups.set(group, [...(groups.get(group) ?? []), row])
  }
  const keep: number[] = []
  let dropped = 0
  for (const [group, rows] of groups) {
    if (!admitted.has(group)) {
      const samples = rows.map((row) => sampleOf(trajectories, tokenizer, row))
      const { keep: isKept, reason } = admitGroup(samples, [filters[filter]], new FilterCounts())
      if (!isKept) {
        dropped++
        drops[reason!] = (drops[reason!] ?? 0) + 1
        continue
      }
      admitted.add(group)
    }
    keep.push(...rows)
  }
  return { keep, dropped }
}

function sampleOf(trajectories: Trajectories, tokenizer: Tokenizer, row: number) {
  const { token, lossMask, reward } = trajectories.row(row)
  const said = Array.from(token).filter((_, t) => lossMask[t] === 1)
  return { reward, response: tokenizer.decode(said, { skipSpecial: true }), responseLength: said.length }
}
