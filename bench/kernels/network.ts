/**
 * The network of the C twin, put together from kernels as the multi-layer perceptron does it: 4 → 64 → 64 → (2 + 1) with
 * tanh, a shared trunk, and one PPO update of it. Numbers come from the twin's generator, so that results can be compared.
 */
import { Activation, type Kernels, PpoSum } from '../../src/kernels/bind.ts'
import type { Columns } from './columns.ts'

const INPUTS = 4
const HIDDEN = 64
const CHOICES = 2
const BLOCK = 256
/** Multiplications and additions of one row's forward pass; an update takes three times as many. */
export const FLOP_A_ROW = 2 * (INPUTS * HIDDEN + HIDDEN * HIDDEN + HIDDEN * (CHOICES + 1))

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

/** The weights and their like: one flat column, with views of its parts. */
function parameters(columns: Columns) {
  const shapes = [INPUTS * HIDDEN, HIDDEN, HIDDEN * HIDDEN, HIDDEN, HIDDEN * CHOICES, CHOICES, HIDDEN, 1]
  const flat = columns.floats(shapes.reduce((sum, size) => sum + size))
  let end = 0
  const [w0, b0, w1, b1, wA, bA, wV, bV] = shapes.map((size) => {
    end += size
    return flat.subarray(end - size, end)
  }) as [Float32Array, Float32Array, Float32Array, Float32Array, Float32Array, Float32Array, Float32Array, Float32Array]
  return { flat, w0, b0, w1, b1, wA, bA, wV, bV }
}

export class Network {
  readonly #columns
  readonly #start
  readonly #layer

  constructor(columns: Columns) {
    const block = (width: number) => columns.floats(BLOCK * width)
    this.#columns = {
      weights: parameters(columns),
      gradient: parameters(columns),
      moment: parameters(columns),
      squareMoment: parameters(columns),
      x0: block(HIDDEN),
      x1: block(HIDDEN),
      dx0: block(HIDDEN),
      dx1: block(HIDDEN),
      logits: block(CHOICES),
      dLogits: block(CHOICES),
      value: block(1),
      logprob: block(1),
      entropy: block(1),
      dLogprob: block(1),
      dEntropy: block(1),
      dValue: block(1),
      transposed: columns.floats(HIDDEN * HIDDEN),
      sizes: columns.wholes(1),
      moments: columns.doubles(2),
      sums: columns.doubles(PpoSum.length),
    }
    this.#columns.sizes[0] = CHOICES
    this.numbers.fill(this.#columns.weights.flat, -0.2, 0.2)
    this.#start = this.#columns.weights.flat.slice()
    this.#layer = block(HIDDEN)
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
    this.#columns.weights.flat.set(this.#start)
    this.#columns.moment.flat.fill(0)
    this.#columns.squareMoment.flat.fill(0)
  }

  /** One layer, 64 × 64 with tanh, over a block of rows. Returns the sum of its outputs. */
  layer(kernels: Kernels): void {
    const { weights, x1 } = this.#columns
    kernels.denseForward(x1, this.#layer, weights.w1, weights.b1, BLOCK, HIDDEN, HIDDEN, Activation.tanh, 0, 0)
  }

  layerSum(): number {
    return this.#columns.x1.reduce((sum, y) => sum + y, 0)
  }

  /** The forward pass of all rows. Returns the sum over blocks of the first row's value and second logit. */
  forward(kernels: Kernels, { x, count }: TwinRows): number {
    let sum = 0
    for (let from = 0; from < count; from += BLOCK) {
      this.#forwardBlock(kernels, x, from, Math.min(BLOCK, count - from))
      sum += this.#columns.value[0]! + this.#columns.logits[1]!
    }
    return sum
  }

  #forwardBlock(kernels: Kernels, x: Float32Array, from: number, rows: number): void {
    const { weights, x0, x1, logits, value } = this.#columns
    kernels.denseForward(x0, x, weights.w0, weights.b0, rows, INPUTS, HIDDEN, Activation.tanh, 0, from)
    kernels.denseForward(x1, x0, weights.w1, weights.b1, rows, HIDDEN, HIDDEN, Activation.tanh, 0, 0)
    kernels.denseForward(logits, x1, weights.wA, weights.bA, rows, HIDDEN, CHOICES, Activation.linear, 0, 0)
    kernels.denseForward(value, x1, weights.wV, weights.bV, rows, HIDDEN, 1, Activation.linear, 0, 0)
  }

  /** One update: forward, loss, backward, clipping, Adam. Returns the loss (not divided by the rows) and the norm, summed. */
  update(k: Kernels, { x, old, advantage, target, action, count }: TwinRows): number {
    const { weights, gradient, moment, squareMoment, moments, sums, transposed, sizes } = this.#columns
    const { x0, x1, dx0, dx1, logits, dLogits, value, logprob, entropy, dLogprob, dEntropy, dValue } = this.#columns
    const { tanh } = Activation
    k.meanAndDeviation(moments, advantage, count)
    const [mean, scale] = [moments[0]!, 1 / (moments[1]! + 1e-8)]
    gradient.flat.fill(0)
    sums.fill(0)
    for (let from = 0; from < count; from += BLOCK) {
      const n = Math.min(BLOCK, count - from)
      this.#forwardBlock(k, x, from, n)
      k.categoricalEvaluate(logprob, entropy, action, logits, sizes, n, 1, CHOICES, from)
      k.ppoLoss(
        dLogprob,
        dEntropy,
        dValue,
        sums,
        logprob,
        entropy,
        value,
        old,
        target,
        advantage,
        target,
        mean,
        scale,
        0.2,
        Number.POSITIVE_INFINITY,
        0.01,
        0.5,
        1 / count,
        n,
        from,
        0,
      )
      k.categoricalBackward(dLogits, dLogprob, dEntropy, action, logits, sizes, n, 1, CHOICES, from)
      k.denseBackwardWeights(gradient.wA, gradient.bA, dLogits, x1, n, HIDDEN, CHOICES, 0)
      k.denseBackwardInput(dx1, dLogits, weights.wA, transposed, n, HIDDEN, CHOICES, false)
      k.denseBackwardWeights(gradient.wV, gradient.bV, dValue, x1, n, HIDDEN, 1, 0)
      k.denseBackwardInput(dx1, dValue, weights.wV, transposed, n, HIDDEN, 1, true)
      k.activationBackward(dx1, x1, n * HIDDEN, tanh)
      k.denseBackwardWeights(gradient.w1, gradient.b1, dx1, x0, n, HIDDEN, HIDDEN, 0)
      k.denseBackwardInput(dx0, dx1, weights.w1, transposed, n, HIDDEN, HIDDEN, false)
      k.activationBackward(dx0, x0, n * HIDDEN, tanh)
      k.denseBackwardWeights(gradient.w0, gradient.b0, dx0, x, n, INPUTS, HIDDEN, from)
    }
    const { length } = weights.flat
    const norm = k.globalNorm(gradient.flat, length)
    const clip = norm > 0.5 ? 0.5 / (norm + 1e-6) : 1
    k.adamStep(
      weights.flat,
      moment.flat,
      squareMoment.flat,
      gradient.flat,
      clip,
      1e-3,
      0.9,
      0.999,
      1e-5,
      0,
      0.1,
      0.001,
      length,
    )
    return sums[PpoSum.policyLoss]! + 0.5 * sums[PpoSum.valueLoss]! - 0.01 * sums[PpoSum.entropy]! + norm
  }
}

export type TwinRows = ReturnType<Network['rows']>
