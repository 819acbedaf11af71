import { InputError } from '../../base/errors.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import { gatherLanes, type League, scatterLanes } from '../../world/episodes/league.ts'

/**
 * Each set of weights acts in its lanes, in one pass per set over this thread's lanes. The number of passes does not change a lane's
 * result.
 */
export function inferLeague(cohort: EpisodeCohort, league: League): void {
  const { name, from, to, t, numLanes, sliding } = cohort
  const { policies, acted, lanes } = league
  const { rows } = league.staging
  const row = sliding ? t * numLanes : 0
  let listed = 0
  for (let set = 0; set < policies.length; set++) {
    let count = 0
    for (let n = from; n < to; n++) {
      if (lanes.policy[n] !== set) continue
      rows[count] = n
      count++
      acted[row + n] = set
    }
    if (count > 0) inferLanes(cohort, league, set, count)
    listed += count
  }
  if (listed === to - from) return
  const n = lanes.policy.findIndex((set, n) => n >= from && n < to && set >= policies.length)
  const got = `${lanes.policy[n]} in policy of lane ${cohort.episode.lane[n]}`
  throw new InputError(`cohort ${name}`, got, `a set of weights, from 0 to ${policies.length - 1}`)
}

/** A set of weights acts in the first `count` lanes of the list, in place if they are contiguous, otherwise gathered. */
function inferLanes(cohort: EpisodeCohort, { policies, staging }: League, set: number, count: number): void {
  const { explore, observation, actionMask, memory, action, episode, numLanes } = cohort
  const { rows, acting } = staging
  const policy = policies[set]!
  const first = rows[0]!
  if (rows[count - 1]! - first + 1 === count) {
    policy.infer(cohort, explore, first, first + count)
    return
  }
  gatherLanes(acting.observation.current, observation.current, rows, count, observation.current.length / numLanes)
  gatherLanes(acting.actionMask.current, actionMask.current, rows, count, actionMask.current.length / numLanes)
  gatherLanes(acting.memory.current, memory.current, rows, count, memory.current.length / numLanes)
  gatherLanes(acting.episode.lane, episode.lane, rows, count, 1)
  gatherLanes(acting.episode.episode, episode.episode, rows, count, 1)
  gatherLanes(acting.episode.step, episode.step, rows, count, 1)
  policy.infer(acting, explore, 0, count)
  scatterLanes(action.chosen, acting.action.chosen, rows, count, action.chosen.length / numLanes)
  scatterLanes(action.logprob, acting.action.logprob, rows, count, 1)
  scatterLanes(action.value, acting.action.value, rows, count, 1)
  scatterLanes(memory.next, acting.memory.next, rows, count, memory.next.length / numLanes)
}
