/**
 * A cohort of episodes: the lanes of one environment under one policy. First a draft, which knows its options and its network's shapes
 * (`draft.ts`, which also plans its columns); then, when the world has taken its memory, components over windows on the rollout
 * (`columns.ts`); each thread has its share of the lanes (`shares.ts`).
 */
import type { Action, ActionMask } from '../../components/action.ts'
import type { Column, Columns, Plan } from '../../components/column.ts'
import type { Episode } from '../../components/episode.ts'
import type { Memory } from '../../components/memory.ts'
import type { Observation } from '../../components/observation.ts'
import type { PopulationColumns } from '../../components/population.ts'
import type { FinalObservations, RolloutColumns } from '../../components/rollout.ts'
import type { Sliding } from '../../components/sliding.ts'
import type { Transition } from '../../components/transition.ts'
import type { EnvironmentDefinition, Lanes } from '../../environments/environment.ts'
import type { Policy, PolicyDefinition, PolicyModel } from '../../policies/policy.ts'
import type { Housing } from '../housing.ts'
import type { LaneEntities } from '../lanes.ts'
import type { BoundSystem } from '../system.ts'
import type { Ahead, RolloutBuffer } from './ahead.ts'
import type { EpisodeCohortPlan } from './draft.ts'
import type { LateLanes } from './late.ts'
import type { League } from './league.ts'
import type { Autoreset } from './options.ts'
import type { SelfPlay } from './self-play.ts'

/**
 * A cohort that has its memory. observation, actionMask, memory, action, transition, episode and state are the components
 * of its lanes; actionMask and memory have no elements, and are no components, where environment and policy have none.
 */
export interface EpisodeCohort {
  readonly kind: 'episodes'
  readonly name: string
  readonly environment: EnvironmentDefinition
  readonly policyDefinition: PolicyDefinition
  /** The cohort whose weights these are; null where they are its own. */
  readonly sharesWith: string | null
  readonly model: PolicyModel
  readonly autoreset: Autoreset
  readonly explore: boolean
  /** Lanes for which the columns have rows. */
  readonly numLanes: number
  /** Number of the first lane in the whole run. */
  readonly firstLane: number
  /** How many lanes it may ever have: numbers are kept for them. More than its numLanes where lanes may come. */
  readonly numNumbers: number
  /** Keys its random numbers: the world's seed, or its own. */
  readonly seed: number
  /** Lanes that were there when this rollout began: the first rows. */
  present: number
  /** In each block, rows from this one on are empty. */
  cleared: number
  /** This thread's share of them: from ≤ n < to. */
  from: number
  to: number
  /** True if its rollout is kept for a learner or a file. */
  readonly recorded: boolean
  /** True if the components slide along row blocks; else one block is written in place, tick after tick. */
  readonly sliding: boolean
  readonly numSteps: number

  /** The cohort's entities; null in a thread that shares another's columns. */
  readonly entities: LaneEntities | null
  /** The entity of each row, as the query found them; none in a thread that shares another's columns. */
  lanes: Uint32Array
  /** Who comes and goes. */
  readonly population: PopulationColumns
  readonly observation: Observation
  readonly actionMask: ActionMask
  readonly memory: Memory
  readonly action: Action
  readonly transition: Transition
  readonly episode: Episode
  /** The environment's own columns. */
  readonly state: Columns<Plan>

  /** The user's own systems. */
  readonly systems: readonly BoundSystem[]

