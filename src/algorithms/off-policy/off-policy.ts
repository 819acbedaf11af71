/**
 * The common part of replay algorithms. Each update stores a rollout, then makes gradient steps on minibatches drawn from the replay. All
 * threads compute a minibatch's gradient (`slots.ts`). Each algorithm provides its loss and may use a second set of weights, the target,
 * which follows the first.
 */
import { Work } from '../../base/clock.ts'
import { checkGiven, InputError } from '../../base/errors.ts'
import { type Metrics, MetricTotals, metric } from '../../base/metrics.ts'
import { fraction, integer, number, type Settings, type SettingValues } from '../../base/settings.ts'
import type { Columns, Plan } from '../../components/column.ts'
import type { RolloutColumns } from '../../components/rollout.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { ParameterViews, Policy, Rows } from '../../policies/policy.ts'
import {
  type AlgorithmFactory,
  checkLossDeclaration,
  defineAlgorithm,
  type Learner,
  type LearnerContext,
  type LearnerMetrics,
  type LearnerShape,
  type LossKind,
} from '../algorithm.ts'
import { checkOptimizer, optimizerSettings, startOptimizer } from '../optimizers/optimizer.ts'
import { type Schedule, ScheduledValues, scheduleFactor, type WithFormulas, withFormulas } from '../schedule.ts'
import { descentMetrics, descentSettings, Slots, trainedRange } from '../slots.ts'
import { offPolicyPlan } from './off-policy-plan.ts'
import { checkDrawn, checkRewards, ReplayCount, startReplay, takeIn } from './replay.ts'
import { ReplayUndo } from './replay-undo.ts'

/** Defaults in which these algorithms differ. */
export interface OffPolicyDefaults {
  readonly learningRate?: number
  readonly learningRateSchedule?: Schedule
  readonly batchSize?: number
  readonly targetRate?: number
  readonly targetInterval?: number
  readonly maxGradNorm?: number
}

const RELABEL_FRACTION = 0.8 // Four of five, as in the paper of HER.

/** The settings of all replay algorithms. */
export function offPolicySettings(given: OffPolicyDefaults = {}) {
  checkGiven('options of offPolicySettings', given, [])
  const {
    learningRate = 2.5e-4,
    learningRateSchedule = 'constant',
    batchSize = 128,
    targetRate = 1,
    targetInterval = 200,
    maxGradNorm = 10,
  } = given
  return {
    numSteps: integer(4, 'steps of each lane between two updates', { min: 1 }),
    gradientSteps: integer(4, 'optimizer steps of an update, each with its own minibatch', { min: 1 }),
    batchSize: integer(batchSize, 'rows of a minibatch', { min: 1 }),
    replayRows: integer(50_000, 'rows that the replay keeps', { min: 1 }),
    learningStarts: integer(1000, 'rows to collect before the first gradient step', { min: 0 }),
    nStep: integer(1, 'n of n-step returns: rewards to add up before bootstrapping', { min: 1 }),
    relabelFraction: fraction(
      RELABEL_FRACTION,
      'hindsight experience replay (HER), for environments with goals: fraction of drawn rows whose goal is replaced by one that their episode reached later',
    ),
    priorityExponent: number(0, 'exponent α of prioritized replay; 0: uniform', { min: 0 }),
    priorityCorrection: fraction(
      0.4,
      'initial exponent β of the importance weights of prioritized replay; it rises to 1 over totalSteps',
    ),
    targetRate: number(targetRate, 'τ: fraction of the way that the target moves to the weights', { above: 0, max: 1 }),
    targetInterval: integer(targetInterval, 'gradient steps between updates of the target network', { min: 1 }),
    gamma: fraction(0.99, 'discount factor'),
    ...descentSettings(learningRate, learningRateSchedule, maxGradNorm, optimizerSettings(1e-8)),
  }
}

type OffPolicySettings = ReturnType<typeof offPolicySettings>
type OffPolicyValues = SettingValues<OffPolicySettings>

/** The metrics of all replay algorithms, besides those of their losses. */
const offPolicyMetrics = {
  ...descentMetrics,
  drawableRows: metric('rows of the replay that can be drawn', 'last'),
} as const satisfies Metrics

const OFF_POLICY: LossKind = {
  settingsOf: 'offPolicySettings',
  settings: offPolicySettings(),
  metrics: offPolicyMetrics,
}

/** Settings that have no formulas, since other parts of a training read them, or columns depend on them. */
const FIXED = ['gamma', 'warmupFraction', 'priorityExponent']

