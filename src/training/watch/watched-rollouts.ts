/** Selects the watched rollouts of a training (`systems/episodes/watch.ts`). */
import { EnvironmentWatch } from '../../systems/episodes/watch.ts'
import { collectShare, type Pause } from '../../systems/tick.ts'
import type { Cohort } from '../../world/cohort.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { World } from '../../world/world.ts'

/** Ticks to watch: one long rollout, or as many short ones as have these. */
const WATCHED_TICKS = 128

/** The folder of built-in environments, which tests watch already. */
const OURS = new URL('../../environments/', import.meta.url).href

/** Whether a cohort's environment is a user's, or a wrapped or changed built-in one. */
function isWatched({ environment }: EpisodeCohort): boolean {
  const { module, wrappers } = environment
  return wrappers !== undefined || module?.startsWith(OURS) !== true || !Object.isFrozen(environment)
}

export class WatchedRollouts {
  #ticks = 0
  #number = 1

  /** The number by which the next rollout is watched; 0 if it is not. */
  next(cohorts: readonly EpisodeCohort[]): number {
    if (this.#ticks >= WATCHED_TICKS || !cohorts.some(isWatched)) return 0
    this.#ticks += Math.max(...cohorts.map(({ numSteps }) => numSteps))
    return this.#number
  }

  /** Restarts watching at the next rollout, after observations were replaced. */
  restart(): void {
    this.#ticks = 0
    this.#number++
  }
}

/** A rollout of this thread's lanes, watched unless the number is 0. Other threads rest then, unless they are actors. */
export function* collectWatched(
  world: World,
  cohorts: readonly Cohort[],
  number: number,
  pause?: Pause,
): Generator<void | Promise<void>, void> {
  const { actors } = world.threads
  const lanes = cohorts.filter((cohort) => cohort.kind === 'episodes')
  for (const cohort of lanes) {
    if (number === 0 || !isWatched(cohort)) cohort.watch = null
    else if (cohort.watch?.number !== number) cohort.watch = new EnvironmentWatch(cohort, number, actors < 2)
  }
  yield* collectShare(world, cohorts, undefined, pause)
  for (const { watch } of lanes) watch?.conclude()
}
