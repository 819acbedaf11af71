/**
 * The gradient of a minibatch, by all threads, or by several processes. The minibatch is divided into blocks, block b adds to slot b mod 16, and slots are summed
 * pairwise, so the data alone fixes the order of the sum. Threads take slots, one after another, until none is left.
 */
import { type Clock, Work } from '../base/clock.ts'
import { InputError } from '../base/errors.ts'
import { type Metrics, metric } from '../base/metrics.ts'
import type { SharedWork } from '../base/parted.ts'
import { choice, fraction, number } from '../base/settings.ts'
import { type Column, type Columns, column, type Plan } from '../components/column.ts'
import { NUM_SLOTS } from '../kernels/bind.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { ParameterViews } from '../policies/policy.ts'
import type { LearnerContext } from './algorithm.ts'
import {
  type OptimizerColumns,
  type OptimizerSettings,
  type optimizerSettings,
  optimizerStep,
  powersAfter,
} from './optimizers/optimizer.ts'
import { type Schedule, schedules } from './schedule.ts'

export function descentSettings(
  learningRate: number,
  learningRateSchedule: Schedule,
  maxGradNorm: number,
  optimizer: ReturnType<typeof optimizerSettings>,
) {
  const schedule = 'how learningRate falls to 0 over totalSteps; constant: it stays'
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

/** What a learner's slots need of it. */
export interface SlotsParts {
  /** The algorithm, for errors. */
  readonly id: string
  readonly numSums: number
  readonly settings: OptimizerSettings & { readonly maxGradNorm: number }
  readonly descents: readonly Descent[]
  /** Prepares this thread for the blocks of a minibatch, with the numbers of `differentiate`. See `PartedWork.open`. */
  open(told: Float64Array): void
  /** Adds a block's gradient to `gradient`, and the sums of its metrics to `sums` from element `sumsFrom`. */
  differentiate(block: number, gradient: ParameterViews, sumsFrom: number): void | Promise<void>
}

/** All parameters that an optimizer updates: all except the last ones, which training writes. */
export function trainedRange({ numParameters, normalizedInputs = 0 }: LearnerContext['model']): Range {
  return { from: 0, to: numParameters - 2 * normalizedInputs }
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
  /** The range that is summed, and the step that is made. */
  #summed = { numSlots: 0, stride: 0, from: 0, to: 0 }
  #stepped: { descent: Descent; powers: readonly number[]; scale: number; learningRate: number }

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
    this.#stepped = { descent: parts.descents[0]!, powers: [], scale: 0, learningRate: 0 }
    this.#gradient = context.share({
      open: (told) => {
        this.#numBlocks = told[0]!
        parts.open(told.subarray(1))
      },
      part: (slot) => this.#differentiateSlot(slot),
    })
    this.#sum = context.share({
      open: ([numSlots = 0, stride = 0, from = 0, to = 0]) => {
        this.#summed = { numSlots, stride, from, to }
      },
      part: (i) => this.#sumPart(i),
    })
    this.#step = context.share({
      open: ([descent = 0, scale = 0, learningRate = 0, ...powers]) => {
        this.#stepped = { descent: parts.descents[descent]!, powers, scale, learningRate }
      },
      part: (i) => this.#stepPart(i),
    })
  }

  /** Begins a minibatch of so many blocks. */
  begin(numBlocks: number): void {
    this.#numBlocks = numBlocks
  }

  /** Computes the gradient of the minibatch, in the slots. `told` are numbers for `open`. */
  differentiate(...told: readonly number[]): void | Promise<void> {
    this.#gradient.told[0] = this.#numBlocks
    this.#gradient.told.set(told, 1)
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

  /** Slots of a share, if the slots in use are divided into at most `shareCount` shares: a power of two, so that each is summed alone. */
  #shareSize(shareCount: number): number {
    return Math.max(1, 2 ** Math.ceil(Math.log2(this.#numSlots)) / shareCount)
  }

  /** Number of shares that have slots. */
  numShares(shareCount: number): number {
    return Math.ceil(this.#numSlots / this.#shareSize(shareCount))
  }

  /** Computes a share of the gradient in one thread: the sums of its slots, in the first of them. */
  async differentiateShare(share: number, shareCount: number): Promise<void> {
    const size = this.#shareSize(shareCount)
    const first = share * size
    const end = Math.min(this.#numSlots, first + size)
    for (let slot = first; slot < end; slot++) await this.#differentiateSlot(slot)
    const numParameters = this.#numParameters
    const { numSums } = this.#parts
    const { kernels } = this.#context
    kernels.sumSlots(this.#gradients.subarray(first * numParameters), end - first, numParameters, 0, numParameters)
    kernels.sumSlots(this.#sums.subarray(first * numSums), end - first, numSums, 0, numSums)
  }

  /** The gradient of a share and the sums of its metrics. */
  resultsOf(share: number, shareCount: number): Readonly<Record<'gradient' | 'sums', Column>> {
    const first = share * this.#shareSize(shareCount)
    const { numSums } = this.#parts
    return { gradient: this.#slotGradients[first]!, sums: this.#sums.subarray(first * numSums, (first + 1) * numSums) }
  }

  /**
   * Makes one optimizer step of a descent's parameters, with the gradients of the slots or of so many shares. Returns the gradient's norm, with the sums of all blocks
   * in slot 0. Yields promises to await.
   * @throws InputError for a gradient that is not finite, before the weights change.
   */
  *descend(learningRate: number, descent = 0, shareCount: number = NUM_SLOTS): Generator<Promise<void>, number> {
    const { kernels, clock } = this.#context
    const { id, numSums, settings, descents } = this.#parts
    const { from, to, optimizer } = descents[descent]!
    // Of a share, the first slot has the sums. To the kernel, a share is one slot.
    const numSlots = this.numShares(shareCount)
    const stride = this.#shareSize(shareCount)
    const numParts = Math.ceil((to - from) / PART_PARAMETERS)
    this.#sum.told.set([numSlots, stride, from, to])
    const summing = this.#sum.run(numParts)
    if (summing !== undefined) yield summing
    kernels.sumSlots(this.#sums, numSlots, stride * numSums, 0, numSums)
    const whole = from === 0 ? this.#gradients : this.#gradients.subarray(from, to)
    const norm = kernels.globalNorm(whole, to - from)
    if (!Number.isFinite(norm)) {
      const got = `a gradient of norm ${norm}`
      throw new InputError(id, got, 'a finite norm: try a smaller learningRate or smaller rewards')
    }
    const scale = Math.min(1, settings.maxGradNorm / (norm + 1e-6))
    const powers = powersAfter(settings, optimizer)
    this.#step.told.set([descent, scale, learningRate, ...powers])
    const stepping = this.#step.run(numParts)
    if (stepping !== undefined) yield stepping
    optimizer.betaPowers.set(powers)
    clock.mark(Work.optimizer)
    return norm
  }

  #sumPart(i: number): void {
    const { numSlots, stride, from, to } = this.#summed
    const begin = from + i * PART_PARAMETERS
    const end = Math.min(to, begin + PART_PARAMETERS)
    this.#context.kernels.sumSlots(this.#gradients, numSlots, stride * this.#numParameters, begin, end)
    this.#context.clock.mark(Work.optimizer)
  }

  #stepPart(i: number): void {
    const { kernels, weights, clock } = this.#context
    const { descent, powers, scale, learningRate } = this.#stepped
    const { from, to, optimizer } = descent
    const begin = from + i * PART_PARAMETERS
    const share = (column: Float32Array) => column.subarray(begin, Math.min(to, begin + PART_PARAMETERS))
    const moments = { moment: share(optimizer.moment), squareMoment: share(optimizer.squareMoment) }
    const gradient = share(this.#gradients)
    optimizerStep(this.#parts.settings, moments, powers, kernels, share(weights), gradient, scale, learningRate)
    clock.mark(Work.optimizer)
  }
}
