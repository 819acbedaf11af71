/**
 * The common part of algorithms that learn from each new rollout: advantages, minibatches of rows or sequences, the gradient in all
 * threads, and the optimizer step. Each algorithm provides its loss.
 *
 * A minibatch is prepared whole, then divided into blocks. Slots are summed pairwise, so the data alone fixes the order of the sum.
 * Without minibatches, one step uses the whole rollout in its own order. `examples/custom-algorithm.ts` shows a custom loss.
 */
import { Work } from '../../base/clock.ts'
import { checkGiven, InputError } from '../../base/errors.ts'
import { type Metrics, MetricTotals, metric } from '../../base/metrics.ts'
import { boolean, fraction, integer, number, type Settings, type SettingValues } from '../../base/settings.ts'
import { spaceType, spaceWidth } from '../../base/space.ts'
import { type Column, type Columns, column, type Plan } from '../../components/column.ts'
import { observationColumn, observationOf } from '../../components/rollout.ts'
import type { RecordedRows } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { DeviceLoss } from '../../kernels/webgpu/rows.ts'
import type { Derivatives, Evaluated, ParameterViews, Rows } from '../../policies/policy.ts'
import {
  type AdvantageContext,
  type AlgorithmFactory,
  checkLossDeclaration,
  defineAlgorithm,
  type EstimateAdvantages,
  type Learner,
  type LearnerContext,
  type LearnerMetrics,
  type LearnerShape,
  type LossKind,
} from '../algorithm.ts'
import { type Cut, cutOf, cutPlan, listBlock, listLearned, listUnits } from '../minibatch.ts'
import { checkOptimizer, optimizerPlan, optimizerSettings, startOptimizer } from '../optimizers/optimizer.ts'
import { type Schedule, ScheduledValues, scheduleFactor, type WithFormulas, withFormulas } from '../schedule.ts'
import { fillColumns, type GradientHelp, type NamedColumns, type SharedGradient } from '../shared-gradient.ts'
import { descentMetrics, descentSettings, Slots, slotsPlan, trainedRange } from '../slots.ts'
import { type Staleness, stalenessOf } from '../tokens/staleness.ts'
import type { OnDevice } from './on-device.ts'

/** Defaults in which these algorithms differ. */
export interface OnPolicyDefaults {
  readonly numSteps?: number
  readonly learningRate?: number
  readonly learningRateSchedule?: Schedule
  readonly gaeLambda?: number
  readonly normalizeAdvantage?: boolean
  readonly valueCoef?: number
  readonly optimizer?: string
}

/** The settings of all on-policy algorithms. Omitted defaults are those of `ppo`. */
export function onPolicySettings(given: OnPolicyDefaults = {}) {
  checkGiven('options of onPolicySettings', given, [])
  const {
    numSteps = 128,
    learningRate = 2.5e-4,
    learningRateSchedule = 'linear',
    gaeLambda = 0.95,
    normalizeAdvantage = true,
    valueCoef = 0.5,
    optimizer = 'adam',
  } = given
  return {
    numSteps: integer(numSteps, 'steps of each lane between two updates', { min: 1 }),
    gamma: fraction(0.99, 'discount factor'),
    gaeLambda: fraction(gaeLambda, 'mixing factor of generalized advantage estimation'),
    normalizeAdvantage: boolean(normalizeAdvantage, 'give the advantages of each minibatch mean 0 and deviation 1'),
    entropyCoef: number(0, 'weight of the entropy in the loss', { min: 0 }),
    valueCoef: number(valueCoef, 'weight of the value loss', { min: 0 }),
    // ε as in openai/baselines and Stable-Baselines3's A2C.
    ...descentSettings(learningRate, learningRateSchedule, 0.5, optimizerSettings(1e-5, optimizer)),
  }
}

type OnPolicySettings = ReturnType<typeof onPolicySettings>

/** Values of those settings and of the optional ones: `updateEpochs`, `numMinibatches`, and the staleness settings. */
type OnPolicyValues = SettingValues<OnPolicySettings> &
  Partial<Staleness> & {
    readonly updateEpochs?: number
    readonly numMinibatches?: number
  }