  /** What the environment is handed: the same columns under its own names. */
  readonly environmentLanes: Lanes
  /** Watches the environment's calls; null if nothing watches. */
  watch: WatchedCalls | null
  readonly policy: Policy
  readonly weights: Float32Array
  /** The sets of weights, and which acts in each lane; null where there is one. */
  readonly league: League | null
  /** Earlier selves, and how they are rated; null where they are not asked for. */
  readonly selfPlay: SelfPlay | null
  /** If rollouts are collected ahead: the rollout of the open buffer. */
  readonly rollout: RolloutColumns
  /** Columns for rollouts ahead; null where all threads collect, then all learn. */
  readonly ahead: Ahead | null
  readonly learner: Columns<Plan>
  bootstrap: BootstrapList
  /** Final observations that no later row has: this thread's list, and those of all threads. */
  final: FinalObservations
  finals: readonly FinalObservations[]
  /** Lanes whose environment answers later. */
  readonly late: LateLanes
  /** The policy's answer, while it is awaited; null for a policy that answers at once. */
  answer: Answer | null
  /** True while the cohort takes no part in ticks: it waits for an answer, or its rollout is full and others' are not. */
  rests: boolean
  /** Steps until the cohort rests: the rest of the current rollout. */
  ticksLeft: number
  /** Bounds of the action space: low and high of a box, sizes of choices. */
  readonly bounds: Bounds & { readonly sizes: Int32Array }
  /** Bounds of each element of an observation, finite ones: what the environment may write. */
  readonly observationBounds: Bounds
  /** The components that slide. */
  readonly sliders: readonly Slider[]
  /** Room for a list of this thread's lanes. */
  laneList: Uint32Array
  /** The columns with one row per lane that continue from one rollout to the next. */
  readonly carried: readonly Column[]
  /** Columns of all threads, of which this one has a part. */
  readonly whole: Pick<Columns<EpisodeCohortPlan>, 'final' | 'bootstrap' | 'laneList'>
  /** How many threads share the lanes, and which of them this is. */
  readonly threads: Housing['threads']
  readonly windows: RolloutBuffer['windows']
  /** The row block of the rollout that this tick fills; numSteps when the rollout is full. */
  t: number
  /** Number of the weights. */
  version: number
}

/** Watched calls of an environment: `run` makes the call, and its result is returned. */
export interface WatchedCalls {
  /** Which rollouts are watched together. */
  readonly number: number
  step(run: () => unknown): unknown
  reset(rows: Uint32Array, count: number, run: () => unknown): unknown
  /** Checks the rollout when this thread's rows of it are complete. */
  conclude(): void
}

/** The lowest and the highest that each dimension may be. */
export interface Bounds {
  readonly low: Float32Array
  readonly high: Float32Array
}

/** A policy's answer that is awaited. */
export interface Answer {
  hasArrived: boolean
  /** What it failed with, if it did. */
  failure: { readonly cause: unknown } | null
  /** Settles when it has arrived; never fails. */
  arrival: Promise<void>
}

/** A component that slides along the rollout, and what the next rollout begins with. */
export interface Slider<C extends Float32Array | Uint8Array = Float32Array | Uint8Array> {
  readonly component: Sliding<C>
  /** Its windows on the rollout's row blocks. */
  readonly windows: readonly Sliding<C>[]
  /** What the next rollout begins with, and where it begins: this thread's share of both. */
  carried: C
  firstBlock: C
  /** The same of all threads. */
  readonly whole: { readonly carried: C; readonly firstBlock: C }
}

/** Final observations of this thread's truncated rows that wait for their value, with what the policy remembers there. */
export interface BootstrapList {
  /** Place in the rollout. */
  readonly row: Uint32Array
  readonly observation: Float32Array
  readonly memory: Float32Array
  /** What was legal there. */
  readonly actionMask: Uint8Array
  readonly value: Float32Array
  length: number
}

/** Ends the cohort's rollout where it stands: the next one begins with what the lanes see and remember now. */
export function closeRollout(cohort: EpisodeCohort): void {
  const { t, numSteps, sliders, from, to, numLanes, bootstrap } = cohort
  if (t > 0 && t < numSteps) {
    for (const { windows, carried } of sliders) {
      const { next } = windows[t - 1]!
      const width = next.length / numLanes
      carried.set(next.subarray(from * width, to * width))
    }
    bootstrap.length = 0
  }
  cohort.t = numSteps
}

/**
 * Points a cohort's components at row block `t` of its rollout. It has one block if it is not recorded.
 */
export function openRow(cohort: EpisodeCohort, t: number): void {
  const { windows, sliders, action, transition, environmentLanes } = cohort
  for (const slider of sliders) {
    const { current, next } = slider.windows[t]!
    slider.component.current = current
    slider.component.next = next
  }
  Object.assign(action, windows.action[t])
  Object.assign(transition, windows.transition[t])
  environmentLanes.action = action.applied
  environmentLanes.reward = transition.reward
  environmentLanes.terminated = transition.terminated
  environmentLanes.truncated = transition.truncated
}
