/** Decides which sampled groups to learn from: fresh ones that the filters of `language/rewards/filters.ts` keep. */
import { admitGroup, FilterCounts, type GroupFilter } from '../../../language/rewards/filters.ts'
import type { Tokenizer } from '../../../language/tokenizers/tokenizer.ts'
import type { Trajectories } from '../../../tables/trajectories/trajectories.ts'

/** The rows of a group's conversations, one list per member. */
export function rowsOfGroup(trajectories: Trajectories, group: number): number[][] {
  const { segment, member, group: groupOf } = trajectories.columns()
  const conversations: number[][] = []
  for (let row = 0; row < groupOf.length; row++) {
    if (groupOf[row] !== group) continue
    if (segment[row] === 0) conversations.push([row])
    else conversations.at(-1)!.push(row)
  }
  return conversations.sort(([a], [b]) => member[a!]! - member[b!]!)
}

/** Why a group is dropped (`failed`, `stale`, or the filter's reason); null if it is kept. */
export function refusalOf(
  trajectories: Trajectories,
  tokenizer: Tokenizer,
  conversations: readonly (readonly number[])[],
  oldest: number,
  filter: GroupFilter | null,
): string | null {
  // The engine generated nothing after a prompt of one token.
  if (conversations.flat().some((row) => trajectories.row(row).token.length < 2)) return 'failed'
  if (!isFresh(trajectories, conversations, oldest)) return 'stale'
  if (filter === null) return null
  const samples = conversations.map((rows) => sampleOf(trajectories, tokenizer, rows))
  const { keep, reason } = admitGroup(samples, [filter], new FilterCounts())
  return keep ? null : reason!
}

/** True if no token to learn from was chosen by weights before version `oldest`; −1 means unknown weights. */
export function isFresh(
  trajectories: Trajectories,
  conversations: readonly (readonly number[])[],
  oldest: number,
): boolean {
  return conversations.flat().every((row) => {
    const { version, lossMask } = trajectories.row(row)
    for (let t = 0; t < version.length; t++) {
      if (lossMask[t] === 1 && version[t]! >= 0 && version[t]! < oldest) return false
    }
    return true
  })
}

function sampleOf(trajectories: Trajectories, tokenizer: Tokenizer, rows: readonly number[]) {
  const said = rows.flatMap((row) => {
    const { token, lossMask } = trajectories.row(row)
    return Array.from(token).filter((_, t) => lossMask[t] === 1)
  })
  const { reward } = trajectories.row(rows[0]!)
  return { reward, response: tokenizer.decode(said, { skipSpecial: true }), responseLength: said.length }
}
