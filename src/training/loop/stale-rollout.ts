/** Recomputes values and action probabilities of rollouts that older weights chose, beside the recorded ones. */
import type { EstimateAdvantages } from '../../algorithms/algorithm.ts'
import type { Staleness } from '../../algorithms/tokens/staleness.ts'
import { Work } from '../../base/clock.ts'
import type { MetricValues } from '../../base/metrics.ts'
import type { SharedWork, ShareWork } from '../../base/parted.ts'
import { type Columns, column, type Plan } from '../../components/column.ts'
import type { RolloutColumns } from '../../components/rollout.ts'
import { ImportanceSum } from '../../kernels/bind.ts'
import { BLOCK_ROWS } from '../../policies/policy.ts'
import { openBuffer } from '../../world/episodes/ahead-buffers.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { World } from '../../world/world.ts'
import { type stalenessMetrics, staleRowsName } from './metrics.ts'

/** The columns of recomputed values and probabilities. */
export function proximalPlan(numRows: number) {
  return {
    logprob: column('f32', numRows),
    value: column('f32', numRows),
    nextValue: column('f32', numRows),
    /** The value after rows without a next row, one thread's list at a time. */
    finalValue: column('f32', numRows),
    /** Truncated importance weights, and their sums: see `ImportanceSum`. */
    weight: column('f32', numRows),
    sums: column('f64', 4),
  } satisfies Plan
}

/** The staleness and importance metrics of a rollout. */
type StalenessOfRows = MetricValues<
  Pick<typeof stalenessMetrics, 'staleness' | 'stalenessMax' | `importanceWeight${'' | 'Max' | 'Truncated'}`>
>

/** Recomputes a cohort's rollouts, in a learning thread. */
export class StaleRollout {
  readonly #world: World
  readonly #cohort: EpisodeCohort
  readonly #staleness: Staleness
  readonly #columns: Columns<ReturnType<typeof proximalPlan>>
  readonly #values: readonly Float32Array[]
  readonly #nextValues: readonly Float32Array[]
  readonly #evaluation: SharedWork

