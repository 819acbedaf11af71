/**
 * The contract of networks on a device: parameters with names and shapes, and a function of tensors from what lanes see to
 * features. Heads, losses, weights and optimizers are the policy's and the algorithm's work, not the network's.
 */
import type { Random } from '../../base/random.ts'
import type { Tensor, Tensor2D, Tensor3D, Tf } from '../devices/tfjs.ts'

/** A parameter of a network, and its starting values. */
export interface NetworkParameter {
  readonly name: string
  readonly shape: readonly number[]
  /** Writes the starting values, keyed by the seed, `key`, and the number of matrices before it. Zeros where it is absent. */
  initialize?(values: Float32Array, random: Random, key: number, layer: number): void
}

/** Parameters of the network at hand by name, as tensors. */
export type Weights = (name: string) => Tensor

/** What a part of a network is handed: `length` steps of each lane, one after another. */
export interface SeenSteps {
  /** numLanes · length rows of the observation, or of what the part before made of it. */
  readonly x: Tensor2D
  readonly numLanes: number
  readonly length: number
  /** What the lane remembers at each step, as it was recorded: numLanes × length × memoryWidth; null without a memory. */
  readonly memory: Tensor3D | null
  /** 1 where a step continues the one before, 0 where it starts from `memory`: numLanes × length; null if none continues. */
  readonly continues: Tensor2D | null
  /** The memory before the first step, if it continues: numLanes × memoryWidth. */
  readonly carried: Tensor2D | null
}

/** What a part makes of it. */
export interface Features {
  /** numLanes · length rows. */
  readonly y: Tensor2D
  /** What each lane remembers after its last step: numLanes × memoryWidth; null without a memory. */
  readonly memory: Tensor2D | null
}

/** A part of a network. */
export interface Module {
  readonly parameters: readonly NetworkParameter[]
  readonly numOutputs: number
  readonly memoryWidth: number
  forward(tf: Tf, weights: Weights, seen: SeenSteps): Features
}
