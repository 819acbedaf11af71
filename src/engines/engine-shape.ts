/** What the size of an engine's columns depends on. */
import type { WeightBits } from '../language/transformer/forward-plan.ts'
import type { LoraModel } from '../language/transformer/lora.ts'
import type { TransformerModel } from '../language/transformer/model.ts'

/** What the size of an engine's columns depends on. */
export interface EngineShape {
  readonly model: TransformerModel
  readonly adapter: LoraModel | null
  readonly weightBits: WeightBits
  /** Turns at once, and ids of one, at most. */
  readonly numSlots: number
  readonly context: number
  /** How many threads may help. */
  readonly threads: number
}
