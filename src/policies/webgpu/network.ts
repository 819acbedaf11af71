/** The layers of an actor and a critic as steps on a device (kernels/webgpu), over the rows of a block. */
import type { Activation } from '../../kernels/bind.ts'
import { type DeviceLayer, type LayerColumns, layerBackward, layerForward } from '../../kernels/webgpu/layers.ts'
import { type DeviceColumn, deviceColumn, type Step } from '../../kernels/webgpu/step.ts'
import type { NetworkShape } from '../network-shape.ts'
import type { StackShape } from '../stack/stack.ts'

const LINEAR: typeof Activation.linear = 0

/** The columns that a network shares with the update. */
export interface NetworkColumns {
  readonly weights: DeviceColumn
  readonly gradient: DeviceColumn
  readonly numbers: DeviceColumn
  /** The block's observations. */
  readonly x: DeviceColumn
  /** Logits (means) of all rows, then values; and the gradients by them. */
  readonly outputs: DeviceColumn
  readonly dOutputs: DeviceColumn
}

/** A network's steps: outputs of the block's rows, and the addition of the gradient by the weights. */
export interface NetworkSteps {
  readonly forward: readonly Step[]
  readonly backward: readonly Step[]
}

export function networkSteps(shape: NetworkShape, columns: NetworkColumns, blockRows: number): NetworkSteps {
  const { trunk, actor, critic, head, numInputs } = shape
  const forward: Step[] = []
  const backward: Step[] = []
  const { x, outputs, dOutputs } = columns
  const last = trunk?.layers.at(-1)
  const trunkWidth = last?.numOutputs ?? numInputs
  const top = trunk === null ? x : deviceColumn('trunk', blockRows * trunkWidth)
  const dTop = trunk === null ? null : deviceColumn('gradient by the trunk', blockRows * trunkWidth)
  const activation = last?.activation ?? LINEAR
  const add = (stack: StackShape, ends: Ends) => {
    const steps = stackSteps(shape, stack, columns, ends, blockRows)
    forward.push(...steps.forward)
    backward.push(...steps.backward)
  }
  const ends = { x: top, y: outputs, dy: dOutputs, dx: dTop }
  const below: Steps = { forward: [], backward: [] }
  if (trunk !== null) {
    const steps = stackSteps(shape, trunk, columns, { x, y: top, dy: dTop!, yAt: 0, dx: null, ...PLAIN }, blockRows)
    forward.push(...steps.forward)
    below.backward.push(...steps.backward)
  }
  add(actor, { ...ends, yAt: 0, ...PLAIN })
  add(critic, { ...ends, yAt: blockRows * head.numOutputs, accumulate: true, below: activation })
  return { forward, backward: [...backward, ...below.backward] }
}

const PLAIN = { accumulate: false, below: LINEAR }

interface Steps {
  readonly forward: Step[]
  readonly backward: Step[]
}

/** The inputs and outputs of a stack. */
type Ends = Pick<LayerColumns, 'x' | 'y' | 'dy' | 'yAt' | 'dx' | 'accumulate' | 'below'>

function stackSteps(
  shape: NetworkShape,
  stack: StackShape,
  columns: NetworkColumns,
  ends: Ends,
  blockRows: number,
): Steps {
  const last = stack.layers.length - 1
  const rows = (name: string, width: number) => deviceColumn(name, blockRows * width)
  const between = stack.layers.slice(0, -1).map(({ numOutputs, activation }) => ({
    y: rows('outputs of a layer', numOutputs),
    dy: rows('gradient by outputs of a layer', numOutputs),
    activation,
  }))
  const bound = stack.layers.map(({ numInputs, numOutputs, activation, matrices, image = null }, i) => {
    const layer: DeviceLayer = {
      ...{ numInputs, numOutputs, activation, image },
      weight: shape.parameters.list[matrices[0]!.weight]!.offset,
    }
    const under = between[i - 1]
    const { weights, gradient, numbers } = columns
    const own: LayerColumns = {
      ...{ weights, gradient, numbers },
      ...(under === undefined
        ? { x: ends.x, dx: ends.dx, accumulate: ends.accumulate, below: ends.below }
        : { x: under.y, dx: under.dy, accumulate: false, below: under.activation }),
      ...(i === last ? { y: ends.y, dy: ends.dy, yAt: ends.yAt } : { ...between[i]!, yAt: 0 }),
    }
    return { layer, own }
  })
  return {
    forward: bound.flatMap(({ layer, own }) => layerForward(layer, own, blockRows)),
    backward: bound.toReversed().flatMap(({ layer, own }) => layerBackward(layer, own, blockRows)),
  }
}
