/**
 * The contract of policies. A policy turns observations into actions, and gradients by its outputs into gradients by its
 * weights; it never sees an algorithm. Between the two are columns of one value a row: logprob, entropy and value one way,
 * their derivatives the other. Weights are one flat f32 column with named views, so a checkpoint, an optimizer and a
 * message to another machine need to know nothing of layers.
 *
 * `differentiate(rows, from, count, lossOf, gradient)` evaluates a block of a minibatch, calls `lossOf` once and
 * backpropagates. A masked logit is −10⁹, so its probability and its gradient are exactly 0. A policy with a memory is
 * trained on sequences, each from what was recorded at its start. A policy whose device answers later gives promises.
 */
import type { DefinitionRecord } from '../base/definition.ts'
import type { Random } from '../base/random.ts'
import type { Space } from '../base/space.ts'
import type { Action, ActionMask } from '../components/action.ts'
import type { Columns, Plan } from '../components/column.ts'
import type { Episode } from '../components/episode.ts'
import type { Memory } from '../components/memory.ts'
import type { Observation } from '../components/observation.ts'
import type { Kernels } from '../kernels/kernels.ts'

/** Rows are evaluated and differentiated in blocks of at most this many, where a model does not say otherwise. */
export const BLOCK_ROWS = 256

/** A named part of the weights: `actor.0.weight`, row-major, from element `offset`. */
export interface Parameter {
  readonly name: string
  readonly offset: number
  readonly shape: readonly number[]
}

/** A policy with its settings: what `createWorld` takes. */
export interface PolicyDefinition extends DefinitionRecord {
  /** Starts what the policy runs on; `createWorld` awaits it before it builds the model. */
  prepare?(): Promise<void>
  /** The network for these spaces. Throws InputError where it cannot serve them. */
  build(observationSpace: Space, actionSpace: Space): PolicyModel
}

/** What a recurrent policy is trained on: stretches of one lane's rows. */
export interface Sequence {
  /** Rows to evaluate and train on. */
  readonly length: number
  /** Rows before them which only bring the policy's memory up to date: no gradient passes through them. */
  readonly burnIn: number
}

/** One dense layer: y = activation(x · W + b). */
export interface DenseLayer {
  readonly name: string
  readonly numInputs: number
  readonly numOutputs: number
  readonly activation: 'linear' | 'tanh' | 'relu'
  /** Places among the weights: of W (numInputs × numOutputs, row-major), and of b (numOutputs). */
  readonly weight: number
  readonly bias: number
}

/** Actor and critic as dense layers, each layer over the one before. */
export interface DenseNetwork {
  /** The layers that both begin with; none where each has its own. */
  readonly trunk: readonly DenseLayer[]
  /** The actor's layers after the trunk; the last gives logits, or means. */
  readonly actor: readonly DenseLayer[]
  /** The critic's layers after the trunk; the last gives the value. */
  readonly critic: readonly DenseLayer[]
  /** Place of the log standard deviations among the weights; null for choices. */
  readonly logStd: number | null
  /** Where observations are put at mean 0 and deviation 1 first: places of both among the weights, and where it cuts them off. */
  readonly inputs: { readonly center: number; readonly deviation: number; readonly clip: number } | null
}

/** What a model says of the values of actions that it gives. */
export interface ActionValueShape {
  readonly numActions: number
  /** Place among the weights of the probability of exploring, which the algorithm writes. */
  readonly exploration: number
}

/** What a model says of an actor with two critics of its actions. */
export interface SoftShape {
  /** Numbers of an action. */
  readonly actionWidth: number
  /** Place of the logarithm of the entropy's weight in the list of parameters, which the algorithm writes. */
  readonly logTemperature: number
}

/** A network whose shapes are known, before it has memory. */
export interface PolicyModel {
  readonly numParameters: number
  readonly parameters: readonly Parameter[]
  /** Elements a lane of what the policy remembers from one tick to the next; default 0. */
  readonly memoryWidth?: number
  /** What a policy with a memory is trained on; null (default) where each row stands alone. */
  readonly sequence?: Sequence | null
  /** Rows that are seen together when rows are evaluated or differentiated, at most; default BLOCK_ROWS. */
  readonly blockRows?: number
  /** True where `infer` and `values` give promises, because a device cannot be read at once; default false. */
  readonly answersLater?: boolean
  /** True where the policy must stay in the caller's thread, because a device serves only that; default false. */
  readonly staysInThread?: boolean
  /**
   * How many numbers of an observation it puts at mean 0 and deviation 1: its last parameters are so many means and then so many deviations.
   * They begin as 0 and 1; training writes them after each update, and no optimizer touches them. Default 0: it takes observations
   * as they are.
   */
  readonly normalizedInputs?: number
  /** The network's layers, where it is dense layers and nothing else: what can be written for other software to run. */
  readonly dense?: DenseNetwork
  /** Where its outputs are values of actions: `bind` then gives an `ActionValuePolicy`. */
  readonly actionValues?: ActionValueShape
  /** Where it has two critics of its actions: `bind` then gives a `SoftPolicy`. */
  readonly soft?: SoftShape
  /** What one thread needs beside the weights. */
  workspace(): Plan
  /** Starting weights, keyed by the seed and `key`. */
  initialize(weights: Float32Array, random: Random, key: number): void
  /** The network over its columns, for one thread. */
  bind(weights: Float32Array, workspace: Columns<Plan>, kernels: Kernels, random: Random): Policy
}

