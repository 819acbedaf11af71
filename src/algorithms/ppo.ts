import { Work } from '../clock.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import { InputError } from '../errors.ts'
import { NUM_SLOTS, type PpoLossSettings, PpoSum } from '../kernels/bind.ts'
import { type Metrics, MetricTotals } from '../metrics.ts'
import type { Derivatives, Evaluated, ParameterViews, Rows } from '../policies/policy.ts'
import { choice, number, optionalNumber, type SettingValues, toggle, whole } from '../settings.ts'
import { spaceType, spaceWidth } from '../space.ts'
import {
  defineAlgorithm,
  type Learner,
  type LearnerContext,
  type LearnerMetrics,
  type LearnerShape,
} from './algorithm.ts'
import { type Cut, cutOf, cutPlan, listBlock, listLearned, listUnits } from './minibatch.ts'
import { checkOptimizer, optimizerPlan, optimizerSettings, optimizerStep, startOptimizer } from './optimizer.ts'
import { scheduleFactor, schedules } from './schedule.ts'

const settings = {
  numSteps: whole(128, 'steps of each lane between two updates', { min: 1 }),
  learningRate: number(2.5e-4, "the optimizer's step size, after the warm-up", { above: 0 }),
  learningRateSchedule: choice(
    'linear',
    schedules,
    'how learningRate falls to 0 over totalSteps; constant: it does not',
  ),
  warmupFraction: number(0, 'part of totalSteps in which learningRate first rises in a straight line', {
    min: 0,
    max: 1,
  }),
  gamma: number(0.99, 'discount factor', { min: 0, max: 1 }),
  gaeLambda: number(0.95, 'mixing factor of generalized advantage estimation', { min: 0, max: 1 }),
  updateEpochs: whole(4, 'passes over each rollout', { min: 1 }),
  numMinibatches: whole(4, 'minibatches a pass', { min: 1 }),
  normalizeAdvantage: toggle(true, 'give the advantages of each minibatch mean 0 and deviation 1'),
  clipCoef: number(0.2, 'how far the ratio of probabilities may leave 1', { above: 0 }),
  clipCoefSchedule: choice('constant', schedules, 'how clipCoef falls to 0 over totalSteps; constant: it does not'),
  clipValue: optionalNumber(null, 'how far a value may move from the old one; null: as far as it likes', { above: 0 }),
  entropyCoef: number(0, 'weight of the entropy in the loss', { min: 0 }),
  valueCoef: number(0.5, 'weight of the value loss', { min: 0 }),
  maxGradNorm: number(0.5, 'global norm to which gradients are clipped', { above: 0 }),
  targetKl: optionalNumber(null, 'stop an update after the pass whose mean approxKl is above this; null: never', {
    above: 0,
  }),
  ...optimizerSettings(1e-5), // As in openai/baselines.
}

const metrics = {
  policyLoss: { unit: null, description: 'clipped surrogate of a row', reduction: 'rowMean' },
  valueLoss: { unit: null, description: "half the squared error of a row's value", reduction: 'rowMean' },
  entropy: { unit: 'nats', description: 'of the action distribution', reduction: 'rowMean' },
  approxKl: { unit: 'nats', description: "KL(old ‖ new) by Schulman's k3", reduction: 'rowMean' },
  clipFraction: { unit: null, description: 'part of the rows whose ratio was beyond the clip', reduction: 'rowMean' },
  explainedVariance: {
    unit: null,
    description: 'of the returns, by the values before the update; NaN where the returns do not vary',
    reduction: 'last',
  },
  gradNorm: {
    unit: null,
    description: 'global norm of the gradient before it was clipped',
    reduction: 'minibatchMean',
  },
  learningRate: { unit: null, description: "the optimizer's step size", reduction: 'last' },
} as const satisfies Metrics

type PpoSettings = SettingValues<typeof settings>

/**
 * Proximal policy optimization (Schulman, Wolski, Dhariwal, Radford, Klimov 2017) with generalized advantage estimation,
 * minibatches in keyed order and Adam (or another optimizer); the details follow Huang et al., "The 37 Implementation Details of PPO" (2022).
 *
 * @example ppo({ numSteps: 128, gamma: 0.99, gaeLambda: 0.95, clipCoef: 0.2 })
 */
