import { type Metrics, metric } from '../../base/metrics.ts'
import { integer, number, type SettingValues } from '../../base/settings.ts'
import type { ParameterViews } from '../../policies/policy.ts'
import { defineOffPolicyAlgorithm, type OffPolicyContext, offPolicySettings, type ReplayedBlock } from './off-policy.ts'
import { checkSacPolicy, SacLoss, sacMetrics, sacScratchWidth, sacSettings, Use } from './sac.ts'

const settings = {
  ...offPolicySettings({
    ...{ learningRate: 3e-4, batchSize: 256, targetRate: 0.005, targetInterval: 1, maxGradNorm: 1e6 },
  }),
  ...sacSettings,
  gradientSteps: integer(1000, 'optimizer steps after each rollout of the table', { min: 1 }),
  conservativeWeight: number(2.5, "α: weight of the conservative term beside half of each critic's squared errors", {
    min: 0,
  }),
  actionSamples: integer(
    10,
    "actions of a row from each of: the actor, the actor in the row's next state, all actions",
    {
      min: 1,
    },
  ),
}

/** `conservativeGap` is the last one: see `GAP`. */
const metrics = {
  ...sacMetrics,
  conservativeGap: metric(
    "log Σ e^value of sampled actions − value of a row's action, mean of both critics",
    'rowMean',
  ),
} as const satisfies Metrics

/** Where samples come from, in order: the actor in the row's state, in the next state, and uniformly. */
const UNIFORM = 2

const GAP = Object.keys(sacMetrics).length

type Parameters = SettingValues<typeof settings>

/** Sampled actions of a row. */
function numSampled({ actionSamples }: Pick<Parameters, 'actionSamples'>): number {
  return 3 * actionSamples
}

/**
 * Conservative Q-learning (Kumar, Zhou, Tucker, Levine 2020), for `sacNetwork` and tables of another policy's rows (`trainer.learn`,
 * `from=`). It is SAC without the entropy in the next value, whose critics also minimize α (log Σ e^Q − Q of the recorded action): the sum
 * is over actions of the actor in the row's state and in the next one (after a terminal step, in the row's again) and over uniform ones,
 * each divided by its density (CQL(H), appendix F). The authors' code and d3rlpy have whole squared errors beside it: their α is twice
 * this one. The weights are SAC's, so that `sac` can go on online.
 * @example for await (const { conservativeGap } of trainer.learn(table, { epochs: 20 })) console.log(conservativeGap)
 */
export const cql = defineOffPolicyAlgorithm({
  id: 'cql',
  module: import.meta.url,
  settings,
  metrics,
  needsTable: true, // It holds down the values of actions that were not recorded, and so of all that its actor would try.
  scratchWidth: (shape, parameters) =>
    sacScratchWidth(shape) + numSampled(parameters) * ((shape.model.soft?.actionWidth ?? 0) + 2),
  check: (shape) => checkSacPolicy('cql', shape),
  loss: (parameters, context) => new CqlLoss(parameters, context),
})

class CqlLoss extends SacLoss {
  readonly #weight: number
  readonly #perSource: number
  /** By sample: actions of a block's rows, then the critics' values of them minus their log densities. */
  readonly #actions: readonly Float32Array[]
  readonly #values: readonly (readonly [Float32Array, Float32Array])[]
  readonly #words = new Uint32Array(4)

  constructor(parameters: Parameters, context: OffPolicyContext) {
    super(parameters, context)
    const { blockRows, scratch, model } = context
    const { actionWidth } = model.soft!
    this.#weight = parameters.conservativeWeight
    this.#perSource = parameters.actionSamples
    let at = blockRows * sacScratchWidth(context)
    const take = (width: number) => {
      at += blockRows * width
      return scratch.subarray(at - blockRows * width, at)
    }
    const samples = Array.from({ length: numSampled(parameters) }, (_, i) => i)
    this.#actions = samples.map(() => take(actionWidth))
    this.#values = samples.map(() => [take(1), take(1)])
  }

  /** The target's lesser value of a newly sampled action. */
  protected override valueNext(block: ReplayedBlock): void {
    super.valueNext(block, 0)
  }

  protected override differentiateCritics(
    block: ReplayedBlock,
    gradient: ParameterViews,
    sums: Float64Array,
    sumsFrom: number,
  ): void {
    super.differentiateCritics(block, gradient, sums, sumsFrom)
    const { policy, dValue } = this
    const { rows, count, scale } = block
    const { observation } = rows
    const add = (critic: 0 | 1, dOf: (row: number) => number) => {
      for (let row = 0; row < count; row++) dValue[row] = this.#weight * scale * dOf(row)
      policy.differentiateCritic(critic, dValue, count, gradient)
    }
    policy.judge(observation, 0, policy.shrink(rows.action as Float32Array, 0, count), count)
    for (const critic of [0, 1] as const) {
      for (let row = 0; row < count; row++) {
        sums[sumsFrom + GAP] = sums[sumsFrom + GAP]! - policy.criticValues[critic][row]! / 2
      }
      add(critic, () => -1)
    }
    for (const [i, actions] of this.#actions.entries()) this.#sample(block, i, actions)
    for (const critic of [0, 1] as const) {
      for (let row = 0; row < count; row++) {
        sums[sumsFrom + GAP] = sums[sumsFrom + GAP]! + this.#normalize(critic, row) / 2
      }
    }
    for (const [i, actions] of this.#actions.entries()) {
      policy.judge(observation, 0, actions, count)
      for (const critic of [0, 1] as const) add(critic, (row) => this.#values[i]![critic][row]!)
    }
  }

  /** Samples action `i` of each row, and both critics' values minus its log density. */
  #sample(block: ReplayedBlock, i: number, actions: Float32Array): void {
    const { policy, logprob, normal, context } = this
    const { rows, nextObservation, count } = block
    const { kernels, random, model } = context
    const { actionWidth } = model.soft!
    const { key0, key1 } = random
    const use = Use.further + i
    const source = Math.floor(i / this.#perSource)
    if (source === UNIFORM) {
      kernels.drawReplayUniform(normal, this.#words, block.step, use, block.first, key0, key1, count, actionWidth)
      kernels.spreadActions(actions, normal, count, actionWidth)
      logprob.fill(-actionWidth * Math.LN2, 0, count)
    } else {
      this.drawNormal(block, use)
      const unit = policy.draw(source === 0 ? rows.observation : nextObservation, 0, normal, logprob, count)
      for (let k = 0; k < count * actionWidth; k++) actions[k] = unit[k]!
    }
    policy.judge(rows.observation, 0, actions, count)
    for (const critic of [0, 1] as const) {
      const values = this.#values[i]![critic]
      for (let row = 0; row < count; row++) values[row] = policy.criticValues[critic][row]! - logprob[row]!
    }
  }

  /** Returns log Σ e^value of a row's samples, and replaces each value by its share of the sum. */
  #normalize(critic: 0 | 1, row: number): number {
    let greatest = Number.NEGATIVE_INFINITY
    for (const values of this.#values) greatest = Math.max(greatest, values[critic][row]!)
    let sum = 0
    for (const values of this.#values) sum += Math.exp(values[critic][row]! - greatest)
    for (const values of this.#values) values[critic][row] = Math.exp(values[critic][row]! - greatest) / sum
    return greatest + Math.log(sum)
  }
}
