import type { Sliding } from './column.ts'
import type { RolloutColumns } from './rollout.ts'

/**
 * Legal actions, if the environment has masks: one byte per choice (the choices' sizes one after another), 1 = legal; otherwise empty.
 *
 * `current`: the legal choices in this tick. Written with the observation, by the previous step and by reset. `next`: the legal choices
 * in the next tick. Written by step.
 */
export type ActionMask = Sliding<Uint8Array>

/** The lanes' actions, and the policy's evaluation of them. */
export interface Action {
  /** numLanes × action width, as chosen. Written by the policy. */
  chosen: Float32Array | Int32Array
  /** The environment's input: `chosen`, clipped to a box space. Written by step. */
  applied: Float32Array | Int32Array
  /** Log-probability of `chosen`, in nats. Written by the policy. */
  logprob: Float32Array
  /** The critic's value of the current observation. Written by the policy. */
  value: Float32Array
}

/** The windows on a rollout's actions; discrete choices are applied as chosen. */
export function actionWindows(rollout: RolloutColumns, numSteps: number, numLanes: number, width: number): Action[] {
  const { action, appliedAction } = rollout
  return Array.from({ length: numSteps }, (_, t) => {
    const [from, to] = [t * numLanes * width, (t + 1) * numLanes * width]
    const chosen = action.subarray(from, to)
    return {
      chosen,
      applied: appliedAction.length > 0 ? appliedAction.subarray(from, to) : chosen,
      logprob: rollout.logprob.subarray(t * numLanes, (t + 1) * numLanes),
      value: rollout.value.subarray(t * numLanes, (t + 1) * numLanes),
    }
  })
}
