import { boolean } from '../../base/settings.ts'
import { type Columns, column, type Plan } from '../../components/column.ts'
import { Activation, Combination, ElementMap } from '../../kernels/bind.ts'
import type { LayerShape } from './layer.ts'
import type { ParameterList } from './parameters.ts'

/** The setting that adds LayerNorms. */
export const layerNorm = boolean(false, 'LayerNorm between each hidden layer and its activation')

/** As in PyTorch and ONNX. */
export const NORM_EPSILON = 1e-5

/** LayerNorm of each row, and then the activation: y = activation((x − mean) / deviation · weight + bias). Above a linear layer. */
export function normShape(parameters: ParameterList, name: string, width: number, activation: number): LayerShape {
  const weight = parameters.add(`${name}.norm.weight`, [width])
  const bias = parameters.add(`${name}.norm.bias`, [width])
  return {
    numInputs: width,
    numOutputs: width,
    activation,
    matrices: [],
    norm: weight,
    scratch: () => 0,
    plan: (blockRows) => normPlan(blockRows, width),
    bind({ weights, columns, kernels }) {
      const [w, b] = [weights[weight]!, weights[bias]!]
      const { normal, zero, spare } = columns as unknown as Columns<ReturnType<typeof normPlan>>
      return {
        forward(y, x, count) {
          kernels.layerNormForward(normal, x, w, b, NORM_EPSILON, count, width)
          if (activation === Activation.tanh) kernels.mapElements(y, normal, ElementMap.tanh, count * width)
          else kernels.combineRows(y, normal, zero, Combination.maximum, count, width, width, 1, 0, 0)
        },
        backward(dy, x, count, _, gradient, dx, accumulate) {
          const [dWeight, dBias] = [gradient?.[weight] ?? spare, gradient?.[bias] ?? spare]
          kernels.layerNormBackward(dx!, dWeight, dBias, dy, x, w, NORM_EPSILON, count, width, accumulate)
        },
      }
    },
  }
}

function normPlan(blockRows: number, width: number) {
  /** `spare` takes a gradient by the weights that nobody wants. */
  return { normal: column('f32', blockRows, width), zero: column('f32', 1), spare: column('f32', width) } satisfies Plan
}
