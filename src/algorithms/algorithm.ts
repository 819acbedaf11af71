/**
 * The contract of algorithms. An algorithm improves weights from a rollout. It never sees a network: it gives the policy rows and a loss,
 * and receives a gradient. It declares its columns before the world allocates memory, and allocates nothing afterwards.
 *
 * An algorithm is a definition: id, settings, metrics, and functions that plan and bind a learner. Run keys (`algorithm=`, `ppo.gamma`),
 * presets, help, `config.json` and the workers' part derive from it, for built-in algorithms and for modules. Only presets refer to an
 * algorithm by name.
 */
import type { Clock } from '../base/clock.ts'
import { type DefinitionRecord, defineFactory, type Factory, type Parts } from '../base/definition.ts'
import { checkCount, checkGiven, InputError } from '../base/errors.ts'
import { checkMetrics, type Metrics } from '../base/metrics.ts'
import type { ShareWork } from '../base/parted.ts'
import type { Random } from '../base/random.ts'
import type { Settings, SettingValues } from '../base/settings.ts'
import type { Space } from '../base/space.ts'
import type { Column, Columns, Plan } from '../components/column.ts'
import type { FinalObservations, RolloutColumns } from '../components/rollout.ts'
import type { GoalPlace } from '../kernels/bind.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { Policy, PolicyModel } from '../policies/policy.ts'
import type { GradientHelp, GradientPool } from './shared-gradient.ts'
import type { Staleness } from './tokens/staleness.ts'

/** The result of an algorithm's `make`. */
export interface AlgorithmModel {
  /** Steps per lane between two updates. */
  readonly numSteps: number
  /** Discount factor, recorded in the rollout table; null if the algorithm has none. */
  readonly gamma: number | null
  /**
   * Number of minibatches per rollout. A run with automatic threads uses at most one thread per block of rows of a minibatch. Default 1.
   */
  readonly numMinibatches?: number
  /** Whether `learn` accepts an advantage estimator, so that it can learn from rows of another policy. Default false. */
  readonly takesAdvantages?: boolean
  /** Maximum staleness of rollouts and its correction; undefined: no stale rollouts. */
  readonly staleness?: Staleness | undefined
  /** Whether it learns only from tables of recorded rows (`trainer.learn`). Default false. */
  readonly needsTable?: boolean
  /** Whether it keeps the rows of past rollouts, such that a lane's row is followed by that of the next rollout. Default false. */
  readonly keepsRows?: boolean
  /** The columns of a learner. @throws InputError if the settings do not fit the cohort. */
  plan(shape: LearnerShape): Plan
  /** A learner over those columns; one per row buffer if rollouts are collected ahead. */
  bind(context: LearnerContext): Learner
}

/** An algorithm with its settings, as `createTrainer` takes it. */
export interface AlgorithmDefinition extends DefinitionRecord, AlgorithmModel {
  readonly metrics: Metrics
}

/** Creates an algorithm from its settings, like `ppo`. `id` and `settings` describe it. */
export type AlgorithmFactory<S extends Settings = Settings, M extends Metrics = Metrics> = Factory<
  S,
  AlgorithmDefinition
> & { readonly metrics: M }

/**
 * Defines an algorithm: its settings, the metrics of each update, and functions that plan and bind the learner. With
 * `module: import.meta.url` and an export under any name, `algorithm=` takes the module's path, and other threads and resumed runs can
 * load it by its id.
 * @throws InputError for an invalid metric; on creation, for steps or minibatches that are not whole numbers ≥ 1.
 */
export function defineAlgorithm<S extends Settings, const M extends Metrics>(options: {
  id: string
  module?: string
  settings: S
  /** Settings that older records lack, left out where they have their defaults. */
  newer?: readonly (keyof S)[]
  metrics: M
  /** `parts` are the values of settings declared with `part`, like the optimizer. */
  make(parameters: SettingValues<S>, parts: Parts): AlgorithmModel
}): AlgorithmFactory<S, M> {
  checkGiven('options of defineAlgorithm', options, ['id', 'settings', 'metrics', 'make'])
  const { metrics } = options
  const factory = defineFactory('algorithm', options, (parameters, parts) => {
    const { numSteps, numMinibatches = 1, gamma, plan, bind, ...model } = options.make(parameters, parts)
    for (const [name, count] of Object.entries({ numSteps, numMinibatches })) checkCount(`${options.id} ${name}`, count)
    const { takesAdvantages = false, needsTable = false, keepsRows = false, staleness } = model
    if (staleness !== undefined && staleness.maxStaleness > 0 && staleness.correction !== 'none' && !takesAdvantages) {
      const got = `${staleness.correction} for maxStaleness ${staleness.maxStaleness}, for a learner that accepts no advantages`
      throw new InputError(`${options.id} correction`, got, 'none, or maxStaleness 0')
    }
    return { numSteps, numMinibatches, takesAdvantages, needsTable, keepsRows, staleness, gamma, metrics, plan, bind }
  })
  checkMetrics(`${options.id} metrics`, metrics)
  return Object.assign(factory, { metrics })
}

