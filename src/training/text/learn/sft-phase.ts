/**
 * Steps on the environment's answers, with a new order of examples each epoch: supervised fine-tuning, or a loss of preferences. The
 * reference's log-probabilities of compared answers are computed once, when a step first needs them, and saved with the learner.
 */
import { comparesAnswers, comparisonOf, type LossDescriptor, prepareLoss } from '../../../algorithms/losses/losses.ts'
import { type ComparedRows, PreferenceSum } from '../../../algorithms/losses/preference-run.ts'
import { learningRateOf } from '../../../algorithms/optimizers/optimizer.ts'
import { scheduleFactor } from '../../../algorithms/schedule.ts'
import { ratesOf, type SftDefinition } from '../../../algorithms/tokens/sft.ts'
import { markLearned, packBatch, type TokenBatch, type TokenSequences } from '../../../algorithms/tokens/token-batch.ts'
import type { TokenLossColumns, TokenUpdateColumns } from '../../../algorithms/tokens/token-thread.ts'
import { Work } from '../../../base/clock.ts'
import type { Metrics } from '../../../base/metrics.ts'
import { whileHeld } from '../../../engines/engine.ts'
import { PolicySum, spansOf } from '../../../kernels/bind.ts'
import { answersOf, lessonOf, mismatchedRow } from '../../../language/examples.ts'
import type { TrainingExample } from '../../../language/tokenizers/turn-ids.ts'
import type { SoftTargets } from '../../../language/transformer/soft-targets.ts'
import { exampleAt } from '../../../world/conversations/cohort.ts'
import { differentiate } from '../../backends/backend.ts'
import type { PreferenceMetrics } from '../evaluate/metrics.ts'
import { type Phase, type PhaseMetrics, type PhaseParts, publishWeights } from './phase.ts'
import { examplesPlan, lessonRows } from './plan.ts'
import { openTargets } from './teacher.ts'
import { columnsFor, inOwnMemory } from './token-update.ts'

export class SftPhase implements Phase {
  done = 0
  readonly isMidway = true
  readonly #parts: PhaseParts
  readonly #sft: SftDefinition
  /** Null before it is opened, and without one. */
  #teacher: SoftTargets | null = null

  constructor(parts: PhaseParts, sft: SftDefinition) {
    this.#parts = parts
    this.#sft = sft
    parts.columns.answerLogprob.fill(Number.NaN)
  }

  get metrics(): Metrics {
    return this.#sft.metrics
  }

  get total(): number {
    return this.#sft.settings.updates
  }

