import type { LayerShape } from './layer.ts'
import type { ParameterList } from './parameters.ts'

/** A dense layer: y = activation(x · W + b). */
export function denseShape(
  parameters: ParameterList,
  name: string,
  numInputs: number,
  numOutputs: number,
  activation: number,
  gain: number,
): LayerShape {
  const weight = parameters.add(`${name}.weight`, [numInputs, numOutputs])
  const bias = parameters.add(`${name}.bias`, [numOutputs])
  return {
    ...{ numInputs, numOutputs, activation },
    matrices: [{ weight, numInputs, numOutputs, gain }],
    scratch: () => (numOutputs + 1) * numInputs, // The transposed weight, and a row of zeros.
    bind({ weights, scratch, kernels }) {
      const w = weights[weight]!
      const b = weights[bias]!
      return {
        forward(y, x, count, yFrom, xFrom) {
          kernels.denseForward(y, x, w, b, count, numInputs, numOutputs, activation, yFrom, xFrom)
        },
        backward(dy, x, count, xFrom, gradient, dx, accumulate, below) {
          if (gradient !== null) {
            const [dWeight, dBias] = [gradient[weight]!, gradient[bias]!]
            kernels.denseBackwardWeights(dWeight, dBias, dy, x, count, numInputs, numOutputs, xFrom)
          }
          if (dx !== null) {
            kernels.denseBackwardInput(dx, dy, w, scratch, x, count, numInputs, numOutputs, accumulate, below)
          }
        },
      }
    },
  }
}
