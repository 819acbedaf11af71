/**
 * The contract of algorithms. An algorithm turns a rollout into better weights. It never sees a network: it hands the
 * policy rows and a loss, and gets a gradient. It declares its columns before the world takes its memory, and allocates
 * nothing afterwards.
 *
 * An algorithm is a definition: id, settings, metrics, and what plans and binds a learner. A run's keys (`algorithm=`,
 * `ppo.gamma`), presets, help, `config.json` and the workers' part follow from it, for an algorithm of the registry as
 * for one that a module exports. Nobody above knows an algorithm by its name, but the presets.
 */
import type { Clock } from '../base/clock.ts'
import { type DefinitionRecord, defineFactory, type Factory, type Parts } from '../base/definition.ts'
import { checkGiven, InputError, show } from '../base/errors.ts'
import { checkMetrics, type Metrics } from '../base/metrics.ts'
import type { Random } from '../base/random.ts'
import type { Settings, SettingValues } from '../base/settings.ts'
import type { Space } from '../base/space.ts'
import type { Columns, Plan } from '../components/column.ts'
import type { FinalObservations, RolloutColumns } from '../components/rollout.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { Policy, PolicyModel } from '../policies/policy.ts'
import type { Staleness } from './tokens/staleness.ts'

/** What the maker of an algorithm returns. */
export interface AlgorithmModel {
  /** Steps of each lane between two updates. */
  readonly numSteps: number
  /** Discount factor, which the rollout table records; null where the algorithm has none. */
  readonly gamma: number | null
  /**
   * Parts of a rollout of which an update learns one after another. A run that chooses its threads itself takes no more than
   * such a part has blocks of rows. Default 1.
   */
  readonly numMinibatches?: number
  /** Whether its learner takes advantages from `learn`, so that it can learn from rows that another policy chose. Default false. */
  readonly takesAdvantages?: boolean
  /** How stale rollouts may be that it learns from, and what is done about it; undefined: it learns from none that are. */
  readonly staleness?: Staleness | undefined
  /** Whether it learns only from tables of rows that somebody else has chosen (`trainer.learn`). Default false. */
  readonly needsTable?: boolean
  /** The columns a learner needs. Throws InputError where the settings do not fit the cohort. */
  plan(shape: LearnerShape): Plan
  /** A learner over those columns; one for each buffer of rows, where rollouts are collected ahead. */
  bind(context: LearnerContext): Learner
}

/** An algorithm with its settings: what `createTrainer` takes. */
export interface AlgorithmDefinition extends DefinitionRecord, AlgorithmModel {
  /** What its learner tells of each update. */
  readonly metrics: Metrics
}

/** Makes an algorithm from its settings, like `ppo`; `id` and `settings` say which. */
export type AlgorithmFactory<S extends Settings = Settings, M extends Metrics = Metrics> = Factory<
  S,
  AlgorithmDefinition
> & { readonly metrics: M }

/**
 * Defines an algorithm: its settings, the metrics that its learner returns from each update, and what plans and binds the
 * learner. With `module: import.meta.url`, exported under any name, it can be made again by its id in another
 * thread or when a run is resumed, and `algorithm=` takes the module's path.
 *
 * @throws InputError where a metric is none; where the steps or the minibatches are no counts, when the algorithm is made.
 */
export function defineAlgorithm<S extends Settings, const M extends Metrics>(options: {
  id: string
  module?: string
  settings: S
  metrics: M
  /** `parts` are what its settings made by `part` name, like the optimizer. */
  make(parameters: SettingValues<S>, parts: Parts): AlgorithmModel
}): AlgorithmFactory<S, M> {
  checkGiven('options of defineAlgorithm', options, ['id', 'settings', 'metrics', 'make'])
  const { metrics } = options
  const factory = defineFactory('algorithm', options, (parameters, parts) => {
    const { numSteps, numMinibatches = 1, gamma, plan, bind, ...model } = options.make(parameters, parts)
    for (const [name, count] of Object.entries({ numSteps, numMinibatches })) {
      if (!(Number.isSafeInteger(count) && count >= 1)) {
        throw new InputError(`${options.id} ${name}`, show(count), 'a whole number ≥ 1')
      }
    }
    const { takesAdvantages = false, needsTable = false, staleness } = model
    if (staleness !== undefined && staleness.maxStaleness > 0 && staleness.correction !== 'none' && !takesAdvantages) {
      const got = `${staleness.correction} for maxStaleness ${staleness.maxStaleness}, of a learner that takes no advantages`
      throw new InputError(`${options.id} correction`, got, 'none, or maxStaleness 0')
    }
    return { numSteps, numMinibatches, takesAdvantages, needsTable, staleness, gamma, metrics, plan, bind }
  })
  checkMetrics(`${options.id} metrics`, metrics)
  return Object.assign(factory, { metrics })
}

/** What all algorithms have that are defined by a loss of one kind. */
export interface LossKind {
  /** The function that gives their settings, as errors name it. */
  readonly settingsOf: string
  readonly settings: Settings
  /** The metrics that come by themselves. */
  readonly metrics: Metrics
}

/**
 * Checks what an algorithm declares that is defined by its loss.
 * @throws InputError where a setting of its kind is missing, and for a metric that comes by itself or is no mean over rows.
 */
export function checkLossDeclaration(
  { id, settings, metrics }: { readonly id: string; readonly settings: Settings; readonly metrics: Metrics },
  kind: LossKind,
): void {
  for (const name of Object.keys(kind.settings)) {
    if (!Object.hasOwn(settings ?? {}, name)) {
      throw new InputError(`${id} settings`, `no ${name}`, `those of ${kind.settingsOf}, and its own`)
    }
  }
  checkMetrics(`${id} metrics`, metrics)
  for (const [name, { reduction }] of Object.entries(metrics)) {
    if (Object.hasOwn(kind.metrics, name)) {
      const taken = Object.keys(kind.metrics).join(', ')
      throw new InputError(`${id} metrics`, name, `none of ${taken}, which come by themselves`)
    }
    if (reduction !== 'rowMean') throw new InputError(`${id} metrics ${name}.reduction`, String(reduction), 'rowMean')
  }
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
  /** What came after rows of the rollout that no later row shows: the lists of all threads, as they stand now. */
  finals(): readonly FinalObservations[]
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

/** What advantages are made of beside the rollout. */
export interface AdvantageContext {
  /** Discount factor, and mixing factor of generalized advantage estimation. */
  readonly gamma: number
  readonly gaeLambda: number
  readonly numSteps: number
  readonly numLanes: number
  /** Workspace: a number for each lane. */
  readonly carry: Float32Array
  readonly kernels: Kernels
}

/** Writes `advantage` and `return` of each row of a rollout, from the other columns. Only one thread calls it. */
export type EstimateAdvantages = (rollout: RolloutColumns, context: AdvantageContext) => void

/** An algorithm at work on one cohort, in one thread. */
export interface Learner {
  /**
   * Learns from the rollout as it stands, and writes its advantage and return columns. `update` counts from 0 and is below
   * `numUpdates`, the updates of the whole training, which schedules go by. All threads run it; at each `yield` they wait
   * for one another, or for the promise that is yielded (by a policy that answers later, in one thread). The metrics are thread 0's.
   * `estimate` makes the advantages in place of the algorithm's own, where it takes them.
   */
  learn(
    update: number,
    numUpdates: number,
    estimate?: EstimateAdvantages,
  ): Generator<void | Promise<void>, LearnerMetrics>
}

/** What an update did: a number for each metric that the algorithm declares, by name. */
export type LearnerMetrics = Readonly<Record<string, number>>
