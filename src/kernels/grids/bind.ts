/**
 * Binds the kernels of grid games. They are kernels of the games' own (`kernels/own.ts`), so a page without these games loads neither
 * their plain bodies nor their module.
 */
import { defineKernels } from '../own.ts'
import { bodies } from './bodies.ts'
import { readGrids } from './module.ts'
import { type Bodies, bindTwins } from './twins.ts'

export type { GridLanes } from './lanes.ts'
export { SEA } from './seaquest.ts'

/** The kernels of grid games, from those of a thread. */
export const gridKernels = defineKernels({
  plain: bodies,
  compiled: readGrids,
  twins: (body, at, native) => bindTwins(body as Bodies, at, bodies, { ...body, ...native } as Bodies),
})
