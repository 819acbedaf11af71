/**
 * The gradient of a minibatch by all threads: it is cut into blocks, block b adds to slot b mod 16, and slots are summed
 * pairwise, so the sum's order is fixed by the data.
 */
import { type Clock, Work } from '../clock.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import { InputError } from '../errors.ts'
import { type Kernels, NUM_SLOTS } from '../kernels/bind.ts'
import type { ParameterViews } from '../policies/policy.ts'
import type { LearnerContext } from './algorithm.ts'
import { type OptimizerColumns, type OptimizerSettings, optimizerStep } from './optimizer.ts'

/** Plans gradients and loss sums of the slots of minibatches of at most `numBlocks` blocks. */
export function slotsPlan(numParameters: number, numBlocks: number, numSums: number) {
  const slots = Math.min(NUM_SLOTS, numBlocks)
  return {
    gradients: column('f32', slots, numParameters),
    sums: column('f64', slots, numSums),
  } satisfies Plan
}

/** Adds a block's gradient to `gradient`, and the sums of its metrics to `sums` from element `sumsFrom` on. */
export type DifferentiateBlock = (block: number, gradient: ParameterViews, sumsFrom: number) => void | Promise<void>

/** The slots at work, in one thread. */
export class Slots {
  readonly #gradients: Float32Array
  readonly #sums: Float64Array
  readonly #numSums: number
  readonly #numParameters: number
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
    this.#context = context
    this.#slotGradients = Array.from({ length: gradients.length / numParameters }, (_, slot) =>
      gradients.subarray(slot * numParameters, (slot + 1) * numParameters),
    )
    this.#slotViews = this.#slotGradients.map((gradient) => context.policy.view(gradient))
  }

  /** Begins a minibatch: clears this thread's slots. */
  begin(numBlocks: number): void {
    const { thread, threads } = this.#context
    this.#numBlocks = numBlocks
    for (let slot = thread; slot < Math.min(NUM_SLOTS, numBlocks); slot += threads) {
      this.#slotGradients[slot]!.fill(0)
      this.#sums.fill(0, slot * this.#numSums, (slot + 1) * this.#numSums)
    }
  }

  /** This thread's share of the gradient, from the given slot and block on: its slots, each from its blocks in order. */
  differentiate(
    differentiateBlock: DifferentiateBlock,
    slot = this.#context.thread,
    block = slot,
  ): void | Promise<void> {
    const { threads, clock } = this.#context
    const numBlocks = this.#numBlocks
    for (let s = slot, b = block; s < Math.min(NUM_SLOTS, numBlocks); s += threads, b = s) {
      for (; b < numBlocks; b += NUM_SLOTS) {
        const pending = differentiateBlock(b, this.#slotViews[s]!, s * this.#numSums)
        if (pending !== undefined) return pending.then(() => this.differentiate(differentiateBlock, s, b + NUM_SLOTS))
        clock.mark(Work.backward) // What came before it in the block is marked there.
      }
    }
  }

  /**
   * One optimizer step with the slots' gradients, in one thread. Returns the gradient's norm; the sums of all blocks are then
   * in slot 0.
   * @throws InputError for a gradient that is not finite.
   */
  descend(
    subject: string,
    settings: OptimizerSettings & { readonly maxGradNorm: number },
    optimizer: OptimizerColumns,
    weights: Float32Array,
    learningRate: number,
  ): number {
    const { kernels } = this.#context
    const numSlots = Math.min(NUM_SLOTS, this.#numBlocks)
    kernels.sumSlots(this.#gradients, numSlots, this.#numParameters)
    kernels.sumSlots(this.#sums, numSlots, this.#numSums)
    const norm = kernels.globalNorm(this.#gradients, this.#numParameters)
    if (!Number.isFinite(norm)) {
      const got = `a gradient of norm ${norm}`
      throw new InputError(subject, got, 'a finite one: a smaller learningRate or smaller rewards')
    }
    const scale = Math.min(1, settings.maxGradNorm / (norm + 1e-6))
    optimizerStep(settings, optimizer, kernels, weights, this.#gradients, scale, learningRate)
    return norm
  }
}