/** The lanes for which a policy acts: row n of each column is lane n of its cohort, which is such an object itself. */
export interface ActingLanes {
  readonly observation: Observation
  readonly actionMask: ActionMask
  readonly memory: Memory
  readonly action: Action
  readonly episode: Episode
}

/** The lanes' new observations, and their memory. */
export interface Seen {
  readonly observation: Float32Array
  /** memoryWidth elements a row. */
  readonly memory: Float32Array
  /** A byte a choice, 1 = legal; no elements where every choice is. */
  readonly actionMask: Uint8Array
}

/**
 * A minibatch's rows: what was seen, and what was done. For a policy that is trained on sequences these stand one after
 * another, `burnIn + length` rows each of what was seen and `length` rows each of what was done.
 */
export interface Rows extends Seen {
  readonly action: Float32Array | Int32Array
  /** Of each seen row: 1 if the policy remembers what it does after the row before, 0 if it remembers `memory`. */
  readonly continues: Uint8Array
}

/** What a policy says of rows: blockRows values each, from row 0. */
export interface Evaluated {
  /** Log-probability of the action, in nats. */
  readonly logprob: Float32Array
  /** Entropy of the action distribution, in nats. */
  readonly entropy: Float32Array
  /** The critic's value of the observation. */
  readonly value: Float32Array
}

/** The loss's derivatives by what the policy said: blockRows values each, from row 0. */
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
 * A network at work: over its weights, with one thread's workspace. A policy on a device that cannot be read at once gives
 * promises; every other one is done when its methods return.
 */
export interface Policy {
  /**
   * Acts for the lanes `from` to `to`: writes chosen, logprob, value and what they remember next. Samples if `explore`,
   * else takes the mode; never an action that the mask forbids.
   */
  infer(lanes: ActingLanes, explore: boolean, from: number, to: number): void | Promise<void>
  /** The critic's values of rows 0 … count. */
  values(value: Float32Array, seen: Seen, count: number): void | Promise<void>
  /** Evaluates `count` ≤ blockRows rows from `from` (whole sequences, from 0). Equals what `infer` wrote for them, bit for bit in our own kernels. */
  evaluate(rows: Rows, from: number, count: number): Evaluated | Promise<Evaluated>
  /** Views of a column as long as the weights. */
  view(column: Float32Array): ParameterViews
  /** Evaluates `count` ≤ blockRows rows, calls `lossOf` once, and adds the loss's gradient by the weights to `gradient`. */
  differentiate(rows: Rows, from: number, count: number, lossOf: LossOf, gradient: ParameterViews): void | Promise<void>
  /** Takes up weights that were changed: called in each thread before they are used. */
  refresh?(): void
  /** Gives back what it holds of a device; it takes it again when it is used again. */
  dispose?(): void
}

/**
 * The contract's second form: a policy whose outputs are values of actions. `infer` takes the highest, or explores; `values` gives
 * the highest; what `evaluate` gives as value is that of the row's action, and of the loss's derivatives only dValue counts.
 */
export interface ActionValuePolicy extends Policy {
  /** The values of all actions of rows from … from + count, ≤ BLOCK_ROWS: numActions a row, from row 0 on, until the next call. */
  actionValues(observation: Float32Array, from: number, count: number): Float32Array
}

/**
 * The second form for actions that are numbers: an actor whose actions are drawn by given normal numbers, so that it can be
 * differentiated through them, and two critics. Actions are within ±1 here. Rows are ≤ BLOCK_ROWS; what is returned stands from
 * row 0 on until the next call.
 */
export interface SoftPolicy extends Policy {
  /** What the critics gave last. */
  readonly criticValues: readonly [Float32Array, Float32Array]
  /** Actions for rows from … from + count of `observation`, from standard normal numbers; writes their log-probabilities, in nats. */
  draw(
    observation: Float32Array,
    from: number,
    normal: Float32Array,
    logprob: Float32Array,
    count: number,
  ): Float32Array
  /** The environment's actions within ±1. */
  shrink(action: Float32Array, from: number, count: number): Float32Array
  /** The lesser of both critics' values of actions. */
  judge(observation: Float32Array, from: number, unit: Float32Array, count: number): Float32Array
  /** Adds a critic's gradient, from that by its values at the last `judge`. */
  differentiateCritic(critic: 0 | 1, dValue: Float32Array, count: number, gradient: ParameterViews): void
  /** Adds the actor's gradient of scale · (temperature · log π − value), after `draw` and `judge` of the same rows. */
  differentiateActor(
    observation: Float32Array,
    from: number,
    normal: Float32Array,
    temperature: number,
    scale: number,
    count: number,
    gradient: ParameterViews,
  ): void
}
