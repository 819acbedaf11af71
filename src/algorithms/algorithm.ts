/**
 * The contract of algorithms. An algorithm turns a rollout into better weights. It never sees a network: it hands the
 * policy rows and a loss, and gets a gradient. It declares its columns before the world takes its memory, and allocates
 * nothing afterwards.
 */
import type { Clock } from '../clock.ts'
import type { Columns, Plan } from '../components/column.ts'
import type { RolloutColumns } from '../components/rollout.ts'
import type { DefinitionRecord } from '../definition.ts'
import type { Kernels } from '../kernels/bind.ts'
import type { Policy, PolicyModel } from '../policies/policy.ts'
import type { Random } from '../random.ts'
import type { Space } from '../space.ts'

/** An algorithm with its settings: what `createTrainer` takes. */
export interface AlgorithmDefinition extends DefinitionRecord {
  /** Steps of each lane between two updates. */
  readonly numSteps: number
  /** Discount factor, which the rollout table records. */
  readonly gamma: number
  /** The columns a learner needs. Throws InputError where the settings do not fit the cohort. */
  plan(shape: LearnerShape): Plan
  /** A learner over those columns. */
  bind(context: LearnerContext): Learner
}

/** What a learner's columns depend on. */
export interface LearnerShape {
  readonly numLanes: number
  readonly model: PolicyModel
  readonly observationSpace: Space
  readonly actionSpace: Space
  /** Elements a row of the action mask; 0 where there is none. */
  readonly actionMaskWidth: number
  /** How many threads share the work. */
  readonly threads: number
}

/** What a learner works with. */
export interface LearnerContext extends LearnerShape {
  readonly rollout: RolloutColumns
  /** The columns of `AlgorithmDefinition.plan`. */
  readonly columns: Columns<Plan>
  readonly weights: Float32Array
  readonly policy: Policy
  readonly kernels: Kernels
  readonly random: Random
  /** What this thread's time is charged to. */
  readonly clock: Clock
  /** Which of the threads this is. Thread 0 does what is done once. */
  readonly thread: number
}

/** An algorithm at work on one cohort, in one thread. */
export interface Learner {
  /**
   * Learns from the rollout as it stands, and writes its advantage and return columns. `update` counts from 0 and is below
   * `numUpdates`, the updates of the whole training, which schedules go by. All threads run it; at each `yield` they wait
   * for one another, or for the promise that is yielded (by a policy that answers later, in one thread). The metrics are thread 0's.
   */
  learn(update: number, numUpdates: number): Generator<void | Promise<void>, LearnerMetrics>
}

/** What an update did. Means over the update's minibatches unless said otherwise. */
export interface LearnerMetrics {
  policyLoss: number
  valueLoss: number
  /** Of the action distribution, in nats. */
  entropy: number
  /** KL(old ‖ new) by Schulman's k3, in nats. */
  approxKl: number
  /** Part of the rows whose ratio was beyond the clip. */
  clipFraction: number
  /** Of the returns, by the values before the update; NaN where the returns do not vary. */
  explainedVariance: number
  /** Global norm of the gradient before it was clipped. */
  gradNorm: number
  learningRate: number
}
