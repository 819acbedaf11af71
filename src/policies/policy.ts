/**
 * The contract of policies. A policy converts observations to actions, and gradients by its outputs to gradients by its weights; it never
 * sees an algorithm. They exchange columns of one value per row: logprob, entropy and value in one direction, their derivatives in the
 * other. Weights are one flat f32 column with named views, so checkpoints, optimizers and messages do not depend on layers.
 *
 * `differentiate(rows, from, count, lossOf, gradient)` evaluates a block of a minibatch, calls `lossOf` once and backpropagates. A masked
 * logit is −10⁹, so its probability and gradient are exactly 0. A policy with memory is trained on sequences that start from recorded
 * memory. A policy on an asynchronous device returns promises.
 */
import type { DefinitionRecord } from '../base/definition.ts'
import type { Random } from '../base/random.ts'
import type { Space } from '../base/space.ts'
import type { Action, ActionMask } from '../components/action.ts'
import type { Columns, Plan } from '../components/column.ts'
import type { Episode } from '../components/episode.ts'
import type { Memory } from '../components/memory.ts'
import type { Observation, ObservationColumn } from '../components/observation.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { DeviceUpdate, UpdateOptions } from './webgpu/contract.ts'

/** Default maximum of rows per block that is evaluated and differentiated. */
export const BLOCK_ROWS = 256

/** A named part of the weights: `actor.0.weight`, row-major, from element `offset`. */
export interface Parameter {
  readonly name: string
  readonly offset: number
  readonly shape: readonly number[]
  /** Training does not change it: its gradient counts as 0, and it does not decay. For language models only. */
  readonly isFrozen?: boolean
}

/** A policy with its settings, as `createWorld` takes it. */
export interface PolicyDefinition extends DefinitionRecord {
  /**
   * Starts the policy's device; `createWorld` awaits it before it builds the model. `helps`: in a thread that helps another one, which has
   * started it.
   */
  prepare?(helps: boolean): Promise<void>
  /** The network for these spaces. @throws InputError for unsupported spaces. */
  build(observationSpace: Space, actionSpace: Space): PolicyModel
}

/** Training sequences of a recurrent policy: consecutive rows of one lane. */
export interface Sequence {
  /** Rows to evaluate and train on. */
  readonly length: number
  /** Rows before them that only update the policy's memory, without gradients. */
  readonly burnIn: number
}

/** One dense layer: y = activation(x · W + b), or with a LayerNorm y = activation(norm(x · W + b)). */
export interface DenseLayer {
  readonly name: string
  readonly numInputs: number
  readonly numOutputs: number
  readonly activation: 'linear' | 'tanh' | 'relu'
  /** Positions among the weights: of W (numInputs × numOutputs, row-major), and of b (numOutputs). */
  readonly weight: number
  readonly bias: number
  /** Positions of a LayerNorm's weight and bias (numOutputs each); null without one. */
  readonly norm: { readonly weight: number; readonly bias: number } | null
}

/** Actor and critic as consecutive dense layers. */
export interface DenseNetwork {
  /** Shared first layers; empty if there are none. */
  readonly trunk: readonly DenseLayer[]
  /** The actor's layers after the trunk; the last gives logits or means. */
  readonly actor: readonly DenseLayer[]
  /** The critic's layers after the trunk; the last gives the value. */
  readonly critic: readonly DenseLayer[]
  /** Position of the log standard deviations among the weights; null for choices. */
  readonly logStd: number | null
  /** Normalization of observations: positions of means and deviations among the weights, and the clip; null without normalization. */
  readonly inputs: { readonly center: number; readonly deviation: number; readonly clip: number } | null
}

/** The sizes of a model of action values. */
export interface ActionValueShape {
  readonly numActions: number
  /** Position among the weights of the exploration probability, which the algorithm writes. */
  readonly exploration: number
}

/** The sizes of a model with a sampling actor and two action critics. */
export interface SoftShape {
  readonly actionWidth: number
  /** Index in the list of parameters of the logarithm of the entropy weight, which the algorithm writes. */
  readonly logTemperature: number
}

/** The sizes of a model with a deterministic actor and two action critics, and its parameters' positions among the weights. */
export interface DeterministicShape {
  readonly actionWidth: number
  /**
   * Position of two numbers, which the algorithm writes: whether lanes explore by uniform actions (1) or by the actor's with noise (0),
   * and the standard deviation of that noise, for actions within ±1.
   */
  readonly exploration: number
  readonly actor: { readonly from: number; readonly to: number }
  readonly critics: { readonly from: number; readonly to: number }
}

/** The sizes of a model with a Gaussian actor, two action critics and a critic of states. */
export interface ImplicitShape {
  readonly actionWidth: number
}

