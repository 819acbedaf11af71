/** The contract of updates on a device, as an algorithm sees them. */
import type { ObservationColumn } from '../../components/observation.ts'
import type { AdamSettings } from '../../kernels/webgpu/adam.ts'
import type { DeviceLoss } from '../../kernels/webgpu/rows.ts'

export interface UpdateOptions {
  /** Rows of the rollout, and of the largest minibatch. */
  readonly numRows: number
  readonly minibatchRows: number
  /** Minibatches of a pass. */
  readonly numMinibatches: number
  readonly hasMask: boolean
  readonly loss: DeviceLoss
  readonly adam: AdamSettings
  /** How many of the first weights are trained. */
  readonly numTrained: number
}

/** The columns of the arena that an update uses. */
export interface UpdateColumns {
  readonly weights: Float32Array
  readonly moment: Float32Array
  readonly squareMoment: Float32Array
  readonly rollout: {
    readonly observation: ObservationColumn
    readonly action: Float32Array | Int32Array
    readonly actionMask: Uint8Array
    readonly logprob: Float32Array
    readonly value: Float32Array
    readonly advantage: Float32Array
    readonly return: Float32Array
  }
}

/** Numbers of a minibatch. */
export interface MinibatchNumbers {
  readonly weight: number
  readonly advantageMean: number
  readonly advantageScale: number
  readonly learningRate: number
  readonly correction1: number
  readonly correction2: number
  readonly maxNorm: number
}

/** An update of the weights on a device, used again for each update. */
export interface DeviceUpdate {
  /** Sends what the update needs. The first call also compiles the shaders. */
  begin(columns: UpdateColumns): Promise<void>
  /** Sends the order of the units in this pass. */
  order(order: Uint32Array, count: number): void
  /** Learns from units order[first … first + count), which are rows: minibatch `index` of the pass. */
  minibatch(index: number, first: number, count: number, given: MinibatchNumbers): void
  /** A row per minibatch of the pass: the sums of the loss's metrics, and the gradient's norm. Valid until the next call. */
  results(): Promise<Float32Array>
  /** Numbers of a row of the results. */
  readonly resultWidth: number
  /** Reads weights and moments back. */
  end(columns: Omit<UpdateColumns, 'rollout'>): Promise<void>
  /** Releases its device memory, once a running update has ended; acquired again by the next `begin`. */
  release(): void
}
