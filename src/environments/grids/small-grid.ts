/** The common part of games on a 10 × 10 grid with channels and MinAtar's dynamics. */
import { fraction, integer } from '../../base/settings.ts'
import { STEPS_MAX } from '../environment.ts'

/** Number of rows, and of fields per row. */
export const SIDE = 10

export const smallGridSettings = {
  maxEpisodeSteps: integer(1000, 'steps after which an episode is truncated', { min: 1, max: STEPS_MAX }),
  stickyActionProbability: fraction(0.1, 'probability that the last action is repeated'),
}
