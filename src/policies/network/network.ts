import { InputError, show } from '../../base/errors.ts'
import type { Space } from '../../base/space.ts'
import { type DeviceName, startDevice } from '../devices/device.ts'
import type { LayersModel, Tensor, Tensor2D, Tf, Variable } from '../devices/tfjs.ts'
import { type HeadShape, headShape } from '../head.ts'
import { numInputsOf } from '../network-model.ts'
import type { PolicyDefinition, PolicyModel } from '../policy.ts'
import { logStdOf, withHeads } from './compose.ts'
import { type DeviceHolder, type Network, networkModel } from './device-policy.ts'
import type { Module, NetworkParameter, Weights } from './module.ts'

/** Outputs for a batch: features, to which heads are added; or logits (means) and values. */
export type NetworkResult = Tensor2D | readonly [output: Tensor2D, value: Tensor2D]

/** A network as a function of tensors. */
export interface NetworkFunction {
  readonly parameters: readonly NetworkParameter[]
  /** Width of its features; absent if it returns logits (means) and values. */
  readonly numFeatures?: number
  /** Computes the result for observations (rows × observation width), with differentiable tfjs operations. */
  forward(tf: Tf, weights: Weights, observation: Tensor2D): NetworkResult
}

/** Options of `network`. */
export interface NetworkOptions {
  /** Default: the first device that can start. */
  device?: DeviceName
  /** Initial log standard deviation of a continuous action. Default 0. */
  logStd?: number
  /** Its name in errors and checkpoints. Default `network`. */
  id?: string
}

/**
 * A custom policy: a tfjs layers model, or a function of tensors. With one output it is a trunk, and gets an actor's and a critic's head;
 * two outputs are logits (means of a box action) and values. Weights of a layers model keep their initial values; weights that are not
 * trainable do not change.
 * @throws InputError, before training starts, for outputs that do not fit the action space and for weights that are not finite.
 * @example network(tf.sequential({ layers: [tf.layers.dense({ units: 32, inputShape: [4], activation: 'relu' })] }))
 */
export function network(model: LayersModel | NetworkFunction, options: NetworkOptions = {}): PolicyDefinition {
  const { device, logStd = 0, id = 'network' } = options
  const holder: DeviceHolder = { device: undefined }
  const isFunction = typeof (model as NetworkFunction)?.forward === 'function'
  if (!isFunction && typeof (model as LayersModel)?.apply !== 'function') {
    throw new InputError('network(model)', show(model), 'a tfjs layers model, or { parameters, forward }')
  }
  const start: Float32Array[] = []
  return {
    id,
    parameters: {},
    async prepare() {
      holder.device = await startDevice(device)
      if (!isFunction) start.splice(0, start.length, ...(await valuesOf(id, variablesOf(model as LayersModel))))
    },
    build(observationSpace: Space, actionSpace: Space): PolicyModel {
      const head = headShape(actionSpace)
      const numInputs = numInputsOf(id, observationSpace)
      const whole = isFunction
        ? fromFunction(model as NetworkFunction, head, logStd)
        : fromLayers(id, model as LayersModel, start, numInputs, head, logStd)
      return networkModel(id, whole, actionSpace, observationSpace, null, holder)
    },
  }
}

function fromFunction({ parameters, numFeatures, forward }: NetworkFunction, head: HeadShape, logStd: number): Network {
  if (numFeatures !== undefined) {
    const module: Module = {
      parameters,
      numOutputs: numFeatures,
      memoryWidth: 0,
      forward: (tf, weights, { x }) => ({ y: forward(tf, weights, x) as Tensor2D, memory: null }),
    }
    return withHeads(module, null, head, logStd)
  }
  return {
    parameters: [...parameters, ...logStdOf(head, logStd)],
    memoryWidth: 0,
    forward(tf, weights, { x }) {
      const [output, value] = forward(tf, weights, x) as readonly [Tensor2D, Tensor2D]
      return { output, value, memory: null }
    },
  }
}

function fromLayers(
  id: string,
  model: LayersModel,
  start: readonly Float32Array[],
  numInputs: number,
  head: HeadShape,
  logStd: number,
): Network {
  const [input] = model.inputs
  const inputShape = input!.shape.slice(1) as (number | null)[]
  const inputWidth = inputShape.reduce<number>((product, side) => product * (side ?? Number.NaN), 1)
  if (model.inputs.length !== 1 || inputWidth !== numInputs) {
    const shapes = model.inputs.map(({ shape }) => shape)
    throw new InputError(`network ${id}, inputs`, show(shapes), `one input of ${numInputs} numbers, the observation`)
  }
  const widths = model.outputs.map(({ shape }) => (shape.length === 2 ? shape[1]! : Number.NaN))
  const fits =
    (widths.length === 1 && Number.isFinite(widths[0])) ||
    (widths.length === 2 && widths[0] === head.numOutputs && widths[1] === 1)
  if (!fits) {
    const shapes = model.outputs.map(({ shape }) => shape)
    const expected = `outputs of ${head.numOutputs} (for the action space) and 1 (the value), or one of features`
    throw new InputError(`network ${id}, outputs`, show(shapes), expected)
  }
  const variables = variablesOf(model)
  const parameters = variables.map(
    ({ name, shape }, index): NetworkParameter => ({
      name,
      shape,
      initialize: (values) => values.set(start[index]!),
    }),
  )
  const run = (tf: Tf, x: Tensor2D) =>
    model.apply(tf.reshape(x, [x.shape[0], ...(inputShape as number[])]), { training: false }) as Tensor | Tensor[]
  const module: Module = {
    parameters,
    numOutputs: widths[0]!,
    memoryWidth: 0,
    forward: (tf, _, { x }) => ({ y: run(tf, x) as Tensor2D, memory: null }),
  }
  if (widths.length === 1) {
    const whole = withHeads(module, null, head, logStd)
    return { ...whole, variables }
  }
  return {
    parameters: [...parameters, ...logStdOf(head, logStd)],
    memoryWidth: 0,
    variables,
    forward(tf, _, { x }) {
      const [output, value] = run(tf, x) as [Tensor2D, Tensor2D]
      return { output, value, memory: null }
    },
  }
}

/** The variables of a model's trainable weights; `read` returns the variable itself. */
function variablesOf(model: LayersModel): Variable[] {
  return model.trainableWeights.map((weight) => weight.read() as Variable)
}

async function valuesOf(id: string, variables: readonly Variable[]): Promise<Float32Array[]> {
  return Promise.all(
    variables.map(async (variable) => {
      const values = (await variable.data()) as Float32Array
      const at = values.findIndex((value) => !Number.isFinite(value))
      if (at >= 0)
        throw new InputError(`network ${id}, weight ${variable.name}`, `${values[at]} at ${at}`, 'finite numbers')
      return values.slice()
    }),
  )
}
