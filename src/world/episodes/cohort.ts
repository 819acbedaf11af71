/**
 * A cohort of episodes: the lanes of one environment with one policy. It is first a draft with options and network shapes (`draft.ts`,
 * which also plans its columns), then components over windows on the rollout (`columns.ts`). Each thread has its share of the lanes
 * (`shares.ts`).
 */
import type { Action, ActionMask } from '../../components/action.ts'
import type { Column, Columns, Plan, Sliding } from '../../components/column.ts'
import type { Episode } from '../../components/episode.ts'
import type { Memory } from '../../components/memory.ts'
import type { Observation, ObservationColumn } from '../../components/observation.ts'
import type { PopulationColumns } from '../../components/population.ts'
import type { FinalObservations, RolloutColumns } from '../../components/rollout.ts'
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
 * A cohort with memory. observation, actionMask, memory, action, transition, episode and state are the components of its lanes;
 * actionMask and memory are empty, and not components, if the environment has no masks or the policy no memory.
 */
export interface EpisodeCohort {
  readonly kind: 'episodes'
  readonly name: string
  readonly environment: EnvironmentDefinition
  readonly policyDefinition: PolicyDefinition
  /** The cohort that owns the weights; null for its own. */
  readonly sharesWith: string | null
  readonly model: PolicyModel
  readonly autoreset: Autoreset
  readonly explore: boolean
  /** Number of lanes that the columns have rows for. */
  readonly numLanes: number
  /** Number of the first lane in the whole run. */
  readonly firstLane: number
  /** Number of lane numbers reserved for it; more than numLanes if lanes may join. */
  readonly numNumbers: number
  /** Seed of its random numbers: the world's or its own. */
  readonly seed: number
  /** Number of lanes present at the start of this rollout: the first rows. */
  present: number
  /** In each block, rows from this one on are empty. */
  cleared: number
  /** How many threads share them in the next rollout, and in this one. */
  sharers: number
  dealt: number
  /** This thread's share of them: from ≤ n < to. */
  from: number
  to: number
  /** Whether its rollout is kept for a learner or a file. */
  readonly recorded: boolean
  /** Whether the components slide along row blocks. Otherwise one block is overwritten in each tick. */
  readonly sliding: boolean
  readonly numSteps: number

  /** The cohort's entities; null in a thread that shares another's columns. */
  readonly entities: LaneEntities | null
  /** The entity of each row, as the query found them; empty in a thread that shares another's columns. */
  lanes: Uint32Array
  /** Births, deaths and lane numbers. */
  readonly population: PopulationColumns
  readonly observation: Observation
  readonly actionMask: ActionMask
  readonly memory: Memory
  readonly action: Action
  readonly transition: Transition
  readonly episode: Episode
  /** The environment's own columns. */
  readonly state: Columns<Plan>

  /** Custom systems. */
  readonly systems: readonly BoundSystem[]

  /** The environment's view of the same columns. */
  readonly environmentLanes: Lanes<unknown, ObservationColumn>
  /** Watches the environment's calls; null if nothing watches. */
  watch: WatchedCalls | null
  readonly policy: Policy
  readonly weights: Float32Array
  /** The sets of weights and their lanes; null if there is one set. */
  readonly league: League | null
  /** Earlier selves and their ratings; null without self-play. */
  readonly selfPlay: SelfPlay | null
  /** If rollouts are collected ahead: the rollout of the open buffer. */
  readonly rollout: RolloutColumns
  /** Columns for rollouts ahead; null if all threads collect and then all learn. */
  readonly ahead: Ahead | null
  readonly learner: Columns<Plan>
  bootstrap: BootstrapList
  /** Final observations that no later row has: this thread's list, and those of all threads. */
  final: FinalObservations
  finals: readonly FinalObservations[]
  /** Lanes whose environment answers later. */
  readonly late: LateLanes
  /** The pending answer of an asynchronous policy; otherwise null. */
  answer: Answer | null
  /** Whether the cohort skips ticks: it waits for an answer, or its rollout is full and others' are not. */
  rests: boolean
  /** Steps until the cohort rests, which are the remaining steps of the current rollout. */
  ticksLeft: number
  /** Bounds of the action space: low and high of a box, sizes of choices. */
  readonly bounds: Bounds & { readonly sizes: Int32Array }
  /** Finite bounds of each element of an observation that the environment may write. */
  readonly observationBounds: { readonly low: ObservationColumn; readonly high: ObservationColumn }
  readonly sliders: readonly Slider[]
  /** Buffer for a list of this thread's lanes. */
  laneList: Uint32Array
  /** The columns with one row per lane that continue from one rollout to the next. */
  readonly carried: readonly Column[]
  /** Columns of all threads; this thread uses a part. */
  readonly whole: Pick<Columns<EpisodeCohortPlan>, 'final' | 'bootstrap' | 'laneList'>
  /** Number of threads that share the lanes, and this thread's index. */
  readonly threads: Housing['threads']
  readonly windows: RolloutBuffer['windows']
  /** The row block of the rollout that this tick fills; numSteps when the rollout is full. */
  t: number
  version: number
}

/** Watches an environment's calls: `run` makes the call and returns its result. */
export interface WatchedCalls {
  /** Identifies rollouts that are watched together. */
  readonly number: number
  step(run: () => unknown): unknown
  reset(rows: Uint32Array, count: number, run: () => unknown): unknown
  /** Checks the rollout when this thread's rows of it are complete. */
  conclude(): void
}

/** Minimum and maximum of each dimension. */
export interface Bounds {
  readonly low: Float32Array
  readonly high: Float32Array
}

/** A pending answer of a policy. */
export interface Answer {
  hasArrived: boolean
  /** Its error, if it failed. */
  failure: { readonly cause: unknown } | null
  /** Settles when it has arrived; never rejects. */
  arrival: Promise<void>
}

/** A component that slides along the rollout, with the start of the next rollout. */
export interface Slider<C extends Float32Array | Uint8Array = Float32Array | Uint8Array> {
  readonly component: Sliding<C>
  /** Its windows on the rollout's row blocks. */
  readonly windows: readonly Sliding<C>[]
  /** The initial values of the next rollout, and the rows that receive them: this thread's share of both. */
  carried: C
  firstBlock: C
  /** The same for all threads. */
  readonly whole: { readonly carried: C; readonly firstBlock: C }
}

/** Final observations and memories of this thread's truncated rows that wait for their value. */
export interface BootstrapList {
  readonly row: Uint32Array
  readonly observation: ObservationColumn
  readonly memory: Float32Array
  /** Action masks of these states. */
  readonly actionMask: Uint8Array
  readonly value: Float32Array
  length: number
}

/** Ends the cohort's rollout early: the next one begins with the lanes' current observations and memories. */
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

/** Points a cohort's components at row block `t` of its rollout. An unrecorded rollout has one block. */
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
