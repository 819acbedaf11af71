import { defineFactory } from '../base/definition.ts'
import { InputError, show } from '../base/errors.ts'
import type { Random } from '../base/random.ts'
import { boolean, choice, number, type SettingValues, sizes } from '../base/settings.ts'
import { type Space, spaceWidth } from '../base/space.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import { Activation } from '../kernels/bind.ts'
import type { Kernels } from '../kernels/kernels.ts'
import {
  DenseStack,
  gradientPlan,
  type InputGradient,
  initializeStacks,
  ParameterList,
  type StackShape,
  stackPlan,
  stackShape,
} from './dense-stack.ts'
import { Head, type HeadShape, headPlan, headShape } from './head.ts'
import { addInputMoments, INPUT_CLIP, type InputMoments, Inputs, inputsPlan, normalizeObservations } from './inputs.ts'
import {
  type ActingLanes,
  BLOCK_ROWS,
  type DenseLayer,
  type DenseNetwork,
  type Evaluated,
  type LossOf,
  type ParameterViews,
  type Policy,
  type PolicyDefinition,
  type PolicyModel,
  type Rows,
  type Seen,
} from './policy.ts'

const settings = {
  hidden: sizes([64, 64], 'units of each hidden layer'),
  activation: choice('tanh', ['tanh', 'relu'], 'activation of the hidden layers'),
  sharedTrunk: boolean(false, 'actor and critic share the hidden layers'),
  logStd: number(0, 'starting log standard deviation of a continuous action'),
  normalizeObservations,
}

/**
 * A multi-layer perceptron, actor and critic: hidden layers with tanh or relu, a head of logits (discrete and multi-discrete actions) or
 * of means with a state-independent log standard deviation (box actions), and a value head. Initial weights are orthogonal with gain √2
 * in hidden layers, 0.01 in the actor's head, 1 in the critic's (as in Engstrom et al. 2020); biases are 0. With `normalizeObservations`
 * the weights also contain the mean and deviation of each number of an observation, which only training updates.
 * @example mlp({ hidden: [64, 64] })
 */
export const mlp = defineFactory('policy', { id: 'mlp', module: import.meta.url, settings }, (parameters) => ({
  build: (observationSpace: Space, actionSpace: Space): PolicyModel =>
    buildMlp(parameters, observationSpace, actionSpace),
})) satisfies (...parameters: never[]) => PolicyDefinition

/** The network's layers and parameters. */
interface Shape {
  readonly parameters: ParameterList
  /** The layers that actor and critic share; null if they share none. */
  readonly trunk: StackShape | null
  readonly actor: StackShape
  readonly critic: StackShape
  /** The existing stacks, in the order of their parameters. */
  readonly stacks: readonly StackShape[]
  readonly activation: 'tanh' | 'relu'
  /** Index of the log standard deviations in the list of parameters; −1 for choices. */
  readonly logStd: number
  readonly head: HeadShape
  readonly numInputs: number
  /** Indices of their means and deviations in the list of parameters; null without normalization. */
  readonly inputs: InputMoments | null
}

type MlpParameters = SettingValues<typeof settings>

function buildMlp(settings: MlpParameters, observationSpace: Space, actionSpace: Space): PolicyModel {
  const shape = shapeOf(settings, observationSpace, actionSpace)
  const { parameters, inputs } = shape
  return {
    numParameters: parameters.size,
    parameters: parameters.list,
    normalizedInputs: inputs === null ? 0 : shape.numInputs,
    dense: denseNetwork(shape),
    workspace: () => workspacePlan(shape),
    initialize(weights, random, key) {
      weights.fill(0)
      const views = parameters.view(weights)
      initializeStacks(shape.stacks, views, random, key)
      views[shape.logStd]?.fill(settings.logStd)
      if (inputs !== null) views[inputs.deviation]!.fill(1)
    },
    bind: (weights, workspace, kernels, random) =>
      new Mlp(shape, weights, workspace as unknown as Workspace, kernels, random),
  }
}

function shapeOf(settings: MlpParameters, observationSpace: Space, actionSpace: Space): Shape {
  const { activation, hidden, sharedTrunk, normalizeObservations } = settings
  if (observationSpace.kind !== 'box') {
    throw new InputError('mlp observation space', show(observationSpace), 'a box')
  }
  const parameters = new ParameterList()
  const numInputs = spaceWidth(observationSpace)
  const head = headShape(actionSpace)
  const hasTrunk = sharedTrunk && hidden.length > 0
  const trunk = hasTrunk ? stackShape(parameters, 'trunk', { numInputs, hidden }, activation) : null
  const own = hasTrunk ? { numInputs: hidden.at(-1)!, hidden: [] } : { numInputs, hidden }
  const actor = stackShape(parameters, 'actor', { ...own, numOutputs: head.numOutputs }, activation, 0.01)
  const logStd = head.choices.length > 0 ? -1 : parameters.add('actor.logStd', [head.actionWidth])
  const critic = stackShape(parameters, 'critic', { ...own, numOutputs: 1 }, activation, 1)
  const inputs = normalizeObservations ? addInputMoments(parameters, numInputs) : null
  const stacks = trunk === null ? [actor, critic] : [trunk, actor, critic]
  return { parameters, trunk, actor, critic, stacks, activation, logStd, head, numInputs, inputs }
}

