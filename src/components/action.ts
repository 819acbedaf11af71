import type { RolloutColumns } from './rollout.ts'
import type { Sliding } from './sliding.ts'

/**
 * What lanes may do, in an environment that says so: one byte a choice (the choices' sizes one after another), 1 = legal.
 * Without elements where everything is.
 *
 * `current`: what each lane may do in this tick. Written with the observation, by the step before and by reset.
 * `next`: its legal choices in the following one. Written by step.
 */
export type ActionMask = Sliding<Uint8Array>

/** What lanes do, and what the policy thought of it. */
export interface Action {
  /** numLanes × action width, as the policy chose it. Written by the policy. */
  chosen: Float32Array | Int32Array
  /** What the environment is given: `chosen`, within the bounds of a box space. Written by step. */
  applied: Float32Array | Int32Array
  /** Log-probability of `chosen`, in nats. Written by the policy. */
  logprob: Float32Array
  /** The critic's value of the current observation. Written by the policy. */
  value: Float32Array
}

/** The windows on a rollout's actions; choices are applied as they were chosen. */
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