const onPolicyMetrics = {
  explainedVariance: metric(
    'explained variance of the returns by the values before the update; NaN for constant returns',
    'last',
  ),
  ...descentMetrics,
} as const satisfies Metrics

const ON_POLICY: LossKind = { settingsOf: 'onPolicySettings', settings: onPolicySettings(), metrics: onPolicyMetrics }

/** Settings that have no formulas, since other parts of a training read them. */
const FIXED = ['gamma', 'warmupFraction', 'rhoMax', 'cMax']

/** Numbers that are common to all rows of a minibatch. */
export interface MinibatchNumbers {
  /** Mean to subtract from each advantage; 0 without normalization. */
  readonly advantageMean: number
  /** 1 / deviation, to multiply after the subtraction; 1 without normalization. */
  readonly advantageScale: number
  /** Weight of a row: 1 / rows of the minibatch. */
  readonly weight: number
}

/** A bound loss, in one thread. */
export interface OnPolicyLoss {
  /** Called before each update to apply schedules. `update` counts from 0 and is below `numUpdates`. */
  begin?(update: number, numUpdates: number): void
  /**
   * Computes the loss of `numRows` rows, a sum of row losses times `minibatch.weight`. Writes its derivatives by the values in
   * `evaluated` for rows 0 … numRows − 1; the recorded columns of these rows begin at row `from`. Adds the sum of each metric to `sums`
   * from element `sumsFrom`, in the declared order.
   */
  ofRows(
    derivatives: Derivatives,
    sums: Float64Array,
    evaluated: Evaluated,
    recorded: RecordedRows,
    minibatch: MinibatchNumbers,
    numRows: number,
    from: number,
    sumsFrom: number,
  ): void
  /** Loads the same as a shader, for policies that update on a device; undefined if there is none. */
  readonly shader?: () => Promise<DeviceLoss>
  /** Whether to end the update after a pass over the rollout, given the sums of the metrics over `numRows` rows. */
  stopsAfter?(sums: Float64Array, numRows: number): boolean
}

/** Options of `defineOnPolicyAlgorithm`. */
export interface OnPolicyOptions<S extends Settings, M extends Metrics> {
  readonly id: string
  readonly module?: string
  /**
   * The settings of `onPolicySettings` and its own. It may declare `updateEpochs` (passes over each rollout) and `numMinibatches`
   * (minibatches per pass, shuffled in each); without them it makes one step on the whole rollout. With `stalenessSettings`, rollouts can
   * be collected during updates.
   */
  readonly settings: S
  /** Metrics that its loss sums over rows. `explainedVariance`, `gradNorm` and `learningRate` are added automatically. */
  readonly metrics: M
  /** Creates its loss for one thread: derivatives by hand, or `rowLoss(…)`. Called anew for each update that has other values of settings. */
  readonly loss: LossOfRows<S>
  /** Whether it learns only from tables (`trainer.learn`). Default false. */
  readonly needsTable?: boolean
  /** Creates the advantage estimator from the settings; default: generalized advantage estimation. */
  advantages?(parameters: SettingValues<S>): EstimateAdvantages
}

/** Creates a loss for one thread, given the algorithm's id and the metrics that the loss sums, in order. */
export type LossOfRows<S extends Settings> = (
  parameters: SettingValues<S>,
  kernels: Kernels,
  algorithm: { readonly id: string; readonly metrics: readonly string[] },
) => OnPolicyLoss

/**
 * Defines an algorithm by its loss. Generalized advantage estimation (Schulman et al. 2016), minibatches, threads, memories, masks,
 * checkpoints and the optimizer are provided.
 * @throws InputError for a missing setting of `onPolicySettings` and for a metric that is not a mean over rows.
 * @example
 * export const reinforce = defineOnPolicyAlgorithm({
 *   id: 'reinforce',
 *   module: import.meta.url,
 *   settings: onPolicySettings({ gaeLambda: 1 }),
 *   metrics: { policyLoss: { unit: null, description: '−A log π of a row', reduction: 'rowMean' } },
 *   loss: () => ({
 *     ofRows({ dLogprob, dEntropy, dValue }, sums, { logprob }, { advantage }, { weight }, numRows, from, sumsFrom) {
 *       for (let row = 0; row < numRows; row++) {
 *         dLogprob[row] = -weight * advantage[from + row]
 *         dEntropy[row] = dValue[row] = 0
 *         sums[sumsFrom] -= advantage[from + row] * logprob[row]
 *       }
 *     },
 *   }),
 * })
 */
