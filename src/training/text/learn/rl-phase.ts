/** Updates of reinforcement learning from collected conversations. */
import { totalsOf } from '../../../algorithms/losses/losses.ts'
import { learningRateOf } from '../../../algorithms/optimizers/optimizer.ts'
import { scheduleFactor } from '../../../algorithms/schedule.ts'
import { type RlDefinition, rlRates } from '../../../algorithms/tokens/rl.ts'
import { minibatchOf, packBatch, type TokenBatch } from '../../../algorithms/tokens/token-batch.ts'
import { microBatchRows, type TokenLossSums } from '../../../algorithms/tokens/token-learner.ts'
import type { TokenUpdateColumns } from '../../../algorithms/tokens/token-thread.ts'
import { Work } from '../../../base/clock.ts'
import { InputError, show } from '../../../base/errors.ts'
import type { Metrics } from '../../../base/metrics.ts'
import { Stream } from '../../../base/random.ts'
import { whileHeld } from '../../../engines/engine.ts'
import { PolicySum, Standing, TokenSum } from '../../../kernels/bind.ts'
import { interruptTurns } from '../../../systems/conversations/infer.ts'
import type { TrajectoryRows } from '../../../tables/trajectories/trajectories.ts'
import { isOfModel } from '../../../tables/trajectories/trajectory.ts'
import { differentiate, type TrainingBackend } from '../../backends/backend.ts'
import type { Collector } from '../../loop/collector.ts'
import { mismatchKl, rewardMetrics, spreadOf, stalenessOf } from '../evaluate/metrics.ts'
import { type Phase, type PhaseMetrics, type PhaseParts, publishWeights } from './phase.ts'
import { openTeacher, type Teacher } from './teacher.ts'
import { tokenForms } from './token-forms.ts'
import { columnsFor, type Evaluator, prepareUpdate } from './token-update.ts'

export class RlPhase implements Phase {
  done = 0
  readonly #parts: PhaseParts
  readonly #rl: RlDefinition
  readonly #collector: Collector
  /** Steps of earlier phases, which key an adapter's dropout together with its own. */
  readonly #stepsBefore: () => number
  #isLearning = false
  /** Why an update failed whose groups are taken, and some of whose steps may have been made. */
  #failure: { readonly update: number; readonly cause: unknown } | null = null
  /** Null before it is opened, and without one. */
  #teacher: Teacher | null = null

  constructor(parts: PhaseParts, rl: RlDefinition, collector: Collector, stepsBefore: () => number) {
    this.#parts = parts
    this.#rl = rl
    this.#collector = collector
    this.#stepsBefore = stepsBefore
  }

  get metrics(): Metrics {
    return this.#rl.metrics
  }

  get total(): number {
    return this.#rl.settings.updates
  }

  get isMidway(): boolean {
    return this.#isLearning || this.#collector.isMidway
  }

