/**
 * The network of the C twin, put together from kernels as the multi-layer perceptron does it: 4 → 64 → 64 → (2 + 1), or as wide
 * as is said, with tanh, a shared trunk, and one PPO update of it. Numbers come from the twin's generator, so that results can be compared.
 */
import { Activation, PpoSum } from '../../src/kernels/bind.ts'
import type { Kernels } from '../../src/kernels/kernels.ts'
import type { Columns } from './columns.ts'

const INPUTS = 4
const CHOICES = 2
const BLOCK = 256
/** Multiplications and additions of one row's forward pass; an update takes three times as many. */
export function flopARow(hidden = 64): number {
  return 2 * (INPUTS * hidden + hidden * hidden + hidden * (CHOICES + 1))
}

/** The twin's linear congruential generator. */
export class TwinNumbers {
  #state = 1

  uniform(low: number, high: number): number {
    this.#state = (Math.imul(this.#state, 1664525) + 1013904223) >>> 0
    const unit = Math.fround((this.#state >>> 8) / 16777216)
    return Math.fround(Math.fround(low) + Math.fround(Math.fround(Math.fround(high) - Math.fround(low)) * unit))
  }

  fill(column: Float32Array, low: number, high: number): void {
    for (let i = 0; i < column.length; i++) column[i] = this.uniform(low, high)
  }
}

/** Sizes of the parameters, in their order. */
function sizesOf(hidden: number): number[] {
  return [INPUTS * hidden, hidden, hidden * hidden, hidden, hidden * CHOICES, CHOICES, hidden, 1]
}

/** The weights and their like: one flat column, with views of its parts. */
function parameters(columns: Columns, hidden: number) {
  return parameterViews(columns.floats(sizesOf(hidden).reduce((sum, size) => sum + size)), hidden)
}

function parameterViews(flat: Float32Array, hidden: number) {
  let end = 0
  const [w0, b0, w1, b1, wA, bA, wV, bV] = sizesOf(hidden).map((size) => {
    end += size
    return flat.subarray(end - size, end)
  }) as [Float32Array, Float32Array, Float32Array, Float32Array, Float32Array, Float32Array, Float32Array, Float32Array]
  return { flat, w0, b0, w1, b1, wA, bA, wV, bV }
}

/** What one thread needs for the block at work. */
function workspace(columns: Columns, hidden: number) {
  const block = (width: number) => columns.floats(BLOCK * width)
  return {
    x0: block(hidden),
    x1: block(hidden),
    dx0: block(hidden),
    dx1: block(hidden),
    logits: block(CHOICES),
    dLogits: block(CHOICES),
    value: block(1),
    logprob: block(1),
    entropy: block(1),
    dLogprob: block(1),
    dEntropy: block(1),
    dValue: block(1),
    backward: columns.floats((hidden + 1) * hidden),
  }
}

const LOSS = { clipCoef: 0.2, clipValue: Number.POSITIVE_INFINITY, entropyCoef: 0.01, valueCoef: 0.5 }
const ADAM = { beta1: 0.9, beta2: 0.999, epsilon: 1e-5, weightDecay: 0 }

/**
 * The network over columns of one memory. Several threads share it: each makes it anew over the same memory, and takes
 * every `threads`-th block. Between `prepare`, the shares and `finish` they have to meet.
 */
export class Network {
  readonly threads: number
  readonly hidden: number
  readonly weights
  readonly #moment
  readonly #squareMoment
  readonly #gradients
  readonly #gradient
  readonly #sums
  readonly #forwardSums
  readonly #moments
  readonly #sizes
  readonly #workspaces
  readonly #start
  readonly #layer

  constructor(columns: Columns, threads = 1, hidden = 64) {
    this.threads = threads
    this.hidden = hidden
    this.weights = parameters(columns, hidden)
    const { length } = this.weights.flat
    this.#moment = columns.floats(length)
    this.#squareMoment = columns.floats(length)
    this.#gradients = columns.floats(threads * length)
    this.#gradient = Array.from({ length: threads }, (_, thread) =>
      parameterViews(this.#gradients.subarray(thread * length, (thread + 1) * length), hidden),
    )
    this.#sums = columns.doubles(threads * PpoSum.length)
    this.#forwardSums = columns.doubles(threads)
    this.#moments = columns.doubles(2)
    this.#sizes = columns.wholes(1)
    this.#workspaces = Array.from({ length: threads }, () => workspace(columns, hidden))
    this.#sizes[0] = CHOICES
    this.numbers.fill(this.weights.flat, -0.2, 0.2)
    this.#start = this.weights.flat.slice()
    this.#layer = columns.floats(BLOCK * hidden)
    this.numbers.fill(this.#layer, -1, 1)
  }

  readonly numbers = new TwinNumbers()

  /** The twin's rows: drawn in its order, one after the other. */
  rows(columns: Columns, count: number) {
    const made = {
      count,
      x: columns.floats(count * INPUTS),
      old: columns.floats(count),
      advantage: columns.floats(count),
      target: columns.floats(count),
      action: columns.wholes(count),
    }
    for (let i = 0; i < count; i++) {
      this.numbers.fill(made.x.subarray(i * INPUTS, (i + 1) * INPUTS), -1, 1)
      made.old[i] = this.numbers.uniform(-1, -0.4)
      made.advantage[i] = this.numbers.uniform(-1, 1)
      made.target[i] = this.numbers.uniform(-1, 1)
      made.action[i] = this.numbers.uniform(0, 1) < 0.5 ? 0 : 1
    }
    return made
  }

  /** Starting weights, and no moments. */
  restart(): void {
    this.weights.flat.set(this.#start)
    this.#moment.fill(0)
    this.#squareMoment.fill(0)
  }

  /** The second layer with tanh, over a block of rows. */
  layer(kernels: Kernels): void {
    const { w1, b1 } = this.weights
    const { x1 } = this.#workspaces[0]!
    kernels.denseForward(x1, this.#layer, w1, b1, BLOCK, this.hidden, this.hidden, Activation.tanh, 0, 0)
  }

  layerSum(): number {
    return this.#workspaces[0]!.x1.reduce((sum, y) => sum + y, 0)
  }

  /** A thread's share of the forward pass of all rows. */
  forwardShare(kernels: Kernels, { x, count }: TwinRows, thread: number): void {
    let sum = 0
    const { value, logits } = this.#workspaces[thread]!
    for (let from = thread * BLOCK; from < count; from += this.threads * BLOCK) {
      this.#forwardBlock(kernels, x, from, Math.min(BLOCK, count - from), thread)
      sum += value[0]! + logits[1]!
    }
    this.#forwardSums[thread] = sum
  }

  /** The sum over blocks of the first row's value and second logit. */
  forwardSum(): number {
    return this.#forwardSums.reduce((sum, part) => sum + part, 0)
  }

  /** The forward pass of all rows by one thread. */
  forward(kernels: Kernels, rows: TwinRows): number {
    this.forwardShare(kernels, rows, 0)
    return this.forwardSum()
  }

  #forwardBlock(kernels: Kernels, x: Float32Array, from: number, rows: number, thread: number): void {
    const { w0, b0, w1, b1, wA, bA, wV, bV } = this.weights
    const { x0, x1, logits, value } = this.#workspaces[thread]!
    kernels.denseForward(x0, x, w0, b0, rows, INPUTS, this.hidden, Activation.tanh, 0, from)
    kernels.denseForward(x1, x0, w1, b1, rows, this.hidden, this.hidden, Activation.tanh, 0, 0)
    kernels.denseForward(logits, x1, wA, bA, rows, this.hidden, CHOICES, Activation.linear, 0, 0)
    kernels.denseForward(value, x1, wV, bV, rows, this.hidden, 1, Activation.linear, 0, 0)
  }

  /** One update by one thread. Returns the loss (not divided by the rows) and the norm, summed. */
  update(kernels: Kernels, rows: TwinRows): number {
    this.prepare(kernels, rows)
    this.differentiateShare(kernels, rows, 0)
    return this.finish(kernels)
  }

  /** Before the shares of an update: the mean and deviation of the advantages. */
  prepare(kernels: Kernels, { advantage, count }: TwinRows): void {
    kernels.meanAndDeviation(this.#moments, advantage, count)
  }

  /** A thread's share of an update: forward, loss and backward of its blocks. */
  differentiateShare(k: Kernels, { x, old, advantage, target, action, count }: TwinRows, thread: number): void {
    const [mean, scale] = [this.#moments[0]!, 1 / (this.#moments[1]! + 1e-8)]
    const { weights } = this
    const [gradient, sizes, sums] = [this.#gradient[thread]!, this.#sizes, this.#sums]
    const workspace = this.#workspaces[thread]!
    const { x0, x1, dx0, dx1, logits, dLogits, logprob, entropy, dLogprob, dEntropy, dValue, backward } = workspace
    const minibatch = { logprob: old, value: target, advantage, return: target }
    const loss = { ...LOSS, advantageMean: mean, advantageScale: scale, weight: 1 / count }
    const { linear, tanh } = Activation
    const sumsFrom = thread * PpoSum.length
    gradient.flat.fill(0)
    sums.fill(0, sumsFrom, sumsFrom + PpoSum.length)
    for (let from = thread * BLOCK; from < count; from += this.threads * BLOCK) {
      const n = Math.min(BLOCK, count - from)
      this.#forwardBlock(k, x, from, n, thread)
      k.categoricalEvaluate(logprob, entropy, action, logits, sizes, n, 1, CHOICES, from)
      k.ppoLoss(workspace, sums, workspace, minibatch, loss, n, from, sumsFrom)
      k.categoricalBackward(dLogits, dLogprob, dEntropy, action, logits, sizes, n, 1, CHOICES, from)
      k.denseBackwardWeights(gradient.wA, gradient.bA, dLogits, x1, n, this.hidden, CHOICES, 0)
      k.denseBackwardInput(dx1, dLogits, weights.wA, backward, x1, n, this.hidden, CHOICES, false, linear)
      k.denseBackwardWeights(gradient.wV, gradient.bV, dValue, x1, n, this.hidden, 1, 0)
      k.denseBackwardInput(dx1, dValue, weights.wV, backward, x1, n, this.hidden, 1, true, tanh)
      k.denseBackwardWeights(gradient.w1, gradient.b1, dx1, x0, n, this.hidden, this.hidden, 0)
      k.denseBackwardInput(dx0, dx1, weights.w1, backward, x0, n, this.hidden, this.hidden, false, tanh)
      k.denseBackwardWeights(gradient.w0, gradient.b0, dx0, x, n, INPUTS, this.hidden, from)
    }
  }

  /** After the shares: clipping and Adam. Returns the loss (not divided by the rows) and the norm, summed. */
  finish(kernels: Kernels): number {
    const sums = this.#sums
    if (this.threads > 1) {
      const { length } = this.weights.flat
      kernels.sumSlots(this.#gradients, this.threads, length, 0, length)
      kernels.sumSlots(sums, this.threads, PpoSum.length, 0, PpoSum.length)
    }
    const { flat } = this.weights
    const gradient = this.#gradient[0]!.flat
    const norm = kernels.globalNorm(gradient, gradient.length)
    const clip = norm > 0.5 ? 0.5 / (norm + 1e-6) : 1
    kernels.adamStep(flat, this.#moment, this.#squareMoment, gradient, clip, 1e-3, ADAM, 0.1, 0.001, gradient.length)
    return sums[PpoSum.policyLoss]! + 0.5 * sums[PpoSum.valueLoss]! - 0.01 * sums[PpoSum.entropy]! + norm
  }
}

export type TwinRows = ReturnType<Network['rows']>
