import { type Columns, column, saved } from './column.ts'

/** The next action of a lane. */
export const Phase = {
  /** It acts in the next tick. */
  ready: 0,
  /** Its episode is over. */
  ended: 1,
  /** It has not begun an episode, or must begin a new one. */
  fresh: 2,
  /** The row has no lane: the lane died, or the row was never used. */
  absent: 3,
} as const

/** The state of each lane's episode: one value per lane in each column. Checkpoints contain all columns. */
export type Episode = Columns<ReturnType<typeof episodePlan>>

export function episodePlan(numLanes: number) {
  return {
    /** Number of the lane in the whole run, which keys its random numbers. Written at set-up and at a birth. */
    lane: saved(column('u32', numLanes)),
    /** Number of the lane's episode, from 0. Written by reset. */
    episode: saved(column('u32', numLanes)),
    /** Steps taken in this episode. Written by reset and store. */
    step: saved(column('i32', numLanes)),
    /** Sum of the rewards of this episode so far. Written by reset and store. */
    episodeReturn: saved(column('f64', numLanes)),
    /** A `Phase`. Written by reset, step and store. */
    phase: saved(column('u8', numLanes)),
  }
}
