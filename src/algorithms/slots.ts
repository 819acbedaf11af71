/**
 * The gradient of a minibatch, by all threads, or by several processes. The minibatch is divided into blocks, block b adds to slot b mod 16, and slots are summed
 * pairwise, so the data alone fixes the order of the sum. Threads take slots, one after another, until none is left.
 */
import { type Clock, Work } from '../base/clock.ts'
import { InputError } from '../base/errors.ts'
import { type Metrics, metric } from '../base/metrics.ts'
import { type SharedWork, toldNumbers } from '../base/parted.ts'
import { choice, fraction, number } from '../base/settings.ts'
import { type Column, type Columns, column, type Plan } from '../components/column.ts'
import { NUM_SLOTS } from '../kernels/bind.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { ParameterViews } from '../policies/policy.ts'
import type { LearnerContext } from './algorithm.ts'
import { type OptimizerColumns, type optimizerSettings, optimizerStep, powersAfter } from './optimizers/optimizer.ts'
import { type Schedule, type ScheduledValues, schedules } from './schedule.ts'
import { numShares, shareSize, slotsOfShare } from './slot-shares.ts'

export function descentSettings(
  learningRate: number,
  learningRateSchedule: Schedule,
  maxGradNorm: number,
  optimizer: ReturnType<typeof optimizerSettings>,
) {
  const schedule = 'how learningRate falls to 0 over totalSteps; constant: it does not change'
  return {
    learningRate: number(learningRate, "the optimizer's step size, after the warm-up", { above: 0 }),
    learningRateSchedule: choice(learningRateSchedule, schedules, schedule),
    warmupFraction: fraction(0, 'fraction of totalSteps over which learningRate first rises linearly'),
    maxGradNorm: number(maxGradNorm, 'global norm to which gradients are clipped', { above: 0 }),
    ...optimizer,
  }
}

export const descentMetrics = {
  gradNorm: metric('global norm of the gradient before clipping', 'minibatchMean'),
  learningRate: metric("the optimizer's step size", 'last'),
} as const satisfies Metrics

/** Parameters of a part of the optimizer step: whole cache lines, which threads do not share, and enough to be worth a part. */
const PART_PARAMETERS = 32_768

/** Plans gradients and loss sums of the slots for minibatches of at most `numBlocks` blocks. */
export function slotsPlan(numParameters: number, numBlocks: number, numSums: number) {
  const slots = Math.min(NUM_SLOTS, numBlocks)
  return {
    gradients: column('f32', slots, numParameters),
    sums: column('f64', slots, numSums),
  } satisfies Plan
}

/** Consecutive parameters, by their elements. */
export interface Range {
  readonly from: number
  readonly to: number
}

/** A part of the parameters with its own optimizer steps. */
export interface Descent extends Range {
  readonly optimizer: OptimizerColumns
}

/** The part of a learner that its slots use. */
export interface SlotsParts {
  /** The algorithm, for errors. */
  readonly id: string
  readonly numSums: number
  /** The learner's, of which the optimizer's are used. */
  readonly schedule: ScheduledValues<ReturnType<typeof descentSettings>>
  readonly descents: readonly Descent[]
  /** Goes to an update, unless this thread is there already. */
  begin(update: number, numUpdates: number): void
  /** Prepares this thread for the blocks of a minibatch, with the numbers of `told`. See `PartedWork.open`. */
  open(told: Float64Array): void
  /** Adds a block's gradient to `gradient`, and the sums of its metrics to `sums` from element `sumsFrom`. */
  differentiate(block: number, gradient: ParameterViews, sumsFrom: number): void | Promise<void>
}

/** All parameters that an optimizer updates: all except the last ones, which training writes. */
export function trainedRange({ numParameters, normalizedInputs = 0 }: LearnerContext['model']): Range {
  return { from: 0, to: numParameters - 2 * normalizedInputs }
}

/** The number of blocks among the numbers of a minibatch; the update, the number of updates and the first power among those of a step. */
const [NUM_BLOCKS, UPDATE, NUM_UPDATES, POWERS] = [7, 3, 4, 5]

/** Columns of a part of a descent's parameters, the first of which is parameter `from`. */
interface DescentPart {
  readonly from: number
  readonly columns: Pick<OptimizerColumns, 'moment' | 'squareMoment'>
  readonly gradient: Float32Array
  readonly weights: Float32Array
}

