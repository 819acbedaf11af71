import { defineFactory } from '../base/definition.ts'
import { InputError, show } from '../base/errors.ts'
import type { Random } from '../base/random.ts'
import { boolean, choice, integer, type SettingValues, sizes } from '../base/settings.ts'
import { observationType, type Space } from '../base/space.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import type { ObservationColumn } from '../components/observation.ts'
import type { Kernels } from '../kernels/kernels.ts'
import { addInputMoments, Inputs, inputsPlan, normalizeObservations } from './inputs.ts'
import { type ModelShape, modelOf, numInputsOf } from './network-model.ts'
import {
  type ActingLanes,
  type ActionValuePolicy,
  BLOCK_ROWS,
  type Evaluated,
  type LossOf,
  type ParameterViews,
  type PolicyDefinition,
  type PolicyModel,
  type Rows,
  type Seen,
} from './policy.ts'
import { convolutions } from './stack/convolution.ts'
import { ParameterList } from './stack/parameters.ts'
import { Stack, type StackShape, stackPlan, stackShape, workPlan } from './stack/stack.ts'

const settings = {
  filters: sizes([], 'filters of convolutions before the layers, over images'),
  kernelSize: integer(3, 'height and width of the filters', { min: 1 }),
  hidden: sizes([120, 84], 'units of each hidden layer'),
  activation: choice('relu', ['tanh', 'relu'], 'activation of the hidden layers'),
  dueling: boolean(
    false,
    "dueling network: separate outputs for the state's value and the actions' advantages over their mean",
  ),
  normalizeObservations,
}

/**
 * A network of action values (Mnih et al. 2015), for one choice among several: dense layers, with `filters` after convolutions as in
 * `convolutional`. It takes the action of the
 * highest value, or a random one with the exploration probability, which is stored in its weights as `exploration`: initially 1, then set
 * by the algorithm. Initial weights are orthogonal with gain √2 in hidden layers and 0.01 in the head; biases are 0.
 * `normalizeObservations` works as in `mlp`.
 * @example qNetwork({ hidden: [120, 84], dueling: true })
 */
export const qNetwork = defineFactory(
  'policy',
  { id: 'qNetwork', module: import.meta.url, settings },
  (parameters) => ({
    build: (observationSpace: Space, actionSpace: Space): PolicyModel =>
      buildNetwork(parameters, observationSpace, actionSpace),
  }),
) satisfies (...parameters: never[]) => PolicyDefinition

interface Shape extends ModelShape {
  readonly stacks: readonly [StackShape]
  readonly numActions: number
  readonly isDueling: boolean
  /** Index of the exploration probability in the list of parameters. */
  readonly exploration: number
}

function buildNetwork(
  { filters, kernelSize, hidden, activation, dueling, normalizeObservations }: SettingValues<typeof settings>,
  observationSpace: Space,
  actionSpace: Space,
): PolicyModel {
  const numInputs = numInputsOf('qNetwork', observationSpace)
  if (actionSpace.kind !== 'discrete') {
    throw new InputError('qNetwork action space', show(actionSpace), 'one choice among several: discrete(n)')
  }
  const numActions = actionSpace.n
  const parameters = new ParameterList()
  const sizes = { numInputs, numOutputs: dueling ? numActions + 1 : numActions }
  const first = convolutions(filters, kernelSize, 'qNetwork', observationSpace)
  const stack = stackShape(parameters, 'values', sizes, { first, hidden, activation }, 0.01)
  const exploration = parameters.add('exploration', [1])
  const inputs = normalizeObservations ? addInputMoments(parameters, numInputs) : null
  const areBytes = observationType(observationSpace) === 'u8'
  const given = { numInputs, areBytes, inputs }
  const shape: Shape = { parameters, stacks: [stack], numActions, isDueling: dueling, exploration, ...given }
  return {
    ...modelOf(shape, workspacePlan, (views) => views[exploration]!.fill(1), QNetwork),
    actionValues: { numActions, exploration: parameters.list[exploration]!.offset },
  }
}

function workspacePlan(shape: Shape) {
  const { numActions } = shape
  const [stack] = shape.stacks
  const rows = (width: number) => column('f32', BLOCK_ROWS, width)
  const { numOutputs } = stack.layers.at(-1)!
  return {
    inputs: inputsPlan(shape, BLOCK_ROWS),
    stack: stackPlan(stack, BLOCK_ROWS),
    work: workPlan([stack], BLOCK_ROWS),
    values: rows(numActions),
    dOutputs: rows(numOutputs),
    evaluated: { logprob: rows(1), entropy: rows(1), value: rows(1) },
    derivatives: { dLogprob: rows(1), dEntropy: rows(1), dValue: rows(1) },
    draws: rows(2),
    words: column('u32', 4),
  } satisfies Plan
}

type Workspace = Columns<ReturnType<typeof workspacePlan>>

