/** The contract of optimizers of language models, which know the parameters by name and shape. `tensors.ts` lists them. */
import type { Parameter } from '../../policies/policy.ts'
import type { OptimizerNumbers, OptimizerStep } from './define-optimizer.ts'

/** The inputs of a parameter's step. Its moments have as many elements as `moments` says. */
export interface TensorStep extends OptimizerStep {
  readonly parameter: Parameter
  /** As long as the longest that `workspace` asks for. */
  readonly workspace: Float32Array
}

export interface TensorOptimizer {
  readonly id: string
  readonly takes: readonly (keyof OptimizerNumbers)[]
  readonly powersOf: readonly (keyof OptimizerNumbers)[]
  /** Elements of the two moments of a parameter; zeros are their initial state. */
  moments(parameter: Parameter): readonly [first: number, second: number]
  /** Elements of workspace for a parameter. */
  workspace(parameter: Parameter): number
  step(given: TensorStep): void
}