  async advance(): Promise<PhaseMetrics> {
    const { teacher } = this.#sft.settings
    if (teacher !== '') this.#teacher ??= await openTargets('sft.teacher', teacher, this.#parts.cohort)
    return whileHeld(this.#parts.cohort.engine, () => this.#learn())
  }

  async #learn(): Promise<PhaseMetrics> {
    const { settings, loss } = this.#sft
    const { cohort, backend } = this.#parts
    const { kernels, clock } = this.#parts.world
    const { batchSize, updates, learningRate, learningRateSchedule, warmupFraction, maxGradNorm } = settings
    const examples = Array.from({ length: batchSize }, (_, i) => {
      return exampleAt(cohort, kernels, this.done * batchSize + i).promptId
    })
    const rows = this.#rowsOf(examples)
    const mismatched = this.#mismatched(examples)
    const sequences = this.#inColumns([...rows, ...mismatched])
    const maxRows = lessonRows(cohort.context, loss)
    const unit = rows.map((row) => row.unit)
    const batch = packBatch({ ...someOf(sequences, keysOf(rows)), unit }, maxRows)
    const size = { rows: rows.length + mismatched.length, tokens: sequences.token.length }
    const update = columnsFor(this.#parts.columns.update, size)
    markLearned(update.learned, batch)
    const { referenceLogprob } = update
    const learned = { spans: batch.spans, lossMask: update.learned, referenceLogprob }
    let totals = prepareLoss(loss, learned, update.prepared, kernels)
    clock.charge(Work.gather)
    const none = new Float32Array(0)
    const taught = this.#teacher === null ? {} : { teacher: this.#teacher }
    let given: TokenLossColumns = {
      oldLogprob: none,
      referenceLogprob: null,
      oldValue: none,
      wholeTokens: null,
      ...taught,
    }
    let kl: number | null = null
    if (comparesAnswers(loss)) {
      const first = rows.length
      const others =
        mismatched.length === 0
          ? null
          : someOf(
              sequences,
              keysOf(mismatched).map((i) => first + i),
            )
      if (others !== null) kl = await this.#divergence(others, update)
      if (loss.columns.includes('referenceLogprob')) await this.#askReference(rows, sequences, update)
      const compared = this.#compared(rows, batch, update, kl ?? 0)
      given = { ...given, compared }
      totals = { ...totals, denominator: new Set(unit).size }
    }
    const options = { temperature: 1, step: this.done }
    const sums = await differentiate(backend, kernels, batch, { loss, totals, given, update }, options)
    const rate =
      learningRateOf(learningRate, ratesOf(this.#sft), cohort) *
      scheduleFactor(learningRateSchedule, warmupFraction, this.done, updates)
    const gradNorm = await backend.optimStep(settings, rate, maxGradNorm)
    clock.charge(Work.optimizer)
    this.done++
    await publishWeights(this.#parts, cohort.version + 1)
    clock.charge(Work.account)
    return {
      phase: 'sft',
      step: this.done,
      loss: sums.policy[PolicySum.loss]!,
      learningRate: rate,
      gradNorm,
      tokens: totals.numTokens,
      ...(comparesAnswers(loss) && { preference: preferenceMetricsOf(loss, sums.policy, kl) }),
      rl: null,
    }
  }

  /** The rows of a step's examples. Each pair of answers is a unit; so is any other row. */
  #rowsOf(examples: readonly number[]): LessonRow[] {
    const { cohort } = this.#parts
    const { loss } = this.#sft
    let unit = 0
    return examples.flatMap((example) => {
      const comparison = comparisonOf(loss)
      if (comparison === null)
        return lessonOf(cohort, example).map((row) => ({ ...row, ...ALONE, example, unit: unit++ }))
      const answers = answersOf(cohort, example, comparison)
      if (loss.level === 'answer') return answers.map((row) => ({ ...row, example, unit: unit++ }))
      const own = unit++
      return answers.map((row) => ({ ...row, example, unit: own }))
    })
  }

  /** Each example's prompt with the answer of the one before, if the loss needs the KL: the batch's own answers, to other prompts. */
  #mismatched(examples: readonly number[]): TrainingExample[] {
    const { loss } = this.#sft
    if (!comparesAnswers(loss) || !Object.hasOwn(loss.program!.columns, 'kl')) return []
    const rows = examples.map((example, i) => mismatchedRow(this.#parts.cohort, example, examples.at(i - 1)!))
    return rows.filter((row) => row !== null)
  }

  /** The mean over sequences of the policy's log-probability minus the reference's, at least 0. */
  async #divergence(sequences: TokenSequences, update: TokenUpdateColumns): Promise<number> {
    const policy = await this.#sumsOf(sequences, 'policy', update)
    const reference = await this.#sumsOf(sequences, 'reference', update)
    const total = policy.reduce((sum, value, i) => sum + value - reference[i]!, 0)
    return Math.max(0, total / policy.length)
  }

  /** Computes the reference's log-probabilities of answers that no step has needed so far. */
  async #askReference(
    rows: readonly LessonRow[],
    sequences: TokenSequences,
    update: TokenUpdateColumns,
  ): Promise<void> {
    const { answerLogprob } = this.#parts.columns
    const unknown = keysOf(rows).filter((i) => Number.isNaN(answerLogprob[placeOf(rows[i]!)]))
    if (unknown.length === 0) return
    const sums = await this.#sumsOf(someOf(sequences, unknown), 'reference', update)
    for (const [k, i] of unknown.entries()) answerLogprob[placeOf(rows[i]!)] = sums[k]!
  }

  /** The log-probabilities of sequences, each summed over its learned tokens, with the policy's or the reference's weights. */
  async #sumsOf(
    sequences: TokenSequences,
    whose: 'policy' | 'reference',
    { referenceLogprob: logprob, entropy, value }: TokenUpdateColumns,
  ): Promise<Float64Array> {
    const { backend, cohort } = this.#parts
    const batch = packBatch(sequences, lessonRows(cohort.context, this.#sft.loss))
    await backend.forward(batch, whose, 1, { logprob, entropy, value })
    const sums = new Float64Array(batch.order.length)
    const { begin, end, lossMask } = sequences
    for (const i of sums.keys()) {
      for (let t = begin[i]! + 1; t < end[i]!; t++) if (lossMask[t] === 1) sums[i] = sums[i]! + logprob[t]!
    }
    return sums
  }

  #compared(
    rows: readonly LessonRow[],
    { order }: TokenBatch,
    { compared }: TokenUpdateColumns,
    kl: number,
  ): ComparedRows {
    const { answerLogprob } = this.#parts.columns
    for (const [place, i] of order.entries()) {
      const { unit, isGood, margin } = rows[i]!
      compared.unit[place] = unit
      compared.isGood[place] = isGood ? 1 : 0
      compared.margin[place] = margin
      compared.reference[place] = answerLogprob.length === 0 ? 0 : answerLogprob[placeOf(rows[i]!)]!
    }
    return { ...compared, kl }
  }

  /** Rows as columns: the planned ones if they fit. */
  #inColumns(rows: readonly TrainingExample[]): TokenSequences {
    const offsets = new Int32Array(rows.length + 1)
    for (const [i, { ids }] of rows.entries()) offsets[i + 1] = offsets[i]! + ids.length
    const size = { rows: rows.length, tokens: offsets.at(-1)! }
    const planned = this.#parts.columns.examples
    const { token, lossMask } = size.tokens <= planned.token.length ? planned : inOwnMemory(examplesPlan(size))
    for (const [i, row] of rows.entries()) {
      token.set(row.ids, offsets[i])
      lossMask.set(row.lossMask, offsets[i])
    }
    return { ...spansOf(offsets), token, lossMask }
  }
}

/** A row of a step: its example, its unit, and how it is compared. */
interface LessonRow extends TrainingExample {
  readonly example: number
  readonly unit: number
  readonly isGood: boolean
  readonly margin: number
}

/** Of rows that are not compared. */
const ALONE = { isGood: true, margin: 0 }

/** The place of a row's answer among those of all examples. */
function placeOf({ example, isGood }: LessonRow): number {
  return 2 * example + (isGood ? 0 : 1)
}

function keysOf(rows: readonly unknown[]): number[] {
  return [...rows.keys()]
}

function someOf(sequences: TokenSequences, some: readonly number[]): TokenSequences {
  const { begin, end } = sequences
  return { ...sequences, begin: Int32Array.from(some, (i) => begin[i]!), end: Int32Array.from(some, (i) => end[i]!) }
}

function preferenceMetricsOf({ level }: LossDescriptor, sums: Float64Array, kl: number | null): PreferenceMetrics {
  const mean = (sum: number, count: number) => {
    const value = sums[sum]! / sums[count]!
    return Number.isFinite(value) ? value : null
  }
  const { good, bad } = PreferenceSum
  const chosenReward = mean(PreferenceSum.goodReward, good)
  const rejectedReward = mean(PreferenceSum.badReward, bad)
  const hasBoth = chosenReward !== null && rejectedReward !== null
  return {
    chosenReward,
    rejectedReward,
    rewardMargin: hasBoth ? chosenReward - rejectedReward : null,
    rewardAccuracy: level === 'pair' && hasBoth ? mean(PreferenceSum.accurate, good) : null,
    chosenLogprob: mean(PreferenceSum.goodLogprob, good),
    rejectedLogprob: mean(PreferenceSum.badLogprob, bad),
    preferenceKl: kl,
  }
}
