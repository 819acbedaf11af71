import { Work } from '../clock.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import { defineFactory } from '../definition.ts'
import { InputError } from '../errors.ts'
import { NUM_SLOTS, PpoSum } from '../kernels/bind.ts'
import { BLOCK_ROWS, type Derivatives, type Evaluated, type ParameterViews } from '../policies/policy.ts'
import { choice, number, optionalNumber, type SettingValues, toggle, whole } from '../settings.ts'
import { spaceType, spaceWidth } from '../space.ts'
import type { AlgorithmDefinition, Learner, LearnerContext, LearnerMetrics, LearnerShape } from './algorithm.ts'
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
  ...optimizerSettings,
}

type PpoSettings = SettingValues<typeof settings>

/**
 * Proximal policy optimization (Schulman, Wolski, Dhariwal, Radford, Klimov 2017) with generalized advantage estimation,
 * minibatches in keyed order and Adam (or another optimizer); the details follow Huang et al., "The 37 Implementation Details of PPO" (2022).
 *
 * @example ppo({ numSteps: 128, gamma: 0.99, gaeLambda: 0.95, clipCoef: 0.2 })
 */
export const ppo = defineFactory('algorithm', { id: 'ppo', module: import.meta.url, settings }, (parameters) => {
  checkOptimizer('ppo', parameters)
  return {
    numSteps: parameters.numSteps,
    gamma: parameters.gamma,
    plan: (shape: LearnerShape): Plan => ppoPlan(parameters, shape),
    bind: (context: LearnerContext): Learner => new Ppo(parameters, context),
  }
}) satisfies (...parameters: never[]) => AlgorithmDefinition

function ppoPlan(settings: PpoSettings, shape: LearnerShape) {
  const { numSteps, numMinibatches } = settings
  const { numLanes, numParameters, observationSpace, actionSpace, threads } = shape
  const numRows = numSteps * numLanes
  if (numMinibatches > numRows) {
    throw new InputError('ppo.numMinibatches', String(numMinibatches), `at most the ${numRows} rows of a rollout`)
  }
  const minibatchRows = Math.ceil(numRows / numMinibatches)
  const slots = Math.min(NUM_SLOTS, Math.ceil(minibatchRows / BLOCK_ROWS))
  const threadPlan = () => ({
    /** The block at work, gathered. */
    block: {
      observation: column('f32', BLOCK_ROWS, spaceWidth(observationSpace)),
      action: column(spaceType(actionSpace), BLOCK_ROWS, spaceWidth(actionSpace)),
      logprob: column('f32', BLOCK_ROWS),
      value: column('f32', BLOCK_ROWS),
      advantage: column('f32', BLOCK_ROWS),
      return: column('f32', BLOCK_ROWS),
    },
    /** The whole minibatch's advantages, and their mean and deviation. */
    advantages: column('f32', minibatchRows),
    moments: column('f64', 2),
  })
  return {
    optimizer: optimizerPlan(settings, numParameters),
    /** numLanes sums of the advantage kernel. */
    carry: column('f32', numLanes),
    /** The rollout's valid rows, in the order of this epoch. */
    order: column('u32', numRows),
    words: column('u32', 4),
    /** Gradients and loss sums of the slots. */
    gradients: column('f32', slots, numParameters),
    sums: column('f64', slots, PpoSum.length),
    /** What thread 0 tells the others: see `Told`. */
    told: column('u32', 2),
    threads: Object.fromEntries(Array.from({ length: threads }, (_, i) => [`thread${i}`, threadPlan()])),
  } satisfies Plan
}

/** Words of the `told` column: how many rows are valid, and whether the update stops early. */
const Told = { numRows: 0, stops: 1 } as const

class Ppo implements Learner {
  readonly #settings: PpoSettings
  readonly #context: LearnerContext
  readonly #columns: Columns<ReturnType<typeof ppoPlan>>
  readonly #own: Columns<ReturnType<typeof ppoPlan>['threads'][string]>
  readonly #slotGradients: readonly Float32Array[]
  readonly #slotViews: readonly ParameterViews[]
  readonly #observationWidth: number
  readonly #actionWidth: number
  /** What the loss of the current block needs beside its columns. */
  readonly #loss = { mean: 0, scale: 1, weight: 0, clipCoef: 0, sumsFrom: 0 }

