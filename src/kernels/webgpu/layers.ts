/** Dense layers and convolutions as shaders: each is three products, of outputs, of the gradient by the weights and of that by the inputs. */
import type { ImageFilters } from '../convolution/convolution.ts'
import type { Activation } from '../dense/dense.ts'
import { addParts, partsFor, product, type Source } from './product.ts'
import { type DeviceColumn, deviceColumn, type Step } from './step.ts'

/** A layer's sizes, and where its weight (numInputs × numOutputs, then the biases) begins among the weights. */
export interface DeviceLayer {
  readonly numInputs: number
  readonly numOutputs: number
  readonly activation: number
  readonly weight: number
  /** A convolution's images and filters; null of a dense layer. */
  readonly image: ImageFilters | null
}

/** The columns of a layer: a row per row of the block, but of weights and gradient. */
export interface LayerColumns {
  readonly weights: DeviceColumn
  readonly gradient: DeviceColumn
  readonly numbers: DeviceColumn
  readonly x: DeviceColumn
  readonly y: DeviceColumn
  /** The gradient by the pre-activations of y. */
  readonly dy: DeviceColumn
  /** The element at which y begins in its column, and dy in its own. */
  readonly yAt: number
  /** That by those of x; null if it is not needed. */
  readonly dx: DeviceColumn | null
  /** Whether dx gets it added. */
  readonly accumulate: boolean
  /** The activation that made x. */
  readonly below: number
}

/** The layer's products, as a matrix of `units` rows a row of the block: a row itself, or the places of its image. */
function matrixOf({ numInputs, numOutputs, image, weight }: DeviceLayer) {
  if (image === null) {
    return {
      units: 1,
      depth: numInputs,
      width: numOutputs,
      bias: weight + numInputs * numOutputs,
      inputs: numInputs,
      patch: (row: string, k: string) => `x[${row} * ${numInputs}u + ${k}]`,
      functions: '',
    }
  }
  const { height, width, channels, filters, kernelSize } = image
  const depth = kernelSize ** 2 * channels
  const margin = Math.floor((kernelSize - 1) / 2)
  return {
    units: height * width,
    depth,
    width: filters,
    bias: weight + depth * filters,
    inputs: channels,
    patch: (row: string, k: string) => `patchAt(${row}, ${k})`,
    functions: `fn patchAt(row: u32, k: u32) -> f32 {
  let place = row % ${height * width}u;
  let c = k % ${channels}u;
  let tap = k / ${channels}u;
  let up = i32(place / ${width}u + tap / ${kernelSize}u) - ${margin};
  let across = i32(place % ${width}u + tap % ${kernelSize}u) - ${margin};
  if (up < 0 || up >= ${height} || across < 0 || across >= ${width}) { return 0.0; }
  return x[((row / ${height * width}u) * ${height * width}u + u32(up) * ${width}u + u32(across)) * ${channels}u + c];
}`,
  }
}

/** A value for each `Activation`, in its order: linear, tanh, relu. Shaders import only types from our kernels, so that a page without a device is smaller. */
type ByActivation<T> = Readonly<Record<(typeof Activation)[keyof typeof Activation] | number, T>>

const ACTIVATE: ByActivation<(value: string) => string> = {
  0: (value) => value,
  1: (value) => `tanh(clamp(${value}, -15.0, 15.0))`, // Some drivers overflow far out.
  2: (value) => `max(${value}, 0.0)`,
}

/** The derivative of an activation, by its result. */
const DERIVE: ByActivation<(y: string) => string> = {
  0: () => '1.0',
  1: (y) => `(1.0 - ${y} * ${y})`,
  2: (y) => `select(0.0, 1.0, ${y} > 0.0)`,
}

