/**
 * The contract of collectors, which decide when there is enough to train on. A collector starts and continues
 * conversations until the groups of an update are complete and admitted, replaces dropped ones, and selects and orders
 * the training rows. It also limits their age: a synchronous collector takes no group that other weights contributed
 * to; others continue conversations while weights change.
 */
import type { GradientPool } from '../../algorithms/shared-gradient.ts'
import type { RlDefinition } from '../../algorithms/tokens/rl.ts'
import type { Delivery, SavedAdmission } from '../../fleet/admission.ts'
import type { ConversationCohort } from '../../world/conversations/cohort.ts'
import type { World } from '../../world/world.ts'

/** Seconds from the start of groups until their update. */
export interface AgeSpread {
  readonly mean: number
  readonly max: number
  /** Histogram: below 1 s, then below 2, 4, 8 … s, as far as needed. */
  readonly counts: readonly number[]
}

export interface CollectorProgress {
  /** Ticks so far, of all updates. */
  readonly ticks: number
  /** Groups dropped since the last update, by reason. */
  readonly drops: Readonly<Record<string, number>>
  readonly rolloutAgeSeconds: AgeSpread
  /** Complete groups that wait for a later update. */
  readonly queueDepth: number
  /** Seconds since the last update in which a lane had no conversation, mean over lanes. */
  readonly lanesIdleSeconds: number
}

/** A collector's state in a checkpoint: plain JSON. */
export interface SavedCollector {
  readonly ticks: number
  readonly isBetweenUpdates: boolean
  /** Total number of conversations that may begin. */
  readonly released: number
  readonly admission: SavedAdmission
  /** The groups of the last or current update; null before the first. */
  readonly delivery: Delivery | null
  /** Seconds since the start of each group that is neither learned from nor dropped, by number. */
  readonly ages: readonly (readonly [group: number, seconds: number])[]
  /** Of a fleet: the hashes of the published weights that a group under way may need, by version. */
  readonly runner?: readonly (readonly [version: number, hash: string])[]
}

export interface Collector {
  /** The processes that compute gradients with the learner; undefined: it computes them alone. */
  readonly pool?: GradientPool | undefined
  readonly progress: CollectorProgress
  /** In the middle of a tick: there is no state to continue from. */
  readonly isMidway: boolean
  /** Whether the conversations of the last update have all been learned from. */
  readonly isBetweenUpdates: boolean
  /** Collects an update's groups; false if the signal stops it. @throws RolloutStarvedError if too many are dropped. */
  collect(signal: AbortSignal | undefined): Promise<boolean>
  /** Does a learner's work, during which conversations continue if the engine allows. @throws RolloutStarvedError */
  beside<T>(work: () => Promise<T>): Promise<T>
  /** The rows of the cohort's trajectories to train on, in an order that does not depend on which finished first. */
  rows(): number[]
  /** Verifies the engine's weights, dropping groups that others may have made. @throws InputError as `Engine.prove`. */
  prove(): Promise<void>
  /** Marks the collected groups as learned: the next `collect` begins another update. */
  learned(): void
  /** A checkpoint after this number of updates is on disk. */
  kept?(updates: number): void
  /** Drops pending replies of environments: running conversations ask again when they continue. */
  close(): void
  /** Ends it with the trainer, or before another state is loaded; default: `close`. All its work has ended when the promise settles. */
  end?(): Promise<void>
  saved(): SavedCollector
  restore(saved: SavedCollector): void
}

/** A collector's definition, which `createTrainer` takes for its `rl` phase. */
export type CollectorDefinition = (world: World, cohort: ConversationCohort, rl: RlDefinition) => Collector
