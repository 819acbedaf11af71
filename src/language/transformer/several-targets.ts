/**
 * Several targets for each packed row, as soft labels of a distillation have. Every target gets its log-probability from the same
 * logits, and the gradient by a row's logits is the sum of its targets' gradients:
 *
 *     log p[k] = z[target k] − m − log S        ∂ L / ∂ z[j] = Σₖ dLogprob[k] ([target k = j] − p[j])
 *
 * Numbers of targets lie row after row. Temperature is 1.
 */
import { InputError, show } from '../../base/errors.ts'

/** What packed rows have as targets in place of the next token: the log-probabilities of some tokens, or a whole distribution. */
export interface RowTargets {
  /** Takes what it needs of a chunk of logits (rows × count) that begins with token `first`. */
  take(logits: Float32Array, first: number, count: number): void
  /** Ends the evaluation, with the sums over the vocabulary; it may write the rows' log-probabilities. */
  evaluate(max: Float32Array, sum: Float32Array, logprob: Float32Array): void
  /** May write the rows' derivatives, from those of their targets. */
  sumDerivatives(dLogprob: Float32Array): void
  /** Adds the targets' part to a chunk's gradient by its logits. */
  addDerivatives(dLogits: Float32Array, first: number, count: number, dLogprob: Float32Array): void
}

export class SeveralTargets implements RowTargets {
  /** The log-probability of each target, in nats. */
  readonly logprob: Float32Array
  /** The derivative of the loss by it. */
  readonly dLogprob: Float32Array
  /** Index of each row's first target, and behind the last row the number of targets. */
  readonly #begin: Int32Array
  readonly #ids: Int32Array

  /**
   * @param sequences The target ids of each sequence, `each` of them for every row; default 1.
   * @throws InputError for an id outside the vocabulary.
   */
  constructor(
    sequences: readonly { readonly targets: ArrayLike<number>; readonly each?: number }[],
    vocabularySize: number,
  ) {
    const begin = [0]
    for (const { targets, each = 1 } of sequences) {
      for (let at = 0; at < targets.length; at += each) begin.push(begin.at(-1)! + each)
    }
    const ids = new Int32Array(begin.at(-1)!)
    let n = 0
    for (const { targets } of sequences) {
      for (let i = 0; i < targets.length; i++) ids[n++] = checkTarget(targets[i], vocabularySize)
    }
    this.#begin = Int32Array.from(begin)
    this.#ids = ids
    this.logprob = new Float32Array(ids.length)
    this.dLogprob = new Float32Array(ids.length)
  }

  /** Takes the targets' logits out of a chunk (rows × count) that begins with token `first`. */
  take(logits: Float32Array, first: number, count: number): void {
    this.#within(first, count, (target, place) => {
      this.logprob[target] = logits[place]!
    })
  }

  /** Turns the logits into log-probabilities, with the sums over the vocabulary. */
  evaluate(max: Float32Array, sum: Float32Array): void {
    const begin = this.#begin
    for (let row = 0; row < begin.length - 1; row++) {
      const under = max[row]! + Math.log(sum[row]!)
      for (let target = begin[row]!; target < begin[row + 1]!; target++) this.logprob[target]! -= under
    }
  }

  /** Writes each row's sum of derivatives, with which the other tokens' gradient is computed. */
  sumDerivatives(dLogprob: Float32Array): void {
    const begin = this.#begin
    for (let row = 0; row < begin.length - 1; row++) {
      let sum = 0
      for (let target = begin[row]!; target < begin[row + 1]!; target++) sum += this.dLogprob[target]!
      dLogprob[row] = sum
    }
  }

  /** Adds the targets' derivatives to a chunk's gradient by its logits. */
  addDerivatives(dLogits: Float32Array, first: number, count: number): void {
    this.#within(first, count, (target, place) => {
      dLogits[place]! += this.dLogprob[target]!
    })
  }

  #within(first: number, count: number, visit: (target: number, place: number) => void): void {
    const [begin, ids] = [this.#begin, this.#ids]
    for (let row = 0; row < begin.length - 1; row++) {
      for (let target = begin[row]!; target < begin[row + 1]!; target++) {
        const token = ids[target]! - first
        if (token >= 0 && token < count) visit(target, row * count + token)
      }
    }
  }
}

/** @throws InputError for an id outside the vocabulary. */
export function checkTarget(target: unknown, vocabularySize: number): number {
  if (typeof target === 'number' && Number.isSafeInteger(target) && target >= 0 && target < vocabularySize)
    return target
  throw new InputError('target_tokens', show(target), `a whole number from 0 to ${vocabularySize - 1}`)
}