/** Common properties of algorithms that are defined by a kind of loss. */
export interface LossKind {
  /** Name of the function that returns their settings, for errors. */
  readonly settingsOf: string
  readonly settings: Settings
  /** Metrics that are added automatically. */
  readonly metrics: Metrics
}

/**
 * Checks the declaration of an algorithm that is defined by its loss.
 * @throws InputError for a missing setting, and for a metric that is added automatically or is not a mean over rows.
 */
export function checkLossDeclaration(
  { id, settings, metrics }: { readonly id: string; readonly settings: Settings; readonly metrics: Metrics },
  kind: LossKind,
): void {
  for (const name of Object.keys(kind.settings)) {
    if (!Object.hasOwn(settings ?? {}, name)) {
      throw new InputError(`${id} settings`, `no ${name}`, `the settings of ${kind.settingsOf} and its own`)
    }
  }
  checkMetrics(`${id} metrics`, metrics)
  for (const [name, { reduction }] of Object.entries(metrics)) {
    if (Object.hasOwn(kind.metrics, name)) {
      const taken = Object.keys(kind.metrics).join(', ')
      throw new InputError(`${id} metrics`, name, `another name: ${taken} are added automatically`)
    }
    if (reduction !== 'rowMean') throw new InputError(`${id} metrics ${name}.reduction`, String(reduction), 'rowMean')
  }
}

/** The inputs that determine a learner's columns. */
export interface LearnerShape {
  readonly numLanes: number
  readonly model: PolicyModel
  readonly observationSpace: Space
  readonly actionSpace: Space
  /** Elements per row of the action mask; 0 without masks. */
  readonly actionMaskWidth: number
  /** Where observations have a goal, if the environment has goals. */
  readonly goal?: GoalPlace | undefined
  /** Number of threads that can help: each needs a workspace of its own. */
  readonly threads: number
}

/** The inputs of a learner. */
export interface LearnerContext extends LearnerShape {
  readonly rollout: RolloutColumns
  /** Current lists, of all threads, of final observations that no later row of the rollout contains. */
  finals(): readonly FinalObservations[]
  readonly columns: Columns<Plan>
  readonly weights: Float32Array
  readonly policy: Policy
  readonly kernels: Kernels
  readonly random: Random
  /** The clock that measures this thread's time. */
  readonly clock: Clock
  /** Index of this thread. Only thread 0 learns; the others help with work that it shares. */
  readonly thread: number
  /** The processes that compute gradients together, if there are several; then each has one thread. */
  readonly pool?: GradientPool | undefined
  /** Registers work in parts that threads share. Call it in `bind` only, in the same order in every thread. */
  readonly share: ShareWork
}

/** The inputs of advantage estimation besides the rollout. */
export interface AdvantageContext {
  /** Discount factor, and mixing factor of generalized advantage estimation. */
  readonly gamma: number
  readonly gaeLambda: number
  readonly numSteps: number
  readonly numLanes: number
  /** Workspace with one number per lane. */
  readonly carry: Float32Array
  readonly kernels: Kernels
}

/** Writes `advantage` and `return` of each row of a rollout from its other columns. Called by one thread only. */
export type EstimateAdvantages = (rollout: RolloutColumns, context: AdvantageContext) => void

/** A bound algorithm for one cohort, in one thread. */
export interface Learner {
  /**
   * Learns from the current rollout and writes its advantage and return columns. `update` counts from 0 and is below `numUpdates`, the
   * total of the training, for schedules. Only thread 0 runs it; other threads help with what it shares (`LearnerContext.share`). Each
   * yielded promise is awaited. `estimate` replaces the algorithm's own advantage estimator.
   */
  learn(
    update: number,
    numUpdates: number,
    estimate?: EstimateAdvantages,
  ): Generator<void | Promise<void>, LearnerMetrics>
  /** Computes shares of another process's gradients; undefined if they cannot be shared. */
  readonly help?: GradientHelp
  /** For columns that are too large to be copied before each update. */
  readonly undo?: Undo
}

/** Takes back what an update wrote to some columns, so that the state before the update needs no copy of them. */
export interface Undo {
  readonly columns: readonly Column[]
  /** From now on, keeps overwritten values; values kept before are dropped. */
  begin(): void
  takeBack(): void
}

/** The metrics of an update: a number for each declared metric, by name. */
export type LearnerMetrics = Readonly<Record<string, number>>
