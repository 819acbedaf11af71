/**
 * A teacher's distributions as targets of packed rows (Hinton et al. 2015). The loss of a row is the forward KL divergence, so that the
 * row's log-probability in place of that of one token is its negative:
 *
 *     −KL(q ‖ p) = Σⱼ q[j] (log p[j] − log q[j])        ∂ (−KL) / ∂ z[j] = q[j] − p[j]
 *
 * with the teacher's probabilities q, the student's p and logits z, at temperature 1 over the whole vocabulary. q is computed chunk by
 * chunk, beside the student's.
 */
import type { TokenSpans } from '../../kernels/bind.ts'
import type { PackedTransformer, TokensEvaluated } from './packed.ts'
import { VOCABULARY_CHUNK } from './parameters.ts'
import type { RowTargets } from './several-targets.ts'

export class SoftTargets implements RowTargets {
  readonly #teacher: PackedTransformer
  #rows = 0
  #entropy: TokensEvaluated['entropy'] = new Float32Array(0)
  /** Σ q[j] z[j] of each row so far. */
  #expected = new Float64Array(0)
  /** The chunk whose probabilities are in `#probability`; -1: none. */
  #chunk = -1
  #probability: Float32Array = new Float32Array(0)

  constructor(teacher: PackedTransformer) {
    this.#teacher = teacher
  }

  /** Evaluates the teacher on sequences `from` to `to`. @throws InputError as `PackedTransformer.pack` does. */
  aim(token: ArrayLike<number>, spans: TokenSpans, from: number, to: number): void {
    this.#rows = this.#teacher.pack(token, spans, from, to)
    this.#entropy = this.#teacher.evaluate(this.#rows).entropy
    if (this.#expected.length < this.#rows) this.#expected = new Float64Array(this.#rows)
    this.#expected.fill(0)
    this.#chunk = -1
  }

  #turnTo(first: number): Float32Array {
    const chunk = first / VOCABULARY_CHUNK
    if (chunk !== this.#chunk) this.#probability = this.#teacher.probabilities(chunk, this.#rows)
    this.#chunk = chunk
    return this.#probability
  }

  take(logits: Float32Array, first: number, count: number): void {
    const probability = this.#turnTo(first)
    for (let row = 0; row < this.#rows; row++) {
      let sum = this.#expected[row]!
      for (let i = row * count; i < (row + 1) * count; i++) sum += probability[i]! * logits[i]!
      this.#expected[row] = sum
    }
  }

  evaluate(max: Float32Array, sum: Float32Array, logprob: Float32Array): void {
    for (let row = 0; row < this.#rows; row++) {
      logprob[row] = this.#expected[row]! - max[row]! - Math.log(sum[row]!) + this.#entropy[row]!
    }
  }

  sumDerivatives(): void {}

  addDerivatives(dLogits: Float32Array, first: number, count: number, dLogprob: Float32Array): void {
    const probability = this.#turnTo(first)
    for (let row = 0; row < this.#rows; row++) {
      for (let i = row * count; i < (row + 1) * count; i++) {
        dLogits[i] = dLogits[i]! + Math.fround(dLogprob[row]! * probability[i]!)
      }
    }
  }
}
