/**
 * Policies as tfjs LayersModels: `model.json` and `weights.bin`, for `tf.loadLayersModel`. Input `observation` (batch × shape), outputs
 * `logits` or `mean` (batch × their number) and `value` (batch × 1). tfjs has no layer that chooses or clips, so the caller computes the
 * action: `userDefinedMetadata` has the action space and the log standard deviations.
 */
import { joined } from '../../base/bytes.ts'
import { InputError } from '../../base/errors.ts'
import { spaceToJson } from '../../base/space.ts'
import { VERSION } from '../../base/version.ts'
import { NORM_EPSILON } from '../stack/norm.ts'
import type { Network, WeightedLayer } from './network.ts'

/** The two files of a LayersModel. @throws InputError for a policy that normalizes observations. */
export function layersModel(network: Network): { model: string; weights: Uint8Array } {
  const { environment, observationShape, actionSpace, logStd, masked } = network
  if (network.inputs !== null) {
    const expected = 'onnx or module: tfjs has no such layer'
    throw new InputError('format', 'layers, of a policy that normalizes observations', expected)
  }
  const layers: object[] = []
  const specs: { name: string; shape: readonly number[]; dtype: 'float32' }[] = []
  const data: Uint8Array[] = []

  const add = (name: string, type: string, config: object, below?: string): string => {
    const inbound = below === undefined ? [] : [[[below, 0, 0, {}]]]
    layers.push({ name, class_name: type, config: { name, ...config }, inbound_nodes: inbound })
    return name
  }
  const addWeights = (name: string, shape: readonly number[], { buffer }: Float32Array): void => {
    specs.push({ name, shape, dtype: 'float32' })
    data.push(new Uint8Array(buffer))
  }
  /** Adds layers after `below`; `head` is the last one's name, if given. */
  const addStack = (stack: readonly WeightedLayer[], below: string, head?: string): string =>
    stack.reduce((x, { name: given, numInputs, numOutputs, activation, weight, bias, norm }, i) => {
      const name = i === stack.length - 1 && head !== undefined ? head : given
      addWeights(`${name}/kernel`, [numInputs, numOutputs], weight)
      addWeights(`${name}/bias`, [numOutputs], bias)
      const own = { units: numOutputs, activation: norm === null ? activation : 'linear', ...ZEROS }
      const y = add(name, 'Dense', own, x)
      if (norm === null) return y
      addWeights(`${name}.norm/gamma`, [numOutputs], norm.weight)
      addWeights(`${name}.norm/beta`, [numOutputs], norm.bias)
      const normed = add(`${name}.norm`, 'LayerNormalization', { axis: -1, epsilon: NORM_EPSILON }, y)
      return add(`${name}.active`, 'Activation', { activation }, normed)
    }, below)

  const input = { batch_input_shape: [null, ...observationShape], dtype: 'float32', sparse: false }
  add('observation', 'InputLayer', input)
  const top = observationShape.length === 1 ? 'observation' : add('flatten', 'Flatten', {}, 'observation')
  const trunk = addStack(network.trunk, top)
  const outputs = [
    addStack(network.actor, trunk, logStd === null ? 'logits' : 'mean'),
    addStack(network.critic, trunk, 'value'),
  ]
  const model = {
    format: 'layers-model',
    generatedBy: `Colonnade ${VERSION}`,
    convertedBy: null,
    modelTopology: {
      class_name: 'Model',
      config: {
        name: 'policy',
        layers,
        input_layers: [['observation', 0, 0]],
        output_layers: outputs.map((name) => [name, 0, 0]),
      },
    },
    weightsManifest: [{ paths: [WEIGHTS_FILE], weights: specs }],
    userDefinedMetadata: {
      environment,
      observationShape,
      actionSpace: JSON.parse(spaceToJson(actionSpace)),
      outputs,
      ...(logStd === null ? {} : { logStd: [...logStd] }),
      actionMask: masked,
    },
  }
  return { model: `${JSON.stringify(model, null, 2)}\n`, weights: joined(data) }
}

export const MODEL_FILE = 'model.json'
export const WEIGHTS_FILE = 'weights.bin'

/** A cheap initializer, since weights come from the file. */
const ZEROS = {
  use_bias: true,
  kernel_initializer: { class_name: 'Zeros', config: {} },
  bias_initializer: { class_name: 'Zeros', config: {} },
}
