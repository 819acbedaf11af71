/** A policy for export: its layers with their weights, inputs and outputs. */
import { InputError } from '../../base/errors.ts'
import { actorWidth, type BoxSpace, choiceSizes, type Space, spaceWidth } from '../../base/space.ts'
import type { DenseLayer, PolicyDefinition } from '../policy.ts'
import { checkWeights } from '../weights.ts'

/** A policy, its environment and weights, as `loadPolicy` returns them. */
export interface Exported {
  readonly policy: PolicyDefinition
  readonly environment: {
    readonly id: string
    readonly observationSpace: Space
    readonly actionSpace: Space
    readonly actionMask?: boolean
  }
  /** The policy's weights, numParameters long. */
  readonly weights: Float32Array
}

interface WeightAndBias {
  readonly weight: Float32Array
  readonly bias: Float32Array
}

/** A dense layer with its weights: W (numInputs × numOutputs, row-major) and b (numOutputs), and those of its LayerNorm. */
export type WeightedLayer = Omit<DenseLayer, 'weight' | 'bias' | 'norm'> &
  WeightAndBias & { readonly norm: WeightAndBias | null }

/** The parts of a policy that a format writes. */
export interface Network {
  readonly environment: string
  readonly observationShape: readonly number[]
  readonly actionSpace: Space
  /** Sizes of the action's choices; empty for a box. */
  readonly choices: readonly number[]
  readonly trunk: readonly WeightedLayer[]
  readonly actor: readonly WeightedLayer[]
  readonly critic: readonly WeightedLayer[]
  /** Normalization of observations: the subtracted means, the divisors and the clip; null without normalization. */
  readonly inputs: { readonly center: Float32Array; readonly deviation: Float32Array; readonly clip: number } | null
  /** Of a box action; null for choices. */
  readonly logStd: Float32Array | null
  /** Whether the environment has action masks. */
  readonly masked: boolean
}

/** @throws InputError for a policy that is not only dense layers, and for weights of another length or that are not finite. */
export function networkOf({ policy, environment, weights }: Exported): Network {
  const { observationSpace, actionSpace, actionMask = false } = environment
  const model = policy.build(observationSpace, actionSpace)
  if (model.dense === undefined) {
    const expected = 'dense layers alone, as in mlp(); of others the weights can be written, as safetensors'
    throw new InputError(`policy ${policy.id}`, 'a network that cannot be exported', expected)
  }
  if (actorWidth(observationSpace) < spaceWidth(observationSpace)) {
    const got = 'a policy whose critic sees more than its actor, which cannot be exported'
    throw new InputError(`policy ${policy.id}`, got, 'one whose actor sees whole observations')
  }
  checkWeights(model, weights)
  const { trunk, actor, critic, logStd, inputs } = model.dense
  const { shape } = observationSpace as BoxSpace // Dense layers only accept a box.
  const width = spaceWidth(observationSpace)
  const at = (from: number, length: number) => weights.slice(from, from + length)
  const withWeights = ({ weight, bias, norm, ...layer }: DenseLayer): WeightedLayer => ({
    ...layer,
    weight: at(weight, layer.numInputs * layer.numOutputs),
    bias: at(bias, layer.numOutputs),
    norm: norm && { weight: at(norm.weight, layer.numOutputs), bias: at(norm.bias, layer.numOutputs) },
  })
  return {
    environment: environment.id,
    observationShape: shape,
    actionSpace,
    choices: choiceSizes(actionSpace),
    trunk: trunk.map(withWeights),
    actor: actor.map(withWeights),
    critic: critic.map(withWeights),
    inputs: inputs && {
      center: at(inputs.center, width),
      deviation: at(inputs.deviation, width),
      clip: inputs.clip,
    },
    logStd: logStd === null ? null : at(logStd, actor.at(-1)!.numOutputs),
    masked: actionMask,
  }
}

/** Number of the actor's logits or means. */
export function headWidth({ actor }: Network): number {
  return actor.at(-1)!.numOutputs
}