/** A network with known shapes, before it has memory. */
export interface PolicyModel {
  readonly numParameters: number
  readonly parameters: readonly Parameter[]
  /** Elements per lane of the policy's memory; default 0. */
  readonly memoryWidth?: number
  /** Training sequences of a policy with memory; null (default) if rows are independent. */
  readonly sequence?: Sequence | null
  /** Maximum rows per call of `evaluate` and `differentiate`; default BLOCK_ROWS. */
  readonly blockRows?: number
  /** Whether `infer` and `values` return promises, because a device is asynchronous; default false. */
  readonly answersLater?: boolean
  /** Whether the policy must stay in the caller's thread, because of its device; default false. */
  readonly staysInThread?: boolean
  /**
   * How many numbers of an observation it normalizes to mean 0 and deviation 1. Its last parameters are this many means, initially 0, and
   * then deviations, initially 1; training writes them after each update, and optimizers skip them. Default 0: no normalization.
   */
  readonly normalizedInputs?: number
  /**
   * If it learns on a device: makes what takes the place of `differentiate` and the optimizer there. It acts on our own kernels, with the
   * weights that the last update left.
   */
  readonly updateOnDevice?: (options: UpdateOptions) => DeviceUpdate
  /** The network's layers, if it consists only of dense layers; required for export. */
  readonly dense?: DenseNetwork
  /** If its outputs are action values: `bind` returns an `ActionValuePolicy`. */
  readonly actionValues?: ActionValueShape
  /** If it has a sampling actor and two action critics: `bind` returns a `SoftPolicy`. */
  readonly soft?: SoftShape
  /** If it has a deterministic actor and two action critics: `bind` returns a `DeterministicPolicy`. */
  readonly deterministic?: DeterministicShape
  /** If it has a Gaussian actor, two action critics and a critic of states: `bind` returns an `ImplicitPolicy`. */
  readonly implicit?: ImplicitShape
  workspace(): Plan
  /** Writes initial weights, keyed by the seed and `key`. */
  initialize(weights: Float32Array, random: Random, key: number): void
  /** Binds the network to its columns, for one thread. */
  bind(weights: Float32Array, workspace: Columns<Plan>, kernels: Kernels, random: Random): Policy
}

/** The lanes for which a policy acts: row n of each column is lane n of its cohort. A cohort is such an object. */
export interface ActingLanes {
  readonly observation: Observation
  readonly actionMask: ActionMask
  readonly memory: Memory
  readonly action: Action
  readonly episode: Episode
}

/** The lanes' new observations, and their memory. */
export interface Seen {
  /** Of f32, or bytes: a network reads the same numbers. */
  readonly observation: ObservationColumn
  /** memoryWidth elements per row. */
  readonly memory: Float32Array
  /** A byte per choice, 1 = legal; empty if every choice is legal. */
  readonly actionMask: Uint8Array
}

/**
 * A minibatch's rows: observations and actions. For a policy that is trained on sequences these are consecutive, with `burnIn + length`
 * rows of observations and `length` rows of actions each.
 */
export interface Rows extends Seen {
  readonly action: Float32Array | Int32Array
  /** Per observation row: 1 if the memory continues from the previous row, 0 if it is `memory`. */
  readonly continues: Uint8Array
}

/** A policy's evaluation of rows: blockRows values each, from row 0. */
export interface Evaluated {
  /** Log-probability of the action, in nats. */
  readonly logprob: Float32Array
  /** Entropy of the action distribution, in nats. */
  readonly entropy: Float32Array
  /** The critic's value of the observation. */
  readonly value: Float32Array
}

/** The loss's derivatives by the evaluation: blockRows values each, from row 0. */
export interface Derivatives {
  readonly dLogprob: Float32Array
  readonly dEntropy: Float32Array
  readonly dValue: Float32Array
}

/** Fills the derivatives for `count` rows that begin at row `from` of the caller's columns. */
export type LossOf = (evaluated: Evaluated, derivatives: Derivatives, from: number, count: number) => void

/** Views of a weights-shaped column, in the order of `PolicyModel.parameters`. */
export type ParameterViews = readonly Float32Array[]

/**
 * A bound network, with its weights and one thread's workspace. A policy on an asynchronous device returns promises; others are done on
 * return.
 */