/** A gathered block of a minibatch: `count` rows from row 0. Written by the learner unless stated otherwise. */
export interface ReplayedBlock {
  count: number
  /** Position of the first row in the minibatch. */
  first: number
  /** Number of gradient steps before this one. */
  step: number
  /** Index of the stage. */
  stage: number
  /** The minibatch's mean of the first metric of the last stage that measures; 0 before one. */
  measured: number
  /** The policy's input for these rows. */
  readonly rows: Rows
  /** The lane's observation `nStep` steps later, or at an earlier truncation of its episode. */
  readonly nextObservation: RolloutColumns['observation']
  /** Legal actions there: a byte per action, 1 = legal; empty if every action is legal. */
  readonly nextActionMask: Uint8Array
  /** Sum of discounted rewards until then, and the discount of the value of `nextObservation`: 0 after a terminal state. */
  readonly return: Float32Array
  readonly discount: Float32Array
  /** Importance weight; 1 without prioritized replay. */
  readonly weight: Float32Array
  /** The value of `nextObservation`. Written by the loss. */
  readonly nextValue: Float32Array
  /** Absolute error of the row, its new priority. Written by the loss in the first stage. */
  readonly error: Float32Array
  /** Weight of a row: 1 / rows of the minibatch. */
  scale: number
}

/** A bound loss, in one thread. */
export interface OffPolicyLoss {
  /** Adds the gradient of a block's loss to `gradient`, and the sum of each metric to `sums` from element `sumsFrom`. */
  ofBlock(block: ReplayedBlock, gradient: ParameterViews, sums: Float64Array, sumsFrom: number): void
  /** Called by one thread after each update, for schedules, with the completed fraction of the training and the gradient steps so far. */
  advance?(progress: number, gradientSteps: number): void
}

/** A part of the weights with its own optimizer steps, such as an actor that steps less often than its critics. */
export interface Stage {
  /** Its elements among the weights. */
  readonly from: number
  readonly to: number
  /** The part steps in every gradient step whose number, from 1, is a multiple of this. */
  readonly interval: number
  /** The metrics to which its blocks add. */
  readonly metrics: readonly string[]
  /** The stage changes no weights: the next ones get its first metric's mean over the minibatch as `block.measured`. Default false. */
  readonly measures?: boolean
}

/** The inputs of a loss. */
export interface OffPolicyContext extends LearnerContext {
  /** The same network with the target's weights. */
  readonly target: Policy
  /** Maximum rows of a block. */
  readonly blockRows: number
  /** Workspace of `scratchWidth` numbers per row of a block. */
  readonly scratch: Float32Array
}

/** Options of `defineOffPolicyAlgorithm`. */
export interface OffPolicyOptions<S extends Settings, M extends Metrics> {
  readonly id: string
  readonly module?: string
  /** The settings of `offPolicySettings` and its own. */
  readonly settings: S
  /** Metrics that its loss sums over rows. `gradNorm`, `learningRate` and `drawableRows` are added automatically. */
  readonly metrics: M
  /** Whether it learns only from tables of recorded rows. Default false. */
  readonly needsTable?: boolean
  /** Whether its loss respects `nextActionMask`. Default false: environments with action masks are rejected. */
  readonly obeysMasks?: boolean
  /** Workspace of its loss, in numbers per row of a block. Default 0. */
  scratchWidth?(shape: LearnerShape, parameters: SettingValues<S>): number
  /**
   * Stages of a gradient step, one after another, on one minibatch: the blocks of each stage are differentiated by the weights that the
   * previous stages left. The first stage's interval is 1. Default: one stage of all trained weights. Called after `check`.
   */
  stages?(parameters: SettingValues<S>, shape: LearnerShape): readonly Stage[]
  /** Rejects an unsupported cohort. @throws InputError */
  check(shape: LearnerShape): void
  /** Called anew for each update that has other values of settings. */
  loss(parameters: SettingValues<S>, context: OffPolicyContext): OffPolicyLoss
}

/**
 * Defines a replay algorithm by its loss. Replay, prioritized draws, n-step returns, target, threads, checkpoints and optimizer are
 * provided.
 * @throws InputError for a missing setting of `offPolicySettings` and for a metric that is not a mean over rows.
 */
