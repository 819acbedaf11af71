import type { LoraModel } from '../language/transformer/lora.ts'
import type { TransformerModel, WeightBits } from '../language/transformer/model.ts'

/** Inputs that determine the size of an engine's columns. */
export interface EngineShape {
  readonly model: TransformerModel
  readonly adapter: LoraModel | null
  readonly weightBits: WeightBits
  /** Maximum number of concurrent turns, and maximum ids per turn. */
  readonly numSlots: number
  readonly context: number
  /** Maximum number of threads that help. */
  readonly threads: number
}
