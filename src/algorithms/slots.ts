/**
 * The gradient of a minibatch in all threads, or in several processes. The minibatch is divided into blocks, block b adds to slot b mod
 * 16, and slots are summed pairwise, so the data alone fixes the order of the sum.
 */
import { type Clock, Work } from '../base/clock.ts'
import { InputError } from '../base/errors.ts'
import { type Metrics, metric } from '../base/metrics.ts'
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

/** Number of parameters from which threads share the optimizer step; below it, the extra synchronization costs more. */
const SHARED_PARAMETERS = 65_536
/** Elements of a cache line, which threads do not share. */
const LINE = 16

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

/** Adds a block's gradient to `gradient`, and the sums of its metrics to `sums` from element `sumsFrom`. */
export type DifferentiateBlock = (block: number, gradient: ParameterViews, sumsFrom: number) => void | Promise<void>

/** One thread's view of the slots. */
export class Slots {
  readonly #gradients: Float32Array
  readonly #sums: Float64Array
  readonly #numSums: number
  readonly #numParameters: number
  /** The parameters that the optimizer updates, by default: all except the last ones, which training writes. */
  readonly #trained: Range
  readonly #slotGradients: readonly Float32Array[]
  readonly #slotViews: readonly ParameterViews[]
  readonly #context: {
    readonly thread: number
    readonly threads: number
    readonly clock: Clock
    readonly kernels: Kernels
  }
  #numBlocks = 0

  constructor({ gradients, sums }: Columns<ReturnType<typeof slotsPlan>>, numSums: number, context: LearnerContext) {
    const { numParameters } = context.model
    this.#gradients = gradients
    this.#sums = sums
    this.#numSums = numSums
    this.#numParameters = numParameters
    this.#trained = { from: 0, to: numParameters - 2 * (context.model.normalizedInputs ?? 0) }
    this.#context = context
    this.#slotGradients = Array.from({ length: gradients.length / numParameters }, (_, slot) =>
      gradients.subarray(slot * numParameters, (slot + 1) * numParameters),
    )
    this.#slotViews = this.#slotGradients.map((gradient) => context.policy.view(gradient))
  }

  /** Begins a minibatch: clears this thread's slots. */
  begin(numBlocks: number): void {
    const { thread, threads, kernels } = this.#context
    this.#numBlocks = numBlocks
    for (let slot = thread; slot < Math.min(NUM_SLOTS, numBlocks); slot += threads) {
      kernels.clear(this.#slotGradients[slot]!, this.#numParameters)
      this.#sums.fill(0, slot * this.#numSums, (slot + 1) * this.#numSums)
    }
  }

  /** Computes this thread's share of the gradient, from the given slot and block: its slots, each from its blocks in order. */
  differentiate(
    differentiateBlock: DifferentiateBlock,
    slot = this.#context.thread,
    block = slot,
    end = NUM_SLOTS,
  ): void | Promise<void> {
    const { threads, clock } = this.#context
    const numBlocks = this.#numBlocks
    for (let s = slot, b = block; s < Math.min(end, numBlocks); s += threads, b = s) {
      for (; b < numBlocks; b += NUM_SLOTS) {
        const pending = differentiateBlock(b, this.#slotViews[s]!, s * this.#numSums)
        if (pending !== undefined) {
          return pending.then(() => this.differentiate(differentiateBlock, s, b + NUM_SLOTS, end))
        }
        clock.mark(Work.backward) // The policy marks the earlier work of the block.
      }
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
  async differentiateShare(differentiateBlock: DifferentiateBlock, share: number, shareCount: number): Promise<void> {
    const size = this.#shareSize(shareCount)
    const first = share * size
    await this.differentiate(differentiateBlock, first, first, first + size)
    const numSlots = Math.min(this.#numSlots, first + size) - first
    const [numParameters, numSums] = [this.#numParameters, this.#numSums]
    const { kernels } = this.#context
    kernels.sumSlots(this.#gradients.subarray(first * numParameters), numSlots, numParameters, 0, numParameters)
    kernels.sumSlots(this.#sums.subarray(first * numSums), numSlots, numSums, 0, numSums)
  }

  /** The gradient of a share and the sums of its metrics. */
  resultsOf(share: number, shareCount: number): Readonly<Record<'gradient' | 'sums', Column>> {
    const first = share * this.#shareSize(shareCount)
    const numSums = this.#numSums
    return { gradient: this.#slotGradients[first]!, sums: this.#sums.subarray(first * numSums, (first + 1) * numSums) }
  }

  /**
   * Makes one optimizer step of the `trained` parameters, with the slots' gradients. Every thread calls it after synchronizing. For many
   * parameters, threads share the elements and synchronize at each yield. Thread 0 returns the gradient's norm, with the sums of all blocks
   * in slot 0; other threads may return earlier. Synchronize before the next minibatch.
   * @throws InputError for a gradient that is not finite, before the weights change.
   */
  *descend(
    subject: string,
    settings: OptimizerSettings & { readonly maxGradNorm: number },
    optimizer: OptimizerColumns,
    weights: Float32Array,
    learningRate: number,
    trained: Range = this.#trained,
    shareCount: number = NUM_SLOTS,
  ): Generator<void, number> {
    const { thread, threads, kernels, clock } = this.#context
    const numTrained = trained.to - trained.from
    // Of a share, the first slot has the sums. To the kernel, a share is one slot.
    const numSlots = this.numShares(shareCount)
    const stride = this.#shareSize(shareCount)
    const isShared = threads > 1 && numTrained >= SHARED_PARAMETERS
    if (!isShared && thread > 0) return 0
    const beginOf = (k: number) => {
      if (k === 0 || k === threads) return k === 0 ? trained.from : trained.to
      return Math.floor((trained.from + (k * numTrained) / threads) / LINE) * LINE
    }
    const [from, to] = isShared ? [beginOf(thread), beginOf(thread + 1)] : [trained.from, trained.to]
    kernels.sumSlots(this.#gradients, numSlots, stride * this.#numParameters, from, to)
    if (thread === 0) kernels.sumSlots(this.#sums, numSlots, stride * this.#numSums, 0, this.#numSums)
    if (isShared) {
      clock.mark(Work.optimizer)
      yield // The whole gradient is complete.
    }
    const whole = trained.from === 0 ? this.#gradients : this.#gradients.subarray(trained.from, trained.to)
    const norm = kernels.globalNorm(whole, numTrained) // The same in every thread.
    if (!Number.isFinite(norm)) {
      if (thread > 0) return norm // Thread 0 throws.
      const got = `a gradient of norm ${norm}`
      throw new InputError(subject, got, 'a finite norm: try a smaller learningRate or smaller rewards')
    }
    const scale = Math.min(1, settings.maxGradNorm / (norm + 1e-6))
    const powers = powersAfter(settings, optimizer)
    const share = (column: Float32Array) => column.subarray(from, to)
    const moments = { moment: share(optimizer.moment), squareMoment: share(optimizer.squareMoment) }
    const gradient = share(this.#gradients)
    optimizerStep(settings, moments, powers, kernels, share(weights), gradient, scale, learningRate)
    if (isShared) {
      clock.mark(Work.optimizer)
      yield // All threads have read the powers before this step.
    }
    if (thread === 0) optimizer.betaPowers.set(powers)
    return norm
  }
}