export function defineOnPolicyAlgorithm<S extends OnPolicySettings, const M extends Metrics>(
  options: OnPolicyOptions<S, M>,
): AlgorithmFactory<WithFormulas<S>, M & typeof onPolicyMetrics> {
  checkGiven('options of defineOnPolicyAlgorithm', options, ['id', 'settings', 'metrics', 'loss'])
  const { id, module } = options
  checkLossDeclaration(options, ON_POLICY)
  const metrics = { ...options.metrics, ...onPolicyMetrics }
  return defineAlgorithm({
    id,
    module,
    settings: withFormulas(id, options.settings, FIXED),
    metrics,
    make(given, parts) {
      const valuesOf = () => new ScheduledValues(id, options.settings, given)
      const { values: parameters, scheduled } = valuesOf()
      const values = parameters as unknown as OnPolicyValues
      checkOptimizer(id, given as unknown as OnPolicyValues, parts)
      const { numSteps, gamma, numMinibatches = 1 } = values
      const sums = Object.keys(options.metrics)
      return {
        numSteps,
        gamma,
        numMinibatches,
        takesAdvantages: true,
        needsTable: options.needsTable ?? false,
        staleness: stalenessOf(values),
        plan(shape: LearnerShape): Plan {
          const { actionValues, soft, deterministic, implicit } = shape.model
          if ((actionValues ?? soft ?? deterministic ?? implicit) !== undefined) {
            const expected = 'a policy of action probabilities, like mlp'
            throw new InputError(`${id} policy`, 'a policy of action values', expected)
          }
          return onPolicyPlan(values, sums.length, shape)
        },
        bind: (context: LearnerContext): Learner => {
          const schedule = valuesOf()
          const lossOf = () => options.loss(schedule.values, context.kernels, { id, metrics: sums })
          const estimateOf = () => options.advantages?.(schedule.values) ?? estimateGae
          if (context.model.updateOnDevice !== undefined) checkDevice(id, values, lossOf(), scheduled)
          const ofLearner = schedule as unknown as ScheduledValues<OnPolicySettings>
          return new OnPolicyLearner({ id, schedule: ofLearner, metrics, sums, lossOf, estimateOf }, context)
        },
      }
    },
  })
}

const estimateGae: EstimateAdvantages = (rollout, { kernels, carry, gamma, gaeLambda, numSteps, numLanes }) =>
  kernels.gae(rollout, carry, gamma, gaeLambda, numSteps, numLanes)

function onPolicyPlan(values: OnPolicyValues, numSums: number, shape: LearnerShape) {
  const { numLanes, model, observationSpace, actionSpace, actionMaskWidth, threads } = shape
  const seen = observationOf(observationSpace)
  const cut = cutOf({ numMinibatches: 1, ...values, numLanes }, model)
  const { seenRows, blockRows, minibatchRows, numUnits, numBlocks, sequence } = cut
  const isolated = sequence === null
  const learnedRows = isolated ? 0 : blockRows
  const threadPlan = () => ({
    cut: cutPlan(cut),
    /** The policy's input for the current block. */
    rows: {
      observation: observationColumn(seenRows, seen),
      action: column(spaceType(actionSpace), blockRows, spaceWidth(actionSpace)),
      actionMask: column('u8', blockRows, actionMaskWidth),
      memory: column('f32', isolated ? 0 : seenRows, model.memoryWidth ?? 0),
    },
    /** Inputs of the loss for the block's trained rows. */
    logprob: column('f32', blockRows),
    value: column('f32', blockRows),
    advantage: column('f32', blockRows),
    return: column('f32', blockRows),
    /** Evaluation and loss derivatives of the trained rows, if the policy evaluates other rows too. */
    learned: {
      logprob: column('f32', learnedRows),
      entropy: column('f32', learnedRows),
      value: column('f32', learnedRows),
      dLogprob: column('f32', learnedRows),
      dEntropy: column('f32', learnedRows),
      dValue: column('f32', learnedRows),
    },
    /** Advantages of the whole minibatch, with their mean and deviation. */
    advantages: column('f32', minibatchRows),
    moments: column('f64', 2),
  })
  return {
    optimizer: optimizerPlan(values, model.numParameters),
    /** Workspace of the advantage kernel, one number per lane. */
    carry: column('f32', numLanes),
    /** The rollout's units (valid rows, or sequences) in the order of this epoch. */
    order: column('u32', numUnits),
    words: column('u32', 4),
    ...slotsPlan(model.numParameters, model.updateOnDevice === undefined ? numBlocks : 0, numSums),
    threads: Object.fromEntries(Array.from({ length: threads }, (_, i) => [`thread${i}`, threadPlan()])),
  } satisfies Plan
}

