import { defineFactory } from '../base/definition.ts'
import type { Space } from '../base/space.ts'
import type { ObservationColumn } from '../components/observation.ts'
import { Activation } from '../kernels/bind.ts'
import { ActorAndCritics, actorAndCritics, actorAndCriticsPlan, actorAndCriticsSettings } from './actor-and-critics.ts'
import { modelOf } from './network-model.ts'
import type { ActingLanes, ParameterViews, PolicyDefinition, PolicyModel, SoftPolicy } from './policy.ts'

/**
 * An actor with Gaussian actions squashed into their bounds, and two critics of state and action, each a separate multi-layer perceptron
 * (Haarnoja et al. 2018), for continuous actions with finite bounds. Critics see actions within ±1. Initial weights are orthogonal with
 * gain √2 in hidden layers, 0.01 in the actor's head and 1 in the critics'; the standard deviation before squashing starts at about 1.
 * `normalizeObservations` works as in `mlp`.
 * @example sacNetwork({ hidden: [64, 64] })
 */
export const sacNetwork = defineFactory(
  'policy',
  { id: 'sacNetwork', module: import.meta.url, settings: actorAndCriticsSettings },
  (parameters) => ({
    build(observationSpace: Space, actionSpace: Space): PolicyModel {
      const actor = { outputsPerAction: 2, activation: Activation.linear }
      const written = { name: 'logTemperature', count: 1 }
      const shape = actorAndCritics('sacNetwork', parameters, observationSpace, actionSpace, actor, written)
      return {
        ...modelOf(shape, actorAndCriticsPlan, () => {}, SacNetwork),
        soft: { actionWidth: shape.actionWidth, logTemperature: shape.written },
      }
    },
  }),
) satisfies (...parameters: never[]) => PolicyDefinition

class SacNetwork extends ActorAndCritics implements SoftPolicy {
  protected override choose(lanes: ActingLanes, explore: boolean, from: number, count: number): Float32Array {
    const { draws, words, evaluated } = this.workspace
    const { actionWidth } = this.shape
    const { key0, key1 } = this.random
    const { lane, episode, step } = lanes.episode
    const observation = lanes.observation.current
    if (!explore) return this.mode(observation, from, count)
    this.kernels.drawNormal(draws, words, lane, episode, step, key0, key1, count, actionWidth, from)
    return this.draw(observation, from, draws, evaluated.logprob, count)
  }

  protected override mode(observation: ObservationColumn, from: number, count: number): Float32Array {
    const { draws, evaluated } = this.workspace
    draws.fill(0, 0, count * this.shape.actionWidth)
    return this.draw(observation, from, draws, evaluated.logprob, count)
  }

  protected override evaluateActions(action: Float32Array, from: number, count: number): void {
    const { evaluated, bounds } = this.workspace
    const { logprob, entropy } = evaluated
    const { low, high } = bounds
    const { actionWidth } = this.shape
    this.kernels.squashedEvaluate(logprob, entropy, action, this.outputs, low, high, count, actionWidth, from)
  }

  draw(
    observation: ObservationColumn,
    from: number,
    normal: Float32Array,
    logprob: Float32Array,
    count: number,
  ): Float32Array {
    const { unit } = this.workspace
    this.run(observation, from, count)
    this.kernels.squashedSample(unit, logprob, this.outputs, normal, count, this.shape.actionWidth)
    return unit
  }

  differentiateActor(
    observation: ObservationColumn,
    from: number,
    normal: Float32Array,
    temperature: number,
    scale: number,
    count: number,
    gradient: ParameterViews,
  ): void {
    const { dUnit, dOutputs, unit } = this.workspace
    const { actionWidth } = this.shape
    dUnit.fill(0, 0, count * actionWidth)
    for (const critic of [0, 1] as const) {
      this.differentiateActions(
        critic,
        this.ofLeast(critic, () => -scale, count),
        count,
      )
    }
    this.kernels.squashedBackward(dOutputs, dUnit, unit, this.outputs, normal, temperature, scale, count, actionWidth)
    this.backward(observation, from, count, gradient)
  }
}
