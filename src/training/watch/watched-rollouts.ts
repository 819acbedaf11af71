/** Which rollouts of a training are watched (`systems/episodes/watch.ts`), and how threads take turns in them. */
import { EnvironmentWatch } from '../../systems/episodes/watch.ts'
import { collectShare } from '../../systems/tick.ts'
import type { Cohort } from '../../world/cohort.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { World } from '../../world/world.ts'

/** Ticks after which no further rollout is watched: a long rollout is watched whole, and of short ones as many as have these. */
const WATCHED_TICKS = 128

/** Where the environments are that come with Colonnade: its tests watch them, and a training of theirs need not. */
const OURS = new URL('../../environments/', import.meta.url).href

/** Whether a cohort's environment is one of somebody's own, or one of ours that somebody has changed or laid something around. */
function isWatched({ environment }: EpisodeCohort): boolean {
  const { module, wrappers } = environment
  return wrappers !== undefined || module?.startsWith(OURS) !== true || !Object.isFrozen(environment)
}

/** Counts the ticks that are watched. */
export class WatchedRollouts {
  #ticks = 0
  #number = 1

  /** The number by which the next rollout is watched; 0 where it is not. */
  next(cohorts: readonly EpisodeCohort[]): number {
    if (this.#ticks >= WATCHED_TICKS || !cohorts.some(isWatched)) return 0
    this.#ticks += Math.max(...cohorts.map(({ numSteps }) => numSteps))
    return this.#number
  }

  /** Watches from the next rollout on anew: somebody else has put in its place what lanes see. */
  restart(): void {
    this.#ticks = 0
    this.#number++
  }
}

/**
 * A rollout of this thread's lanes, watched by that number unless it is 0. Threads that share the lanes take turns while they are
 * watched: each has its whole rollout while the others rest.
 */
export function* collectWatched(
  world: World,
  cohorts: readonly Cohort[],
  number: number,
): Generator<void | Promise<void>, void> {
  const { actors, count, index } = world.threads
  const lanes = cohorts.filter((cohort) => cohort.kind === 'episodes')
  for (const cohort of lanes) {
    if (number === 0 || !isWatched(cohort)) cohort.watch = null
    else if (cohort.watch?.number !== number) cohort.watch = new EnvironmentWatch(cohort, number, actors < 2)
  }
  const turns = number === 0 || actors > 0 ? [index] : Array.from({ length: count }, (_, thread) => thread)
  for (const turn of turns) {
    if (turns.length > 1) yield // Nobody is in the turn before any more.
    if (turn !== index) continue
    yield* collectShare(world, cohorts)
    for (const { watch } of lanes) watch?.conclude()
  }
}