export function defineOffPolicyAlgorithm<S extends OffPolicySettings, const M extends Metrics>(
  options: OffPolicyOptions<S, M>,
): AlgorithmFactory<WithFormulas<S>, M & typeof offPolicyMetrics> {
  checkGiven('options of defineOffPolicyAlgorithm', options, ['id', 'settings', 'metrics', 'check'])
  const { id, module } = options
  checkLossDeclaration(options, OFF_POLICY)
  const metrics = { ...options.metrics, ...offPolicyMetrics }
  return defineAlgorithm({
    id,
    module,
    settings: withFormulas(id, options.settings, FIXED),
    newer: ['relabelFraction'],
    metrics,
    make(given, parts) {
      const valuesOf = () => new ScheduledValues(id, options.settings, given)
      const { values: parameters } = valuesOf()
      const values = parameters as unknown as OffPolicyValues
      const texts = given as unknown as OffPolicyValues
      checkOptimizer(id, texts, parts)
      const { numSteps, gamma } = values
      const sums = Object.keys(options.metrics)
      const stagesOf = (shape: LearnerShape) => options.stages?.(parameters, shape) ?? [wholeStage(sums, shape)]
      return {
        numSteps,
        gamma,
        needsTable: options.needsTable ?? false,
        keepsRows: true,
        plan(shape: LearnerShape): Plan {
          checkShape(options, shape)
          checkGoals(id, texts, shape)
          options.check(shape)
          const scratchWidth = options.scratchWidth?.(shape, parameters) ?? 0
          return offPolicyPlan(values, sums.length, scratchWidth, stagesOf(shape).filter(trains).length, shape)
        },
        bind(context: LearnerContext): Learner {
          const schedule = valuesOf()
          const lossOf = (whole: OffPolicyContext) => options.loss(schedule.values, whole)
          const ofLearner = schedule as unknown as ScheduledValues<OffPolicySettings>
          const stages = stagesOf(context)
          return new OffPolicyLearner({ id, schedule: ofLearner, metrics, sums, stages, lossOf }, context)
        },
      }
    },
  })
}

/** All weights except the statistics of observations, which training writes. */
function wholeStage(metrics: readonly string[], { model }: LearnerShape): Stage {
  return { ...trainedRange(model), interval: 1, metrics }
}

function trains({ measures = false }: Stage): boolean {
  return !measures
}

function checkShape(
  { id, obeysMasks = false }: { readonly id: string; readonly obeysMasks?: boolean },
  { actionMaskWidth, model }: LearnerShape,
): void {
  if (actionMaskWidth > 0 && !obeysMasks) {
    throw new InputError(`${id} environment`, 'an environment with action masks', 'an environment without action masks')
  }
  const refuse = (got: string, expected: string) => new InputError(`${id} policy`, got, expected)
  if ((model.memoryWidth ?? 0) > 0) throw refuse('a policy with memory', 'a policy without memory')
  if (model.answersLater) throw refuse('an asynchronous policy', 'a policy that answers at once')
}

function checkGoals(id: string, { relabelFraction, nStep }: OffPolicyValues, { goal }: LearnerShape): void {
  if (goal === undefined && relabelFraction !== RELABEL_FRACTION && relabelFraction !== 0) {
    const got = `${relabelFraction}, and an environment without goals`
    throw new InputError(`${id} relabelFraction`, got, `${RELABEL_FRACTION} or 0, which do nothing there`)
  }
  if (goal === undefined || relabelFraction === 0 || nStep === 1) return
  throw new InputError(`${id} nStep`, `${nStep}, and goals that are replaced`, '1, or relabelFraction 0')
}

/** The parts of an algorithm that its learner needs. */
interface OffPolicyParts {
  readonly id: string
  readonly schedule: ScheduledValues<OffPolicySettings>
  readonly metrics: Metrics
  /** The metrics that the loss sums, in order. */
  readonly sums: readonly string[]
  readonly stages: readonly Stage[]
  /** Makes it from the current values of the settings. */
  lossOf(context: OffPolicyContext): OffPolicyLoss
}

class OffPolicyLearner implements Learner {
  readonly #parts: OffPolicyParts
  readonly #context: LearnerContext
  readonly #columns: Columns<ReturnType<typeof offPolicyPlan>>
  readonly #own: Columns<ReturnType<typeof offPolicyPlan>['threads'][string]>
  readonly #values: OffPolicyValues
  readonly #lossContext: OffPolicyContext
  #loss: OffPolicyLoss
  readonly #trained: readonly Stage[]
  readonly #target: Policy
  readonly #totals: MetricTotals<Metrics>
  readonly #slots: Slots
  readonly #block: ReplayedBlock
  readonly #blockRows: number
  readonly #stored: Parameters<Kernels['relabelGoals']>[1]
  readonly undo: ReplayUndo

