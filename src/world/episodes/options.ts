/** The options of a cohort of episodes, and its draft before it has memory. */
import type { Plan } from '../../components/column.ts'
import type { EnvironmentDefinition } from '../../environments/environment.ts'
import type { PolicyDefinition, PolicyModel } from '../../policies/policy.ts'
import type { SystemDefinition } from '../system.ts'
import type { SelfPlayOptions } from './self-play.ts'

/**
 * When a lane whose episode ended begins a new one. `same-step`: before the next action, so every row of a rollout is a step.
 * `next-step`: instead of the next step, which leaves a dead row (valid = 0). `disabled`: only on `restart`.
 */
export type Autoreset = 'same-step' | 'next-step' | 'disabled'

/** Options of a cohort of episodes. */
export interface EpisodeCohortOptions {
  environment: EnvironmentDefinition
  /** A policy, or the name of an earlier cohort whose policy and weights are shared. */
  policy: PolicyDefinition | string
  /** Maximum number of concurrent lanes, a whole number ≥ 1. */
  numLanes: number
  /** Number of lanes at the start; with this option others may join (`spawn`). Default: all. */
  present?: number
  /** Name of the cohort in columns, checkpoints and trainers; default: the policy's id. */
  name?: string
  /** Number of the first lane in the whole run, which keys its random numbers. Default: after the previous cohort, 0 with a `seed`. */
  firstLane?: number
  /** Seed of its own random numbers: the cohort learns the same as alone in a world with this seed. */
  seed?: number
  /** Default `same-step`. */
  autoreset?: Autoreset
  /** Sample actions (default), or choose the most probable one. */
  explore?: boolean
  /** Number of sets of weights of the policy; `cohort.league` assigns them to lanes. Default 1. */
  weightSets?: number
  /** How many of them learn, from the first on: each from its lanes, like the roles of a game. Default 1. */
  learningSets?: number
  /** Self-play against rated earlier selves, which are further sets of weights; see `SelfPlayOptions`. */
  selfPlay?: SelfPlayOptions
  /** Custom systems, in the order in which systems with the same place run; see `defineSystem`. */
  systems?: readonly SystemDefinition[]
}

export const episodeOptions = Object.keys({
  ...{ environment: true, policy: true, numLanes: true, present: true, name: true, firstLane: true, seed: true },
  ...{ autoreset: true, explore: true, weightSets: true, learningSets: true, selfPlay: true, systems: true },
} satisfies Record<keyof EpisodeCohortOptions, true>)

/** A recorder's and learner's reservation in a cohort of episodes, before memory is allocated. */
export interface EpisodeReservation {
  /** Steps of the rollout per lane. */
  numSteps: number
  learner: Plan
  /** Number of rollouts with columns, if some threads collect while others learn. */
  numBuffers?: number
}

/** A cohort of episodes before it has memory. */
export interface EpisodeDraft {
  readonly kind: 'episodes'
  readonly options: EpisodeCohortOptions
  readonly policy: PolicyDefinition
  /** The cohort that owns the weights; null for its own. */
  readonly sharesWith: string | null
  readonly name: string
  /** Keys its initial weights: the number of earlier cohorts of episodes with the world's seed; 0 with its own seed. */
  readonly key: number
  readonly firstLane: number
  /** Whether lanes may join, so that lane numbers are reserved. */
  readonly isOpen: boolean
  readonly model: PolicyModel
  /** Number of sets of weights and of learning sets, and the options of self-play. */
  readonly sets: {
    readonly all: number
    readonly learning: number
    readonly selfPlay: Required<SelfPlayOptions> | null
  }
  reservation?: EpisodeReservation
}
