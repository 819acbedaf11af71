/** Rollouts of a training whose threads collect and then learn: each of them collects its share of the lanes. */
import type { Cohort } from '../../world/cohort.ts'
import { closeRollout, type EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { World } from '../../world/world.ts'
import { laneCohorts } from '../threads/orders.ts'
import { Pace } from '../threads/pace.ts'
import type { DealtWork, Sharing } from '../threads/sharing.ts'
import { collectWatched, WatchedRollouts } from '../watch/watched-rollouts.ts'

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