interface OnPolicyParts {
  readonly id: string
  readonly schedule: ScheduledValues<OnPolicySettings>
  readonly metrics: Metrics
  /** The metrics that the loss sums, in order. */
  readonly sums: readonly string[]
  /** Make both from the current values of the settings. */
  lossOf(): OnPolicyLoss
  estimateOf(): EstimateAdvantages
}

/** Settings that may have formulas with a policy on a device: other ones are written into its shaders. */
const ON_DEVICE = ['learningRate', 'maxGradNorm', 'gaeLambda']

function checkDevice(
  id: string,
  { optimizer }: OnPolicyValues,
  { shader }: OnPolicyLoss,
  scheduled: readonly string[],
): void {
  const where = 'with a policy on device webgpu'
  const refused = scheduled.find((key) => !ON_DEVICE.includes(key))
  if (refused !== undefined) throw new InputError(`${id}.${refused}`, `a formula ${where}`, 'a number')
  if (shader === undefined) throw new InputError('algorithm', `${id} ${where}`, 'ppo')
  if (optimizer !== 'adam') throw new InputError(`${id}.optimizer`, `${optimizer} ${where}`, 'adam')
}

class OnPolicyLearner implements Learner {
  readonly #parts: OnPolicyParts
  readonly #values: OnPolicyValues
  #loss: OnPolicyLoss
  #estimate: EstimateAdvantages
  readonly #advantageContext: AdvantageContext & { gaeLambda: number }
  readonly #totals: MetricTotals<Metrics>
  readonly #context: LearnerContext
  readonly #columns: Columns<ReturnType<typeof onPolicyPlan>>
  readonly #own: Columns<ReturnType<typeof onPolicyPlan>['threads'][string]>
  readonly #cut: Cut
  readonly #rows: Rows
  readonly #slots: Slots
  /** Undefined until the first update, and if the policy updates on our own kernels. */
  #device: OnDevice | undefined
  readonly #observationWidth: number
  readonly #actionWidth: number
  /** The current minibatch: units order[first … first + count). */
  readonly #minibatch = { first: 0, count: 0 }
  readonly #numbers: { -readonly [name in keyof MinibatchNumbers]: number } = {
    advantageMean: 0,
    advantageScale: 1,
    weight: 0,
  }
  /** The current block: its number of trained rows, and the position of its sums. */
  readonly #block = { numRows: 0, sumsFrom: 0 }
  /** The loss sums of the current pass and their number of rows. */
  readonly #pass: { readonly sums: Float64Array; numRows: number }
  readonly help: GradientHelp
  /** What a gradient depends on besides numbers, for other processes. */
  readonly #inputs: Readonly<Record<'rollout' | 'order' | 'weights', NamedColumns>>
  /** Number of optimizer steps so far, which names the weights. */
  #numSteps = 0

  constructor(parts: OnPolicyParts, context: LearnerContext) {
    const { id, schedule, metrics, sums } = parts
    const { model, thread, numLanes } = context
    const values: OnPolicyValues = schedule.values
    this.#parts = parts
    this.#values = values
    this.#loss = parts.lossOf()
    this.#estimate = parts.estimateOf()
    this.#totals = new MetricTotals(metrics)
    this.#pass = { sums: new Float64Array(sums.length), numRows: 0 }
    this.#context = context
    this.#columns = context.columns as unknown as Columns<ReturnType<typeof onPolicyPlan>>
    this.#own = this.#columns.threads[`thread${thread}`]!
    const { gamma, gaeLambda, numSteps } = values
    const { kernels } = context
    this.#advantageContext = { gamma, gaeLambda, numSteps, numLanes, carry: this.#columns.carry, kernels }
    this.#cut = cutOf({ numMinibatches: 1, ...values, numLanes }, model)
    this.#rows = { ...this.#own.rows, continues: this.#own.cut.continues }
    if (thread === 0) startOptimizer(this.#columns.optimizer)
    this.#observationWidth = spaceWidth(context.observationSpace)
    this.#actionWidth = spaceWidth(context.actionSpace)
    this.#slots = new Slots(
      this.#columns,
      {
        id,
        numSums: sums.length,
        schedule,
        descents: [{ ...trainedRange(model), optimizer: this.#columns.optimizer }],
        begin: (update, numUpdates) => this.#begin(update, numUpdates),
        open: (told) => {
          this.#begin(told[0]!, told[1]!)
          this.#minibatch.first = told[2]!
          this.#minibatch.count = told[3]!
          this.#numbers.weight = told[4]!
          this.#numbers.advantageMean = told[5]!
          this.#numbers.advantageScale = told[6]!
        },
        differentiate: this.#differentiateBlock,
      },
      context,
    )
    const rollout = Object.entries(context.rollout).filter(([, each]) => (each as Column).length > 0)
    this.#inputs = {
      rollout: Object.fromEntries(rollout),
      order: { order: this.#columns.order },
      weights: { weights: context.weights },
    }
    this.help = {
      take: (input, columns) => {
        fillColumns(`${input} of the learner`, columns, this.#inputs[input as 'rollout'] ?? {})
      },
      compute: async ([update, numUpdates, first, count], share, shareCount) => {
        this.#begin(update!, numUpdates!)
        context.policy.refresh?.()
        this.#openMinibatch(first!, count!)
        await this.#slots.differentiateShare(share, shareCount)
        return this.#slots.resultsOf(share, shareCount)
      },
    }
  }

  /** The current minibatch's gradient, for other processes. */
  #shared(update: number, numUpdates: number, epoch: number, shareCount: number): SharedGradient {
    const { first, count } = this.#minibatch
    const { rollout, order, weights } = this.#inputs
    return {
      inputs: {
        rollout: { version: `${update}`, columns: rollout },
        order: { version: `${update} ${epoch}`, columns: order },
        weights: { version: `${update} ${this.#numSteps}`, columns: weights },
      },
      numbers: [update, numUpdates, first, count],
      numShares: this.#slots.numShares(shareCount),
      compute: (share) => this.#slots.differentiateShare(share, shareCount),
      results: (share) => this.#slots.resultsOf(share, shareCount),
    }
  }

  *learn(
    update: number,
    numUpdates: number,
    given?: EstimateAdvantages,
  ): Generator<void | Promise<void>, LearnerMetrics> {
    const { kernels, rollout, random, clock, policy, numLanes, model, pool } = this.#context
    const { updateEpochs = 1, numMinibatches } = this.#values
    this.#begin(update, numUpdates)
    const { learningRate, learningRateSchedule, warmupFraction } = this.#values
    const { order, words } = this.#columns
    const totals = this.#totals
    const pass = this.#pass
    const rate = learningRate * scheduleFactor(learningRateSchedule, warmupFraction, update, numUpdates)
    totals.clear()
    const estimate = given ?? this.#estimate
    estimate(rollout, this.#advantageContext)
    const numUnits = listUnits(order, this.#cut, numLanes, rollout, kernels)
    clock.mark(Work.advantage)
    if (model.updateOnDevice !== undefined) yield this.#beginOnDevice()
    const device = this.#device
    for (let epoch = 0; epoch < updateEpochs; epoch++) {
      if (numMinibatches !== undefined) {
        kernels.shuffleRows(order, words, numUnits, update, epoch, random.key0, random.key1)
        clock.mark(Work.shuffle)
      }
      const parts = numMinibatches ?? 1
      pass.sums.fill(0)
      pass.numRows = 0
      device?.order(order, numUnits)
      for (let m = 0; m < parts; m++) {
        const first = Math.floor((m * numUnits) / parts)
        const count = Math.floor(((m + 1) * numUnits) / parts) - first
        const numRows = this.#openMinibatch(first, count)
        if (numRows === 0) continue // Fewer valid rows than minibatches.
        if (device !== undefined) {
          device.minibatch(m, first, count, this.#numbers, rate)
          continue
        }
        const pending =
          pool === undefined
            ? this.#differentiate(update, numUpdates)
            : pool.compute(this.#shared(update, numUpdates, epoch, pool.shareCount))
        if (pending !== undefined) yield pending
        const summing = this.#slots.sum(0, pool?.shareCount)
        if (summing !== undefined) yield summing
        const stepping = this.#slots.step(rate)
        if (stepping !== undefined) yield stepping
        this.#numSteps++
        this.#account(this.#slots.takeNorm(), this.#columns.sums, numRows)
        clock.mark(Work.optimizer)
        policy.refresh?.()
      }
      if (device !== undefined) {
        yield device.endPass((...each) => this.#account(...each))
        clock.mark(Work.backward)
      }
      if (this.#loss.stopsAfter?.(pass.sums, pass.numRows)) break
    }
    yield device?.end()
    totals.add('learningRate', rate)
    const { value, return: returns, valid } = rollout
    totals.add('explainedVariance', kernels.explainedVariance(value, returns, valid, valid.length))
    return totals.values()
  }

  #differentiate(update: number, numUpdates: number): void | Promise<void> {
    const { told } = this.#slots
    told[0] = update
    told[1] = numUpdates
    told[2] = this.#minibatch.first
    told[3] = this.#minibatch.count
    told[4] = this.#numbers.weight
    told[5] = this.#numbers.advantageMean
    told[6] = this.#numbers.advantageScale
    return this.#slots.differentiate()
  }

  /** Begins an update on the device; the first one loads what that needs. */
  async #beginOnDevice(): Promise<void> {
    const { optimizer } = this.#columns
    const { onDevice } = await import('./on-device.ts')
    this.#device ??= await onDevice(
      this.#parts.id,
      this.#values,
      this.#loss.shader!,
      this.#cut,
      optimizer,
      this.#context,
    )
    await this.#device.begin()
  }

  /** Applies all schedules, once an update. */
  #begin(update: number, numUpdates: number): void {
    const { schedule } = this.#parts
    if (schedule.update === update && schedule.numUpdates === numUpdates) return
    if (schedule.begin(update, numUpdates)) {
      this.#loss = this.#parts.lossOf()
      this.#estimate = this.#parts.estimateOf()
      this.#advantageContext.gaeLambda = schedule.values.gaeLambda
    }
    this.#loss.begin?.(update, numUpdates)
  }

  #account(norm: number, sums: Float64Array | Float32Array, numRows: number): void {
    this.#totals.add('gradNorm', norm)
    const pass = this.#pass
    const names = this.#parts.sums
    for (let i = 0; i < names.length; i++) {
      this.#totals.add(names[i]!, sums[i]!, numRows)
      pass.sums[i] = pass.sums[i]! + sums[i]!
    }
    pass.numRows += numRows
  }

  /** Prepares the minibatch of units order[first … first + count). Returns its number of trained rows. */
  #openMinibatch(first: number, count: number): number {
    const { kernels, rollout, numLanes } = this.#context
    const { order } = this.#columns
    const { advantages, moments, cut } = this.#own
    const { sequence } = this.#cut
    const numRows =
      sequence === null ? count : listLearned(cut.minibatch, order, first, count, sequence, numLanes, rollout)
    this.#minibatch.first = first
    this.#minibatch.count = count
    this.#numbers.weight = 1 / numRows
    if (numRows === 0) return 0
    if (this.#values.normalizeAdvantage) {
      if (sequence === null) kernels.gatherRows(advantages, rollout.advantage, order, first, count, 1)
      else kernels.gatherRows(advantages, rollout.advantage, cut.minibatch, 0, numRows, 1)
      kernels.meanAndDeviation(moments, advantages, numRows)
      this.#numbers.advantageMean = moments[0]!
      this.#numbers.advantageScale = 1 / (moments[1]! + 1e-8)
    }
    this.#slots.begin(Math.ceil(count / this.#cut.unitsPerBlock))
    return numRows
  }

  readonly #differentiateBlock = (block: number, gradient: ParameterViews, sumsFrom: number): void | Promise<void> => {
    const { policy, clock } = this.#context
    const { first, count } = this.#minibatch
    const { unitsPerBlock } = this.#cut
    const from = block * unitsPerBlock
    this.#block.sumsFrom = sumsFrom
    const numRows = this.#gather(first + from, Math.min(unitsPerBlock, count - from))
    clock.mark(Work.gather)
    return policy.differentiate(this.#rows, 0, numRows, this.#lossOf, gradient) // The loss marks the forward pass.
  }

  /** Gathers units order[first … first + count) into this thread's block. Returns the number of evaluated rows. */
  #gather(first: number, count: number): number {
    const { kernels, numLanes, rollout, model } = this.#context
    const { order } = this.#columns
    const { cut, rows } = this.#own
    const { sequence } = this.#cut
    if (sequence === null) {
      kernels.gatherRows(rows.observation, rollout.observation, order, first, count, this.#observationWidth)
      this.#gatherActions(order, first, count)
      this.#gatherLearned(order, first, count)
      return count
    }
    const numLearned = listBlock(cut, order, first, count, sequence, numLanes, rollout)
    const numSeen = count * (sequence.burnIn + sequence.length)
    kernels.gatherRows(rows.observation, rollout.observation, cut.seen, 0, numSeen, this.#observationWidth)
    kernels.gatherRows(rows.memory, rollout.memory, cut.seen, 0, numSeen, model.memoryWidth ?? 0)
    this.#gatherActions(cut.evaluated, 0, count * sequence.length)
    this.#gatherLearned(cut.learned, 0, numLearned)
    return count * sequence.length
  }

  #gatherActions(list: Uint32Array, first: number, count: number): void {
    const { kernels, rollout, actionMaskWidth } = this.#context
    const { rows } = this.#own
    kernels.gatherRows(rows.action, rollout.action, list, first, count, this.#actionWidth)
    if (actionMaskWidth === 0) return
    kernels.gatherRows(rows.actionMask, rollout.actionMask, list, first, count, actionMaskWidth)
  }

  #gatherLearned(list: Uint32Array, first: number, count: number): void {
    const { kernels, rollout } = this.#context
    const { logprob, value, advantage, return: returns } = this.#own
    kernels.gatherRows(logprob, rollout.logprob, list, first, count, 1)
    kernels.gatherRows(value, rollout.value, list, first, count, 1)
    kernels.gatherRows(advantage, rollout.advantage, list, first, count, 1)
    kernels.gatherRows(returns, rollout.return, list, first, count, 1)
    this.#block.numRows = count
  }

  readonly #lossOf = (evaluated: Evaluated, derivatives: Derivatives, from: number, count: number): void => {
    const { kernels, clock } = this.#context
    const { sequence } = this.#cut
    clock.mark(Work.forward)
    if (sequence === null) this.#lossOfLearned(evaluated, derivatives, from)
    else {
      const { cut, learned } = this.#own
      const { numRows } = this.#block
      for (const name of ['logprob', 'entropy', 'value'] as const) {
        kernels.gatherRows(learned[name], evaluated[name], cut.places, 0, numRows, 1)
      }
      this.#lossOfLearned(learned, learned, 0)
      for (const name of ['dLogprob', 'dEntropy', 'dValue'] as const) {
        derivatives[name].fill(0, 0, count)
        kernels.scatterValues(derivatives[name], cut.places, learned[name], numRows)
      }
    }
    clock.mark(Work.loss)
  }

  /** The loss of the trained rows, which begin at row `from` of this thread's columns. */
  #lossOfLearned(evaluated: Evaluated, derivatives: Derivatives, from: number): void {
    const { numRows, sumsFrom } = this.#block
    const { sums } = this.#columns
    this.#loss.ofRows(derivatives, sums, evaluated, this.#own, this.#numbers, numRows, from, sumsFrom)
  }
}
