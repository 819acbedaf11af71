import { Phase } from '../components/episode.ts'
import type { World } from '../world.ts'

/**
 * Closes the row: says whose episode it belongs to and which weights chose it, accounts for its reward, marks the lanes
 * whose episode ended, and puts truncated ones, with what they saw last, on the bootstrap list.
 *
 * Reads transition, observation.next. Writes the row's step, lane, episode, episodeReturn, version; episode. Runs last,
 * before reset overwrites the final observations.
 */
export function store(world: World): void {
  const { kernels } = world
  for (const cohort of world.cohorts) {
    const { transition, episode, numLanes, from, to, version, t, bootstrap, observation } = cohort
    kernels.closeRow(
      transition.lane,
      transition.episode,
      transition.step,
      transition.episodeReturn,
      transition.version,
      transition.nextValue,
      episode.step,
      episode.episodeReturn,
      episode.phase,
      episode.lane,
      episode.episode,
      transition.reward,
      transition.terminated,
      transition.truncated,
      transition.valid,
      version,
      Phase.ended,
      from,
      to,
    )
    if (cohort.sliding) cohort.t++
    if (!cohort.recorded) continue
    const TRUNCATED = 1
    bootstrap.length = kernels.listBootstrap(
      bootstrap.row,
      bootstrap.observation,
      observation.next,
      transition.terminated,
      transition.truncated,
      transition.valid,
      TRUNCATED,
      bootstrap.length,
      t * numLanes,
      observation.next.length / numLanes,
      from,
      to,
    )
  }
}
