/** The contract of a tfjs backend. */
import type { Layers, Tf } from './tfjs.ts'

/** A tfjs backend that runs. */
export interface Backend {
  /** tfjs-core, as the backend's own package tree has it: what makes and takes this device's tensors. */
  readonly tf: Tf
  /** tfjs-layers of the same tree, loaded at the first call: models of another tree have tensors of another tfjs. */
  layers(): Promise<Layers>
  /** What tfjs calls it: `tensorflow`, `webgpu`, `wasm` or `cpu`. */
  readonly backend: string
  /** The packages and engines that run it, with their versions. */
  readonly version: string
  /**
   * Whether `dataSync` works on every tensor; `await tensor.data()` always does. (Without it tfjs still reads tensors so
   * small that it computed them in JavaScript.)
   */
  readonly readsSynchronously: boolean
  /** Whether a GPU computes; null where the backend does not say. */
  readonly isGpu: boolean | null
}