export interface Policy {
  /**
   * Acts for lanes `from` to `to`: writes chosen, logprob, value and the next memory. Samples if `explore`, otherwise takes the mode;
   * never a masked action.
   */
  infer(lanes: ActingLanes, explore: boolean, from: number, to: number): void | Promise<void>
  /** The critic's values of rows 0 … count. */
  values(value: Float32Array, seen: Seen, count: number): void | Promise<void>
  /**
   * Evaluates `count` ≤ blockRows rows from `from` (whole sequences, from 0). In our own kernels the result equals that of `infer`, bit for
   * bit.
   */
  evaluate(rows: Rows, from: number, count: number): Evaluated | Promise<Evaluated>
  /** Views of a column as long as the weights. */
  view(column: Float32Array): ParameterViews
  /** Evaluates `count` ≤ blockRows rows, calls `lossOf` once, and adds the loss's gradient by the weights to `gradient`. */
  differentiate(rows: Rows, from: number, count: number, lossOf: LossOf, gradient: ParameterViews): void | Promise<void>
  /** Loads changed weights: called in each thread before their use. */
  refresh?(): void
  /** Releases its device memory; acquired again on the next use. */
  dispose?(): void
}

/**
 * A policy that outputs action values. `infer` takes the highest value, or explores; `values` returns the highest. The value in
 * `evaluate` is that of the row's action, and only dValue of the loss's derivatives is used.
 */
export interface ActionValuePolicy extends Policy {
  /** The values of all actions of rows from … from + count, ≤ BLOCK_ROWS: numActions per row, from row 0, valid until the next call. */
  actionValues(observation: ObservationColumn, from: number, count: number): Float32Array
  /** Adds the gradient, from that by the values in the last `actionValues`, of the same rows. */
  differentiateValues(
    observation: ObservationColumn,
    from: number,
    dValues: Float32Array,
    count: number,
    gradient: ParameterViews,
  ): void
}

/**
 * A policy of continuous actions with two critics. Actions are within ±1 here. Rows are ≤ BLOCK_ROWS; results start at row 0 and are
 * valid until the next call.
 */
export interface ActionCriticPolicy {
  readonly criticValues: readonly [Float32Array, Float32Array]
  /** Scales the environment's actions to ±1. */
  shrink(action: Float32Array, from: number, count: number): Float32Array
  /** The lesser of both critics' values of actions. */
  judge(observation: ObservationColumn, from: number, unit: Float32Array, count: number): Float32Array
  /** Adds a critic's gradient, from that by its values in the last `judge`. */
  differentiateCritic(critic: 0 | 1, dValue: Float32Array, count: number, gradient: ParameterViews): void
}

/** Its actor samples, reparameterized, from given normal numbers. */
export interface SoftPolicy extends Policy, ActionCriticPolicy {
  /**
   * Samples actions for rows from … from + count of `observation` from standard normal numbers; writes their log-probabilities, in nats.
   */
  draw(
    observation: ObservationColumn,
    from: number,
    normal: Float32Array,
    logprob: Float32Array,
    count: number,
  ): Float32Array
  /** Adds the actor's gradient of scale · (temperature · log π − value), after `draw` and `judge` of the same rows. */
  differentiateActor(
    observation: ObservationColumn,
    from: number,
    normal: Float32Array,
    temperature: number,
    scale: number,
    count: number,
    gradient: ParameterViews,
  ): void
}

/** Its actor is a function of the observation. */
export interface DeterministicPolicy extends Policy, ActionCriticPolicy {
  /** The actor's actions for rows from … from + count of `observation`, which the caller may change. */
  act(observation: ObservationColumn, from: number, count: number): Float32Array
  /**
   * Adds the actor's gradient of −scale · the first critic's value, after `act` and `judge` of the same rows; with `toward`, also that of
   * its scale · the mean squared distance of the actions to recorded ones.
   */
  differentiateActor(
    observation: ObservationColumn,
    from: number,
    scale: number,
    count: number,
    gradient: ParameterViews,
    toward?: { readonly recorded: Float32Array; readonly scale: number },
  ): void
}

/** Its actor is Gaussian within ±1, with a standard deviation that does not depend on the state; a third critic values states. */
export interface ImplicitPolicy extends Policy, ActionCriticPolicy {
  /** The states' values of rows from … from + count of `observation`. */
  stateValues(observation: ObservationColumn, from: number, count: number): Float32Array
  /** Adds the gradient of the states' critic, from that by its values in the last `stateValues`, of the same rows. */
  differentiateState(
    observation: ObservationColumn,
    from: number,
    dValue: Float32Array,
    count: number,
    gradient: ParameterViews,
  ): void
  /** Log densities of actions, in nats. */
  logDensities(observation: ObservationColumn, from: number, unit: Float32Array, count: number): Float32Array
  /** Adds the actor's gradient, from that by the last `logDensities`, of the same rows. */
  differentiateActor(
    observation: ObservationColumn,
    from: number,
    unit: Float32Array,
    dLogDensity: Float32Array,
    count: number,
    gradient: ParameterViews,
  ): void
}
