/** Supervised steps on the environment's answers, with a new order of examples each epoch. */
import { prepareLoss } from '../../../algorithms/losses/losses.ts'
import { learningRateOf } from '../../../algorithms/optimizers/optimizer.ts'
import { scheduleFactor } from '../../../algorithms/schedule.ts'
import { type SftDefinition, sftRates } from '../../../algorithms/tokens/sft.ts'
import { markLearned, packBatch, type TokenSequences } from '../../../algorithms/tokens/token-batch.ts'
import { Work } from '../../../base/clock.ts'
import type { Metrics } from '../../../base/metrics.ts'
import { whileHeld } from '../../../engines/engine.ts'
import { PolicySum, spansOf } from '../../../kernels/bind.ts'
import { lessonOf } from '../../../language/examples.ts'
import type { TrainingExample } from '../../../language/tokenizers/turn-ids.ts'
import { exampleAt } from '../../../world/conversations/cohort.ts'
import { differentiate } from '../../backends/backend.ts'
import { type Phase, type PhaseMetrics, type PhaseParts, publishWeights } from './phase.ts'
import { examplesPlan, microBatchRows } from './plan.ts'
import { columnsFor, inOwnMemory } from './token-update.ts'

export class SftPhase implements Phase {
  done = 0
  readonly isMidway = true
  readonly #parts: PhaseParts
  readonly #sft: SftDefinition

  constructor(parts: PhaseParts, sft: SftDefinition) {
    this.#parts = parts
    this.#sft = sft
  }

  get metrics(): Metrics {
    return this.#sft.metrics
  }

  get total(): number {
    return this.#sft.settings.updates
  }

  advance(): Promise<PhaseMetrics> {
    return whileHeld(this.#parts.cohort.engine, () => this.#learn())
  }

  async #learn(): Promise<PhaseMetrics> {
    const { settings, loss } = this.#sft
    const { cohort, backend } = this.#parts
    const { kernels, clock } = this.#parts.world
    const { batchSize, updates, learningRate, learningRateSchedule, warmupFraction, maxGradNorm } = settings
    const lessons = Array.from({ length: batchSize }, (_, i) => {
      const { promptId } = exampleAt(cohort, kernels, this.done * batchSize + i)
      return lessonOf(cohort, promptId)
    })
    const batch = packBatch(this.#inColumns(lessons.flat()), microBatchRows(cohort.context))
    const update = columnsFor(this.#parts.columns.update, { rows: batch.order.length, tokens: batch.token.length })
    markLearned(update.learned, batch)
    const learned = { spans: batch.spans, lossMask: update.learned }
    const totals = prepareLoss(loss, learned, update.prepared, kernels)
    clock.charge(Work.gather)
    const none = new Float32Array(0)
    const given = { oldLogprob: none, referenceLogprob: null, oldValue: none, wholeTokens: null }
    const options = { temperature: 1, step: this.done }
    const sums = await differentiate(backend, kernels, batch, { loss, totals, given, update }, options)
    const rate =
      learningRateOf(learningRate, sftRates, cohort) *
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
      rl: null,
    }
  }

  /** A step's examples as columns: the planned ones if they fit. */
  #inColumns(examples: readonly TrainingExample[]): TokenSequences {
    const offsets = new Int32Array(examples.length + 1)
    for (const [i, { ids }] of examples.entries()) offsets[i + 1] = offsets[i]! + ids.length
    const size = { rows: examples.length, tokens: offsets.at(-1)! }
    const planned = this.#parts.columns.examples
    const { token, lossMask } = size.tokens <= planned.token.length ? planned : inOwnMemory(examplesPlan(size))
    for (const [i, example] of examples.entries()) {
      token.set(example.ids, offsets[i])
      lossMask.set(example.lossMask, offsets[i])
    }
    return { ...spansOf(offsets), token, lossMask }
  }
}
