import type { RolloutColumns } from './rollout.ts'

type Name = 'reward' | 'terminated' | 'truncated' | 'valid' | 'nextValue'
/** The row's episode, kept for the table. */
type EpisodeName = 'step' | 'lane' | 'episode' | 'episodeReturn' | 'version'

/** The results of this tick's actions: one value per lane in each column; `RolloutPlan` describes them. */
export type Transition = { -readonly [N in Name | EpisodeName]: RolloutColumns[N] }

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