function partsOf({ from, to, optimizer }: Descent, gradients: Float32Array, weights: Float32Array): DescentPart[] {
  const parts: DescentPart[] = []
  for (let at = from; at < to; at += PART_PARAMETERS) {
    const cut = (column: Float32Array) => column.subarray(at, Math.min(to, at + PART_PARAMETERS))
    const columns = { moment: cut(optimizer.moment), squareMoment: cut(optimizer.squareMoment) }
    parts.push({ from: at, columns, gradient: cut(gradients), weights: cut(weights) })
  }
  return parts
}

/** One thread's view of the slots. */
export class Slots {
  readonly #gradients: Float32Array
  readonly #sums: Float64Array
  readonly #numParameters: number
  readonly #parts: SlotsParts
  readonly #slotGradients: readonly Float32Array[]
  readonly #slotViews: readonly ParameterViews[]
  readonly #context: {
    readonly weights: Float32Array
    readonly clock: Clock
    readonly kernels: Kernels
  }
  readonly #gradient: SharedWork
  readonly #sum: SharedWork
  readonly #step: SharedWork
  #numBlocks = 0
  /** The numbers of the sum and of the optimizer step that are made. */
  #summed = toldNumbers()
  #stepped = toldNumbers()
  readonly #powers: number[]
  /** What the last `sum` added up: for which descent, how many slots, and the slots of each; then the gradient's norm, which a plain field would box. */
  #descent = 0
  #numSummed = 0
  #stride = 1
  readonly #norm = new Float64Array(1)
  readonly #descents: readonly (readonly DescentPart[])[]

  constructor({ gradients, sums }: Columns<ReturnType<typeof slotsPlan>>, parts: SlotsParts, context: LearnerContext) {
    const { numParameters } = context.model
    this.#gradients = gradients
    this.#sums = sums
    this.#numParameters = numParameters
    this.#parts = parts
    this.#context = context
    this.#slotGradients = Array.from({ length: gradients.length / numParameters }, (_, slot) =>
      gradients.subarray(slot * numParameters, (slot + 1) * numParameters),
    )
    this.#slotViews = this.#slotGradients.map((gradient) => context.policy.view(gradient))
    this.#powers = Array.from(parts.descents[0]!.optimizer.betaPowers)
    this.#descents = parts.descents.map((descent) => partsOf(descent, gradients, context.weights))
    this.#gradient = context.share({
      open: (told) => {
        this.#numBlocks = told[NUM_BLOCKS]!
        parts.open(told)
      },
      part: (slot) => this.#differentiateSlot(slot),
    })
    this.#sum = context.share({
      open: (told) => {
        this.#summed = told
      },
      part: (i) => this.#sumPart(i),
    })
    this.#step = context.share({
      open: (told) => {
        this.#stepped = told
        parts.begin(told[UPDATE]!, told[NUM_UPDATES]!)
        for (let i = 0; i < this.#powers.length; i++) this.#powers[i] = told[POWERS + i]!
      },
      part: (i) => this.#stepPart(i),
    })
  }

  /** Begins a minibatch of so many blocks. */
  begin(numBlocks: number): void {
    this.#numBlocks = numBlocks
  }

  /** Numbers for `open`, to be written before `differentiate`: at most seven. */
  get told(): Float64Array {
    return this.#gradient.told
  }

  /** Computes the gradient of the minibatch, in the slots. */
  differentiate(): void | Promise<void> {
    this.told[NUM_BLOCKS] = this.#numBlocks
    return this.#gradient.run(this.#numSlots)
  }

  #differentiateSlot(slot: number): void | Promise<void> {
    const { numSums } = this.#parts
    this.#context.kernels.clear(this.#slotGradients[slot]!, this.#numParameters)
    this.#sums.fill(0, slot * numSums, (slot + 1) * numSums)
    return this.#differentiateBlocks(slot, slot)
  }

  #differentiateBlocks(slot: number, from: number): void | Promise<void> {
    const { numSums } = this.#parts
    for (let block = from; block < this.#numBlocks; block += NUM_SLOTS) {
      const pending = this.#parts.differentiate(block, this.#slotViews[slot]!, slot * numSums)
      if (pending !== undefined) return pending.then(() => this.#differentiateBlocks(slot, block + NUM_SLOTS))
      this.#context.clock.mark(Work.backward) // The policy marks the earlier work of the block.
    }
  }

  get #numSlots(): number {
    return Math.min(NUM_SLOTS, this.#numBlocks)
  }

  /** Number of shares that have slots. */
  numShares(shareCount: number): number {
    return numShares(this.#numSlots, shareCount)
  }

  /** Computes a share of the gradient in one thread: the sums of its slots, in the first of them. */
  async differentiateShare(share: number, shareCount: number): Promise<void> {
    const { first, end } = slotsOfShare(share, this.#numSlots, shareCount)
    for (let slot = first; slot < end; slot++) await this.#differentiateSlot(slot)
    const numParameters = this.#numParameters
    const { numSums } = this.#parts
    const { kernels } = this.#context
    kernels.sumSlots(this.#gradients.subarray(first * numParameters), end - first, numParameters, 0, numParameters)
    kernels.sumSlots(this.#sums.subarray(first * numSums), end - first, numSums, 0, numSums)
  }

  /** The gradient of a share and the sums of its metrics. */
  resultsOf(share: number, shareCount: number): Readonly<Record<'gradient' | 'sums', Column>> {
    const { first } = slotsOfShare(share, this.#numSlots, shareCount)
    const { numSums } = this.#parts
    return { gradient: this.#slotGradients[first]!, sums: this.#sums.subarray(first * numSums, (first + 1) * numSums) }
  }

  /** Sums the metrics of all blocks into slot 0, without an optimizer step. */
  sumMetrics(): void {
    const { numSums } = this.#parts
    this.#context.kernels.sumSlots(this.#sums, this.#numSlots, numSums, 0, numSums)
  }

  /**
   * Sums the gradients of the slots, or of so many shares, for a descent's parameters; `step` and `takeNorm` follow, in this order. They are
   * three plain methods because a generator would allocate a few hundred bytes a minibatch.
   */
  sum(descent: number, shareCount: number = NUM_SLOTS): void | Promise<void> {
    // Of a share, the first slot has the sums. To the kernel, a share is one slot.
    this.#numSummed = this.numShares(shareCount)
    this.#stride = shareSize(this.#numSlots, shareCount)
    this.#descent = descent
    const { told } = this.#sum
    told[0] = descent
    told[1] = this.#numSummed
    told[2] = this.#stride
    return this.#sum.run(this.#descents[descent]!.length)
  }

  /**
   * Makes the optimizer step of the descent whose gradients were summed.
   * @throws InputError for a gradient that is not finite, before the weights change.
   */
  step(learningRate: number): void | Promise<void> {
    const { kernels } = this.#context
    const { id, numSums, schedule, descents } = this.#parts
    const { values: settings, update, numUpdates } = schedule
    const descent = this.#descent
    const { from, to, optimizer } = descents[descent]!
    kernels.sumSlots(this.#sums, this.#numSummed, this.#stride * numSums, 0, numSums)
    const whole = from === 0 ? this.#gradients : this.#gradients.subarray(from, to)
    const norm = kernels.globalNorm(whole, to - from)
    if (!Number.isFinite(norm)) {
      const got = `a gradient of norm ${norm}`
      throw new InputError(id, got, 'a finite norm: try a smaller learningRate or smaller rewards')
    }
    this.#norm[0] = norm
    powersAfter(this.#powers, settings, optimizer)
    const { told } = this.#step
    told[0] = descent
    told[1] = Math.min(1, settings.maxGradNorm / (norm + 1e-6))
    told[2] = learningRate
    told[UPDATE] = update
    told[NUM_UPDATES] = numUpdates
    told.set(this.#powers, POWERS)
    return this.#step.run(this.#descents[descent]!.length)
  }

  /** Ends the step: keeps the optimizer's powers, and returns the gradient's norm. The sums of all blocks are in slot 0. */
  takeNorm(): number {
    this.#parts.descents[this.#descent]!.optimizer.betaPowers.set(this.#powers)
    this.#context.clock.mark(Work.optimizer)
    return this.#norm[0]!
  }

  #sumPart(i: number): void {
    const told = this.#summed
    const { from, weights } = this.#descents[told[0]!]![i]!
    const stride = told[2]! * this.#numParameters
    this.#context.kernels.sumSlots(this.#gradients, told[1]!, stride, from, from + weights.length)
    this.#context.clock.mark(Work.optimizer)
  }

  #stepPart(i: number): void {
    const { kernels, clock } = this.#context
    const told = this.#stepped
    const { columns, gradient, weights } = this.#descents[told[0]!]![i]!
    optimizerStep(this.#parts.schedule.values, columns, this.#powers, kernels, weights, gradient, told[1]!, told[2]!)
    clock.mark(Work.optimizer)
  }
}