  /** @throws InputError after an update that failed, because the weights may contain a part of it. */
  check(action: string): void {
    if (this.#failure === null) return
    const { update, cause } = this.#failure
    const got = `a call after update ${update} failed (${cause instanceof Error ? cause.message : show(cause)})`
    throw new InputError(action, got, 'trainer.restore() before it, or a new trainer', { cause })
  }

  restore(done: number): void {
    this.done = done
    this.#failure = null
  }

  async advance(signal: AbortSignal | undefined): Promise<PhaseMetrics | undefined> {
    this.check('trainer.updates()')
    const started = performance.now()
    // The current model becomes the reference.
    if (this.done === 0 && this.#collector.isBetweenUpdates) await this.#parts.backend.start()
    const { teacher } = this.#rl.settings
    if (teacher !== '') this.#teacher ??= await openTeacher('rl.teacher', teacher, this.#parts.cohort)
    if (!(await this.#collector.collect(signal))) return undefined
    this.#isLearning = true
    const update = this.done + 1
    try {
      const rolloutSeconds = (performance.now() - started) / 1000
      const metrics = await whileHeld(this.#parts.cohort.engine, async () => {
        const made = await this.#collector.beside(() => this.#learn(rolloutSeconds))
        if (this.#rl.settings.weightSwap === 'interrupt') await this.#publish()
        return made
      })
      this.#collector.learned()
      if (this.done === this.total) this.#collector.close()
      return metrics
    } catch (cause) {
      this.#failure = { update, cause }
      throw cause
    } finally {
      this.#isLearning = false
    }
  }

  async #publish(): Promise<void> {
    const { cohort } = this.#parts
    await this.#collector.prove()
    if (this.#rl.settings.weightSwap === 'interrupt') interruptTurns(cohort)
    await publishWeights(this.#parts, cohort.version + 1)
  }

  async #learn(rolloutSeconds: number): Promise<PhaseMetrics> {
    const started = performance.now()
    const { settings, loss } = this.#rl
    const { cohort, backend } = this.#parts
    const { trajectories } = cohort
    const { updates, learningRate, learningRateSchedule, warmupFraction, maxGradNorm, updateEpochs, temperature } =
      settings
    const { numMinibatches } = settings
    const rows = this.#collector.rows()
    const columns = trajectories.rows(rows)
    if (!columns.known.includes(1) && loss.settings.rewardCoef > 0) {
      const first = columns.error.find((text) => text !== null) ?? 'no reason given'
      const got = `no reward of ${rows.length} conversations known (${first})`
      throw new InputError(`${cohort.environment.id}, update ${this.done + 1}`, got, 'at least one known reward')
    }
    const batch = packBatch(
      { ...columns, ...tokenForms(columns, cohort) },
      microBatchRows(cohort.context),
      this.#dealMinibatches(columns.segment, numMinibatches),
    )
    const { kernels, clock } = this.#parts.world
    clock.charge(Work.gather)
    const update = columnsFor(this.#parts.columns.update, { rows: rows.length, tokens: columns.token.length })
    const { totals, given, conversations, wholeSpans, numRecomputed } = await settled(
      prepareUpdate(evaluatorOf(backend, this.#teacher), kernels, loss, columns, batch, update, temperature),
    )
    const { sampled, untrained, tokens } = countTokens(columns)
    if (untrained > 0 && untrained === sampled) {
      const got = `${untrained} tokens, all of turns sampled from another distribution than the trained one`
      throw new InputError(
        `${cohort.environment.id}, update ${this.done + 1}`,
        got,
        'some tokens from the trained distribution',
      )
    }
    clock.charge(Work.advantage)
    const { spans } = batch
    const { counted, weight } = update.prepared
    const isCorrected = loss.settings.correction !== 'none'
    const { oldLogprob, behaviorLogprob } = given
    const ratioOf = (t: number) => Math.exp(oldLogprob[t]! - behaviorLogprob[t]!)
    const mismatch = {
      mismatchKl: oldLogprob === behaviorLogprob ? null : mismatchKl(oldLogprob, behaviorLogprob, counted, spans),
      importanceRatio: isCorrected ? spreadOf(ratioOf, counted, spans) : null,
      importanceWeight: isCorrected ? spreadOf((t) => weight[t]!, counted, spans) : null,
      staleness: stalenessOf(cohort.version, columns.version, counted, spans),
    }
    const cuts = conversationCuts(batch, conversations)
    // Not by ticks, whose number depends on when replies arrive.
    const firstStep = this.#stepsBefore() + this.done * updateEpochs * numMinibatches
    const first: { sums: TokenLossSums; gradNorm: number }[] = []
    const rate =
      learningRateOf(learningRate, rlRates, cohort) *
      scheduleFactor(learningRateSchedule, warmupFraction, this.done, updates)
    for (let step = 0; step < updateEpochs * numMinibatches; step++) {
      const minibatch = step % numMinibatches
      const part = numMinibatches === 1 ? batch : minibatchOf(batch, minibatch)
      const [from, to] = [cuts[minibatch]!, cuts[minibatch + 1]!]
      const own =
        numMinibatches === 1 ? totals : totalsOf(loss, update.prepared, wholeSpans, from, to, totals.numRejected)
      if (own.numTokens === 0 && totals.numTokens > 0) continue // Its rewards are unknown, but others have tokens to learn from.
      const options = { temperature, step: firstStep + step }
      const sums = await differentiate(backend, kernels, part, { loss, totals: own, given, update }, options)
      const gradNorm = await backend.optimStep(settings, rate, maxGradNorm)
      clock.charge(Work.optimizer)
      if (step < numMinibatches) first.push({ sums, gradNorm })
    }
    // With returns and critics each token has its own.
    if (loss.settings.advantage === 'group') {
      trajectories.setAdvantages(advantagesOf(trajectories.count, rows, batch, update, conversations))
    }
    this.done++
    if (settings.weightSwap === 'in-place') await this.#publish()
    clock.charge(Work.account)
    const updateSeconds = (performance.now() - started) / 1000
    const sums = { policy: sumOf(first, 'policy'), value: sumOf(first, 'value') }
    const gradNorm = first.reduce((sum, each) => sum + each.gradNorm, 0) / first.length
    const learned = sums.policy[PolicySum.tokens]!
    const per = (sum: number) => sums.policy[sum]! / learned
    const { ticks: _, ...collected } = this.#collector.progress
    return {
      phase: 'rl',
      step: this.done,
      loss: (sums.policy[PolicySum.loss]! + sums.value[TokenSum.loss]!) / first.length,
      learningRate: rate,
      gradNorm,
      tokens: totals.numTokens,
      rl: {
        ...rewardMetrics(columns, totals),
        ...mismatch,
        entropy: per(PolicySum.entropy),
        kl: { k1: per(PolicySum.k1), k2: per(PolicySum.k2), k3: per(PolicySum.k3) },
        referenceKl:
          given.referenceLogprob === null
            ? null
            : {
                k1: per(PolicySum.referenceK1),
                k2: per(PolicySum.referenceK2),
                k3: per(PolicySum.referenceK3),
              },
        ratio: per(PolicySum.ratio),
        valueLoss: loss.settings.advantage === 'critic' ? sums.value[TokenSum.loss]! / first.length : null,
        clipRatio: { low: per(PolicySum.clippedLow), high: per(PolicySum.clippedHigh) },
        completionLength: sampled / conversations.length,
        trajectories: conversations.length,
        ...collected,
        sampledTokens: sampled,
        untrainedTokens: untrained,
        trainedTokens: updateEpochs * tokens,
        numRecomputed,
        rolloutSeconds,
        updateSeconds,
      },
    }
  }

  /** Splits the update's rows into minibatches of about equally many conversations, at random by the update. */
  #dealMinibatches(segment: Int32Array, count: number): number[][] | undefined {
    if (count === 1) return undefined
    const { random } = this.#parts.cohort
    const conversations: number[][] = []
    segment.forEach((place, row) => {
      if (place === 0) conversations.push([row])
      else conversations.at(-1)!.push(row)
    })
    for (let i = conversations.length - 1; i > 0; i--) {
      random.draw(Stream.shuffle, NO_EPOCH, this.done, i)
      const j = Math.floor(random.uniform(0, 0, i + 1))
      const swapped = conversations[i]!
      conversations[i] = conversations[j]!
      conversations[j] = swapped
    }
    const cut = (m: number) => Math.floor((m * conversations.length) / count)
    return Array.from({ length: count }, (_, m) => conversations.slice(cut(m), cut(m + 1)).flat())
  }
}

/** The backend as an evaluator for preparing updates, with a teacher in place of its reference. */
export function evaluatorOf(backend: TrainingBackend, teacher: Teacher | null = null): Evaluator<Promise<void>> {
  return {
    *evaluate(batch, temperature, whose, said) {
      if (whose === 'reference' && teacher !== null) yield teacher.evaluate(batch, temperature, said.logprob)
      else yield backend.forward(batch, whose, temperature, said)
    },
  }
}

/** Runs steps and awaits the promises that they yield. */
export async function settled<T>(steps: Generator<Promise<void>, T>): Promise<T> {
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
    await value
  }
}

/** Numbers of the rows' tokens, of those that the model chose, and of these the ones not learned. */
function countTokens({ begin, end, lossMask, version }: TrajectoryRows) {
  let [sampled, untrained, tokens] = [0, 0, 0]
  for (let i = 0; i < begin.length; i++) {
    tokens += end[i]! - begin[i]!
    for (let t = begin[i]!; t < end[i]!; t++) {
      if (!isOfModel(lossMask, version, t)) continue
      sampled++
      if (lossMask[t] === 0) untrained++
    }
  }
  return { sampled, untrained, tokens }
}

/** The advantages of `count` trajectories, each row with its conversation's; NaN for those left out. */
function advantagesOf(
  count: number,
  rows: readonly number[],
  { order }: TokenBatch,
  { prepared: { advantage, standing } }: TokenUpdateColumns,
  conversations: readonly (readonly number[])[],
): Float64Array {
  const advantages = new Float64Array(count).fill(Number.NaN)
  conversations.forEach((places, c) => {
    const learns = standing[c] === Standing.learns || standing[c] === Standing.equal
    if (learns) for (const place of places) advantages[rows[order[place]!]!] = advantage[c]!
  })
  return advantages
}

/** Minibatch m has the conversations cuts[m] … cuts[m + 1] − 1, whole and in the batch's order. */
function conversationCuts({ parts, cuts }: TokenBatch, conversations: readonly (readonly number[])[]): number[] {
  return cuts.map((cut) => conversations.filter(([place]) => place! < parts[cut]!).length)
}

/** Replaces an epoch in the key of the minibatches' order. */
const NO_EPOCH = 0xfffffffe

function sumOf(steps: readonly { readonly sums: TokenLossSums }[], key: 'policy' | 'value'): Float64Array {
  const whole = steps[0]!.sums[key].slice()
  for (const { sums } of steps.slice(1)) for (const [i, value] of sums[key].entries()) whole[i] = whole[i]! + value
  return whole
}
