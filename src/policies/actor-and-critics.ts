/** An actor of continuous actions with two critics of state and action, which see actions scaled to ±1. */
import { InputError, show } from '../base/errors.ts'
import type { Random } from '../base/random.ts'
import { choice, type SettingValues, sizes } from '../base/settings.ts'
import { type BoxSpace, observationType, type Space, spaceWidth } from '../base/space.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import type { ObservationColumn } from '../components/observation.ts'
import { Activation } from '../kernels/bind.ts'
import type { Kernels } from '../kernels/kernels.ts'
import { addInputMoments, Inputs, inputsPlan, normalizeObservations } from './inputs.ts'
import { type ModelShape, numInputsOf } from './network-model.ts'
import {
  type ActingLanes,
  type ActionCriticPolicy,
  BLOCK_ROWS,
  type Evaluated,
  type LossOf,
  type ParameterViews,
  type Policy,
  type Rows,
  type Seen,
} from './policy.ts'
import { ParameterList } from './stack/parameters.ts'
import { Stack, type StackShape, stackPlan, stackShape, workPlan } from './stack/stack.ts'

export const actorAndCriticsSettings = {
  hidden: sizes([256, 256], 'units of each hidden layer, in the actor and in each critic'),
  activation: choice('relu', ['tanh', 'relu'], 'activation of the hidden layers'),
  normalizeObservations,
}

export interface ActorAndCriticsShape extends ModelShape {
  /** The actor, both critics, and a critic of states if there is one. */
  readonly stacks: readonly [StackShape, StackShape, StackShape, ...StackShape[]]
  readonly actionSpace: BoxSpace
  readonly actionWidth: number
  /** Position among the weights of the first critic; the actor's are those before it. */
  readonly actorEnd: number
  readonly criticsEnd: number
  /** Index in the list of parameters of those that the algorithm writes. */
  readonly written: number
}

/**
 * The layers of such a network: an actor with `outputsPerAction` outputs for each number of an action, two critics, and with `valuesStates`
 * a critic of states.
 */
export function actorAndCritics(
  id: string,
  { hidden, activation, normalizeObservations }: SettingValues<typeof actorAndCriticsSettings>,
  observationSpace: Space,
  actionSpace: Space,
  actor: { readonly outputsPerAction: number; readonly activation: number },
  written: { readonly name: string; readonly count: number },
  valuesStates = false,
): ActorAndCriticsShape {
  const numInputs = numInputsOf(id, observationSpace)
  const isBounded = (space: BoxSpace) => [...space.low, ...space.high].every(Number.isFinite)
  if (actionSpace.kind !== 'box' || !isBounded(actionSpace)) {
    throw new InputError(`${id} action space`, show(actionSpace), 'a box with finite bounds')
  }
  const actionWidth = spaceWidth(actionSpace)
  const parameters = new ParameterList()
  const layers = { hidden, activation }
  const actorSizes = { numInputs, numOutputs: actor.outputsPerAction * actionWidth }
  const actorStack = stackShape(parameters, 'actor', actorSizes, layers, 0.01, actor.activation)
  const actorEnd = parameters.size
  const critic = (name: string) =>
    stackShape(parameters, name, { numInputs: numInputs + actionWidth, numOutputs: 1 }, layers, 1)
  const critics = [critic('critic0'), critic('critic1')] as const
  const ends = { actorEnd, criticsEnd: parameters.size }
  const states = valuesStates ? [stackShape(parameters, 'value', { numInputs, numOutputs: 1 }, layers, 1)] : []
  const stacks = [actorStack, ...critics, ...states] as const
  const place = parameters.add(written.name, [written.count])
  const inputs = normalizeObservations ? addInputMoments(parameters, numInputs) : null
  const given = { numInputs, areBytes: observationType(observationSpace) === 'u8', inputs }
  return { parameters, stacks, ...given, actionSpace, actionWidth, ...ends, written: place }
}