class QNetwork implements ActionValuePolicy {
  readonly #shape: Shape
  readonly #inputs: Inputs
  readonly #stack: Stack
  readonly #exploration: Float32Array
  readonly #workspace: Workspace
  readonly #kernels: Kernels
  readonly #random: Random

  constructor(shape: Shape, weights: Float32Array, workspace: Workspace, kernels: Kernels, random: Random) {
    const views = shape.parameters.view(weights)
    this.#shape = shape
    this.#inputs = new Inputs(shape, views, workspace.inputs, kernels)
    this.#stack = new Stack(shape.stacks[0], views, workspace.stack, workspace.work, kernels)
    this.#exploration = views[shape.exploration]!
    this.#workspace = workspace
    this.#kernels = kernels
    this.#random = random
  }

  view(column: Float32Array): ParameterViews {
    return this.#shape.parameters.view(column)
  }

  infer(lanes: ActingLanes, explore: boolean, from: number, to: number): void {
    const kernels = this.#kernels
    const { draws, words } = this.#workspace
    const { numActions } = this.#shape
    const { key0, key1 } = this.#random
    const { lane, episode, step } = lanes.episode
    const { chosen, logprob, value } = lanes.action
    const exploration = explore ? this.#exploration[0]! : 0
    for (let first = from; first < to; first += BLOCK_ROWS) {
      const count = Math.min(BLOCK_ROWS, to - first)
      const values = this.#legalValues(lanes.observation.current, lanes.actionMask.current, first, count)
      kernels.drawUniform(draws, words, lane, episode, step, key0, key1, count, 2, first)
      const taken = chosen as Int32Array
      kernels.chooseByValue(taken, logprob, value, values, draws, exploration, count, numActions, first)
    }
  }

  values(value: Float32Array, { observation, actionMask }: Seen, count: number): void {
    for (let first = 0; first < count; first += BLOCK_ROWS) {
      const rows = Math.min(BLOCK_ROWS, count - first)
      const values = this.#legalValues(observation, actionMask, first, rows)
      this.#kernels.valueOfBest(value, values, values, rows, this.#shape.numActions, first)
    }
  }

  actionValues(observation: ObservationColumn, from: number, count: number): Float32Array {
    const x = this.#inputs.read(observation, from, count)
    const outputs = this.#stack.forward(x, this.#inputs.at(from), count)
    if (!this.#shape.isDueling) return outputs
    const { values } = this.#workspace
    this.#kernels.duelingForward(values, outputs, count, this.#shape.numActions)
    return values
  }

  evaluate(rows: Rows, from: number, count: number): Evaluated {
    const { logprob, entropy, value } = this.#workspace.evaluated
    const values = this.#legalValues(rows.observation, rows.actionMask, from, count)
    const action = rows.action as Int32Array
    const { numActions } = this.#shape
    const exploration = this.#exploration[0]!
    this.#kernels.evaluateByValue(logprob, entropy, value, action, values, exploration, count, numActions, from)
    return this.#workspace.evaluated
  }

  /** Only derivatives by the value are used: a greedy action has no probability to differentiate. */
  differentiate(rows: Rows, from: number, count: number, lossOf: LossOf, gradient: ParameterViews): void {
    const { dOutputs, derivatives } = this.#workspace
    const { numActions, isDueling } = this.#shape
    lossOf(this.evaluate(rows, from, count), derivatives, from, count)
    const action = rows.action as Int32Array
    this.#kernels.chosenBackward(dOutputs, derivatives.dValue, action, isDueling, count, numActions, from)
    const x = this.#inputs.read(rows.observation, from, count)
    this.#stack.backward(dOutputs, x, this.#inputs.at(from), count, gradient)
  }

  differentiateValues(
    observation: ObservationColumn,
    from: number,
    dValues: Float32Array,
    count: number,
    gradient: ParameterViews,
  ): void {
    const { dOutputs } = this.#workspace
    const { numActions, isDueling } = this.#shape
    const width = isDueling ? numActions + 1 : numActions
    for (let row = 0; row < count; row++) {
      let sum = 0
      for (let k = 0; k < numActions; k++) sum += dValues[row * numActions + k]!
      const mean = isDueling ? sum / numActions : 0
      for (let k = 0; k < numActions; k++) dOutputs[row * width + k] = dValues[row * numActions + k]! - mean
      if (isDueling) dOutputs[row * width + numActions] = sum
    }
    const x = this.#inputs.read(observation, from, count)
    this.#stack.backward(dOutputs, x, this.#inputs.at(from), count, gradient)
  }

  /** Values of actions, −10⁹ for masked ones. */
  #legalValues(observation: ObservationColumn, mask: Uint8Array, from: number, count: number): Float32Array {
    const values = this.actionValues(observation, from, count)
    if (mask.length > 0) this.#kernels.maskLogits(values, mask, count, this.#shape.numActions, from)
    return values
  }
}
