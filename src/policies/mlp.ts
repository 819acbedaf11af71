import { defineFactory } from '../base/definition.ts'
import { InputError, show } from '../base/errors.ts'
import type { Random } from '../base/random.ts'
import { boolean, choice, number, sizes } from '../base/settings.ts'
import { type Space, spaceWidth } from '../base/space.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import { Activation } from '../kernels/bind.ts'
import type { Kernels } from '../kernels/kernels.ts'
import { Head, type HeadShape, headPlan, headShape } from './head.ts'
import { INPUT_CLIP, type InputMoments, Inputs, inputsPlan, normalizeObservations } from './inputs.ts'
import { orthogonal } from './orthogonal.ts'
import {
  type ActingLanes,
  BLOCK_ROWS,
  type DenseLayer,
  type DenseNetwork,
  type Evaluated,
  type LossOf,
  type Parameter,
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
 * A multi-layer perceptron, actor and critic: hidden layers with tanh or relu, a head of logits (discrete and
 * multi-discrete actions) or of means with a state-independent log standard deviation (box actions), and a value head.
 * Weights start orthogonal with gain √2 in hidden layers, 0.01 in the actor's head, 1 in the critic's (as in Engstrom et
 * al. 2020); biases at 0. With `normalizeObservations` the weights have the mean and the deviation of each number of an observation
 * besides, which grow in training and stay as they are everywhere else.
 *
 * @example mlp({ hidden: [64, 64] })
 */
export const mlp = defineFactory('policy', { id: 'mlp', module: import.meta.url, settings }, (parameters) => ({
  build: (observationSpace: Space, actionSpace: Space): PolicyModel =>
    buildMlp(parameters, observationSpace, actionSpace),
})) satisfies (...parameters: never[]) => PolicyDefinition

/** One dense layer: the places of its weight and bias in the list of parameters, its sizes and its gain. */
interface Layer {
  readonly weight: number
  readonly bias: number
  readonly numInputs: number
  readonly numOutputs: number
  readonly gain: number
}

/** The shape of the network: which layers there are, and which parameters they have. */
interface Shape {
  readonly layers: readonly Layer[]
  readonly actorTrunk: readonly Layer[]
  /** The same list as the actor's where the trunk is shared. */
  readonly criticTrunk: readonly Layer[]
  readonly actorHead: Layer
  readonly criticHead: Layer
  /** Place of the log standard deviations in the list of parameters; −1 for choices. */
  readonly logStd: number
  readonly parameters: readonly Parameter[]
  readonly numParameters: number
  readonly activation: number
  readonly head: HeadShape
  /** Numbers of an observation. */
  readonly numInputs: number
  /** Places of their means and deviations in the list of parameters; null where they are taken as they are. */
  readonly inputs: InputMoments | null
}

interface MlpParameters {
  readonly hidden: readonly number[]
  readonly activation: 'tanh' | 'relu'
  readonly sharedTrunk: boolean
  readonly logStd: number
  readonly normalizeObservations: boolean
}

function buildMlp(settings: MlpParameters, observationSpace: Space, actionSpace: Space): PolicyModel {
  const shape = shapeOf(settings, observationSpace, actionSpace)
  return {
    numParameters: shape.numParameters,
    parameters: shape.parameters,
    normalizedInputs: shape.inputs === null ? 0 : shape.numInputs,
    dense: denseNetwork(shape, settings.activation),
    workspace: () => workspacePlan(shape),
    initialize(weights, random, key) {
      weights.fill(0)
      shape.layers.forEach((layer, index) => {
        const { offset } = shape.parameters[layer.weight]!
        const view = weights.subarray(offset, offset + layer.numInputs * layer.numOutputs)
        orthogonal(view, layer.numInputs, layer.numOutputs, layer.gain, random, key, index)
      })
      if (shape.logStd >= 0) {
        const { offset } = shape.parameters[shape.logStd]!
        weights.fill(settings.logStd, offset, offset + shape.head.actionWidth)
      }
      if (shape.inputs !== null) weights.fill(1, shape.parameters[shape.inputs.deviation]!.offset)
    },
    bind: (weights, workspace, kernels, random) =>
      new Mlp(shape, weights, workspace as unknown as Workspace, kernels, random),
  }
}

function shapeOf(settings: MlpParameters, observationSpace: Space, actionSpace: Space): Shape {
  if (observationSpace.kind !== 'box') {
    throw new InputError('mlp observation space', show(observationSpace), 'a box')
  }
  const parameters: Parameter[] = []
  const layers: Layer[] = []
  let numParameters = 0
  const addParameter = (name: string, shape: readonly number[]): number => {
    parameters.push({ name, offset: numParameters, shape })
    numParameters += shape.reduce((product, side) => product * side, 1)
    return parameters.length - 1
  }
  const addLayer = (name: string, numInputs: number, numOutputs: number, gain: number): Layer => {
    const weight = addParameter(`${name}.weight`, [numInputs, numOutputs])
    const bias = addParameter(`${name}.bias`, [numOutputs])
    const layer = { weight, bias, numInputs, numOutputs, gain }
    layers.push(layer)
    return layer
  }
  const observationWidth = spaceWidth(observationSpace)
  const addTrunk = (name: string): Layer[] => {
    let numInputs = observationWidth
    return settings.hidden.map((numOutputs, index) => {
      const layer = addLayer(`${name}.${index}`, numInputs, numOutputs, Math.SQRT2)
      numInputs = numOutputs
      return layer
    })
  }
  const head = headShape(actionSpace)
  const topWidth = settings.hidden.at(-1) ?? observationWidth

  const actorTrunk = addTrunk(settings.sharedTrunk ? 'trunk' : 'actor')
  const actorHead = addLayer('actor.head', topWidth, head.numOutputs, 0.01)
  const logStd = head.choices.length > 0 ? -1 : addParameter('actor.logStd', [head.actionWidth])
  const criticTrunk = settings.sharedTrunk ? actorTrunk : addTrunk('critic')
  const criticHead = addLayer('critic.head', topWidth, 1, 1)
  const addInputs = () => ({
    center: addParameter('observation.center', [observationWidth]),
    deviation: addParameter('observation.deviation', [observationWidth]),
  })
  const inputs = settings.normalizeObservations ? addInputs() : null // Last, where training writes them.
  const activation = Activation[settings.activation]
  return {
    layers,
    actorTrunk,
    criticTrunk,
    actorHead,
    criticHead,
    logStd,
    parameters,
    numParameters,
    activation,
    head,
    numInputs: observationWidth,
    inputs,
  }
}

function denseNetwork(shape: Shape, activation: MlpParameters['activation']): DenseNetwork {
  const describe = (layer: Layer): DenseLayer => {
    const [weight, bias] = [shape.parameters[layer.weight]!, shape.parameters[layer.bias]!]
    return {
      name: weight.name.replace(/\.weight$/, ''),
      numInputs: layer.numInputs,
      numOutputs: layer.numOutputs,
      activation: layer === shape.actorHead || layer === shape.criticHead ? 'linear' : activation,
      weight: weight.offset,
      bias: bias.offset,
    }
  }
  const { actorTrunk, criticTrunk, actorHead, criticHead, logStd, inputs, parameters } = shape
  const shared = criticTrunk === actorTrunk
  return {
    trunk: shared ? actorTrunk.map(describe) : [],
    actor: [...(shared ? [] : actorTrunk), actorHead].map(describe),
    critic: [...(shared ? [] : criticTrunk), criticHead].map(describe),
    logStd: logStd < 0 ? null : parameters[logStd]!.offset,
    inputs: inputs && {
      center: parameters[inputs.center]!.offset,
      deviation: parameters[inputs.deviation]!.offset,
      clip: INPUT_CLIP,
    },
  }
}

/** What one thread needs for one block of rows. */
function workspacePlan(shape: Shape) {
  const rows = (width: number) => column('f32', BLOCK_ROWS, width)
  const { actorTrunk, criticTrunk, actorHead } = shape
  const widest = Math.max(actorHead.numInputs, ...shape.layers.map((layer) => layer.numOutputs))
  const activations = (trunk: readonly Layer[]): Record<string, ReturnType<typeof rows>> =>
    Object.fromEntries(trunk.map((layer, index) => [`layer${index}`, rows(layer.numOutputs)]))
  return {
    inputs: inputsPlan(shape.numInputs, shape.inputs !== null),
    /** Outputs of the hidden layers. */
    actor: activations(actorTrunk),
    critic: activations(criticTrunk === actorTrunk ? [] : criticTrunk),
    head: headPlan(shape.head, BLOCK_ROWS),
    /** Gradients by two neighboring layers, in turn. */
    dLayer0: rows(widest),
    dLayer1: rows(widest),
    /** A transposed weight, and a row of zeros. */
    backward: column('f32', Math.max(...shape.layers.map(({ numInputs, numOutputs }) => (numOutputs + 1) * numInputs))),
  } satisfies Plan
}

type Workspace = Columns<ReturnType<typeof workspacePlan>>

/** What a head of choices has for log standard deviations. */
const NO_LOG_STD = new Float32Array(0)

class Mlp implements Policy {
  readonly #shape: Shape
  readonly #weights: ParameterViews
  readonly #workspace: Workspace
  readonly #kernels: Kernels
  readonly #inputs: Inputs
  readonly #head: Head
  readonly #actorOutputs: readonly Float32Array[]
  readonly #criticOutputs: readonly Float32Array[]

  constructor(shape: Shape, weights: Float32Array, workspace: Workspace, kernels: Kernels, random: Random) {
    this.#shape = shape
    this.#workspace = workspace
    this.#kernels = kernels
    this.#weights = this.view(weights)
    this.#inputs = new Inputs(shape.numInputs, shape.inputs, this.#weights, workspace.inputs, kernels)
    this.#head = new Head(shape.head, workspace.head, this.#weights[shape.logStd] ?? NO_LOG_STD, kernels, random)
    this.#actorOutputs = Object.values(workspace.actor)
    this.#criticOutputs = shape.criticTrunk === shape.actorTrunk ? this.#actorOutputs : Object.values(workspace.critic)
  }

  view(column: Float32Array): ParameterViews {
    return this.#shape.parameters.map(({ offset, shape }) =>
      column.subarray(offset, offset + shape.reduce((product, side) => product * side, 1)),
    )
  }

  infer(lanes: ActingLanes, explore: boolean, from: number, to: number): void {
    const { observation, action } = lanes
    for (let first = from; first < to; first += BLOCK_ROWS) {
      const count = Math.min(BLOCK_ROWS, to - first)
      const [x, xFrom] = [this.#inputs.read(observation.current, first, count), this.#inputs.at(first)]
      this.#forwardActor(x, xFrom, count)
      this.#head.act(lanes, explore, first, count)
      this.#forwardCritic(action.value, first, x, xFrom, count)
    }
  }

  values(value: Float32Array, { observation }: Seen, count: number): void {
    const shared = this.#shape.criticTrunk === this.#shape.actorTrunk
    for (let first = 0; first < count; first += BLOCK_ROWS) {
      const rows = Math.min(BLOCK_ROWS, count - first)
      const [x, xFrom] = [this.#inputs.read(observation, first, rows), this.#inputs.at(first)]
      if (shared) this.#forwardTrunk(this.#shape.actorTrunk, this.#actorOutputs, x, xFrom, rows)
      this.#forwardCritic(value, first, x, xFrom, rows)
    }
  }

  evaluate(rows: Rows, from: number, count: number): Evaluated {
    return this.#evaluate(rows, from, this.#inputs.read(rows.observation, from, count), count)
  }

  /** `x`: what `read` gave of these rows. */
  #evaluate(rows: Rows, from: number, x: Float32Array, count: number): Evaluated {
    const xFrom = this.#inputs.at(from)
    this.#forwardActor(x, xFrom, count)
    this.#head.evaluate(rows, from, count)
    this.#forwardCritic(this.#head.columns.value, 0, x, xFrom, count)
    return this.#head.evaluated
  }

  differentiate(rows: Rows, from: number, count: number, lossOf: LossOf, gradient: ParameterViews): void {
    const [x, xFrom] = [this.#inputs.read(rows.observation, from, count), this.#inputs.at(from)]
    lossOf(this.#evaluate(rows, from, x, count), this.#head.derivatives, from, count)
    this.#head.backward(rows, from, count, gradient[this.#shape.logStd] ?? NO_LOG_STD)

    const { actorTrunk, criticTrunk, actorHead, criticHead } = this.#shape
    const { dOutput: dHead, dValue } = this.#head.columns
    const { linear } = Activation
    const { activation } = this.#shape
    if (criticTrunk === actorTrunk) {
      // The two heads' gradients are summed before the activation's derivative.
      this.#backwardLayer(actorHead, dHead, this.#actorOutputs, x, xFrom, count, gradient, false, linear)
      this.#backwardLayer(criticHead, dValue, this.#actorOutputs, x, xFrom, count, gradient, true, activation)
      this.#backwardTrunk(actorTrunk, this.#actorOutputs, x, xFrom, count, gradient)
    } else {
      this.#backwardLayer(actorHead, dHead, this.#actorOutputs, x, xFrom, count, gradient, false, activation)
      this.#backwardTrunk(actorTrunk, this.#actorOutputs, x, xFrom, count, gradient)
      this.#backwardLayer(criticHead, dValue, this.#criticOutputs, x, xFrom, count, gradient, false, activation)
      this.#backwardTrunk(criticTrunk, this.#criticOutputs, x, xFrom, count, gradient)
    }
  }

  #forwardTrunk(
    trunk: readonly Layer[],
    outputs: readonly Float32Array[],
    observation: Float32Array,
    from: number,
    count: number,
  ): void {
    for (let i = 0; i < trunk.length; i++) {
      const layer = trunk[i]!
      this.#forwardLayer(
        layer,
        outputs[i]!,
        0,
        i === 0 ? observation : outputs[i - 1]!,
        i === 0 ? from : 0,
        count,
        true,
      )
    }
  }

  #forwardLayer(
    layer: Layer,
    y: Float32Array,
    yFrom: number,
    x: Float32Array,
    xFrom: number,
    count: number,
    hidden: boolean,
  ): void {
    const { weight, bias, numInputs, numOutputs } = layer
    const activation = hidden ? this.#shape.activation : Activation.linear
    const w = this.#weights[weight]!
    const b = this.#weights[bias]!
    this.#kernels.denseForward(y, x, w, b, count, numInputs, numOutputs, activation, yFrom, xFrom)
  }

  #forwardActor(observation: Float32Array, from: number, count: number): void {
    const { actorTrunk, actorHead } = this.#shape
    this.#forwardTrunk(actorTrunk, this.#actorOutputs, observation, from, count)
    const top = this.#actorOutputs.at(-1)
    this.#forwardLayer(actorHead, this.#head.columns.output, 0, top ?? observation, top ? 0 : from, count, false)
  }

  /** With a shared trunk, the actor's pass over the same rows must have gone before. */
  #forwardCritic(value: Float32Array, valueFrom: number, observation: Float32Array, from: number, count: number): void {
    const { actorTrunk, criticTrunk, criticHead } = this.#shape
    if (criticTrunk !== actorTrunk) this.#forwardTrunk(criticTrunk, this.#criticOutputs, observation, from, count)
    const top = this.#criticOutputs.at(-1)
    this.#forwardLayer(criticHead, value, valueFrom, top ?? observation, top ? 0 : from, count, false)
  }

  /** From a head's gradient to its weights' and, in `dLayer0`, to that of the layer below: by its sums, or its outputs. */
  #backwardLayer(
    layer: Layer,
    dy: Float32Array,
    below: readonly Float32Array[],
    inputs: Float32Array,
    from: number,
    count: number,
    gradient: ParameterViews,
    accumulate: boolean,
    activation: number,
  ): void {
    const { weight, bias, numInputs, numOutputs } = layer
    const top = below.at(-1)
    const x = top ?? inputs
    const xFrom = top ? 0 : from
    this.#kernels.denseBackwardWeights(gradient[weight]!, gradient[bias]!, dy, x, count, numInputs, numOutputs, xFrom)
    if (top) {
      const { dLayer0, backward } = this.#workspace
      const w = this.#weights[weight]!
      this.#kernels.denseBackwardInput(
        dLayer0,
        dy,
        w,
        backward,
        top,
        count,
        numInputs,
        numOutputs,
        accumulate,
        activation,
      )
    }
  }

  /** From the gradient by the sums of the trunk's last layer, in `dLayer0`, to the weights of all its layers. */
  #backwardTrunk(
    trunk: readonly Layer[],
    outputs: readonly Float32Array[],
    inputs: Float32Array,
    from: number,
    count: number,
    gradient: ParameterViews,
  ): void {
    const kernels = this.#kernels
    const { backward } = this.#workspace
    const { activation } = this.#shape
    let dy = this.#workspace.dLayer0
    let dx = this.#workspace.dLayer1
    for (let i = trunk.length - 1; i >= 0; i--) {
      const { weight, bias, numInputs, numOutputs } = trunk[i]!
      const x = i === 0 ? inputs : outputs[i - 1]!
      const xFrom = i === 0 ? from : 0
      kernels.denseBackwardWeights(gradient[weight]!, gradient[bias]!, dy, x, count, numInputs, numOutputs, xFrom)
      const w = this.#weights[weight]!
      if (i > 0) kernels.denseBackwardInput(dx, dy, w, backward, x, count, numInputs, numOutputs, false, activation)
      const swap = dy
      dy = dx
      dx = swap
    }
  }
}
