/**
 * The contract of crews, which collect the rollouts of a learner. A crew has members, each with its part of
 * the lanes, and fills the columns of rollouts ahead (`world/episodes/ahead.ts`). There are two: threads of this process
 * (`thread-crew.ts`), and processes of a fleet (`training/fleet/fleet-crew.ts`).
 */

import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import type { GradientPool } from '../../algorithms/shared-gradient.ts'
import type { Pause } from '../../systems/tick.ts'
import { keepBeginning, openBuffer } from '../../world/episodes/ahead-buffers.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { World } from '../../world/world.ts'
import { collectWatched, type WatchedRollouts } from '../loop/collection.ts'

/** Times of a rollout, a member each. */
export interface CrewTimes {
  /** When its part was begun, in ms since the epoch. */
  readonly began: ArrayLike<number>
  /** Seconds that it took. */
  readonly took: ArrayLike<number>
  /** Seconds that the member has waited for permission so far. */
  readonly waited: ArrayLike<number>
}

export interface Crew {
  /** The processes that compute gradients with the learner; undefined: it computes them alone. */
  readonly pool?: GradientPool
  /** Whether other processes collect, which may come late or never. */
  readonly isElsewhere: boolean
  /**
   * Begins with the rollout of this update. The lanes' state at its start is in `beginningOf(cohort, update)`. The result ends the crew
   * when the trainer is dropped, so it does not reference the trainer. Elsewhere it rejects soon after the signal is aborted.
   */
  start(update: number, signal?: AbortSignal): Promise<{ end(): boolean }>
  /** The newest version of the weights, which is in `published`, and the rollouts that may begin: those below a number. */
  permit(version: number, permitted: number): void
  /** The rollouts whose part a member has collected: its rows and its lanes' next state are in the columns. */
  collected(member: number): number
  /** The reason why nothing more is collected; null while the crew works. */
  readonly failure: Error | null
  /** Settles when a member has collected more parts than these, or with the failure; elsewhere also when the signal is aborted. */
  arrival(member: number, collected: number, update: number, signal?: AbortSignal): Promise<void>
  times(update: number): CrewTimes
  /** The learner has learned from an update's rollout. */
  learned(update: number): void
  /** A checkpoint after this number of updates is on disk. */
  kept(updates: number): void
  /** Whether the crew keeps the process alive. */
  hold(isHeld: boolean): void
  /** Ends it with a reason, which becomes its failure. */
  fail(reason: Error): void
  /** Ends it. Settles when no member writes to the columns any more. */
  close(): Promise<unknown>
}

/** The learner of a crew. */
export interface CrewParts {
  readonly world: World
  readonly cohort: EpisodeCohort
  readonly numMembers: number
  readonly algorithm: AlgorithmDefinition
}

/** Makes a crew for a training of episodes with `actors`. */
export type CrewDefinition = (parts: CrewParts) => Crew

/** Collects a member's part of a rollout with the weights of a version, into the rollout's buffer. */
export function* collectAhead(
  world: World,
  cohort: EpisodeCohort,
  number: number,
  version: number,
  watched: WatchedRollouts,
  pause?: Pause,
): Generator<void | Promise<void>, void> {
  const { policies } = cohort.ahead!
  openBuffer(cohort, number)
  const policy = policies[version % policies.length]!
  policy.refresh?.()
  Object.assign(cohort, { policy, version })
  yield* collectWatched(world, [cohort], watched.next([cohort]), pause)
  keepBeginning(cohort, number + 1)
}