/** y of the block's rows. */
export function layerForward(layer: DeviceLayer, columns: LayerColumns, blockRows: number): Step[] {
  const { units, depth, width, bias, patch, functions } = matrixOf(layer)
  const { x, y, yAt, weights, numbers } = columns
  return [
    product({
      name: `forward ${layer.numInputs} × ${layer.numOutputs}`,
      ...{ rows: blockRows * units, columns: width, depth, functions },
      counted: { dimension: 'rows', each: units },
      a: { element: patch('row', 'k'), alongDepth: true },
      b: { element: `weights[${layer.weight}u + k * ${width}u + column]`, alongDepth: false },
      store: `y[${yAt}u + row * ${width}u + column] = ${ACTIVATE[layer.activation]!(`value + weights[${bias}u + column]`)};`,
      bindings: { reads: { x, weights, numbers }, writes: { y } },
    }),
  ]
}

/** Adds the gradients by weight and biases of the block's rows, and computes dx. */
export function layerBackward(layer: DeviceLayer, columns: LayerColumns, blockRows: number): Step[] {
  const { units, depth, width, patch, functions } = matrixOf(layer)
  const { x, dy, yAt, dx, weights, gradient, numbers, accumulate, below } = columns
  const rows = blockRows * units
  const parts = partsFor(depth, width, rows)
  const length = (depth + 1) * width
  const partial = deviceColumn('parts of a gradient', parts * length)
  const counted = { dimension: 'depth', each: units } as const
  const outputGradient: Source = { element: `dy[${yAt}u + k * ${width}u + column]`, alongDepth: false }
  const steps = [
    product({
      name: `gradient ${layer.numInputs} × ${layer.numOutputs}`,
      ...{ rows: depth, columns: width, depth: rows, functions, counted, parts },
      a: { element: patch('k', 'row'), alongDepth: layer.image === null && depth < 8 },
      b: outputGradient,
      store: `partial[part * ${length}u + row * ${width}u + column] = value;`,
      storeSum: `partial[part * ${length}u + ${depth * width}u + column] = sum;`,
      bindings: { reads: { x, dy, numbers }, writes: { partial } },
    }),
    addParts('add parts', gradient, layer.weight, partial, parts, length),
  ]
  if (dx === null) return steps
  const derived = `value * ${DERIVE[below]!('inputOfLayer')}`
  const value = accumulate ? `(dx[at] + value) * ${DERIVE[below]!('inputOfLayer')}` : derived
  const store = (inputs: number) => `let at = row * ${inputs}u + column; let inputOfLayer = x[at]; dx[at] = ${value};`
  if (layer.image === null) {
    steps.push(
      product({
        name: `input gradient ${layer.numInputs} × ${layer.numOutputs}`,
        ...{ rows: blockRows, columns: depth, depth: width },
        counted: { dimension: 'rows', each: 1 },
        a: { element: `dy[${yAt}u + row * ${width}u + k]`, alongDepth: true },
        b: { element: `weights[${layer.weight}u + column * ${width}u + k]`, alongDepth: true },
        store: store(depth),
        bindings: { reads: { dy, weights, numbers, x }, writes: { dx } },
      }),
    )
    return steps
  }
  const { height, width: across, channels, filters, kernelSize } = layer.image
  const margin = Math.floor((kernelSize - 1) / 2)
  steps.push(
    product({
      name: 'input gradient of images',
      ...{ rows, columns: channels, depth: kernelSize ** 2 * filters },
      counted: { dimension: 'rows', each: units },
      functions: `fn gradientAt(row: u32, k: u32) -> f32 {
  let place = row % ${units}u;
  let tap = k / ${filters}u;
  let up = i32(place / ${across}u) + ${margin} - i32(tap / ${kernelSize}u);
  let right = i32(place % ${across}u) + ${margin} - i32(tap % ${kernelSize}u);
  if (up < 0 || up >= ${height} || right < 0 || right >= ${across}) { return 0.0; }
  return dy[${yAt}u + ((row / ${units}u) * ${units}u + u32(up) * ${across}u + u32(right)) * ${filters}u + k % ${filters}u];
}`,
      a: { element: 'gradientAt(row, k)', alongDepth: true },
      b: {
        element: `weights[${layer.weight}u + ((k / ${filters}u) * ${channels}u + column) * ${filters}u + k % ${filters}u]`,
        alongDepth: true,
      },
      store: store(channels),
      bindings: { reads: { dy, weights, numbers, x }, writes: { dx } },
    }),
  )
  return steps
}
