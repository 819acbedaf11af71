import { defineFactory } from '../base/definition.ts'
import type { Random } from '../base/random.ts'
import { choice, type SettingValues, sizes } from '../base/settings.ts'
import type { Space } from '../base/space.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import type { Kernels } from '../kernels/kernels.ts'
import {
  type ActingShape,
  ActionCritics,
  actingShape,
  type CriticStacks,
  criticStacks,
  criticsPlan,
} from './action-critics.ts'
import { addInputMoments, type InputMoments, Inputs, inputsPlan, normalizeObservations } from './inputs.ts'
import {
  type ActingLanes,
  BLOCK_ROWS,
  type Evaluated,
  type LossOf,
  type ParameterViews,
  type PolicyDefinition,
  type PolicyModel,
  type Rows,
  type Seen,
  type SoftPolicy,
} from './policy.ts'
import { ParameterList } from './stack/parameters.ts'
import { initializeStacks, Stack, type StackShape, stackPlan, stackShape, workPlan } from './stack/stack.ts'

const settings = {
  hidden: sizes([256, 256], 'units of each hidden layer, of the actor and of both critics'),
  activation: choice('relu', ['tanh', 'relu'], 'activation of the hidden layers'),
  normalizeObservations,
}

/**
 * An actor with Gaussian actions squashed into their bounds, and two critics of state and action, each a separate multi-layer perceptron
 * (Haarnoja et al. 2018), for continuous actions with finite bounds. Critics see actions within ±1. Initial weights are orthogonal with
 * gain √2 in hidden layers, 0.01 in the actor's head and 1 in the critics'; the standard deviation before squashing starts at about 1.
 * `normalizeObservations` works as in `mlp`.
 * @example sacNetwork({ hidden: [64, 64] })
 */
export const sacNetwork = defineFactory(
  'policy',
  { id: 'sacNetwork', module: import.meta.url, settings },
  (parameters) => ({
    build: (observationSpace: Space, actionSpace: Space): PolicyModel =>
      buildNetwork(parameters, observationSpace, actionSpace),
  }),
) satisfies (...parameters: never[]) => PolicyDefinition

interface Shape extends ActingShape {
  readonly parameters: ParameterList
  readonly actor: StackShape
  readonly critics: CriticStacks
  readonly inputs: InputMoments | null
}

function buildNetwork(
  { hidden, activation, normalizeObservations }: SettingValues<typeof settings>,
  observationSpace: Space,
  actionSpace: Space,
): PolicyModel {
  const acting = actingShape('sacNetwork', observationSpace, actionSpace)
  const { observationWidth, actionWidth } = acting
  const parameters = new ParameterList()
  const actorSizes = { numInputs: observationWidth, numOutputs: 2 * actionWidth }
  const actor = stackShape(parameters, 'actor', actorSizes, { hidden, activation }, 0.01)
  const critics = criticStacks(parameters, acting, hidden, activation)
  const temperature = parameters.add('logTemperature', [1])
  const inputs = normalizeObservations ? addInputMoments(parameters, observationWidth) : null
  const shape: Shape = { ...acting, parameters, actor, critics, inputs }
  return {
    numParameters: parameters.size,
    parameters: parameters.list,
    normalizedInputs: inputs === null ? 0 : observationWidth,
    soft: { actionWidth, logTemperature: temperature },
    workspace: () => workspacePlan(shape),
    initialize(weights, random, key) {
      weights.fill(0)
      const views = parameters.view(weights)
      initializeStacks([actor, ...critics], views, random, key)
      if (inputs !== null) views[inputs.deviation]!.fill(1)
    },
    bind: (weights, workspace, kernels, random) =>
      new SacNetwork(shape, weights, workspace as unknown as Workspace, kernels, random),
  }
}

function workspacePlan(shape: Shape) {
  const { actor, critics, observationWidth, actionWidth, inputs } = shape
  const rows = (width: number) => column('f32', BLOCK_ROWS, width)
  return {
    inputs: inputsPlan(observationWidth, inputs !== null, BLOCK_ROWS),
    actor: stackPlan(actor, BLOCK_ROWS),
    critics: criticsPlan(critics, shape),
    work: workPlan([actor, ...critics], BLOCK_ROWS),
    /** Sampled actions within ±1. */
    unit: rows(actionWidth),
    normal: rows(actionWidth),
    words: column('u32', 4),
    dOutputs: rows(2 * actionWidth),
    dUnit: rows(actionWidth),
    dLeast: rows(1),
    evaluated: { logprob: rows(1), entropy: rows(1), value: rows(1) },
    derivatives: { dLogprob: rows(1), dEntropy: rows(1), dValue: rows(1) },
  } satisfies Plan
}

type Workspace = Columns<ReturnType<typeof workspacePlan>>

class SacNetwork implements SoftPolicy {
  readonly #shape: Shape
  readonly #inputs: Inputs
  readonly #actor: Stack
  readonly #critics: ActionCritics
  readonly #workspace: Workspace
  readonly #kernels: Kernels
  readonly #random: Random
  /** The actor's last outputs. */
  #outputs: Float32Array = new Float32Array(0)

  constructor(shape: Shape, weights: Float32Array, workspace: Workspace, kernels: Kernels, random: Random) {
    const views = shape.parameters.view(weights)
    this.#shape = shape
    this.#inputs = new Inputs(shape.observationWidth, shape.inputs, views, workspace.inputs, kernels)
    const { actor, critics, work } = workspace
    this.#actor = new Stack(shape.actor, views, actor, work, kernels)
    this.#critics = new ActionCritics(shape, shape.critics, this.#inputs, views, critics, work, kernels)
    this.#workspace = workspace
    this.#kernels = kernels
    this.#random = random
  }

