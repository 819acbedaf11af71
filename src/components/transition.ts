import type { RolloutColumns } from './rollout.ts'

/** The results of this tick's actions: one value per lane in each column. */
export interface Transition {
  /** Written by the environment. */
  reward: Float32Array
  /** 1: the episode reached a terminal state. Written by the environment. */
  terminated: Uint8Array
  /** 1: the episode was cut off. Written by step, or by an environment with its own limits. */
  truncated: Uint8Array
  /** 0: the lane did not act. Written by step. */
  valid: Uint8Array
  /** The value of the next state. Zeroed by store, completed by infer. */
  nextValue: Float32Array
  /** The row's episode, kept for the table. Written by store. */
  step: Int32Array
  lane: Uint32Array
  episode: Uint32Array
  episodeReturn: Float32Array
  version: Uint32Array
}

/** The windows on a rollout's transitions. */
export function transitionWindows(rollout: RolloutColumns, numSteps: number, numLanes: number): Transition[] {
  return Array.from({ length: numSteps }, (_, t) => {
    const from = t * numLanes
    const to = from + numLanes
    return {
      reward: rollout.reward.subarray(from, to),
      terminated: rollout.terminated.subarray(from, to),
      truncated: rollout.truncated.subarray(from, to),
      valid: rollout.valid.subarray(from, to),
      nextValue: rollout.nextValue.subarray(from, to),
      step: rollout.step.subarray(from, to),
      lane: rollout.lane.subarray(from, to),
      episode: rollout.episode.subarray(from, to),
      episodeReturn: rollout.episodeReturn.subarray(from, to),
      version: rollout.version.subarray(from, to),
    }
  })
}
