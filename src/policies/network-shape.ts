/** The shape of an actor and a critic: what kernels and shaders compute. */
import type { HeadShape } from './head.ts'
import type { ModelShape } from './network-model.ts'
import type { Sequence } from './policy.ts'
import type { StackShape } from './stack/stack.ts'

/** The network's layers and parameters. */
export interface NetworkShape extends ModelShape {
  /** The layers that actor and critic share; null if they share none. */
  readonly trunk: StackShape | null
  readonly actor: StackShape
  /** How many numbers of an observation, the first ones, the actor sees: all but those for critics alone. */
  readonly actorInputs: number
  readonly critic: StackShape
  /** Index of the log standard deviations in the list of parameters; −1 for choices. */
  readonly logStd: number
  readonly head: HeadShape
  readonly memoryWidth: number
  readonly sequence: Sequence | null
  readonly blockRows: number
}
