import { defineFactory } from '../../base/definition.ts'
import { InputError } from '../../base/errors.ts'
import { boolean, choice, integer, number, sizes } from '../../base/settings.ts'
import type { Space } from '../../base/space.ts'
import { actorCritic } from '../actor-critic.ts'
import { type DeviceName, deviceNames, startDevice } from '../devices/device.ts'
import { headShape } from '../head.ts'
import { normalizeObservations } from '../inputs.ts'
import { mlp } from '../mlp.ts'
import { numInputsOf } from '../network-model.ts'
import type { PolicyDefinition, PolicyModel, Sequence } from '../policy.ts'
import { type ShaderDevice, shaderDevice } from '../shader-device.ts'
import { recurrentLayers } from '../stack/cell.ts'
import { convolutions, imageShape } from '../stack/convolution.ts'
import { layerNorm } from '../stack/norm.ts'
import { type TrunkOptions, trunk, withHeads } from './compose.ts'
import { type DeviceHolder, networkModel } from './device-policy.ts'

const logStd = number(0, 'starting log standard deviation of a continuous action')
const shared = {
  layerNorm,
  normalizeObservations,
  device: choice(
    'none',
    ['none', 'best', ...deviceNames],
    'device of the network; none: our own kernels, on the threads of the run; best: the first device that can start',
  ),
  logStd,
}
const denseSettings = {
  hidden: sizes([64, 64], 'units of each hidden layer'),
  activation: choice('tanh', ['tanh', 'relu'], 'activation of the hidden layers'),
}
const image = {
  filters: sizes([16, 32], 'filters of each convolution'),
  kernelSize: integer(3, 'height and width of the filters', { min: 1 }),
}

/**
 * Dense layers on a device: the network of `mlp`, with the same names, weights and initial values. For small networks `mlp` is many times
 * faster; use this one for comparisons and on a GPU.
 */
export const dense = defineFactory(
  'policy',
  {
    id: 'dense',
    module: import.meta.url,
    settings: {
      ...denseSettings,
      sharedTrunk: boolean(false, 'actor and critic share the hidden layers'),
      device: choice('best', ['best', ...deviceNames], 'device of the network; best: the first one that can start'),
      logStd,
    },
  },
  ({ device, ...parameters }) => {
    const onDevice = { ...parameters, device, filters: [], kernelSize: 1, cell: null, units: 0 } as const
    const { prepare, build } = networkOnDevice('dense', onDevice, null)
    const withLayers = (...spaces: [Space, Space]): PolicyModel => ({
      ...build(...spaces),
      dense: mlp(parameters).build(...spaces).dense!,
    })
    return { prepare, build: withLayers }
  },
) satisfies (...parameters: never[]) => PolicyDefinition

/**
 * Convolutions over an observation of shape height × width × channels (same padding, stride 1, relu), then dense layers.
 * @example convolutional({ filters: [16], hidden: [128] })
 */
export const convolutional = defineFactory(
  'policy',
  {
    id: 'convolutional',
    module: import.meta.url,
    newer: ['layerNorm'],
    settings: {
      ...image,
      hidden: sizes([128], 'units of each hidden layer after the convolutions'),
      activation: choice('relu', ['tanh', 'relu'], 'activation of the hidden layers'),
      sharedTrunk: boolean(true, 'actor and critic share everything but the heads'),
      ...shared,
    },
  },
  (parameters) => readyMade('convolutional', { ...parameters, cell: null, units: 0 }, null),
) satisfies (...parameters: never[]) => PolicyDefinition

/**
 * A policy with memory: dense layers (after convolutions, if any filters are given), then a GRU or an LSTM. A lane's memory is a column
 * that is zero at the start of an episode. It is trained on sequences of `sequenceLength` rows, after `burnIn` rows that update its
 * memory. Actor and critic have separate trunks by default, because in a shared trunk the critic's gradient can dominate the actor's, for
 * example in CartPole-P-v1.
 * @example recurrent({ cell: 'gru', units: 64 })
 */
export const recurrent = defineFactory(
  'policy',
  {
    id: 'recurrent',
    module: import.meta.url,
    newer: ['layerNorm'],
    settings: {
      cell: choice('gru', ['gru', 'lstm'], 'the recurrent cell'),
      units: integer(64, 'units of the cell', { min: 1 }),
      sequenceLength: integer(16, 'rows of a training sequence; numSteps is a multiple of it', { min: 1 }),
      burnIn: integer(0, 'burn-in: rows before a sequence that only update the memory', { min: 0 }),
      ...denseSettings,
      hidden: sizes([64], 'units of each layer before the cell'),
      filters: sizes([], 'filters of convolutions before the layers'),
      kernelSize: image.kernelSize,
      sharedTrunk: boolean(false, 'actor and critic share everything but the heads'),
      ...shared,
    },
  },
  (parameters) => readyMade('recurrent', parameters, { length: parameters.sequenceLength, burnIn: parameters.burnIn }),
) satisfies (...parameters: never[]) => PolicyDefinition

type ReadyMadeParameters = Omit<TrunkOptions, 'image'> & {
  readonly sharedTrunk: boolean
  readonly logStd: number
}

/** The network on our own kernels or shaders, or on the named device of tfjs. */
function readyMade(
  id: string,
  parameters: ReadyMadeParameters & {
    readonly device: 'none' | 'best' | DeviceName
    readonly layerNorm: boolean
    readonly normalizeObservations: boolean
  },
  sequence: Sequence | null,
): Pick<PolicyDefinition, 'prepare' | 'build'> {
  const { device, filters, kernelSize, cell, units } = parameters
  const build = (observed: Space, acted: Space, shaders: ShaderDevice | null = null): PolicyModel => {
    const first = filters.length > 0 && { first: convolutions(filters, kernelSize, id, observed) }
    const settings = { ...parameters, ...first, cell: cell && recurrentLayers(cell, units) }
    return actorCritic(id, settings, sequence, observed, acted, shaders)
  }
  if (device === 'none') return { build }
  if (device === 'webgpu' && sequence === null) {
    const shaders = shaderDevice()
    return { prepare: shaders.prepare, build: (...spaces) => build(...spaces, shaders) }
  }
  for (const name of ['layerNorm', 'normalizeObservations'] as const) {
    if (parameters[name]) throw new InputError(`${id} ${name}`, `true with device ${device}`, 'false, or device none')
  }
  return networkOnDevice(id, { ...parameters, device }, sequence)
}

function networkOnDevice(
  id: string,
  parameters: ReadyMadeParameters & { readonly device: 'best' | DeviceName },
  sequence: Sequence | null,
): Required<Pick<PolicyDefinition, 'prepare' | 'build'>> {
  const holder: DeviceHolder = { device: undefined }
  return {
    async prepare() {
      holder.device = await startDevice(parameters.device === 'best' ? undefined : parameters.device)
    },
    build(observationSpace: Space, actionSpace: Space): PolicyModel {
      const numInputs = numInputsOf(id, observationSpace)
      const options = { ...parameters, image: parameters.filters.length > 0 ? imageShape(id, observationSpace) : null }
      const head = headShape(actionSpace)
      const actor = trunk(parameters.sharedTrunk ? 'trunk' : 'actor', numInputs, options)
      const critic = parameters.sharedTrunk ? null : trunk('critic', numInputs, options)
      const network = withHeads(actor, critic, head, parameters.logStd)
      return networkModel(id, network, actionSpace, observationSpace, sequence, holder)
    },
  }
}
