/**
 * Computes losses of preferences over the answers of a micro-batch. Each token of an answer has the derivative of its sum. The rows of a
 * pair are in one micro-batch, so a pair needs one forward pass. The batch's loss is the mean over pairs or answers.
 */
import type { TokenSpans } from '../../kernels/bind.ts'
import { derivativeName, type LossProgram, LossRun } from './loss-program.ts'

/** Sums over the tokens of each answer, in nats; the same sums with the reference's weights; numbers of tokens; and the data's margin. */
export const pairColumns = [
  'chosenLogprob',
  'rejectedLogprob',
  'referenceChosenLogprob',
  'referenceRejectedLogprob',
  'chosenTokens',
  'rejectedTokens',
  // The prompt's tokens included.
  'chosenTextLogprob',
  'chosenTextTokens',
  // Of the value head, after the answer's last token.
  'chosenScore',
  'rejectedScore',
  'margin',
] as const

/** The same for a single answer; whether it is good, 1 or 0; and the batch's KL to the reference, from answers to other prompts, ≥ 0. */
export const answerColumns = ['logprob', 'referenceLogprob', 'tokens', 'isGood', 'kl'] as const

export const differentiable = [
  'chosenLogprob',
  'rejectedLogprob',
  'chosenTextLogprob',
  'chosenScore',
  'rejectedScore',
  'logprob',
] as const

/** Rewards for metrics: of a pair's answers, or of a single one. */
export const told = ['chosenReward', 'rejectedReward', 'reward'] as const

/** The answers of a batch, one row each, in the batch's order. */
export interface ComparedRows {
  /** The rows of a pair are adjacent and have the same number. */
  readonly unit: Int32Array
  /** 1 for a chosen or good answer. */
  readonly isGood: Uint8Array
  /** The reference's sum of log-probabilities over the answer; unused without a reference. */
  readonly reference: Float64Array
  /** The data's margin of the pair. */
  readonly margin: Float64Array
  /** The batch's KL to the reference; 0 for losses that do not read it. */
  readonly kl: number
}

/**
 * Sums of a batch of preferences, in place of those of `PolicySum`: the loss; numbers of tokens, and of good and bad answers; sums of their
 * rewards and log-probabilities; and how many chosen answers have the higher reward. Rewards that the loss does not return are NaN.
 */
export const PreferenceSum = {
  loss: 0,
  tokens: 1,
  good: 2,
  bad: 3,
  goodReward: 4,
  badReward: 5,
  goodLogprob: 6,
  badLogprob: 7,
  accurate: 8,
} as const

/** Columns of tokens: the results of a batch's forward pass and the positions of its answers. */
export interface PreferenceInputs {
  readonly logprob: Float32Array
  /** Empty without a value head. */
  readonly value: Float32Array
  readonly counted: Uint8Array
  readonly spans: TokenSpans
  readonly compared: ComparedRows
}

/** `dValue` is empty without a value head. */
export interface PreferenceOutputs {
  readonly dLogprob: Float32Array
  readonly dEntropy: Float32Array
  readonly dValue: Float32Array
  readonly sums: Float64Array
}

/** A program with its registers, in one thread. */
export class PreferenceRun {
  readonly #run: LossRun
  readonly #program: LossProgram

  constructor(program: LossProgram) {
    this.#program = program
    this.#run = new LossRun(program)
  }

  /**
   * Writes the derivatives by the tokens of rows `from` … `to` − 1, which are whole pairs. Adds to the sums in the order of
   * `PreferenceSum`.
   */
  differentiate(
    outputs: PreferenceOutputs,
    inputs: PreferenceInputs,
    denominator: number,
    from: number,
    to: number,
  ): void {
    const count = this.#load(inputs, from, to)
    this.#run.run(count)
    this.#write(outputs, inputs, denominator, from, to)
    this.#add(outputs.sums, inputs, denominator, from, to, count)
  }

