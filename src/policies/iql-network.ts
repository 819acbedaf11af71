import { defineFactory } from '../base/definition.ts'
import type { Random } from '../base/random.ts'
import { type Space, spaceWidth } from '../base/space.ts'
import { type Columns, column } from '../components/column.ts'
import type { ObservationColumn } from '../components/observation.ts'
import { Activation } from '../kernels/bind.ts'
import type { Kernels } from '../kernels/kernels.ts'
import {
  ActorAndCritics,
  type ActorAndCriticsShape,
  actorAndCritics,
  actorAndCriticsPlan,
  actorAndCriticsSettings,
} from './actor-and-critics.ts'
import { modelOf } from './network-model.ts'
import {
  type ActingLanes,
  BLOCK_ROWS,
  type ImplicitPolicy,
  type ParameterViews,
  type PolicyDefinition,
  type PolicyModel,
} from './policy.ts'
import { Stack, stackPlan } from './stack/stack.ts'

/** Bounds of the logarithm of the actor's standard deviation, as in d3rlpy. */
const [LOG_STD_MIN, LOG_STD_MAX] = [-5, 2]

/**
 * A Gaussian actor, whose means are squashed by tanh into the bounds of its actions, two critics of state and action and one of states,
 * each a separate multi-layer perceptron (Kostrikov, Nair, Levine 2021), for continuous actions with finite bounds. Critics see actions
 * within ±1. The standard deviation, for actions within ±1, is a weight of each of an action's numbers, initially 1. Initial weights are
 * those of `td3Network`. `normalizeObservations` works as in `mlp`.
 * @example iqlNetwork({ hidden: [64, 64] })
 */
export const iqlNetwork = defineFactory(
  'policy',
  { id: 'iqlNetwork', module: import.meta.url, settings: actorAndCriticsSettings },
  (parameters) => ({
    build(observationSpace: Space, actionSpace: Space): PolicyModel {
      const actor = { outputsPerAction: 1, activation: Activation.tanh }
      const logStd = { name: 'logStd', count: spaceWidth(actionSpace) }
      const shape = actorAndCritics('iqlNetwork', parameters, observationSpace, actionSpace, actor, logStd, true)
      return {
        ...modelOf(shape, iqlPlan, () => {}, IqlNetwork),
        implicit: { actionWidth: shape.actionWidth },
      }
    },
  }),
) satisfies (...parameters: never[]) => PolicyDefinition

function iqlPlan(shape: ActorAndCriticsShape) {
  const plan = actorAndCriticsPlan(shape)
  return {
    ...plan,
    value: stackPlan(shape.stacks[3]!, BLOCK_ROWS),
    logStd: column('f32', shape.actionWidth),
    dLogStd: column('f32', shape.actionWidth),
  }
}

class IqlNetwork extends ActorAndCritics implements ImplicitPolicy {
  readonly #own: Pick<Columns<ReturnType<typeof iqlPlan>>, 'logStd' | 'dLogStd'>
  readonly #value: Stack

  constructor(
    shape: ActorAndCriticsShape,
    weights: Float32Array,
    workspace: Columns<ReturnType<typeof iqlPlan>>,
    kernels: Kernels,
    random: Random,
  ) {
    super(shape, weights, workspace, kernels, random)
    const views = shape.parameters.view(weights)
    this.#own = workspace
    this.#value = new Stack(shape.stacks[3]!, views, workspace.value, workspace.work, kernels)
  }

  /** The logarithm of the standard deviation, within its bounds. */
  get #logStd(): Float32Array {
    const { logStd } = this.#own
    for (const [k, each] of this.written.entries()) logStd[k] = Math.min(LOG_STD_MAX, Math.max(LOG_STD_MIN, each))
    return logStd
  }

  protected override choose(lanes: ActingLanes, explore: boolean, from: number, count: number): Float32Array {
    const unit = this.runToActions(lanes.observation.current, from, count)
    if (!explore) return unit
    const { draws, words } = this.workspace
    const { actionWidth } = this.shape
    const { key0, key1 } = this.random
    const { lane, episode, step } = lanes.episode
    const logStd = this.#logStd
    this.kernels.drawNormal(draws, words, lane, episode, step, key0, key1, count, actionWidth, from)
    for (let i = 0; i < count * actionWidth; i++) draws[i] = draws[i]! * Math.exp(logStd[i % actionWidth]!)
    this.kernels.addActionNoise(unit, draws, 1, Number.POSITIVE_INFINITY, count, actionWidth)
    return unit
  }

  protected override mode(observation: ObservationColumn, from: number, count: number): Float32Array {
    return this.runToActions(observation, from, count)
  }

  /** Of the Gaussian before its samples are clipped to the bounds. */
  protected override evaluateActions(action: Float32Array, from: number, count: number): void {
    const { evaluated, bounds } = this.workspace
    const { logprob, entropy } = evaluated
    const { actionWidth } = this.shape
    const unit = this.shrink(action, from, count)
    this.kernels.gaussianEvaluate(logprob, entropy, unit, this.outputs, this.#logStd, count, actionWidth, 0)
    let logHalf = 0
    for (let k = 0; k < actionWidth; k++) logHalf += Math.log((bounds.high[k]! - bounds.low[k]!) / 2)
    for (let row = 0; row < count; row++) {
      logprob[row] = logprob[row]! - logHalf
      entropy[row] = entropy[row]! + logHalf
    }
  }

  stateValues(observation: ObservationColumn, from: number, count: number): Float32Array {
    return this.#value.forward(this.inputs.read(observation, from, count), this.inputs.at(from), count)
  }

  differentiateState(
    observation: ObservationColumn,
    from: number,
    dValue: Float32Array,
    count: number,
    gradient: ParameterViews,
  ): void {
    this.#value.backward(dValue, this.inputs.read(observation, from, count), this.inputs.at(from), count, gradient)
  }

  logDensities(observation: ObservationColumn, from: number, unit: Float32Array, count: number): Float32Array {
    const { logprob, entropy } = this.workspace.evaluated
    this.run(observation, from, count)
    this.kernels.gaussianEvaluate(logprob, entropy, unit, this.outputs, this.#logStd, count, this.shape.actionWidth, 0)
    return logprob
  }

  differentiateActor(
    observation: ObservationColumn,
    from: number,
    unit: Float32Array,
    dLogDensity: Float32Array,
    count: number,
    gradient: ParameterViews,
  ): void {
    const { dUnit, dOutputs, dLeast } = this.workspace
    const { actionWidth, written } = this.shape
    const { dLogStd } = this.#own
    const { kernels, outputs } = this
    dLogStd.fill(0)
    dLeast.fill(0, 0, count)
    kernels.gaussianBackward(dUnit, dLogStd, dLogDensity, dLeast, unit, outputs, this.#logStd, count, actionWidth, 0)
    for (const [k, slope] of dLogStd.entries()) {
      const at = this.written[k]!
      const leavesBounds = (at <= LOG_STD_MIN && slope > 0) || (at >= LOG_STD_MAX && slope < 0)
      if (!leavesBounds) gradient[written]![k] = gradient[written]![k]! + slope
    }
    kernels.tanhBackward(dOutputs, dUnit, outputs, count, actionWidth)
    this.backward(observation, from, count, gradient)
  }
}
