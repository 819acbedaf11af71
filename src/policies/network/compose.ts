/** Composes networks from parts: a trunk for the actor, one for the critic unless they share it, and their heads. */
import type { Tf } from '../devices/tfjs.ts'
import type { HeadShape } from '../head.ts'
import type { ImageShape } from '../stack/convolution.ts'
import { LOG_STD, type Network } from './device-policy.ts'
import type { Features, Module, NetworkParameter, SeenSteps } from './module.ts'
import { convolutionLayer, denseLayer, gruCell, inOrder, lstmCell, memoryPart } from './parts.ts'

/** The parts of a trunk: convolutions, then dense layers, then a recurrent cell, each optional. */
export interface TrunkOptions {
  /** Filters of each convolution; they require image observations. */
  readonly filters: readonly number[]
  readonly kernelSize: number
  readonly image: ImageShape | null
  /** Units of each dense layer. */
  readonly hidden: readonly number[]
  readonly activation: 'tanh' | 'relu'
  readonly cell: 'gru' | 'lstm' | null
  readonly units: number
}

/** A trunk whose parameter names begin with `name`. */
export function trunk(name: string, numInputs: number, options: TrunkOptions): Module {
  const { filters, kernelSize, hidden, activation, cell, units } = options
  const modules: Module[] = []
  let image = options.image
  for (const [i, channels] of filters.entries()) {
    modules.push(convolutionLayer(`${name}.convolution.${i}`, image!, channels, kernelSize))
    image = [image![0], image![1], channels]
  }
  const width = () => modules.at(-1)?.numOutputs ?? numInputs
  for (const [i, numOutputs] of hidden.entries()) {
    modules.push(denseLayer(`${name}.${i}`, width(), numOutputs, activation, Math.SQRT2))
  }
  if (cell !== null) modules.push((cell === 'gru' ? gruCell : lstmCell)(`${name}.${cell}`, width(), units))
  return inOrder(modules, numInputs)
}

/**
 * The network of an actor's trunk and a critic's (null: the actor's), with a head on each. Names and order of its parameters are those of
 * the fused perceptron. Log standard deviations start at `logStd`.
 */
export function withHeads(actor: Module, critic: Module | null, head: HeadShape, logStd: number): Network {
  const actorHead = denseLayer('actor.head', actor.numOutputs, head.numOutputs, 'linear', 0.01)
  const criticHead = denseLayer('critic.head', (critic ?? actor).numOutputs, 1, 'linear', 1)
  return {
    parameters: [
      ...actor.parameters,
      ...actorHead.parameters,
      ...logStdOf(head, logStd),
      ...(critic?.parameters ?? []),
      ...criticHead.parameters,
    ],
    memoryWidth: actor.memoryWidth + (critic?.memoryWidth ?? 0),
    forward(tf, weights, seen) {
      const acts = actor.forward(tf, weights, memoryPart(tf, seen, 0, actor.memoryWidth))
      const judges = critic?.forward(tf, weights, memoryPart(tf, seen, actor.memoryWidth, critic.memoryWidth)) ?? acts
      const on = (features: Features): SeenSteps => ({ ...seen, x: features.y })
      return {
        output: actorHead.forward(tf, weights, on(acts)).y,
        value: criticHead.forward(tf, weights, on(judges)).y,
        memory: critic === null ? acts.memory : joined(tf, acts, judges),
      }
    },
  }
}

/** The additional parameter of a box action. */
export function logStdOf({ choices, actionWidth }: HeadShape, logStd: number): NetworkParameter[] {
  if (choices.length > 0) return []
  return [{ name: LOG_STD, shape: [actionWidth], initialize: (values) => void values.fill(logStd) }]
}

function joined(tf: Tf, { memory: first }: Features, { memory: second }: Features) {
  return first !== null && second !== null ? tf.concat([first, second], 1) : null
}