export const ppo = defineAlgorithm({
  id: 'ppo',
  module: import.meta.url,
  settings,
  metrics,
  make(parameters) {
    checkOptimizer('ppo', parameters)
    return {
      numSteps: parameters.numSteps,
      gamma: parameters.gamma,
      numMinibatches: parameters.numMinibatches,
      plan: (shape: LearnerShape): Plan => ppoPlan(parameters, shape),
      bind: (context: LearnerContext): Learner => new Ppo(parameters, context),
    }
  },
})

function ppoPlan(settings: PpoSettings, shape: LearnerShape) {
  const { numLanes, model, observationSpace, actionSpace, actionMaskWidth, threads } = shape
  const cut = cutOf({ ...settings, numLanes }, model)
  const { seenRows, blockRows, minibatchRows, numUnits, numBlocks, sequence } = cut
  const slots = Math.min(NUM_SLOTS, numBlocks)
  const isolated = sequence === null
  const learnedRows = isolated ? 0 : blockRows
  const threadPlan = () => ({
    cut: cutPlan(cut),
    /** The block at work, gathered: what the policy is handed, … */
    rows: {
      observation: column('f32', seenRows, spaceWidth(observationSpace)),
      action: column(spaceType(actionSpace), blockRows, spaceWidth(actionSpace)),
      actionMask: column('u8', blockRows, actionMaskWidth),
      memory: column('f32', isolated ? 0 : seenRows, model.memoryWidth ?? 0),
    },
    /** … and of the rows of which it learns, what the loss needs. */
    logprob: column('f32', blockRows),
    value: column('f32', blockRows),
    advantage: column('f32', blockRows),
    return: column('f32', blockRows),
    /** What the policy says of these rows, and the loss of that, where it evaluates other rows too. */
    learned: {
      logprob: column('f32', learnedRows),
      entropy: column('f32', learnedRows),
      value: column('f32', learnedRows),
      dLogprob: column('f32', learnedRows),
      dEntropy: column('f32', learnedRows),
      dValue: column('f32', learnedRows),
    },
    /** The whole minibatch's advantages, and their mean and deviation. */
    advantages: column('f32', minibatchRows),
    moments: column('f64', 2),
  })
  return {
    optimizer: optimizerPlan(settings, model.numParameters),
    /** numLanes sums of the advantage kernel. */
    carry: column('f32', numLanes),
    /** The rollout's units (valid rows, or sequences), in the order of this epoch. */
    order: column('u32', numUnits),
    words: column('u32', 4),
    /** Gradients and loss sums of the slots. */
    gradients: column('f32', slots, model.numParameters),
    sums: column('f64', slots, PpoSum.length),
    /** What thread 0 tells the others: see `Told`. */
    told: column('u32', 2),
    threads: Object.fromEntries(Array.from({ length: threads }, (_, i) => [`thread${i}`, threadPlan()])),
  } satisfies Plan
}

/** Words of the `told` column: how many units there are, and whether the update stops early. */
const Told = { numUnits: 0, stops: 1 } as const

class Ppo implements Learner {
  readonly #settings: PpoSettings
  readonly #context: LearnerContext
  readonly #columns: Columns<ReturnType<typeof ppoPlan>>
  readonly #own: Columns<ReturnType<typeof ppoPlan>['threads'][string]>
  readonly #cut: Cut
  /** The block at work, as the policy is handed it. */
  readonly #rows: Rows
  readonly #slotGradients: readonly Float32Array[]
  readonly #slotViews: readonly ParameterViews[]
  readonly #totals = new MetricTotals(metrics)
  readonly #observationWidth: number
  readonly #actionWidth: number
  /** The minibatch at work: its units order[first … first + count), in how many blocks. */
  readonly #minibatch = { first: 0, count: 0, numBlocks: 0 }
  /** Numbers of the loss: of the settings, of this update, and of the minibatch at work. */
  readonly #loss: { -readonly [name in keyof PpoLossSettings]: number }
  /** The block at work: how many of its rows are learned from, and where its sums go. */
  readonly #block = { numRows: 0, sumsFrom: 0 }

