/**
 * The contract of policies. A policy turns observations into actions, and gradients by its outputs into gradients by its
 * weights; it never sees an algorithm. Between the two are columns of one value a row: logprob, entropy and value one way,
 * their derivatives the other. Weights are one flat f32 column with named views, so a checkpoint, an optimizer and a
 * message to another machine need to know nothing of layers.
 */
import type { Action } from '../components/action.ts'
import type { Columns, Plan } from '../components/column.ts'
import type { Episode } from '../components/episode.ts'
import type { Observation } from '../components/observation.ts'
import type { DefinitionRecord } from '../definition.ts'
import type { Kernels } from '../kernels/bind.ts'
import type { Random } from '../random.ts'
import type { Space } from '../space.ts'

/** Rows are evaluated and differentiated in blocks of at most this many. */
export const BLOCK_ROWS = 256

/** A named part of the weights: `actor.0.weight`, row-major, from element `offset`. */
export interface Parameter {
  readonly name: string
  readonly offset: number
  readonly shape: readonly number[]
}

/** A policy with its settings: what `createWorld` takes. */
export interface PolicyDefinition extends DefinitionRecord {
  /** The network for these spaces. Throws InputError where it cannot serve them. */
  build(observationSpace: Space, actionSpace: Space): PolicyModel
}

/** A network whose shapes are known, before it has memory. */
export interface PolicyModel {
  readonly numParameters: number
  readonly parameters: readonly Parameter[]
  /** What one thread needs beside the weights. */
  workspace(): Plan
  /** Starting weights, keyed by the seed and `key`. */
  initialise(weights: Float32Array, random: Random, key: number): void
  /** The network over its columns, for one thread. */
  bind(weights: Float32Array, workspace: Columns<Plan>, kernels: Kernels, random: Random): Policy
}

/** Observations and the actions taken on them, row by row. */
export interface Rows {
  readonly observation: Float32Array
  readonly action: Float32Array | Int32Array
}

/** What a policy says of rows: BLOCK_ROWS values each, from row 0. */
export interface Evaluated {
  /** Log-probability of the action, in nats. */
  readonly logprob: Float32Array
  /** Entropy of the action distribution, in nats. */
  readonly entropy: Float32Array
  /** The critic's value of the observation. */
  readonly value: Float32Array
}

/** The loss's derivatives by what the policy said: BLOCK_ROWS values each, from row 0. */
export interface Derivatives {
  readonly dLogprob: Float32Array
  readonly dEntropy: Float32Array
  readonly dValue: Float32Array
}

/** Fills the derivatives for `count` rows that begin at row `from` of the caller's columns. */
export type LossOf = (evaluated: Evaluated, derivatives: Derivatives, from: number, count: number) => void

/** Views of a weights-shaped column, in the order of `PolicyModel.parameters`. */
export type ParameterViews = readonly Float32Array[]

/** A network at work: over its weights, with one thread's workspace. */
export interface Policy {
  /** Acts for the lanes `from` to `to`: writes chosen, logprob and value. Samples if `explore`, else takes the mode. */
  infer(observation: Observation, action: Action, episode: Episode, explore: boolean, from: number, to: number): void
  /** The critic's values of observations 0 … count. */
  values(value: Float32Array, observation: Float32Array, count: number): void
  /** Evaluates `count` ≤ BLOCK_ROWS rows from `from`. Equals what `infer` wrote for them, bit for bit. */
  evaluate(rows: Rows, from: number, count: number): Evaluated
  /** Views of a column as long as the weights. */
  view(column: Float32Array): ParameterViews
  /** Evaluates `count` ≤ BLOCK_ROWS rows, calls `lossOf` once, and adds the loss's gradient by the weights to `gradient`. */
  differentiate(rows: Rows, from: number, count: number, lossOf: LossOf, gradient: ParameterViews): void
}
