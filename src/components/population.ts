import { type Columns, column, saved } from './column.ts'

/** Lanes that join and leave a cohort. */
export type PopulationColumns = Columns<ReturnType<typeof populationPlan>>

/** Elements of `PopulationColumns.totals`. */
export const Lives = { born: 0, died: 1, refused: 2 } as const

/**
 * Plans the columns of a cohort of at most `numLanes` concurrent lanes. `hasLives`: its environment decides births and deaths. `isOpen`:
 * lanes may join; otherwise a checkpoint does not need these columns.
 */
export function populationPlan(numLanes: number, hasLives: boolean, isOpen: boolean) {
  const rows = hasLives ? numLanes : 0
  const kept = <T extends 'u32' | 'f64'>(type: T, count: number) =>
    isOpen ? saved(column(type, count)) : column(type, count)
  return {
    /** Number of present lanes, which have the first rows. Written between rollouts. */
    present: column('u32', 1),
    /** Number of lanes so far, which numbers the next one and keys its random numbers. Written between rollouts. */
    numbered: kept('u32', 1),
    /** The environment's births, deaths, and births without room. Written between rollouts. */
    totals: kept('f64', 3),
    /** 1: the lane dies after this step. Written by the environment. */
    died: column('u8', rows),
    /** Number of births from the lane in this step. Written by the environment. */
    births: column('u8', rows),
    /** Number of births from the lane in this rollout. Written by store. */
    offspring: column('u32', rows),
  }
}