  constructor(settings: PpoSettings, context: LearnerContext) {
    const { model, policy, thread, numLanes } = context
    this.#settings = settings
    this.#context = context
    const { entropyCoef, valueCoef } = settings
    const clipValue = settings.clipValue ?? Number.POSITIVE_INFINITY
    this.#loss = { advantageMean: 0, advantageScale: 1, clipCoef: 0, clipValue, entropyCoef, valueCoef, weight: 0 }
    this.#columns = context.columns as unknown as Columns<ReturnType<typeof ppoPlan>>
    this.#own = this.#columns.threads[`thread${thread}`]!
    this.#cut = cutOf({ ...settings, numLanes }, model)
    this.#rows = { ...this.#own.rows, continues: this.#own.cut.continues }
    if (thread === 0) startOptimizer(this.#columns.optimizer)
    this.#observationWidth = spaceWidth(context.observationSpace)
    this.#actionWidth = spaceWidth(context.actionSpace)
    const { gradients } = this.#columns
    const { numParameters } = model
    this.#slotGradients = Array.from({ length: gradients.length / numParameters }, (_, slot) =>
      gradients.subarray(slot * numParameters, (slot + 1) * numParameters),
    )
    this.#slotViews = this.#slotGradients.map((gradient) => policy.view(gradient))
  }