  constructor(settings: PpoSettings, context: LearnerContext) {
    const { numParameters, policy, thread } = context
    this.#settings = settings
    this.#context = context
    this.#columns = context.columns as unknown as Columns<ReturnType<typeof ppoPlan>>
    this.#own = this.#columns.threads[`thread${thread}`]!
    if (thread === 0) startOptimizer(this.#columns.optimizer)
    this.#observationWidth = spaceWidth(context.observationSpace)
    this.#actionWidth = spaceWidth(context.actionSpace)
    const { gradients } = this.#columns
    this.#slotGradients = Array.from({ length: gradients.length / numParameters }, (_, slot) =>
      gradients.subarray(slot * numParameters, (slot + 1) * numParameters),
    )
    this.#slotViews = this.#slotGradients.map((gradient) => policy.view(gradient))
  }

  *learn(update: number, numUpdates: number): Generator<void, LearnerMetrics> {
    const { kernels, rollout, random, thread, clock } = this.#context
    const { updateEpochs, numMinibatches, targetKl } = this.#settings
    const { learningRate, learningRateSchedule, warmupFraction, clipCoef, clipCoefSchedule } = this.#settings
    const { order, words, sums, told } = this.#columns
    const isFirst = thread === 0
    const rate = learningRate * scheduleFactor(learningRateSchedule, warmupFraction, update, numUpdates)
    this.#loss.clipCoef = clipCoef * scheduleFactor(clipCoefSchedule, 0, update, numUpdates)
    if (isFirst) {
      this.#estimateAdvantages()
      told[Told.numRows] = kernels.listValid(order, rollout.valid, rollout.valid.length)
      told[Told.stops] = 0
      clock.mark(Work.advantage)
    }
    const total = { policyLoss: 0, valueLoss: 0, entropy: 0, approxKl: 0, clipped: 0, gradNorm: 0, rows: 0, steps: 0 }
    for (let epoch = 0; epoch < updateEpochs; epoch++) {
      if (isFirst && !told[Told.stops]) {
        kernels.shuffleRows(order, words, told[Told.numRows]!, update, epoch, random.key0, random.key1)
        clock.mark(Work.shuffle)
      }
      yield // The order of this epoch is there.
      if (told[Told.stops]) break
      const numRows = told[Told.numRows]!
      const klBefore = total.approxKl
      for (let m = 0; m < numMinibatches; m++) {
        const first = Math.floor((m * numRows) / numMinibatches)
        const count = Math.floor(((m + 1) * numRows) / numMinibatches) - first
        if (count === 0) continue // Fewer valid rows than minibatches.
        this.#differentiate(first, count)
        yield // The gradients of all slots are there.
        if (isFirst) {
          total.gradNorm += this.#descend(count, rate)
          total.policyLoss += sums[PpoSum.policyLoss]!
          total.valueLoss += sums[PpoSum.valueLoss]!
          total.entropy += sums[PpoSum.entropy]!
          total.clipped += sums[PpoSum.clipped]!
          total.approxKl += sums[PpoSum.approxKl]!
          total.rows += count
          total.steps++
          clock.mark(Work.optimizer)
        }
        yield // The weights of the next minibatch are there.
      }
      if (isFirst && targetKl !== null && (total.approxKl - klBefore) / numRows > targetKl) told[Told.stops] = 1
    }
    return {
      policyLoss: total.policyLoss / total.rows,
      valueLoss: total.valueLoss / total.rows,
      entropy: total.entropy / total.rows,
      approxKl: total.approxKl / total.rows,
      clipFraction: total.clipped / total.rows,
      explainedVariance: isFirst
        ? kernels.explainedVariance(rollout.value, rollout.return, rollout.valid, rollout.valid.length)
        : Number.NaN,
      gradNorm: total.gradNorm / total.steps,
      learningRate: rate,
    }
  }