/** Plans one thread's columns for a block of rows. */
export function actorAndCriticsPlan(shape: ActorAndCriticsShape) {
  const { stacks, numInputs, actionWidth } = shape
  const [actor, one, other] = stacks
  const rows = (width: number) => column('f32', BLOCK_ROWS, width)
  return {
    inputs: inputsPlan(shape, BLOCK_ROWS),
    actor: stackPlan(actor, BLOCK_ROWS),
    critic0: stackPlan(one, BLOCK_ROWS),
    critic1: stackPlan(other, BLOCK_ROWS),
    work: workPlan(stacks, BLOCK_ROWS),
    /** The actor's actions within ±1, and recorded ones. */
    unit: rows(actionWidth),
    recorded: rows(actionWidth),
    /** Critic inputs: observations with actions. */
    joined: rows(numInputs + actionWidth),
    dJoined: rows(numInputs + actionWidth),
    /** The lesser of the two critics' values. */
    least: rows(1),
    bounds: { low: column('f32', actionWidth), high: column('f32', actionWidth) },
    draws: rows(actionWidth),
    words: column('u32', 4),
    dOutputs: rows(actor.layers.at(-1)!.numOutputs),
    dUnit: rows(actionWidth),
    dLeast: rows(1),
    evaluated: { logprob: rows(1), entropy: rows(1), value: rows(1) },
    derivatives: { dLogprob: rows(1), dEntropy: rows(1), dValue: rows(1) },
  } satisfies Plan
}

/** An actor and both critics, in one thread; a network says how actions follow from the actor's outputs. */
export abstract class ActorAndCritics implements Policy, ActionCriticPolicy {
  protected readonly shape: ActorAndCriticsShape
  protected readonly workspace: Columns<ReturnType<typeof actorAndCriticsPlan>>
  protected readonly kernels: Kernels
  protected readonly random: Random
  /** The parameters that the algorithm writes. */
  protected readonly written: Float32Array
  /** The actor's last outputs. */
  protected outputs: Float32Array = new Float32Array(0)
  protected readonly inputs: Inputs
  readonly #actor: Stack
  readonly #critics: readonly [Stack, Stack]
  readonly criticValues: [Float32Array, Float32Array]

  constructor(
    shape: ActorAndCriticsShape,
    weights: Float32Array,
    workspace: Columns<ReturnType<typeof actorAndCriticsPlan>>,
    kernels: Kernels,
    random: Random,
  ) {
    const views = shape.parameters.view(weights)
    const { actor, critic0, critic1, work, least, bounds } = workspace
    const [actorShape, one, other] = shape.stacks
    this.shape = shape
    this.workspace = workspace
    this.kernels = kernels
    this.random = random
    this.written = views[shape.written]!
    this.inputs = new Inputs(shape, views, workspace.inputs, kernels)
    this.#actor = new Stack(actorShape, views, actor, work, kernels)
    this.#critics = [new Stack(one, views, critic0, work, kernels), new Stack(other, views, critic1, work, kernels)]
    this.criticValues = [least, least]
    bounds.low.set(shape.actionSpace.low)
    bounds.high.set(shape.actionSpace.high)
  }

  /** The actions of lanes from … from + count, within ±1, from row 0; the actor has to run on these rows. */
  protected abstract choose(lanes: ActingLanes, explore: boolean, from: number, count: number): Float32Array
  /** The actor's actions without noise, within ±1, from row 0. */
  protected abstract mode(observation: ObservationColumn, from: number, count: number): Float32Array
  /** Writes `evaluated.logprob` and `.entropy` of actions from row `from`, by the actor's last outputs. */
  protected abstract evaluateActions(action: Float32Array, from: number, count: number): void

  view(column: Float32Array): ParameterViews {
    return this.shape.parameters.view(column)
  }

  infer(lanes: ActingLanes, explore: boolean, from: number, to: number): void {
    const { evaluated, bounds } = this.workspace
    const { low, high } = bounds
    const { actionWidth } = this.shape
    const { chosen, logprob, value } = lanes.action
    const action = chosen as Float32Array
    for (let first = from; first < to; first += BLOCK_ROWS) {
      const count = Math.min(BLOCK_ROWS, to - first)
      const unit = this.choose(lanes, explore, first, count)
      this.kernels.stretchActions(action, unit, low, high, count, actionWidth, first)
      this.#evaluate(lanes.observation.current, action, first, count)
      for (let i = 0; i < count; i++) {
        logprob[first + i] = evaluated.logprob[i]!
        value[first + i] = evaluated.value[i]!
      }
    }
  }

  values(value: Float32Array, { observation }: Seen, count: number): void {
    for (let first = 0; first < count; first += BLOCK_ROWS) {
      const rows = Math.min(BLOCK_ROWS, count - first)
      const least = this.judge(observation, first, this.mode(observation, first, rows), rows)
      for (let i = 0; i < rows; i++) value[first + i] = least[i]!
    }
  }

