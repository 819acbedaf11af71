/** The contract of a tfjs backend. */
import type { Layers, Tf } from './tfjs.ts'

/** A started tfjs backend. */
export interface Backend {
  /** tfjs-core from the backend's own package tree, which creates and accepts this device's tensors. */
  readonly tf: Tf
  /** tfjs-layers from the same tree, loaded at the first call. Models from another tree have tensors of another tfjs. */
  layers(): Promise<Layers>
  /** Its name in tfjs: `tensorflow`, `webgpu`, `wasm` or `cpu`. */
  readonly backend: string
  /** The packages and engines that run it, with their versions. */
  readonly version: string
  /**
   * Whether `dataSync` works on every tensor; `await tensor.data()` always does. (Otherwise tfjs can still read tensors small enough to
   * be computed in JavaScript.)
   */
  readonly readsSynchronously: boolean
  /** Whether it computes on a GPU; null if unknown. */
  readonly isGpu: boolean | null
}