  constructor(parts: OffPolicyParts, context: LearnerContext) {
    const { values } = parts.schedule
    const { model, thread, kernels, random } = context
    this.#parts = parts
    this.#context = context
    this.#columns = context.columns as unknown as Columns<ReturnType<typeof offPolicyPlan>>
    this.#own = this.#columns.threads[`thread${thread}`]!
    this.#target = model.bind(this.#columns.target, this.#own.target as Columns<Plan>, kernels, random)
    this.#blockRows = this.#own.return.length
    const { scratch } = this.#own
    this.#values = values
    this.#lossContext = { ...context, target: this.#target, blockRows: this.#blockRows, scratch }
    this.#loss = parts.lossOf(this.#lossContext)
    this.#totals = new MetricTotals(parts.metrics)
    const { optimizer } = this.#columns
    this.#trained = parts.stages.filter(trains)
    const numPowers = optimizer.betaPowers.length / this.#trained.length
    this.#slots = new Slots(
      this.#columns,
      {
        id: parts.id,
        numSums: parts.sums.length,
        schedule: parts.schedule,
        begin: (update, numUpdates) => this.#begin(update, numUpdates),
        descents: this.#trained.map(({ from, to }, i) => {
          const betaPowers = optimizer.betaPowers.subarray(i * numPowers, (i + 1) * numPowers)
          return { from, to, optimizer: { ...optimizer, betaPowers } }
        }),
        open: (told) => {
          this.#block.stage = told[0]!
          this.#block.step = told[1]!
          this.#block.measured = told[2]!
          this.#begin(told[3]!, told[4]!)
        },
        differentiate: this.#differentiateBlock,
      },
      context,
    )
    this.#block = {
      ...this.#own,
      rows: this.#own,
      first: 0,
      count: 0,
      step: 0,
      stage: 0,
      measured: 0,
      scale: 1 / values.batchSize,
    }
    const { rows, finalObservation } = this.#columns.replay
    this.#stored = { ...rows, finalObservation }
    const { priorityExponent, batchSize, gradientSteps } = values
    const draws = priorityExponent > 0 ? batchSize * gradientSteps : 0
    this.undo = new ReplayUndo(this.#columns.replay, { ...context, ...values }, draws, kernels)
    if (thread !== 0) return
    startOptimizer(this.#columns.optimizer)
    startReplay(this.#columns.replay)
  }

  *learn(update: number, numUpdates: number): Generator<void | Promise<void>, LearnerMetrics> {
    const { clock, model, policy, kernels, rollout, numLanes, weights } = this.#context
    const { sums, stages } = this.#parts
    const values = this.#values
    const { replay, gradientSteps, target } = this.#columns
    const totals = this.#totals
    this.#begin(update, numUpdates)
    const { learningRateSchedule, warmupFraction } = values
    const rate = values.learningRate * scheduleFactor(learningRateSchedule, warmupFraction, update, numUpdates)
    const numBlocks = Math.ceil(values.batchSize / this.#blockRows)
    totals.clear()
    // The target copies input normalization statistics from the policy at once: they are not learned weights.
    const first = gradientSteps[0] === 0 ? 0 : weights.length - 2 * (model.normalizedInputs ?? 0)
    target.set(weights.subarray(first), first)
    takeIn(replay, rollout, this.#context.finals(), { ...values, numLanes }, kernels, this.undo)
    const isEnough = replay.counts[ReplayCount.steps]! * numLanes >= values.learningStarts
    const learns = replay.counts[ReplayCount.drawable]! > 0 && isEnough
    clock.mark(Work.gather)
    for (let i = 0; i < values.gradientSteps && learns; i++) {
      this.#draw(update / numUpdates)
      clock.mark(Work.optimizer)
      const step = gradientSteps[0]!
      let [turn, measured] = [0, 0]
      for (const [number, stage] of stages.entries()) {
        if ((step + 1) % stage.interval !== 0) continue
        if (turn++ > 0) policy.refresh?.()
        this.#slots.begin(numBlocks)
        const { told } = this.#slots
        told[0] = number
        told[1] = step
        told[2] = measured
        told[3] = update
        told[4] = numUpdates
        const pending = this.#slots.differentiate()
        if (pending !== undefined) yield pending
        if (trains(stage)) {
          const summing = this.#slots.sum(this.#trained.indexOf(stage))
          if (summing !== undefined) yield summing
          const stepping = this.#slots.step(rate)
          if (stepping !== undefined) yield stepping
          totals.add('gradNorm', this.#slots.takeNorm())
        } else this.#slots.sumMetrics()
        const sumOf = (name: string) => this.#columns.sums[sums.indexOf(name)]!
        if (!trains(stage)) measured = sumOf(stage.metrics[0]!) / values.batchSize
        for (const name of stage.metrics) totals.add(name, sumOf(name), values.batchSize)
        clock.mark(Work.optimizer)
      }
      this.#follow()
      clock.mark(Work.optimizer)
      policy.refresh?.()
      this.#target.refresh?.()
    }
    this.#loss.advance?.((update + 1) / numUpdates, gradientSteps[0]!)
    totals.add('learningRate', rate)
    totals.add('drawableRows', replay.counts[ReplayCount.drawable]!)
    return totals.values()
  }

  /** Applies all schedules, once an update. */
  #begin(update: number, numUpdates: number): void {
    const { schedule, lossOf } = this.#parts
    if (schedule.begin(update, numUpdates)) this.#loss = lossOf(this.#lossContext)
  }

  #draw(progress: number): void {
    const { kernels, random } = this.#context
    const { drawn, weight, words, replay, gradientSteps } = this.#columns
    const { batchSize, priorityExponent, priorityCorrection } = this.#values
    const correction = priorityExponent === 0 ? 0 : priorityCorrection + (1 - priorityCorrection) * progress
    const numRows = replay.counts[ReplayCount.drawable]!
    const { key0, key1 } = random
    const step = gradientSteps[0]!
    kernels.drawByPriority(drawn, weight, replay.tree, words, numRows, correction, batchSize, step, key0, key1)
    checkDrawn(replay, drawn)
  }

  /** After an optimizer step, updates the rows' priorities and the target. */
  #follow(): void {
    const { kernels, weights } = this.#context
    const { drawn, error, replay, gradientSteps, target } = this.#columns
    const { batchSize, priorityExponent, targetRate, targetInterval } = this.#values
    if (priorityExponent > 0) {
      const highest = replay.counts[ReplayCount.highest]!
      replay.counts[ReplayCount.highest] = kernels.prioritiesOfErrors(error, priorityExponent, highest, batchSize)
      this.undo.keepPriorities(drawn, batchSize)
      kernels.setPriorities(replay.tree, drawn, error, batchSize)
    }
    gradientSteps[0] = gradientSteps[0]! + 1
    if (gradientSteps[0]! % targetInterval !== 0) return
    if (targetRate === 1) target.set(weights)
    else for (let i = 0; i < target.length; i++) target[i] = target[i]! + targetRate * (weights[i]! - target[i]!)
  }

  /** Gathers a block of the minibatch and adds its gradient. */
  readonly #differentiateBlock = (b: number, gradient: ParameterViews, sumsFrom: number): void => {
    const { kernels, clock, numLanes, actionMaskWidth, goal, random } = this.#context
    const { drawn, weight, error, replay, sums } = this.#columns
    const { batchSize, gamma, nStep, relabelFraction } = this.#values
    const block = this.#block
    const own = this.#own
    const first = b * this.#blockRows
    const count = Math.min(this.#blockRows, batchSize - first)
    const { rows, finalObservation, finalActionMask } = replay
    const numRows = rows.reward.length
    const width = rows.observation.length / numRows
    block.first = first
    block.count = count
    kernels.gatherRows(own.observation, rows.observation, drawn, first, count, width)
    kernels.gatherRows(own.action, rows.action, drawn, first, count, rows.action.length / numRows)
    kernels.multiStepReturns(own, rows, drawn, first, count, gamma, nStep, numLanes, numRows)
    kernels.gatherNext(own.nextObservation, rows.observation, finalObservation, own, count, width)
    if (goal !== undefined && relabelFraction > 0) {
      const { key0, key1 } = random
      checkRewards(own, goal, count, width)
      kernels.relabelGoals(
        own,
        this.#stored,
        goal,
        own.words,
        drawn,
        first,
        count,
        relabelFraction,
        numLanes,
        block.step,
        key0,
        key1,
      )
    }
    if (actionMaskWidth > 0) {
      kernels.gatherRows(own.actionMask, rows.actionMask, drawn, first, count, actionMaskWidth)
      kernels.gatherNext(own.nextActionMask, rows.actionMask, finalActionMask, own, count, actionMaskWidth)
    }
    for (let i = 0; i < count; i++) own.weight[i] = weight[first + i]!
    clock.mark(Work.gather)
    this.#loss.ofBlock(block, gradient, sums, sumsFrom)
    if (block.stage > 0) return
    for (let i = 0; i < count; i++) error[first + i] = own.error[i]!
  }
}
