/** The body of `stale-rollout.ts` in a page, which has no actors. */
import type * as node from './stale-rollout.ts'

export const proximalPlan = (() => ({})) as unknown as typeof node.proximalPlan
export const StaleRollout = class {
  constructor() {
    throw new Error('a page has no actors')
  }
} as unknown as typeof node.StaleRollout
export type StaleRollout = node.StaleRollout
