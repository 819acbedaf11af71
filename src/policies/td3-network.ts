import { defineFactory } from '../base/definition.ts'
import type { Space } from '../base/space.ts'
import type { ObservationColumn } from '../components/observation.ts'
import { Activation } from '../kernels/bind.ts'
import { ActorAndCritics, actorAndCritics, actorAndCriticsPlan, actorAndCriticsSettings } from './actor-and-critics.ts'
import { modelOf } from './network-model.ts'
import type { ActingLanes, DeterministicPolicy, ParameterViews, PolicyDefinition, PolicyModel } from './policy.ts'

/** The deviation of the noise before an algorithm writes its own: that of Fujimoto et al. */
const DEVIATION = 0.1

/**
 * A deterministic actor, squashed by tanh into the bounds of its actions, and two critics of state and action, each a separate multi-layer
 * perceptron (Fujimoto, van Hoof, Meger 2018), for continuous actions with finite bounds. Critics see actions within ±1. While lanes
 * explore, actions are uniform until the algorithm has begun to learn, and then the actor's with Gaussian noise. Initial weights are
 * orthogonal with gain √2 in hidden layers, 0.01 in the actor's head and 1 in the critics'. `normalizeObservations` works as in `mlp`.
 * @example td3Network({ hidden: [64, 64] })
 */
export const td3Network = defineFactory(
  'policy',
  { id: 'td3Network', module: import.meta.url, settings: actorAndCriticsSettings },
  (parameters) => ({
    build(observationSpace: Space, actionSpace: Space): PolicyModel {
      const actor = { outputsPerAction: 1, activation: Activation.tanh }
      const exploration = { name: 'exploration', count: 2 }
      const shape = actorAndCritics('td3Network', parameters, observationSpace, actionSpace, actor, exploration)
      const { written, actionWidth, actorEnd, criticsEnd } = shape
      return {
        ...modelOf(shape, actorAndCriticsPlan, (views) => views[written]!.set([1, DEVIATION]), Td3Network),
        deterministic: {
          actionWidth,
          exploration: shape.parameters.list[written]!.offset,
          actor: { from: 0, to: actorEnd },
          critics: { from: actorEnd, to: criticsEnd },
        },
      }
    },
  }),
) satisfies (...parameters: never[]) => PolicyDefinition

class Td3Network extends ActorAndCritics implements DeterministicPolicy {
  protected override choose(lanes: ActingLanes, explore: boolean, from: number, count: number): Float32Array {
    const unit = this.act(lanes.observation.current, from, count)
    if (explore) this.#explore(lanes, unit, from, count)
    return unit
  }

  #explore({ episode: { lane, episode, step } }: ActingLanes, unit: Float32Array, from: number, count: number): void {
    const { draws, words } = this.workspace
    const { actionWidth } = this.shape
    const { key0, key1 } = this.random
    const [isUniform, deviation] = this.written
    if (isUniform === 1) {
      this.kernels.drawUniform(draws, words, lane, episode, step, key0, key1, count, actionWidth, from)
      this.kernels.spreadActions(unit, draws, count, actionWidth)
      return
    }
    this.kernels.drawNormal(draws, words, lane, episode, step, key0, key1, count, actionWidth, from)
    this.kernels.addActionNoise(unit, draws, deviation!, Number.POSITIVE_INFINITY, count, actionWidth)
  }

  protected override mode(observation: ObservationColumn, from: number, count: number): Float32Array {
    return this.act(observation, from, count)
  }

  protected override evaluateActions(action: Float32Array, from: number, count: number): void {
    const { evaluated, bounds } = this.workspace
    const { logprob, entropy } = evaluated
    const { low, high } = bounds
    const { actionWidth } = this.shape
    const [isUniform, deviation] = this.written
    const isSpread = isUniform === 1
    const { kernels, outputs } = this
    kernels.noisyEvaluate(logprob, entropy, action, outputs, low, high, isSpread, deviation!, count, actionWidth, from)
  }

  act(observation: ObservationColumn, from: number, count: number): Float32Array {
    return this.runToActions(observation, from, count)
  }

  differentiateActor(
    observation: ObservationColumn,
    from: number,
    scale: number,
    count: number,
    gradient: ParameterViews,
    toward?: { readonly recorded: Float32Array; readonly scale: number },
  ): void {
    const { dUnit, dOutputs, dLeast } = this.workspace
    const { actionWidth } = this.shape
    dUnit.fill(0, 0, count * actionWidth)
    if (toward !== undefined) {
      const twice = (2 * toward.scale) / actionWidth
      for (let i = 0; i < count * actionWidth; i++) dUnit[i] = twice * (this.outputs[i]! - toward.recorded[i]!)
    }
    dLeast.fill(-scale, 0, count)
    this.differentiateActions(0, dLeast, count)
    this.kernels.tanhBackward(dOutputs, dUnit, this.outputs, count, actionWidth)
    this.backward(observation, from, count, gradient)
  }
}
