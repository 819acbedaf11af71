import { type Columns, column, saved } from './column.ts'

/** What a lane is about to do. */
export const Phase = {
  /** It acts in the next tick. */
  ready: 0,
  /** Its episode is over. */
  ended: 1,
  /** It has not begun an episode yet, or was told to begin a new one. */
  fresh: 2,
  /** The row has no lane: the lane died, or the row was never used. */
  absent: 3,
} as const

/** The state of each lane's episode: one value per lane in each column. A checkpoint keeps all columns. */
export type Episode = Columns<ReturnType<typeof episodePlan>>

/** Plans the episode component of a cohort. */
export function episodePlan(numLanes: number) {
  return {
    /** Number of the lane in the whole run: it keys the lane's random numbers. Written at set-up, and at a birth. */
    lane: saved(column('u32', numLanes)),
    /** Number of the lane's episode, from 0. Written by reset. */
    episode: saved(column('u32', numLanes)),
    /** Steps taken in this episode. Written by reset and store. */
    step: saved(column('i32', numLanes)),
    /** Sum of the rewards of this episode so far. Written by reset and store. */
    episodeReturn: saved(column('f64', numLanes)),
    /** What the lane is about to do: a `Phase`. Written by reset, step and store. */
    phase: saved(column('u8', numLanes)),
  }
}