  constructor(
    world: World,
    cohort: EpisodeCohort,
    staleness: Staleness,
    columns: Columns<ReturnType<typeof proximalPlan>>,
    share: ShareWork,
  ) {
    this.#world = world
    this.#cohort = cohort
    this.#staleness = staleness
    this.#columns = columns
    const { numSteps, numLanes } = cohort
    const blocks = (whole: Float32Array) =>
      Array.from({ length: numSteps }, (_, t) => whole.subarray(t * numLanes, (t + 1) * numLanes))
    this.#values = blocks(columns.value)
    this.#nextValues = blocks(columns.nextValue)
    this.#evaluation = share({
      open: (told) => openBuffer(cohort, told[0]!),
      part: (block) => this.#evaluateBlock(block),
    })
  }

  get isCorrected(): boolean {
    return this.#staleness.maxStaleness > 0 && this.#staleness.correction !== 'none'
  }

  /** The rollout as learners read it. */
  seen(rollout: RolloutColumns): RolloutColumns {
    if (!this.isCorrected) return rollout
    const { logprob, value, nextValue } = this.#columns
    return { ...rollout, logprob, value, nextValue }
  }

  /** Recomputes the rows of this update's buffer, which is open. Yields promises to await. */
  *evaluate(update: number): Generator<Promise<void>, void> {
    if (!this.isCorrected) return
    const { numSteps, numLanes } = this.#cohort
    this.#evaluation.told[0] = update
    const pending = this.#evaluation.run(Math.ceil((numSteps * numLanes) / this.#blockRows))
    if (pending !== undefined) yield pending
    this.#valueNext()
    this.#world.clock.mark(Work.bootstrap)
  }

  get #blockRows(): number {
    return this.#cohort.model.blockRows ?? BLOCK_ROWS
  }

  #evaluateBlock(block: number): void {
    const { rollout, policy, policyDefinition, numSteps, numLanes } = this.#cohort
    const { logprob, value } = this.#columns
    const from = block * this.#blockRows
    const count = Math.min(this.#blockRows, numSteps * numLanes - from)
    const evaluated = policy.evaluate({ ...rollout, continues: NONE }, from, count)
    if (evaluated instanceof Promise) throw new Error(`policy ${policyDefinition.id} answers later`)
    logprob.set(evaluated.logprob.subarray(0, count), from)
    value.set(evaluated.value.subarray(0, count), from)
    this.#world.clock.mark(Work.forward)
  }

  /** Values each row's next state: the next row, or the final observation if no later row shows it. */
  #valueNext(): void {
    const { kernels } = this.#world
    const { policy, finals, windows, numSteps, numLanes } = this.#cohort
    const { nextValue, finalValue } = this.#columns
    for (let t = 0; t < numSteps - 1; t++) {
      const { terminated, truncated, valid } = windows.transition[t]!
      const next = this.#nextValues[t]!
      kernels.completeNextValue(next, this.#values[t + 1]!, terminated, truncated, valid, 0, numLanes)
    }
    for (const { row, observation, actionMask, count } of finals) {
      policy.values(finalValue, { observation, actionMask, memory: NO_MEMORY }, count[0]!)
      kernels.scatterValues(nextValue, row, finalValue, count[0]!)
    }
  }

  /** Computes advantages of the rollout as `seen`; undefined if the algorithm's own are kept. */
  get estimate(): EstimateAdvantages | undefined {
    if (!this.isCorrected) return undefined
    const { correction, rhoMax, cMax } = this.#staleness
    const { logprob, weight } = this.#columns
    return (seen, { kernels, carry, gamma, gaeLambda, numSteps, numLanes }) => {
      if (correction === 'vtrace') {
        const behavior = { ...seen, logprob: this.#cohort.rollout.logprob }
        kernels.vtrace(behavior, carry, logprob, gamma, gaeLambda, rhoMax, cMax, numSteps, numLanes)
      } else {
        kernels.gae(seen, carry, gamma, gaeLambda, numSteps, numLanes)
        kernels.weighAdvantages(seen.advantage, weight, numSteps * numLanes)
      }
    }
  }

  /** Counts the open buffer's rows by staleness for the update with this number: `staleRows0` … */
  countRows(update: number): Readonly<Record<string, number>> {
    const { version, valid } = this.#cohort.rollout
    const counts = new Array<number>(this.#staleness.maxStaleness + 1).fill(0)
    for (let row = 0; row < version.length; row++) {
      const age = update - version[row]!
      if (valid[row] !== 0) counts[age] = counts[age]! + 1
    }
    return Object.fromEntries(counts.map((rows, age) => [staleRowsName(age), rows]))
  }

  /** Measures the open buffer for the update with this number and weights its rows, after all are evaluated. */
  measure(update: number): StalenessOfRows {
    const { rollout, numSteps, numLanes } = this.#cohort
    const { version, valid } = rollout
    let [sum, count, most] = [0, 0, 0]
    for (let row = 0; row < version.length; row++) {
      if (valid[row] === 0) continue
      sum += update - version[row]!
      most = Math.max(most, update - version[row]!)
      count++
    }
    const told = { staleness: sum / count, stalenessMax: most }
    if (!this.isCorrected) {
      return {
        ...told,
        ...{ importanceWeight: Number.NaN, importanceWeightMax: Number.NaN, importanceWeightTruncated: Number.NaN },
      }
    }
    const { logprob, weight, sums } = this.#columns
    const { rhoMax } = this.#staleness
    const { kernels } = this.#world
    kernels.importanceWeights(weight, sums, logprob, rollout.logprob, valid, rhoMax, numSteps * numLanes)
    return {
      ...told,
      importanceWeight: sums[ImportanceSum.ratio]! / sums[ImportanceSum.rows]!,
      importanceWeightMax: sums[ImportanceSum.largest]!,
      importanceWeightTruncated: sums[ImportanceSum.weight]! / sums[ImportanceSum.rows]!,
    }
  }
}

const NONE = new Uint8Array(0)
const NO_MEMORY = new Float32Array(0)
