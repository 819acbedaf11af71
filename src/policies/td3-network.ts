import { defineFactory } from '../base/definition.ts'
import type { Random } from '../base/random.ts'
import { choice, type SettingValues, sizes } from '../base/settings.ts'
import type { Space } from '../base/space.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import { Activation } from '../kernels/bind.ts'
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
  type DeterministicPolicy,
  type Evaluated,
  type LossOf,
  type ParameterViews,
  type PolicyDefinition,
  type PolicyModel,
  type Rows,
  type Seen,
} from './policy.ts'
import { ParameterList } from './stack/parameters.ts'
import { initializeStacks, Stack, type StackShape, stackPlan, stackShape, workPlan } from './stack/stack.ts'

const settings = {
  hidden: sizes([256, 256], 'units of each hidden layer, of the actor and of both critics'),
  activation: choice('relu', ['tanh', 'relu'], 'activation of the hidden layers'),
  normalizeObservations,
}

/** The deviation of the noise before an algorithm writes its own: that of Fujimoto et al. */
const DEVIATION = 0.1

/**
 * A deterministic actor, squashed by tanh into the bounds of its actions, and two critics of state and action, each a separate multi-layer
 * perceptron (Fujimoto, van Hoof, Meger 2018), for continuous actions with finite bounds. Critics see actions within ±1. While lanes
 * explore, actions are uniform until the algorithm has begun to learn, and then the actor's with Gaussian noise. Initial weights are
 * orthogonal with gain √2 in hidden layers, 0.01 in the actor's head and 1 in the critics'. `normalizeObservations` works as in `mlp`.
 * @example td3Network({ hidden: [64, 64] })
 */
export const td3Network = defineFactory(
  'policy',
  { id: 'td3Network', module: import.meta.url, settings },
  (parameters) => ({
    build: (observationSpace: Space, actionSpace: Space): PolicyModel =>
      buildNetwork(parameters, observationSpace, actionSpace),
  }),
) satisfies (...parameters: never[]) => PolicyDefinition

interface Shape extends ActingShape {
  readonly parameters: ParameterList
  readonly actor: StackShape
  readonly critics: CriticStacks
  /** Index of the two numbers of exploration in the list of parameters. */
  readonly exploration: number
  readonly inputs: InputMoments | null
}

function buildNetwork(
  { hidden, activation, normalizeObservations }: SettingValues<typeof settings>,
  observationSpace: Space,
  actionSpace: Space,
): PolicyModel {
  const acting = actingShape('td3Network', observationSpace, actionSpace)
  const { observationWidth, actionWidth } = acting
  const parameters = new ParameterList()
  const actorSizes = { numInputs: observationWidth, numOutputs: actionWidth }
  const actor = stackShape(parameters, 'actor', actorSizes, { hidden, activation }, 0.01, Activation.tanh)
  const actorEnd = parameters.size
  const critics = criticStacks(parameters, acting, hidden, activation)
  const criticsEnd = parameters.size
  const exploration = parameters.add('exploration', [2])
  const inputs = normalizeObservations ? addInputMoments(parameters, observationWidth) : null
  const shape: Shape = { ...acting, parameters, actor, critics, exploration, inputs }
  return {
    numParameters: parameters.size,
    parameters: parameters.list,
    normalizedInputs: inputs === null ? 0 : observationWidth,
    deterministic: {
      actionWidth,
      exploration: parameters.list[exploration]!.offset,
      actor: { from: 0, to: actorEnd },
      critics: { from: actorEnd, to: criticsEnd },
    },
    workspace: () => workspacePlan(shape),
    initialize(weights, random, key) {
      weights.fill(0)
      const views = parameters.view(weights)
      initializeStacks([actor, ...critics], views, random, key)
      views[exploration]!.set([1, DEVIATION])
      if (inputs !== null) views[inputs.deviation]!.fill(1)
    },
    bind: (weights, workspace, kernels, random) =>
      new Td3Network(shape, weights, workspace as unknown as Workspace, kernels, random),
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
    /** The actor's actions within ±1, with noise where lanes explore. */
    unit: rows(actionWidth),
    draws: rows(actionWidth),
    words: column('u32', 4),
    dOutputs: rows(actionWidth),
    dUnit: rows(actionWidth),
    dValue: rows(1),
    evaluated: { logprob: rows(1), entropy: rows(1), value: rows(1) },
    derivatives: { dLogprob: rows(1), dEntropy: rows(1), dValue: rows(1) },
  } satisfies Plan
}

type Workspace = Columns<ReturnType<typeof workspacePlan>>

