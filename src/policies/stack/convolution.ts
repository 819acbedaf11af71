import { InputError, show } from '../../base/errors.ts'
import type { Space } from '../../base/space.ts'
import { Activation, convolutionScratch } from '../../kernels/bind.ts'
import type { LayerShape } from './layer.ts'
import type { ParameterList } from './parameters.ts'
import type { MakeLayers } from './stack.ts'

/** Height, width and channels of an image. */
export type ImageShape = readonly [number, number, number]

/** The shape of the images that a policy observes. @throws InputError for other observations. */
export function imageShape(id: string, space: Space): ImageShape {
  if (space.kind !== 'box' || space.shape.length !== 3) {
    throw new InputError(`${id} observation space`, show(space), 'a box of shape height × width × channels')
  }
  return space.shape as unknown as ImageShape
}

/** Convolutions over the images that a policy observes, one over another. @throws InputError for other observations. */
export function convolutions(filters: readonly number[], kernelSize: number, id: string, space: Space): MakeLayers {
  const [height, width, channels] = filters.length > 0 ? imageShape(id, space) : [0, 0, 0]
  return (parameters, name) =>
    filters.map((count, i) => {
      const below: ImageShape = [height, width, filters[i - 1] ?? channels]
      return convolutionShape(parameters, `${name}.convolution.${i}`, below, count, kernelSize)
    })
}

/** A convolution with `same` padding and relu, over observations or over another one's outputs (kernels/convolution). */
function convolutionShape(
  parameters: ParameterList,
  name: string,
  [height, width, channels]: ImageShape,
  filters: number,
  kernelSize: number,
): LayerShape {
  const weight = parameters.add(`${name}.weight`, [kernelSize, kernelSize, channels, filters])
  const bias = parameters.add(`${name}.bias`, [filters])
  const image = { height, width, channels, filters, kernelSize }
  return {
    numInputs: height * width * channels,
    numOutputs: height * width * filters,
    activation: Activation.relu,
    image,
    matrices: [{ weight, numInputs: kernelSize ** 2 * channels, numOutputs: filters, gain: Math.SQRT2 }],
    scratch: () => convolutionScratch(image),
    bind({ weights, scratch, kernels }) {
      const w = weights[weight]!
      const b = weights[bias]!
      return {
        forward(y, x, count, _, xFrom) {
          kernels.convolutionForward(y, x, w, b, scratch, image, count, xFrom)
        },
        backward(dy, x, count, xFrom, gradient, dx) {
          if (gradient !== null) {
            const [dWeight, dBias] = [gradient[weight]!, gradient[bias]!]
            kernels.convolutionBackwardWeights(dWeight, dBias, dy, x, scratch, image, count, xFrom)
          }
          if (dx !== null) kernels.convolutionBackwardInput(dx, dy, w, scratch, x, image, count)
        },
      }
    },
  }
}
