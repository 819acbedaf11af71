/**
 * The head of an actor: converts the last layer's outputs to actions, log-probabilities and entropies, and backpropagates. The outputs
 * are logits of choices, or means of a box action whose log standard deviations are separate parameters.
 */
import type { Random } from '../base/random.ts'
import { choiceSizes, type Space, spaceWidth } from '../base/space.ts'
import { type Columns, column } from '../components/column.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { ActingLanes, Derivatives, Evaluated, Rows } from './policy.ts'

export interface HeadShape {
  /** Outputs of the last layer: logits or means. */
  readonly numOutputs: number
  /** Sizes of the action's choices; empty for a box. */
  readonly choices: readonly number[]
  readonly actionWidth: number
}

export function headShape(actionSpace: Space): HeadShape {
  const choices = choiceSizes(actionSpace)
  const actionWidth = spaceWidth(actionSpace)
  const numOutputs = choices.length > 0 ? choices.reduce((sum, size) => sum + size, 0) : actionWidth
  return { numOutputs, choices, actionWidth }
}

export function headPlan({ numOutputs, choices, actionWidth }: HeadShape, blockRows: number) {
  const rows = (width: number) => column('f32', blockRows, width)
  return {
    /** Logits or means. */
    output: rows(numOutputs),
    dOutput: rows(numOutputs),
    logprob: rows(1),
    entropy: rows(1),
    value: rows(1),
    dLogprob: rows(1),
    dEntropy: rows(1),
    dValue: rows(1),
    /** Uniform or normal random numbers of the action. */
    draws: rows(actionWidth),
    words: column('u32', 4),
    choices: column('i32', choices.length),
  }
}

export type HeadColumns = Columns<ReturnType<typeof headPlan>>

/** A bound head, in one thread. */
export class Head {
  readonly columns: HeadColumns
  readonly #shape: HeadShape
  /** Log standard deviations of a box action. */
  readonly #logStd: Float32Array
  readonly #kernels: Kernels
  readonly #random: Random

  constructor(shape: HeadShape, columns: HeadColumns, logStd: Float32Array, kernels: Kernels, random: Random) {
    this.columns = columns
    this.#shape = shape
    this.#logStd = logStd
    this.#kernels = kernels
    this.#random = random
    columns.choices.set(shape.choices)
  }

  /** Chooses actions for `count` lanes from `from`, whose outputs start at row 0: writes chosen and logprob. */
  act(lanes: ActingLanes, explore: boolean, from: number, count: number): void {
    const { output, draws, words, choices } = this.columns
    const { numOutputs, actionWidth } = this.#shape
    const { key0, key1 } = this.#random
    const { lane, episode, step } = lanes.episode
    const { chosen, logprob } = lanes.action
    const kernels = this.#kernels
    if (chosen instanceof Int32Array) {
      this.#mask(lanes.actionMask.current, from, count)
      if (explore) {
        kernels.drawUniform(draws, words, lane, episode, step, key0, key1, count, actionWidth, from)
        kernels.categoricalSample(chosen, logprob, output, draws, choices, count, actionWidth, numOutputs, from)
      } else kernels.categoricalMode(chosen, logprob, output, choices, count, actionWidth, numOutputs, from)
    } else if (explore) {
      kernels.drawNormal(draws, words, lane, episode, step, key0, key1, count, actionWidth, from)
      kernels.gaussianSample(chosen, logprob, output, this.#logStd, draws, count, actionWidth, from)
    } else kernels.gaussianMode(chosen, logprob, output, this.#logStd, count, actionWidth, from)
  }

  /** Computes logprob and entropy of the actions of rows `from` to `from + count`, whose outputs start at row 0. */
  evaluate({ action, actionMask }: Rows, from: number, count: number): void {
    const { output, logprob, entropy, choices } = this.columns
    const { numOutputs, actionWidth } = this.#shape
    if (action instanceof Int32Array) {
      this.#mask(actionMask, from, count)
      this.#kernels.categoricalEvaluate(logprob, entropy, action, output, choices, count, actionWidth, numOutputs, from)
    } else {
      this.#kernels.gaussianEvaluate(logprob, entropy, action, output, this.#logStd, count, actionWidth, from)
    }
  }

  /** Computes dOutput from dLogprob and dEntropy, after `evaluate` of the same rows; adds to `dLogStd` for a box action. */
  backward({ action }: Rows, from: number, count: number, dLogStd: Float32Array): void {
    const { output, dOutput, dLogprob, dEntropy, choices } = this.columns
    const { numOutputs, actionWidth } = this.#shape
    if (action instanceof Int32Array) {
      this.#kernels.categoricalBackward(
        dOutput,
        dLogprob,
        dEntropy,
        action,
        output,
        choices,
        count,
        actionWidth,
        numOutputs,
        from,
      )
    } else {
      this.#kernels.gaussianBackward(
        dOutput,
        dLogStd,
        dLogprob,
        dEntropy,
        action,
        output,
        this.#logStd,
        count,
        actionWidth,
        from,
      )
    }
  }

  get evaluated(): Evaluated {
    return this.columns
  }

  /** Receives the loss's derivatives by the evaluation. */
  get derivatives(): Derivatives {
    return this.columns
  }

  #mask(actionMask: Uint8Array, from: number, count: number): void {
    if (actionMask.length === 0) return
    this.#kernels.maskLogits(this.columns.output, actionMask, count, this.#shape.numOutputs, from)
  }
}
