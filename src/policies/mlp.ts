import { defineFactory } from '../base/definition.ts'
import { boolean, choice, number, sizes } from '../base/settings.ts'
import { actorCritic } from './actor-critic.ts'
import { normalizeObservations } from './inputs.ts'
import type { PolicyDefinition } from './policy.ts'
import { learnsOn, shaderDevice } from './shader-device.ts'
import { embedding } from './stack/embedding.ts'
import { layerNorm } from './stack/norm.ts'

const settings = {
  hidden: sizes([64, 64], 'units of each hidden layer'),
  activation: choice('tanh', ['tanh', 'relu'], 'activation of the hidden layers'),
  layerNorm,
  embedding,
  sharedTrunk: boolean(false, 'actor and critic share the hidden layers'),
  logStd: number(0, 'starting log standard deviation of a continuous action'),
  normalizeObservations,
  device: learnsOn,
}

/**
 * A multi-layer perceptron, actor and critic: hidden layers with tanh or relu, a head of logits (discrete and multi-discrete actions) or
 * of means with a state-independent log standard deviation (box actions), and a value head. Initial weights are orthogonal with gain √2
 * in hidden layers, 0.01 in the actor's head, 1 in the critic's (as in Engstrom et al. 2020); biases are 0. With `normalizeObservations`
 * the weights also contain the mean and deviation of each number of an observation, which only training updates. `layerNorm` puts a
 * LayerNorm (Ba et al. 2016) between each hidden layer and its activation. `embedding` puts so many learned numbers in the place of
 * each choice in an observation (`dict`), which is one-hot without.
 * @example mlp({ hidden: [64, 64] })
 */
export const mlp = defineFactory(
  'policy',
  { id: 'mlp', module: import.meta.url, settings, newer: ['device', 'layerNorm', 'embedding'] },
  (parameters): Pick<PolicyDefinition, 'prepare' | 'build'> => {
    const device = parameters.device === 'none' ? null : shaderDevice()
    return {
      ...(device && { prepare: device.prepare }),
      build: (...spaces) => actorCritic('mlp', parameters, null, ...spaces, device),
    }
  },
) satisfies (...parameters: never[]) => PolicyDefinition
