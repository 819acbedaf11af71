/** Which of the sampled groups are learned from: those that are fresh, and that the filters of `rewards/filters.ts` keep. */
import { admitGroup, FilterCounts, type GroupFilter } from '../../rewards/filters.ts'
import type { Trajectories } from '../../tables/trajectories.ts'
import type { Tokenizer } from '../../text/tokenizer.ts'

/**
 * Judges the groups that are not among `admitted` yet: those that the filter passes are added to it, the others counted in `drops`
 * by reason; as `stale` those with a token of weights before the version `oldest`, and as `failed` those in which a row has no
 * token to learn by. Returns the rows of the groups that are kept, and how many groups were dropped.
 */
export function refuseGroups(
  trajectories: Trajectories,
  tokenizer: Tokenizer,
  oldest: number,
  filter: GroupFilter | null,
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
      const reason =
        unusable(trajectories, conversations.flat(), oldest) ??
        (filter && refusal(trajectories, tokenizer, conversations, filter))
      if (reason !== null) {
        dropped++
        drops[reason] = (drops[reason] ?? 0) + 1
        continue
      }
      if (filter !== null) admitted.add(group)
    }
    keep.push(...conversations.flat())
  }
  return { keep, dropped }
}

/** Why nothing can be learned of a group, whatever it is worth; of a token whose version nobody knows (−1) it is not said. */
function unusable(trajectories: Trajectories, rows: readonly number[], oldest: number): 'stale' | 'failed' | null {
  for (const row of rows) {
    const { token, version, lossMask } = trajectories.row(row)
    if (token.length < 2) return 'failed' // The engine generated nothing behind a prompt of one token.
    for (let t = 0; t < token.length; t++) {
      if (lossMask[t] === 1 && version[t]! >= 0 && version[t]! < oldest) return 'stale'
    }
  }
  return null
}

/** Why the filter drops a group; null where it keeps it. */
function refusal(
  trajectories: Trajectories,
  tokenizer: Tokenizer,
  conversations: readonly (readonly number[])[],
  filter: GroupFilter,
): string | null {
  const samples = conversations.map((rows) => sampleOf(trajectories, tokenizer, rows))
  const { keep, reason } = admitGroup(samples, [filter], new FilterCounts())
  return keep ? null : reason!
}

function sampleOf(trajectories: Trajectories, tokenizer: Tokenizer, rows: readonly number[]) {
  const said = rows.flatMap((row) => {
    const { token, lossMask } = trajectories.row(row)
    return Array.from(token).filter((_, t) => lossMask[t] === 1)
  })
  const { reward } = trajectories.row(rows[0]!)
  return { reward, response: tokenizer.decode(said, { skipSpecial: true }), responseLength: said.length }
}
