/** The shape of an actor and a critic: what kernels and shaders compute. */
import type { HeadShape } from './head.ts'
import type { InputMoments } from './inputs.ts'
import type { Sequence } from './policy.ts'
import type { ParameterList } from './stack/parameters.ts'
import type { StackShape } from './stack/stack.ts'

/** The network's layers and parameters. */
export interface NetworkShape {
  readonly parameters: ParameterList
  /** The layers that actor and critic share; null if they share none. */
  readonly trunk: StackShape | null
  readonly actor: StackShape
  readonly critic: StackShape
  /** The existing stacks, in the order of their parameters. */
  readonly stacks: readonly StackShape[]
  /** Index of the log standard deviations in the list of parameters; −1 for choices. */
  readonly logStd: number
  readonly head: HeadShape
  readonly numInputs: number
  /** Indices of their means and deviations in the list of parameters; null without normalization. */
  readonly inputs: InputMoments | null
  readonly memoryWidth: number
  readonly sequence: Sequence | null
  readonly blockRows: number
}
