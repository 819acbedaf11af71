/** Losses over tokens as expressions: their inputs, and how their programs run over whole sequences. */
import { type PolicyLossInputs, type PolicyLossOutputs, PolicySum } from '../../kernels/bind.ts'
import {
  type LossColumns,
  type LossProgram,
  type LossResult,
  LossRun,
  PROGRAM_ROWS,
  traceLoss,
} from '../losses/loss-program.ts'

const tokenColumnNames = [
  'logprob',
  'entropy',
  'oldLogprob',
  'referenceLogprob',
  'advantage',
  'weight',
  'sequenceTokens',
] as const

/** Columns of tokens by name. */
export type NamedTokenColumns = LossColumns<(typeof tokenColumnNames)[number]>

/** Optional results that are summed for metrics. Without `ratio` the token's ratio is used; without `policyLoss`, the loss. */
const told = ['policyLoss', 'klPenalty', 'ratio', 'clippedLow', 'clippedHigh', 'capped'] as const

/** Traces a token loss into a program. @throws InputError as `traceLoss` does. */
export function traceTokenLoss(id: string, loss: (columns: NamedTokenColumns) => LossResult): LossProgram {
  const differentiable = ['logprob', 'entropy'] as const
  return traceLoss(id, loss, {
    columns: tokenColumnNames,
    differentiable,
    results: [],
    optional: told,
    hasSequences: true,
  })
}

/** A program with its registers, in one thread. It replaces the kernel `policyLoss` for a custom loss. */
export class TokenLossRun {
  readonly #run: LossRun
  /** The trained tokens of the current sequences, and the end of each sequence among them. */
  #tokens = new Int32Array(PROGRAM_ROWS)
  readonly #ends = new Int32Array(PROGRAM_ROWS)

  constructor(program: LossProgram) {
    this.#run = new LossRun(program)
  }

  /**
   * Writes dLogprob and dEntropy of the tokens of sequences `from` … `to` − 1 and adds to the sums. Inputs, sums and denominator are
   * those of the kernel `policyLoss`. The number of clipped tokens is NaN if the loss does not return it.
   */
  differentiate(
    outputs: PolicyLossOutputs,
    inputs: PolicyLossInputs,
    perSequence: boolean,
    denominator: number,
    from: number,
    to: number,
  ): void {
    const { counted, spans } = inputs
    let [first, size, count] = [from, 0, 0]
    for (let i = from; i < to; i++) {
      const begin = spans.begin[i]!
      const end = spans.end[i]!
      outputs.dLogprob.fill(0, begin, end)
      outputs.dEntropy.fill(0, begin, end)
      const length = countOf(counted, begin, end)
      if (size === PROGRAM_ROWS || (count > 0 && count + length > PROGRAM_ROWS)) {
        this.#differentiate(outputs, inputs, perSequence, denominator, first, size, count)
        first = i
        size = count = 0
      }
      if (count + length > this.#tokens.length) this.#tokens = new Int32Array(count + length)
      for (let t = begin; t < end; t++) if (counted[t] !== 0) this.#tokens[count++] = t
      this.#ends[size++] = count
    }
    this.#differentiate(outputs, inputs, perSequence, denominator, first, size, count)
  }

  /** Differentiates sequences `first` … `first + size − 1`, whose tokens are listed. */
  #differentiate(
    { dLogprob, dEntropy, sums }: PolicyLossOutputs,
    inputs: PolicyLossInputs,
    perSequence: boolean,
    denominator: number,
    first: number,
    size: number,
    count: number,
  ): void {
    const { logprob, entropy, oldLogprob, advantage, weight, referenceLogprob, wholeTokens } = inputs
    const tokens = this.#tokens
    const run = this.#run
    load(run.column('logprob', count), logprob, tokens, count)
    load(run.column('entropy', count), entropy, tokens, count)
    load(run.column('oldLogprob', count), oldLogprob, tokens, count)
    if (referenceLogprob !== null) load(run.column('referenceLogprob', count), referenceLogprob, tokens, count)
    load(run.column('advantage', count), advantage, tokens, count)
    const weights = run.column('weight', count)
    if (weight === null) weights?.fill(1, 0, count)
    else load(weights, weight, tokens, count)
    const sequenceTokens = run.column('sequenceTokens', count)
    for (let s = 0, from = 0; sequenceTokens !== undefined && s < size; from = this.#ends[s++]!) {
      sequenceTokens.fill(this.#ends[s]! - from, from, this.#ends[s])
    }
    run.run(count, this.#ends, size)
    const loss = run.result('loss')!
    const byLogprob = run.result('dLogprob')!
    const byEntropy = run.result('dEntropy')!
    for (let s = 0, from = 0; s < size; from = this.#ends[s++]!) {
      const end = this.#ends[s]!
      const scale = 1 / (denominator * (perSequence ? (wholeTokens?.[first + s] ?? end - from) : 1))
      for (let row = from; row < end; row++) {
        const t = tokens[row]!
        dLogprob[t] = scale * byLogprob[row]!
        dEntropy[t] = scale * byEntropy[row]!
        sums[PolicySum.loss] = sums[PolicySum.loss]! + scale * loss[row]!
      }
    }
    sums[PolicySum.tokens] = sums[PolicySum.tokens]! + count
    const ratio = addFigures(sums, logprob, oldLogprob, referenceLogprob, entropy, tokens, count)
    for (const name of told) {
      const usual = name === 'ratio' ? ratio : name === 'policyLoss' ? run.sum('loss', count) : undefined
      sums[PolicySum[name]] = sums[PolicySum[name]]! + (run.sum(name, count) ?? usual ?? Number.NaN)
    }
  }
}

/** Adds the metrics that do not depend on the loss. Returns the sum of the tokens' ratios. */
function addFigures(
  sums: Float64Array,
  logprob: Float32Array,
  oldLogprob: Float32Array,
  referenceLogprob: Float32Array | null,
  entropy: Float32Array,
  tokens: Int32Array,
  count: number,
): number {
  let ratio = 0
  for (let row = 0; row < count; row++) {
    const t = tokens[row]!
    const own = logprob[t]! - oldLogprob[t]!
    sums[PolicySum.entropy] = sums[PolicySum.entropy]! + entropy[t]!
    ratio += Math.exp(own)
    sums[PolicySum.k1] = sums[PolicySum.k1]! - own
    sums[PolicySum.k2] = sums[PolicySum.k2]! + 0.5 * own * own
    sums[PolicySum.k3] = sums[PolicySum.k3]! + Math.exp(own) - 1 - own
    if (referenceLogprob === null) continue
    const away = logprob[t]! - referenceLogprob[t]!
    sums[PolicySum.referenceK1] = sums[PolicySum.referenceK1]! + away
    sums[PolicySum.referenceK2] = sums[PolicySum.referenceK2]! + 0.5 * away * away
    sums[PolicySum.referenceK3] = sums[PolicySum.referenceK3]! + Math.exp(-away) - 1 + away
  }
  return ratio
}

function load(register: Float64Array | undefined, column: Float32Array, tokens: Int32Array, count: number): void {
  if (register === undefined) return
  for (let row = 0; row < count; row++) register[row] = column[tokens[row]!]!
}

function countOf(counted: Uint8Array, from: number, end: number): number {
  let count = 0
  for (let t = from; t < end; t++) if (counted[t] !== 0) count++
  return count
}