class Td3Network implements DeterministicPolicy {
  readonly #shape: Shape
  readonly #inputs: Inputs
  readonly #actor: Stack
  readonly #critics: ActionCritics
  readonly #exploration: Float32Array
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
    this.#exploration = views[shape.exploration]!
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
    const { evaluated } = this.#workspace
    const { chosen, logprob, value } = lanes.action
    const observation = lanes.observation.current
    for (let first = from; first < to; first += BLOCK_ROWS) {
      const count = Math.min(BLOCK_ROWS, to - first)
      const unit = this.act(observation, first, count)
      if (explore) this.#explore(lanes, unit, first, count)
      this.#critics.stretch(chosen as Float32Array, unit, first, count)
      this.#evaluate(observation, chosen as Float32Array, first, count)
      for (let i = 0; i < count; i++) {
        logprob[first + i] = evaluated.logprob[i]!
        value[first + i] = evaluated.value[i]!
      }
    }
  }

  #explore({ episode: { lane, episode, step } }: ActingLanes, unit: Float32Array, from: number, count: number): void {
    const kernels = this.#kernels
    const { draws, words } = this.#workspace
    const { actionWidth } = this.#shape
    const { key0, key1 } = this.#random
    const [isUniform, deviation] = this.#exploration
    if (isUniform === 1) {
      kernels.drawUniform(draws, words, lane, episode, step, key0, key1, count, actionWidth, from)
      kernels.spreadActions(unit, draws, count, actionWidth)
      return
    }
    kernels.drawNormal(draws, words, lane, episode, step, key0, key1, count, actionWidth, from)
    kernels.addActionNoise(unit, draws, deviation!, Number.POSITIVE_INFINITY, count, actionWidth)
  }

  values(value: Float32Array, { observation }: Seen, count: number): void {
    for (let first = 0; first < count; first += BLOCK_ROWS) {
      const rows = Math.min(BLOCK_ROWS, count - first)
      const least = this.judge(observation, first, this.act(observation, first, rows), rows)
      for (let i = 0; i < rows; i++) value[first + i] = least[i]!
    }
  }

  act(observation: Float32Array, from: number, count: number): Float32Array {
    const { unit } = this.#workspace
    this.#outputs = this.#actor.forward(this.#inputs.read(observation, from, count), this.#inputs.at(from), count)
    for (let i = 0; i < count * this.#shape.actionWidth; i++) unit[i] = this.#outputs[i]!
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
    scale: number,
    count: number,
    gradient: ParameterViews,
  ): void {
    const { dValue, dUnit, dOutputs } = this.#workspace
    const { actionWidth } = this.#shape
    dUnit.fill(0, 0, count * actionWidth)
    dValue.fill(-scale, 0, count)
    this.#critics.differentiateActions(dUnit, 0, dValue, count)
    this.#kernels.tanhBackward(dOutputs, dUnit, this.#outputs, count, actionWidth)
    const x = this.#inputs.read(observation, from, count)
    this.#actor.backward(dOutputs, x, this.#inputs.at(from), count, gradient)
  }

  evaluate({ observation, action }: Rows, from: number, count: number): Evaluated {
    this.act(observation, from, count)
    return this.#evaluate(observation, action as Float32Array, from, count)
  }

  /** As `evaluate`, after the actor has run on these rows. */
  #evaluate(observation: Float32Array, action: Float32Array, from: number, count: number): Evaluated {
    const { evaluated, critics } = this.#workspace
    const { logprob, entropy, value } = evaluated
    const { low, high } = critics.bounds
    const { actionWidth } = this.#shape
    const [isUniform, deviation] = this.#exploration
    const mean = this.#outputs
    const isSpread = isUniform === 1
    const kernels = this.#kernels
    kernels.noisyEvaluate(logprob, entropy, action, mean, low, high, isSpread, deviation!, count, actionWidth, from)
    const least = this.judge(observation, from, this.shrink(action, from, count), count)
    for (let i = 0; i < count; i++) value[i] = least[i]!
    return evaluated
  }

  /** Uses only the derivative by the value: it goes to the critic with the lesser value, as in `ActionCritics`. */
  differentiate(rows: Rows, from: number, count: number, lossOf: LossOf, gradient: ParameterViews): void {
    const { derivatives, dValue } = this.#workspace
    lossOf(this.evaluate(rows, from, count), derivatives, from, count)
    for (const critic of [0, 1] as const) {
      const ofCritic = this.#critics.ofLeast(dValue, critic, (row) => derivatives.dValue[row]!, count)
      this.differentiateCritic(critic, ofCritic, count, gradient)
    }
  }
}
