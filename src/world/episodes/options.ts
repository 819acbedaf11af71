/** The options of a cohort of episodes, and its draft before it has memory. */
import type { Plan } from '../../components/column.ts'
import type { EnvironmentDefinition } from '../../environments/environment.ts'
import type { PolicyDefinition, PolicyModel } from '../../policies/policy.ts'
import type { SystemDefinition } from '../system.ts'
import type { SelfPlayOptions } from './self-play.ts'

/**
 * When a lane whose episode ended begins a new one. `same-step`: before the next action, so every row of a rollout is a
 * step. `next-step`: instead of the next step, which leaves a dead row (valid = 0). `disabled`: when `restart` says so.
 */
export type Autoreset = 'same-step' | 'next-step' | 'disabled'

/** The lanes of one environment under one policy. */
export interface EpisodeCohortOptions {
  environment: EnvironmentDefinition
  /** Or the name of a cohort before it, whose policy acts here too: with its weights, which both have. */
  policy: PolicyDefinition | string
  /** How many lanes, at most, at a time: a whole number ≥ 1. */
  numLanes: number
  /** Number of lanes at the start; with this option others may join (`spawn`). Default: all. */
  present?: number
  /** How the cohort is called in columns, checkpoints and trainers; the policy's id where it is not given. */
  name?: string
  /** Number of the first lane in the whole run, which keys its random numbers; follows the cohort before, 0 with a `seed`. */
  firstLane?: number
  /** Seed of its own random numbers: the cohort learns the same as alone in a world of this seed. */
  seed?: number
  /** Default `same-step`. */
  autoreset?: Autoreset
  /** Sample actions (default), or take the most probable one. */
  explore?: boolean
  /** How many sets of weights the policy has: `cohort.league` says which acts where. Default 1. */
  weightSets?: number
  /** How many of them learn, from the first on: each from the lanes in which it acts, like the roles of a game. Default 1. */
  learningSets?: number
  /** Plays games against earlier selves, which are further sets of weights, and rates them: see `SelfPlayOptions`. */
  selfPlay?: SelfPlayOptions
  /** Your own systems, in the order in which systems with the same place run; see `defineSystem`. */
  systems?: readonly SystemDefinition[]
}

/** The names of the options. */
export const episodeOptions = Object.keys({
  ...{ environment: true, policy: true, numLanes: true, present: true, name: true, firstLane: true, seed: true },
  ...{ autoreset: true, explore: true, weightSets: true, learningSets: true, selfPlay: true, systems: true },
} satisfies Record<keyof EpisodeCohortOptions, true>)

/** What a recorder and a learner add to a cohort of episodes before its memory is taken. */
export interface EpisodeReservation {
  /** Rows that the rollout keeps of each lane. */
  numSteps: number
  /** The learner's own columns. */
  learner: Plan
  /** How many rollouts have columns, where some threads collect while others learn. */
  numBuffers?: number
}

/** What is known of a cohort of episodes before it has memory. */
export interface EpisodeDraft {
  readonly kind: 'episodes'
  readonly options: EpisodeCohortOptions
  readonly policy: PolicyDefinition
  /** The cohort whose weights it has; null where they are its own. */
  readonly sharesWith: string | null
  readonly name: string
  /** Keys its starting weights: how many cohorts of episodes with the world's seed are before it; 0 with a seed of its own. */
  readonly key: number
  readonly firstLane: number
  /** Whether lanes may join: then lane numbers are kept for them. */
  readonly isOpen: boolean
  readonly model: PolicyModel
  /** How many sets of weights there are, how many of them learn, and how lanes play against earlier selves, if they do. */
  readonly sets: {
    readonly all: number
    readonly learning: number
    readonly selfPlay: Required<SelfPlayOptions> | null
  }
  reservation?: EpisodeReservation
}
