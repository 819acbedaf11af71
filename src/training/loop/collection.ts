/** Rollouts of a training whose threads collect and then learn: each of them collects its share of the lanes. */

import { EnvironmentWatch } from '../../systems/episodes/watch.ts'
import { collectShare, type Pause } from '../../systems/tick.ts'
import type { Cohort } from '../../world/cohort.ts'
import { closeRollout, type EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { World } from '../../world/world.ts'
import { laneCohorts } from '../threads/orders.ts'
import { Pace } from '../threads/pace.ts'
import type { DealtWork, Sharing } from '../threads/sharing.ts'

/** One thread's side of it. Thread 0 collects; others help. */
export class Collection {
  readonly #world: World
  readonly #learning: readonly EpisodeCohort[]
  readonly #cohorts: readonly Cohort[]
  readonly #watched = new WatchedRollouts()
  /** The shares of other threads; undefined if there is none. */
  readonly #shares: DealtWork | undefined
  readonly #pace: Pace
  /** The number of the watched rollout that this thread collects; 0 if it is not watched. */
  #watch = 0

  /** `cohorts` step in its rollouts; those of `learning` are recorded. */
  constructor(
    world: World,
    learning: readonly EpisodeCohort[],
    cohorts: readonly Cohort[],
    sharing: Sharing | undefined,
  ) {
    this.#world = world
    this.#learning = learning
    this.#cohorts = cohorts
    this.#shares = sharing?.deal({ open: (told) => this.#open(told), part: () => this.#collectShare() })
    // Objects in a thread's heap stay there, and a league's rows are planned for a share of its lanes.
    const isFixed = laneCohorts(world).some(
      ({ environment, league }) => environment.allocates === true || league !== null,
    )
    this.#pace = new Pace(sharing === undefined ? 1 : world.threads.count, isFixed)
  }

  /** After a restored checkpoint. */
  restart(): void {
    this.#watched.restart()
  }

  /** Prepares this thread's share: the update, how many threads share the lanes, and the number of a watched rollout. */
  #open(told: ArrayLike<number>): void {
    for (const cohort of this.#learning) {
      closeRollout(cohort) // The next tick begins one, with the lanes' observations and memory carried over.
      cohort.version = told[0]!
    }
    for (const cohort of laneCohorts(this.#world)) cohort.sharers = told[1]!
    this.#watch = told[2]!
  }

  /** It is no promise: a cohort with later answers has one thread. */
  #collectShare(): void {
    for (const _ of collectWatched(this.#world, this.#cohorts, this.#watch));
  }

  /** Collects a rollout of all lanes. The threads of a watched one take turns. Yields promises to await. */
  *collect(update: number): Generator<void | Promise<void>, void> {
    const watch = this.#watched.next(this.#learning)
    const sharers = watch > 0 ? this.#world.threads.count : this.#pace.threads
    const told = [update, sharers, watch]
    this.#open(told)
    const start = performance.now()
    this.#shares?.told.set(told)
    if (watch === 0) this.#shares?.begin(1, sharers)
    yield* collectWatched(this.#world, this.#cohorts, watch)
    for (let thread = 1; watch > 0 && thread < sharers; thread++) {
      this.#shares!.begin(thread, thread + 1)
      const pending = this.#shares!.finish()
      if (pending !== undefined) yield pending
    }
    if (watch > 0) return
    const pending = this.#shares?.finish()
    if (pending !== undefined) yield pending
    this.#pace.took(performance.now() - start)
  }
}

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