function denseNetwork({ trunk, actor, critic, activation, logStd, inputs, parameters }: Shape): DenseNetwork {
  const offsetOf = (place: number) => parameters.list[place]!.offset
  const describe = (stack: StackShape | null): DenseLayer[] =>
    (stack?.layers ?? []).map((layer) => ({
      name: parameters.list[layer.weight]!.name.replace(/\.weight$/, ''),
      numInputs: layer.numInputs,
      numOutputs: layer.numOutputs,
      activation: layer.activation === Activation.linear ? 'linear' : activation,
      weight: offsetOf(layer.weight),
      bias: offsetOf(layer.bias),
    }))
  return {
    trunk: describe(trunk),
    actor: describe(actor),
    critic: describe(critic),
    logStd: logStd < 0 ? null : offsetOf(logStd),
    inputs: inputs && { center: offsetOf(inputs.center), deviation: offsetOf(inputs.deviation), clip: INPUT_CLIP },
  }
}

/** Plans one thread's workspace for a block of rows. */
function workspacePlan({ trunk, actor, critic, stacks, head, numInputs, inputs }: Shape) {
  return {
    inputs: inputsPlan(numInputs, inputs !== null),
    trunk: trunk === null ? {} : stackPlan(trunk),
    actor: stackPlan(actor),
    critic: stackPlan(critic),
    head: headPlan(head, BLOCK_ROWS),
    gradients: gradientPlan(stacks),
    /** The gradient by the trunk's outputs. */
    dTrunk: column('f32', trunk === null ? 0 : BLOCK_ROWS, actor.layers[0]!.numInputs),
  } satisfies Plan
}

type Workspace = Columns<ReturnType<typeof workspacePlan>>

/** Empty log standard deviations for a head of choices; empty rows. */
const NONE = new Float32Array(0)

class Mlp implements Policy {
  readonly #shape: Shape
  readonly #inputs: Inputs
  readonly #trunk: DenseStack | null
  readonly #actor: DenseStack
  readonly #critic: DenseStack
  readonly #head: Head
  /** The two heads' gradients by the trunk's outputs, which are summed before the activation's derivative. */
  readonly #dActor: InputGradient | null
  readonly #dCritic: InputGradient | null
  /** The current rows' inputs and the trunk's outputs; `…From` is the index of the first. */
  #x: Float32Array = NONE
  #xFrom = 0
  #top: Float32Array = NONE
  #topFrom = 0

  constructor(shape: Shape, weights: Float32Array, workspace: Workspace, kernels: Kernels, random: Random) {
    const views = shape.parameters.view(weights)
    const { trunk, actor, critic, gradients, dTrunk } = workspace
    this.#shape = shape
    this.#inputs = new Inputs(shape.numInputs, shape.inputs, views, workspace.inputs, kernels)
    this.#trunk = shape.trunk && new DenseStack(shape.trunk, views, trunk, gradients, kernels)
    this.#actor = new DenseStack(shape.actor, views, actor, gradients, kernels)
    this.#critic = new DenseStack(shape.critic, views, critic, gradients, kernels)
    this.#head = new Head(shape.head, workspace.head, views[shape.logStd] ?? NONE, kernels, random)
    const activation = Activation[shape.activation]
    this.#dActor = this.#trunk && { dx: dTrunk, accumulate: false, activation: Activation.linear }
    this.#dCritic = this.#trunk && { dx: dTrunk, accumulate: true, activation }
  }

  view(column: Float32Array): ParameterViews {
    return this.#shape.parameters.view(column)
  }

  infer(lanes: ActingLanes, explore: boolean, from: number, to: number): void {
    for (let first = from; first < to; first += BLOCK_ROWS) {
      const count = Math.min(BLOCK_ROWS, to - first)
      this.#read(lanes.observation.current, first, count)
      this.#actor.forward(this.#top, this.#topFrom, count, this.#head.columns.output)
      this.#head.act(lanes, explore, first, count)
      this.#critic.forward(this.#top, this.#topFrom, count, lanes.action.value, first)
    }
  }

  values(value: Float32Array, { observation }: Seen, count: number): void {
    for (let first = 0; first < count; first += BLOCK_ROWS) {
      const rows = Math.min(BLOCK_ROWS, count - first)
      this.#read(observation, first, rows)
      this.#critic.forward(this.#top, this.#topFrom, rows, value, first)
    }
  }

  evaluate(rows: Rows, from: number, count: number): Evaluated {
    this.#read(rows.observation, from, count)
    this.#actor.forward(this.#top, this.#topFrom, count, this.#head.columns.output)
    this.#head.evaluate(rows, from, count)
    this.#critic.forward(this.#top, this.#topFrom, count, this.#head.columns.value)
    return this.#head.evaluated
  }

  differentiate(rows: Rows, from: number, count: number, lossOf: LossOf, gradient: ParameterViews): void {
    lossOf(this.evaluate(rows, from, count), this.#head.derivatives, from, count)
    this.#head.backward(rows, from, count, gradient[this.#shape.logStd] ?? NONE)
    const { dOutput, dValue } = this.#head.columns
    this.#actor.backward(dOutput, this.#top, this.#topFrom, count, gradient, this.#dActor)
    this.#critic.backward(dValue, this.#top, this.#topFrom, count, gradient, this.#dCritic)
    if (this.#dActor !== null) this.#trunk!.backward(this.#dActor.dx, this.#x, this.#xFrom, count, gradient)
  }

  /** Runs rows from … from + count of observations through the layers that actor and critic share. */
  #read(observation: Float32Array, from: number, count: number): void {
    this.#x = this.#inputs.read(observation, from, count)
    this.#xFrom = this.#inputs.at(from)
    this.#top = this.#trunk?.forward(this.#x, this.#xFrom, count) ?? this.#x
    this.#topFrom = this.#trunk === null ? this.#xFrom : 0
  }
}