  *learn(update: number, numUpdates: number): Generator<void | Promise<void>, LearnerMetrics> {
    const { kernels, rollout, random, thread, clock, policy } = this.#context
    const { updateEpochs, numMinibatches, targetKl } = this.#settings
    const { learningRate, learningRateSchedule, warmupFraction, clipCoef, clipCoefSchedule } = this.#settings
    const { order, words, sums, told } = this.#columns
    const isFirst = thread === 0
    const rate = learningRate * scheduleFactor(learningRateSchedule, warmupFraction, update, numUpdates)
    this.#loss.clipCoef = clipCoef * scheduleFactor(clipCoefSchedule, 0, update, numUpdates)
    if (isFirst) {
      this.#estimateAdvantages()
      told[Told.numUnits] = listUnits(order, this.#cut, rollout, kernels)
      told[Told.stops] = 0
      clock.mark(Work.advantage)
    }
    const totals = this.#totals
    totals.clear()
    for (let epoch = 0; epoch < updateEpochs; epoch++) {
      if (isFirst && !told[Told.stops]) {
        kernels.shuffleRows(order, words, told[Told.numUnits]!, update, epoch, random.key0, random.key1)
        clock.mark(Work.shuffle)
      }
      yield // The order of this epoch is there.
      if (told[Told.stops]) break
      const numUnits = told[Told.numUnits]!
      const pass = { approxKl: 0, rows: 0 }
      for (let m = 0; m < numMinibatches; m++) {
        const first = Math.floor((m * numUnits) / numMinibatches)
        const count = Math.floor(((m + 1) * numUnits) / numMinibatches) - first
        const numRows = this.#openMinibatch(first, count)
        if (numRows === 0) continue // Fewer valid rows than minibatches.
        const pending = this.#differentiate(thread, thread)
        if (pending !== undefined) yield pending
        yield // The gradients of all slots are there.
        if (isFirst) {
          totals.add('gradNorm', this.#descend(rate))
          totals.add('policyLoss', sums[PpoSum.policyLoss]!, numRows)
          totals.add('valueLoss', sums[PpoSum.valueLoss]!, numRows)
          totals.add('entropy', sums[PpoSum.entropy]!, numRows)
          totals.add('approxKl', sums[PpoSum.approxKl]!, numRows)
          totals.add('clipFraction', sums[PpoSum.clipped]!, numRows)
          pass.approxKl += sums[PpoSum.approxKl]!
          pass.rows += numRows
          clock.mark(Work.optimizer)
        }
        yield // The weights of the next minibatch are there.
        policy.refresh?.()
      }
      if (isFirst && targetKl !== null && pass.approxKl / pass.rows > targetKl) told[Told.stops] = 1
    }
    totals.add('learningRate', rate)
    if (isFirst) {
      const { value, return: returns, valid } = rollout
      totals.add('explainedVariance', kernels.explainedVariance(value, returns, valid, valid.length))
    }
    return totals.values()
  }

  #estimateAdvantages(): void {
    const { kernels, rollout, numLanes } = this.#context
    const { gamma, gaeLambda, numSteps } = this.#settings
    kernels.gae(rollout, this.#columns.carry, gamma, gaeLambda, numSteps, numLanes)
  }

  /** Makes ready the minibatch of the units order[first … first + count). Returns of how many rows it learns. */
  #openMinibatch(first: number, count: number): number {
    const { kernels, rollout, thread, threads, numLanes } = this.#context
    const { order, sums } = this.#columns
    const { advantages, moments, cut } = this.#own
    const { sequence, unitsPerBlock } = this.#cut
    const numRows =
      sequence === null ? count : listLearned(cut.minibatch, order, first, count, sequence, numLanes, rollout)
    const numBlocks = Math.ceil(count / unitsPerBlock)
    this.#minibatch.first = first
    this.#minibatch.count = count
    this.#minibatch.numBlocks = numBlocks
    this.#loss.weight = 1 / numRows
    if (numRows === 0) return 0
    if (this.#settings.normalizeAdvantage) {
      if (sequence === null) kernels.gatherRows(advantages, rollout.advantage, order, first, count, 1)
      else kernels.gatherRows(advantages, rollout.advantage, cut.minibatch, 0, numRows, 1)
      kernels.meanAndDeviation(moments, advantages, numRows)
      this.#loss.advantageMean = moments[0]!
      this.#loss.advantageScale = 1 / (moments[1]! + 1e-8)
    }
    for (let slot = thread; slot < Math.min(NUM_SLOTS, numBlocks); slot += threads) {
      this.#slotGradients[slot]!.fill(0)
      sums.fill(0, slot * PpoSum.length, (slot + 1) * PpoSum.length)
    }
    return numRows
  }

  /**
   * This thread's share of the minibatch's gradient, from the given slot and block on: its slots, each from its blocks in
   * order.
   */
  #differentiate(slot: number, block: number): void | Promise<void> {
    const { policy, threads, clock } = this.#context
    const { first, count, numBlocks } = this.#minibatch
    const { unitsPerBlock } = this.#cut
    for (let s = slot, b = block; s < Math.min(NUM_SLOTS, numBlocks); s += threads, b = s) {
      this.#block.sumsFrom = s * PpoSum.length
      for (; b < numBlocks; b += NUM_SLOTS) {
        const from = b * unitsPerBlock
        const numRows = this.#gather(first + from, Math.min(unitsPerBlock, count - from))
        clock.mark(Work.gather)
        const pending = policy.differentiate(this.#rows, 0, numRows, this.#lossOf, this.#slotViews[s]!)
        if (pending !== undefined) return pending.then(() => this.#differentiate(s, b + NUM_SLOTS))
        clock.mark(Work.backward) // The loss marked the forward pass.
      }
    }
  }

  /** Gathers the units order[first … first + count) into this thread's block. Returns how many rows are evaluated. */
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

  /** Gathers what the loss needs of the rows of which the policy learns. */
  #gatherLearned(list: Uint32Array, first: number, count: number): void {
    const { kernels, rollout } = this.#context
    const { logprob, value, advantage, return: returns } = this.#own
    kernels.gatherRows(logprob, rollout.logprob, list, first, count, 1)
    kernels.gatherRows(value, rollout.value, list, first, count, 1)
    kernels.gatherRows(advantage, rollout.advantage, list, first, count, 1)
    kernels.gatherRows(returns, rollout.return, list, first, count, 1)
    this.#block.numRows = count
  }

  /** One optimizer step with the slots' gradients. Returns the gradient's norm; the loss sums are in slot 0 of `sums`. */
  #descend(learningRate: number): number {
    const { kernels, weights, model } = this.#context
    const { numParameters } = model
    const { gradients, sums, optimizer } = this.#columns
    const numSlots = Math.min(NUM_SLOTS, this.#minibatch.numBlocks)
    kernels.sumSlots(gradients, numSlots, numParameters)
    kernels.sumSlots(sums, numSlots, PpoSum.length)
    const norm = kernels.globalNorm(gradients, numParameters)
    if (!Number.isFinite(norm)) {
      throw new InputError(
        'ppo',
        `a gradient of norm ${norm}`,
        'a finite one: a smaller learningRate or smaller rewards',
      )
    }
    const scale = Math.min(1, this.#settings.maxGradNorm / (norm + 1e-6))
    optimizerStep(this.#settings, optimizer, kernels, weights, gradients, scale, learningRate)
    return norm
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

  /** The loss of the rows of which the policy learns, which begin at row `from` of this thread's columns. */
  #lossOfLearned(evaluated: Evaluated, derivatives: Derivatives, from: number): void {
    const { numRows, sumsFrom } = this.#block
    const { sums } = this.#columns
    this.#context.kernels.ppoLoss(derivatives, sums, evaluated, this.#own, this.#loss, numRows, from, sumsFrom)
  }
}
