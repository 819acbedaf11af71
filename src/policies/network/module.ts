/**
 * The contract of networks on a device: named parameters with shapes, and a function of tensors from observations to features. Heads,
 * losses, weights and optimizers belong to the policy and the algorithm.
 */
import type { Random } from '../../base/random.ts'
import type { Tensor, Tensor2D, Tensor3D, Tf } from '../devices/tfjs.ts'

/** A parameter of a network, with its initial values. */
export interface NetworkParameter {
  readonly name: string
  readonly shape: readonly number[]
  /** Writes the initial values, keyed by the seed, `key`, and the number of earlier matrices. Absent: zeros. */
  initialize?(values: Float32Array, random: Random, key: number, layer: number): void
}

/** Returns the current network's parameters by name, as tensors. */
export type Weights = (name: string) => Tensor

/** The input of a part of a network: `length` steps of each lane, one after another. */
export interface SeenSteps {
  /** numLanes · length rows of observations, or of the previous part's features. */
  readonly x: Tensor2D
  readonly numLanes: number
  readonly length: number
  /** The recorded memory of each step: numLanes × length × memoryWidth; null without a memory. */
  readonly memory: Tensor3D | null
  /** 1 if a step continues the previous one, 0 if it starts from `memory`: numLanes × length; null if none continues. */
  readonly continues: Tensor2D | null
  /** The memory before the first step, if it continues: numLanes × memoryWidth. */
  readonly carried: Tensor2D | null
}

/** The output of a part of a network. */
export interface Features {
  /** numLanes · length rows. */
  readonly y: Tensor2D
  /** Each lane's memory after its last step: numLanes × memoryWidth; null without a memory. */
  readonly memory: Tensor2D | null
}

/** A part of a network. */
export interface Module {
  readonly parameters: readonly NetworkParameter[]
  readonly numOutputs: number
  readonly memoryWidth: number
  forward(tf: Tf, weights: Weights, seen: SeenSteps): Features
}