  get criticValues() {
    return this.#critics.criticValues
  }

  view(column: Float32Array): ParameterViews {
    return this.#shape.parameters.view(column)
  }

  infer(lanes: ActingLanes, explore: boolean, from: number, to: number): void {
    const kernels = this.#kernels
    const { normal, words, unit, evaluated } = this.#workspace
    const { actionWidth } = this.#shape
    const { key0, key1 } = this.#random
    const { lane, episode, step } = lanes.episode
    const { chosen, logprob, value } = lanes.action
    const observation = lanes.observation.current
    for (let first = from; first < to; first += BLOCK_ROWS) {
      const count = Math.min(BLOCK_ROWS, to - first)
      if (explore) kernels.drawNormal(normal, words, lane, episode, step, key0, key1, count, actionWidth, first)
      else normal.fill(0, 0, count * actionWidth)
      this.draw(observation, first, normal, evaluated.logprob, count)
      this.#critics.stretch(chosen as Float32Array, unit, first, count)
      this.#evaluate(observation, chosen as Float32Array, first, count)
      for (let i = 0; i < count; i++) {
        logprob[first + i] = evaluated.logprob[i]!
        value[first + i] = evaluated.value[i]!
      }
    }
  }

  values(value: Float32Array, { observation }: Seen, count: number): void {
    const { normal, evaluated, unit } = this.#workspace
    for (let first = 0; first < count; first += BLOCK_ROWS) {
      const rows = Math.min(BLOCK_ROWS, count - first)
      normal.fill(0, 0, rows * this.#shape.actionWidth)
      this.draw(observation, first, normal, evaluated.logprob, rows)
      const least = this.judge(observation, first, unit, rows)
      for (let i = 0; i < rows; i++) value[first + i] = least[i]!
    }
  }

  draw(
    observation: Float32Array,
    from: number,
    normal: Float32Array,
    logprob: Float32Array,
    count: number,
  ): Float32Array {
    const { unit } = this.#workspace
    this.#outputs = this.#act(observation, from, count)
    this.#kernels.squashedSample(unit, logprob, this.#outputs, normal, count, this.#shape.actionWidth)
    return unit
  }

  shrink(action: Float32Array, from: number, count: number): Float32Array {
    return this.#critics.shrink(action, from, count)
  }

  judge(observation: Float32Array, from: number, unit: Float32Array, count: number): Float32Array {
    return this.#critics.judge(observation, from, unit, count)
  }

  differentiateCritic(critic: 0 | 1, dValue: Float32Array, count: number, gradient: ParameterViews): void {
    this.#critics.differentiateCritic(critic, dValue, count, gradient)
  }

  differentiateActor(
    observation: Float32Array,
    from: number,
    normal: Float32Array,
    temperature: number,
    scale: number,
    count: number,
    gradient: ParameterViews,
  ): void {
    const { dLeast, dUnit, dOutputs, unit } = this.#workspace
    const { actionWidth } = this.#shape
    const critics = this.#critics
    dUnit.fill(0, 0, count * actionWidth)
    for (const critic of [0, 1] as const) {
      critics.differentiateActions(
        dUnit,
        critic,
        critics.ofLeast(dLeast, critic, () => -scale, count),
        count,
      )
    }
    this.#kernels.squashedBackward(dOutputs, dUnit, unit, this.#outputs, normal, temperature, scale, count, actionWidth)
    const x = this.#inputs.read(observation, from, count)
    this.#actor.backward(dOutputs, x, this.#inputs.at(from), count, gradient)
  }

  evaluate({ observation, action }: Rows, from: number, count: number): Evaluated {
    this.#outputs = this.#act(observation, from, count)
    return this.#evaluate(observation, action as Float32Array, from, count)
  }

  /** Runs the actor on rows of observations. */
  #act(observation: Float32Array, from: number, count: number): Float32Array {
    return this.#actor.forward(this.#inputs.read(observation, from, count), this.#inputs.at(from), count)
  }

  /** As `evaluate`, after the actor has run on these rows. */
  #evaluate(observation: Float32Array, action: Float32Array, from: number, count: number): Evaluated {
    const { evaluated, critics } = this.#workspace
    const { logprob, entropy, value } = evaluated
    const { low, high } = critics.bounds
    const { actionWidth } = this.#shape
    this.#kernels.squashedEvaluate(logprob, entropy, action, this.#outputs, low, high, count, actionWidth, from)
    const least = this.judge(observation, from, this.shrink(action, from, count), count)
    for (let i = 0; i < count; i++) value[i] = least[i]!
    return evaluated
  }

  /** Uses only the derivative by the value: it goes to the critic with the lesser value, as in `ActionCritics`. */
  differentiate(rows: Rows, from: number, count: number, lossOf: LossOf, gradient: ParameterViews): void {
    const { derivatives, dLeast } = this.#workspace
    lossOf(this.evaluate(rows, from, count), derivatives, from, count)
    for (const critic of [0, 1] as const) {
      const dValue = this.#critics.ofLeast(dLeast, critic, (row) => derivatives.dValue[row]!, count)
      this.differentiateCritic(critic, dValue, count, gradient)
    }
  }
}
