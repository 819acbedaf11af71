/** The stages of the backward pass: the head, then the layers from the last one on, then the embedding. */
import type { TransformerModel } from './model.ts'

/** Of threads that add to one gradient: their turns in each stage of the backward pass. */
export interface GradientTurns {
  /** Takes the gradient of an embedding by the rows' tokens, where that by the head is in the same column; null: it has its own. */
  readonly embedding: Float32Array | null
  /** Calls around what adds to a stage: 0 is the head's. */
  begin(stage: number): void
  end(stage: number): void
}

/** Number of stages of a model's `GradientTurns`. */
export function numStages({ shape }: TransformerModel): number {
  return shape.numLayers + 2
}

/** Of a thread that adds alone. */
export const SOLE: GradientTurns = { embedding: null, begin() {}, end() {} }