  protected run(observation: ObservationColumn, from: number, count: number): void {
    this.outputs = this.#actor.forward(this.inputs.read(observation, from, count), this.inputs.at(from), count)
  }

  /** Runs the actor; returns a copy of its outputs, for actors whose outputs are actions. */
  protected runToActions(observation: ObservationColumn, from: number, count: number): Float32Array {
    const { unit } = this.workspace
    this.run(observation, from, count)
    for (let i = 0; i < count * this.shape.actionWidth; i++) unit[i] = this.outputs[i]!
    return unit
  }

  shrink(action: Float32Array, from: number, count: number): Float32Array {
    const { recorded, bounds } = this.workspace
    this.kernels.shrinkActions(recorded, action, bounds.low, bounds.high, count, this.shape.actionWidth, from)
    return recorded
  }

  judge(observation: ObservationColumn, from: number, unit: Float32Array, count: number): Float32Array {
    const { joined, least } = this.workspace
    const { numInputs, actionWidth } = this.shape
    const x = this.inputs.read(observation, from, count)
    this.kernels.joinActions(joined, x, unit, count, numInputs, actionWidth, this.inputs.at(from))
    for (const i of [0, 1] as const) this.criticValues[i] = this.#critics[i].forward(joined, 0, count)
    const [one, other] = this.criticValues
    for (let i = 0; i < count; i++) least[i] = Math.min(one[i]!, other[i]!)
    return least
  }

  differentiateCritic(critic: 0 | 1, dValue: Float32Array, count: number, gradient: ParameterViews): void {
    this.#critics[critic].backward(dValue, this.workspace.joined, 0, count, gradient)
  }

  /** Adds to `dUnit` the gradient by the actions of the last `judge`, from that by a critic's values. */
  protected differentiateActions(critic: 0 | 1, dValue: Float32Array, count: number): void {
    const { joined, dJoined, dUnit } = this.workspace
    const { numInputs, actionWidth } = this.shape
    const inputs = { dx: dJoined, accumulate: false, activation: Activation.linear }
    this.#critics[critic].backward(dValue, joined, 0, count, null, inputs)
    for (let i = 0; i < count * actionWidth; i++) {
      const at = Math.floor(i / actionWidth) * (numInputs + actionWidth) + numInputs + (i % actionWidth)
      dUnit[i] = dUnit[i]! + dJoined[at]!
    }
  }

  /** Adds the actor's gradient, from `dOutputs`. */
  protected backward(observation: ObservationColumn, from: number, count: number, gradient: ParameterViews): void {
    const x = this.inputs.read(observation, from, count)
    this.#actor.backward(this.workspace.dOutputs, x, this.inputs.at(from), count, gradient)
  }

  /** Splits a derivative by the least value: all of it belongs to the critic with that value, the first one if they are equal. */
  protected ofLeast(critic: 0 | 1, dLeast: (row: number) => number, count: number): Float32Array {
    const { dLeast: dValue } = this.workspace
    const [one, other] = this.criticValues
    for (let i = 0; i < count; i++) dValue[i] = one[i]! <= other[i]! === (critic === 0) ? dLeast(i) : 0
    return dValue
  }

  evaluate({ observation, action }: Rows, from: number, count: number): Evaluated {
    this.run(observation, from, count)
    return this.#evaluate(observation, action as Float32Array, from, count)
  }

  /** As `evaluate`, after the actor has run on these rows. */
  #evaluate(observation: ObservationColumn, action: Float32Array, from: number, count: number): Evaluated {
    const { evaluated } = this.workspace
    this.evaluateActions(action, from, count)
    const least = this.judge(observation, from, this.shrink(action, from, count), count)
    for (let i = 0; i < count; i++) evaluated.value[i] = least[i]!
    return evaluated
  }

  /** Uses only the derivative by the value: it goes to the critic with the lesser value. */
  differentiate(rows: Rows, from: number, count: number, lossOf: LossOf, gradient: ParameterViews): void {
    const { derivatives } = this.workspace
    lossOf(this.evaluate(rows, from, count), derivatives, from, count)
    for (const critic of [0, 1] as const) {
      const dValue = this.ofLeast(critic, (row) => derivatives.dValue[row]!, count)
      this.differentiateCritic(critic, dValue, count, gradient)
    }
  }
}
