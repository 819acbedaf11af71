import { Phase } from '../../components/episode.ts'
import { Listed } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import { listFinal, listToValue } from './bootstrap.ts'

/**
 * Closes the row: records its episode and weights version, adds its reward to the return, marks lanes whose episode ended, adds truncated
 * rows with their last observation and memory to the bootstrap list, and adds states that no later row contains to the list of final
 * observations.
 *
 * Reads transition, observation.next, memory.next. Writes the row's step, lane, episode, episodeReturn, version; episode. Runs last,
 * before reset overwrites the final observations.
 */
export function storeEpisodes(kernels: Kernels, cohort: EpisodeCohort): void {
  if (cohort.rests) return
  const { transition, episode, from, to, version, t, numSteps } = cohort
  kernels.closeRow(transition, episode, version, Phase.ended, from, to)
  if (cohort.environmentLanes.died.length > 0) closeLives(cohort)
  if (cohort.sliding) cohort.t++
  cohort.ticksLeft--
  cohort.rests = cohort.ticksLeft === 0
  if (!cohort.recorded) return
  const found = listFinal(kernels, cohort, t, t === numSteps - 1 ? Listed.any : Listed.ended, from, to)
  if (found > 0) listToValue(kernels, cohort, t, Listed.truncated, from, to) // These include all truncated rows.
}

/** Counts births and marks deaths of the lanes that acted. */
function closeLives({ transition, episode, population, from, to }: EpisodeCohort): void {
  const { died, births, offspring } = population
  for (let n = from; n < to; n++) {
    if (transition.valid[n] === 0) continue
    offspring[n] = offspring[n]! + births[n]!
    if (died[n] !== 0) episode.phase[n] = Phase.absent
  }
}
