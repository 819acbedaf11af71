/** Two critics of state and action, which networks with an actor share. They see actions scaled to ±1. */
import { InputError, show } from '../base/errors.ts'
import { type BoxSpace, type Space, spaceWidth } from '../base/space.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import { Activation } from '../kernels/bind.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { Inputs } from './inputs.ts'
import { type ActionCriticPolicy, BLOCK_ROWS, type ParameterViews } from './policy.ts'
import type { ParameterList } from './stack/parameters.ts'
import { type InputGradient, Stack, type StackShape, stackPlan, stackShape } from './stack/stack.ts'

/** The sizes of both spaces. */
export interface ActingShape {
  readonly observationWidth: number
  readonly actionSpace: BoxSpace
  readonly actionWidth: number
}

/** @throws InputError unless observations are a box, and actions one with finite bounds. */
export function actingShape(id: string, observationSpace: Space, actionSpace: Space): ActingShape {
  if (observationSpace.kind !== 'box') {
    throw new InputError(`${id} observation space`, show(observationSpace), 'a box')
  }
  const isBounded = (space: BoxSpace) => [...space.low, ...space.high].every(Number.isFinite)
  if (actionSpace.kind !== 'box' || !isBounded(actionSpace)) {
    throw new InputError(`${id} action space`, show(actionSpace), 'a box with finite bounds')
  }
  return { observationWidth: spaceWidth(observationSpace), actionSpace, actionWidth: spaceWidth(actionSpace) }
}

export type CriticStacks = readonly [StackShape, StackShape]

/** Declares both critics. */
export function criticStacks(
  parameters: ParameterList,
  { observationWidth, actionWidth }: ActingShape,
  hidden: readonly number[],
  activation: 'tanh' | 'relu',
): CriticStacks {
  const sizes = { numInputs: observationWidth + actionWidth, numOutputs: 1 }
  return [
    stackShape(parameters, 'critic0', sizes, { hidden, activation }, 1),
    stackShape(parameters, 'critic1', sizes, { hidden, activation }, 1),
  ]
}

/** Plans one thread's columns for a block of rows. */
export function criticsPlan([one, other]: CriticStacks, { observationWidth, actionWidth }: ActingShape) {
  const rows = (width: number) => column('f32', BLOCK_ROWS, width)
  return {
    critic0: stackPlan(one, BLOCK_ROWS),
    critic1: stackPlan(other, BLOCK_ROWS),
    /** Actions within ±1, and critic inputs: observations with these actions. */
    unit: rows(actionWidth),
    joined: rows(observationWidth + actionWidth),
    dJoined: rows(observationWidth + actionWidth),
    /** The lesser of the two critics' values. */
    least: rows(1),
    bounds: { low: column('f32', actionWidth), high: column('f32', actionWidth) },
  } satisfies Plan
}

/** Both critics, in one thread. */
export class ActionCritics implements ActionCriticPolicy {
  readonly #shape: ActingShape
  readonly #inputs: Inputs
  readonly #critics: readonly [Stack, Stack]
  readonly #columns: Columns<ReturnType<typeof criticsPlan>>
  readonly #dJoined: InputGradient
  readonly #kernels: Kernels
  readonly criticValues: [Float32Array, Float32Array]

  constructor(
    shape: ActingShape,
    [one, other]: CriticStacks,
    inputs: Inputs,
    views: ParameterViews,
    columns: Columns<ReturnType<typeof criticsPlan>>,
    work: ConstructorParameters<typeof Stack>[3],
    kernels: Kernels,
  ) {
    this.#shape = shape
    this.#inputs = inputs
    this.#critics = [
      new Stack(one, views, columns.critic0, work, kernels),
      new Stack(other, views, columns.critic1, work, kernels),
    ]
    this.#columns = columns
    this.#dJoined = { dx: columns.dJoined, accumulate: false, activation: Activation.linear }
    this.#kernels = kernels
    this.criticValues = [columns.least, columns.least]
    columns.bounds.low.set(shape.actionSpace.low)
    columns.bounds.high.set(shape.actionSpace.high)
  }

  shrink(action: Float32Array, from: number, count: number): Float32Array {
    const { unit, bounds } = this.#columns
    this.#kernels.shrinkActions(unit, action, bounds.low, bounds.high, count, this.#shape.actionWidth, from)
    return unit
  }

  /** Scales actions within ±1 to those of the environment, into `action` from row `from` on. */
  stretch(action: Float32Array, unit: Float32Array, from: number, count: number): void {
    const { low, high } = this.#columns.bounds
    this.#kernels.stretchActions(action, unit, low, high, count, this.#shape.actionWidth, from)
  }

  judge(observation: Float32Array, from: number, unit: Float32Array, count: number): Float32Array {
    const { joined, least } = this.#columns
    const { observationWidth, actionWidth } = this.#shape
    const x = this.#inputs.read(observation, from, count)
    this.#kernels.joinActions(joined, x, unit, count, observationWidth, actionWidth, this.#inputs.at(from))
    for (const i of [0, 1] as const) this.criticValues[i] = this.#critics[i].forward(joined, 0, count)
    const [one, other] = this.criticValues
    for (let i = 0; i < count; i++) least[i] = Math.min(one[i]!, other[i]!)
    return least
  }

  differentiateCritic(critic: 0 | 1, dValue: Float32Array, count: number, gradient: ParameterViews): void {
    this.#critics[critic].backward(dValue, this.#columns.joined, 0, count, gradient)
  }

  /** Adds to `dUnit` the gradient by the actions of the last `judge`, from that by a critic's values. */
  differentiateActions(dUnit: Float32Array, critic: 0 | 1, dValue: Float32Array, count: number): void {
    const { joined, dJoined } = this.#columns
    const { observationWidth, actionWidth } = this.#shape
    this.#critics[critic].backward(dValue, joined, 0, count, null, this.#dJoined)
    for (let i = 0; i < count * actionWidth; i++) {
      const row = Math.floor(i / actionWidth)
      const at = row * (observationWidth + actionWidth) + observationWidth + (i % actionWidth)
      dUnit[i] = dUnit[i]! + dJoined[at]!
    }
  }

  /** Splits a derivative by the least value: all of it belongs to the critic with that value, the first one if they are equal. */
  ofLeast(dValue: Float32Array, critic: 0 | 1, dLeast: (row: number) => number, count: number): Float32Array {
    const [one, other] = this.criticValues
    for (let i = 0; i < count; i++) dValue[i] = one[i]! <= other[i]! === (critic === 0) ? dLeast(i) : 0
    return dValue
  }
}
