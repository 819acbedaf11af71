/**
 * The contract of collectors: when there is enough to learn from. A collector lets conversations begin and go on until the groups
 * of an update are whole and admitted, replaces those that are dropped, and says which rows are learned from and in which order.
 * How old a group may be is its own as well: a synchronous collector takes none that other weights have had a part in, others
 * let conversations go on while weights change.
 */
import type { RlDefinition } from '../../algorithms/tokens/rl.ts'
import { InputError, show } from '../../base/errors.ts'
import type { Delivery, SavedAdmission } from '../../fleet/admission.ts'
import type { ConversationCohort } from '../../world/conversations/cohort.ts'
import type { World } from '../../world/world.ts'

/** Seconds from a group's beginning until the update took it, of its groups. */
export interface AgeSpread {
  readonly mean: number
  readonly max: number
  /** How many took less than 1 s, and from there less than 2, 4, 8 … s each, as far as there are any. */
  readonly counts: readonly number[]
}

/** What became of the groups of an update. */
export interface CollectorProgress {
  /** Ticks so far, of all updates. */
  readonly ticks: number
  /** Groups that were dropped since the update before, by reason. */
  readonly drops: Readonly<Record<string, number>>
  readonly rolloutAgeSeconds: AgeSpread
  /** Groups that were whole when the update took its own, and wait for a later one. */
  readonly queueDepth: number
  /** Seconds since the last update in which a lane had no conversation, mean of all lanes. */
  readonly lanesIdleSeconds: number
}

/** What a checkpoint has of a collector: plain JSON. */
export interface SavedCollector {
  readonly ticks: number
  readonly isBetweenUpdates: boolean
  /** Conversations that may begin, of all that ever did. */
  readonly released: number
  readonly admission: SavedAdmission
  /** What the last update was made of, or the one under way is made of; null before the first. */
  readonly delivery: Delivery | null
  /** Seconds since each of the groups began that are neither learned from nor dropped, by number. */
  readonly ages: readonly (readonly [group: number, seconds: number])[]
}

export interface Collector {
  readonly progress: CollectorProgress
  /** In the middle of a tick: there is no state to continue from. */
  readonly isMidway: boolean
  /** Whether the conversations of the last update have all been learned from. */
  readonly isBetweenUpdates: boolean
  /**
   * Collects the groups of the next update, and continues where it was stopped; false if the signal stops it.
   * @throws RolloutStarvedError where more groups are dropped than may be.
   */
  collect(signal: AbortSignal | undefined): Promise<boolean>
  /**
   * Does work of a learner, while conversations go on as far as they may: those of an engine that generates by itself. An engine
   * that computes in the ticks of this thread has the learner's weights, and waits until the work is done.
   * @throws RolloutStarvedError where more groups are dropped than may be.
   */
  beside<T>(work: () => Promise<T>): Promise<T>
  /** The rows of the cohort's trajectories to train on, in an order that does not depend on which finished first. */
  rows(): number[]
  /**
   * Holds the engine to the weights that it was given, before it is given others: what was collected and may be of other ones is
   * dropped. `collect` has done so with what is learned from.
   * @throws InputError as `Engine.prove` does.
   */
  prove(): Promise<void>
  /** Tells that an update was made of them: the next call of `collect` begins another. */
  learned(): void
  /** Drops pending replies of environments: running conversations ask again when they continue. */
  close(): void
  saved(): SavedCollector
  restore(saved: SavedCollector): void
}

/** A collector before it is made: what `createTrainer` takes for its `rl` phase. */
export type CollectorDefinition = (world: World, cohort: ConversationCohort, rl: RlDefinition) => Collector

/** @throws InputError for what is no collector, and where no cohort, or more than one, could have it. */
export function checkCollector(collector: CollectorDefinition | undefined, numConversations: number): void {
  if (collector === undefined) return
  if (typeof collector !== 'function') {
    throw new InputError('createTrainer, collector', show(collector), 'one like runAgents(…).collector')
  }
  if (numConversations === 1) return
  throw new InputError('createTrainer, collector', `one for ${numConversations} cohorts of conversations`, 'one cohort')
}