  #estimateAdvantages(): void {
    const { kernels, rollout, numLanes } = this.#context
    const { gamma, gaeLambda, numSteps } = this.#settings
    kernels.gae(
      rollout.advantage,
      rollout.return,
      this.#columns.carry,
      rollout.reward,
      rollout.value,
      rollout.nextValue,
      rollout.terminated,
      rollout.truncated,
      rollout.valid,
      gamma,
      gaeLambda,
      numSteps,
      numLanes,
    )
  }

  /** This thread's share of the gradient of rows order[first … first + count): its slots, each from its blocks in order. */
  #differentiate(first: number, count: number): void {
    const { kernels, policy, rollout, thread, threads, clock } = this.#context
    const { order, sums } = this.#columns
    const { advantages, moments, block } = this.#own
    this.#loss.weight = 1 / count
    if (this.#settings.normalizeAdvantage) {
      kernels.gatherRows(advantages, rollout.advantage, order, first, count, 1)
      kernels.meanAndDeviation(moments, advantages, count)
      this.#loss.mean = moments[0]!
      this.#loss.scale = 1 / (moments[1]! + 1e-8)
    }
    const numBlocks = Math.ceil(count / BLOCK_ROWS)
    const numSlots = Math.min(NUM_SLOTS, numBlocks)
    for (let slot = thread; slot < numSlots; slot += threads) {
      this.#loss.sumsFrom = slot * PpoSum.length
      this.#slotGradients[slot]!.fill(0)
      sums.fill(0, slot * PpoSum.length, (slot + 1) * PpoSum.length)
      for (let b = slot; b < numBlocks; b += NUM_SLOTS) {
        const from = b * BLOCK_ROWS
        const rows = Math.min(BLOCK_ROWS, count - from)
        this.#gather(first + from, rows)
        clock.mark(Work.gather)
        policy.differentiate(block, 0, rows, this.#lossOf, this.#slotViews[slot]!) // The loss marks the forward pass.
        clock.mark(Work.backward)
      }
    }
  }

  /** Gathers rows order[first … first + count) into this thread's block. */
  #gather(first: number, count: number): void {
    const { kernels, rollout } = this.#context
    const { order } = this.#columns
    const { block } = this.#own
    kernels.gatherRows(block.observation, rollout.observation, order, first, count, this.#observationWidth)
    kernels.gatherRows(block.action, rollout.action, order, first, count, this.#actionWidth)
    kernels.gatherRows(block.logprob, rollout.logprob, order, first, count, 1)
    kernels.gatherRows(block.value, rollout.value, order, first, count, 1)
    kernels.gatherRows(block.advantage, rollout.advantage, order, first, count, 1)
    kernels.gatherRows(block.return, rollout.return, order, first, count, 1)
  }

  /** One optimizer step with the slots' gradients. Returns the gradient's norm; the loss sums are in slot 0 of `sums`. */
  #descend(count: number, learningRate: number): number {
    const { kernels, weights, numParameters } = this.#context
    const { gradients, sums, optimizer } = this.#columns
    const numSlots = Math.min(NUM_SLOTS, Math.ceil(count / BLOCK_ROWS))
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
    const { block } = this.#own
    const { clipValue, entropyCoef, valueCoef } = this.#settings
    const { mean, scale, weight, clipCoef, sumsFrom } = this.#loss
    this.#context.clock.mark(Work.forward)
    this.#context.kernels.ppoLoss(
      derivatives.dLogprob,
      derivatives.dEntropy,
      derivatives.dValue,
      this.#columns.sums,
      evaluated.logprob,
      evaluated.entropy,
      evaluated.value,
      block.logprob,
      block.value,
      block.advantage,
      block.return,
      mean,
      scale,
      clipCoef,
      clipValue ?? Number.POSITIVE_INFINITY,
      entropyCoef,
      valueCoef,
      weight,
      count,
      from,
      sumsFrom,
    )
    this.#context.clock.mark(Work.loss)
  }
}