  /** Fills the registers, and returns the number of pairs or answers. */
  #load({ logprob, value, counted, spans, compared }: PreferenceInputs, from: number, to: number): number {
    const { unit, isGood, reference, margin, kl } = compared
    let count = 0
    for (let i = from; i < to; i++) if (i === from || unit[i] !== unit[i - 1]) count++
    const column = (name: string) => this.#run.column(name, count)
    const sides = [
      [
        column('rejectedLogprob'),
        column('referenceRejectedLogprob'),
        column('rejectedTokens'),
        column('rejectedScore'),
      ],
      [column('chosenLogprob'), column('referenceChosenLogprob'), column('chosenTokens'), column('chosenScore')],
    ] as const
    const single = [column('logprob'), column('referenceLogprob'), column('tokens'), undefined] as const
    const ofPairs = !answerColumns.some((name) => Object.hasOwn(this.#program.columns, name))
    const [text, textTokens, margins] = [column('chosenTextLogprob'), column('chosenTextTokens'), column('margin')]
    const [good, kls] = [column('isGood'), column('kl')]
    for (let i = from, u = -1; i < to; i++) {
      if (i === from || unit[i] !== unit[i - 1]) u++
      let [sum, tokens, whole] = [0, 0, 0]
      for (let t = spans.begin[i]! + 1; t < spans.end[i]!; t++) {
        whole += logprob[t]!
        if (counted[t] === 0) continue
        sum += logprob[t]!
        tokens++
      }
      const [logprobs, references, counts, scores] = ofPairs ? sides[isGood[i] as 0 | 1] : single
      if (logprobs !== undefined) logprobs[u] = sum
      if (references !== undefined) references[u] = reference[i]!
      if (counts !== undefined) counts[u] = tokens
      if (scores !== undefined) scores[u] = value[spans.end[i]! - 1]!
      if (margins !== undefined) margins[u] = margin[i]!
      if (good !== undefined) good[u] = isGood[i]!
      if (kls !== undefined) kls[u] = kl
      if (isGood[i] === 0) continue
      if (text !== undefined) text[u] = whole
      if (textTokens !== undefined) textTokens[u] = spans.end[i]! - spans.begin[i]! - 1
    }
    return count
  }

  /** Gives each token the derivative of its answer's sum, and the last token of a row the derivative of its score. */
  #write(
    { dLogprob, dEntropy, dValue }: PreferenceOutputs,
    { counted, spans, compared: { unit, isGood } }: PreferenceInputs,
    denominator: number,
    from: number,
    to: number,
  ): void {
    const by = (name: (typeof differentiable)[number]) => this.#run.result(derivativeName(name))!
    const [single, text] = [by('logprob'), by('chosenTextLogprob')]
    const sides = [
      [by('rejectedLogprob'), by('rejectedScore')],
      [by('chosenLogprob'), by('chosenScore')],
    ] as const
    for (let i = from, u = -1; i < to; i++) {
      if (i === from || unit[i] !== unit[i - 1]) u++
      const [begin, end] = [spans.begin[i]!, spans.end[i]!]
      const [answers, scores] = sides[isGood[i] as 0 | 1]
      const whole = isGood[i] === 1 ? text[u]! : 0
      const own = answers[u]! + single[u]!
      dEntropy.fill(0, begin, end)
      dLogprob[begin] = 0
      for (let t = begin + 1; t < end; t++) dLogprob[t] = ((counted[t] === 0 ? 0 : own) + whole) / denominator
      if (dValue.length === 0) continue
      dValue.fill(0, begin, end)
      dValue[end - 1] = scores[u]! / denominator
    }
  }

  #add(
    sums: Float64Array,
    { logprob, counted, spans, compared: { unit, isGood } }: PreferenceInputs,
    denominator: number,
    from: number,
    to: number,
    count: number,
  ): void {
    const add = (sum: number, value: number) => {
      sums[sum] = sums[sum]! + value
    }
    const result = (name: string) => this.#run.result(name)
    const [single, chosen, rejected] = [result('reward'), result('chosenReward'), result('rejectedReward')]
    const loss = result('loss')!
    for (let u = 0; u < count; u++) {
      add(PreferenceSum.loss, loss[u]! / denominator)
      if (chosen !== undefined && rejected !== undefined && chosen[u]! > rejected[u]!) add(PreferenceSum.accurate, 1)
    }
    for (let i = from, u = -1; i < to; i++) {
      if (i === from || unit[i] !== unit[i - 1]) u++
      const isChosen = isGood[i] === 1
      const reward = single ?? (isChosen ? chosen : rejected)
      add(isChosen ? PreferenceSum.good : PreferenceSum.bad, 1)
      add(isChosen ? PreferenceSum.goodReward : PreferenceSum.badReward, reward === undefined ? Number.NaN : reward[u]!)
      for (let t = spans.begin[i]! + 1; t < spans.end[i]!; t++) {
        if (counted[t] === 0) continue
        add(isChosen ? PreferenceSum.goodLogprob : PreferenceSum.badLogprob, logprob[t]!)
        add(PreferenceSum.tokens, 1)
      }
    }
  }
}
