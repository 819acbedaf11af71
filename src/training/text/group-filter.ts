/** Which of the sampled groups are learned from: the filters of `rewards/filters.ts` over trajectories. */
import { admitGroup, FilterCounts, type GroupFilter } from '../../rewards/filters.ts'
import type { Trajectories } from '../../tables/trajectories.ts'
import type { Tokenizer } from '../../text/tokenizer.ts'

/**
 * Judges the groups that are not among `admitted` yet: those that pass are added to it, the others counted in `drops` by
 * reason. Returns the rows of the groups that are kept, and how many groups were dropped.
 */
export function refuseGroups(
  trajectories: Trajectories,
  tokenizer: Tokenizer,
  filter: GroupFilter,
  admitted: Set<number>,
  drops: Record<string, number>,
): { keep: number[]; dropped: number } {
  const { segment, group: groupOf } = trajectories.columns()
  /** Of each group its conversations, as lists of rows. */
  const groups = new Map<number, number[][]>()
  for (const row of trajectories.order()) {
    const conversations = groups.get(groupOf[row]!) ?? []
    if (segment[row] === 0) conversations.push([row])
    else conversations.at(-1)!.push(row)
    groups.set(groupOf[row]!, conversations)
  }
  const keep: number[] = []
  let dropped = 0
  for (const [group, conversations] of groups) {
    if (!admitted.has(group)) {
      const samples = conversations.map((rows) => sampleOf(trajectories, tokenizer, rows))
      const { keep: isKept, reason } = admitGroup(samples, [filter], new FilterCounts())
      if (!isKept) {
        dropped++
        drops[reason!] = (drops[reason!] ?? 0) + 1
        continue
      }
      admitted.add(group)
    }
    keep.push(...conversations.flat())
  }
  return { keep, dropped }
}

function sampleOf(trajectories: Trajectories, tokenizer: Tokenizer, rows: readonly number[]) {
  const said = rows.flatMap((row) => {
    const { token, lossMask } = trajectories.row(row)
    return Array.from(token).filter((_, t) => lossMask[t] === 1)
  })
  const { reward } = trajectories.row(rows[0]!)
  return { reward, response: tokenizer.decode(said, { skipSpecial: true }), responseLength: said.length }
}
