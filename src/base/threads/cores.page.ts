/** The body of `cores.ts` in a page. */
import { canShare } from '../shared.ts'
import type * as node from './cores.ts'

/** One where threads cannot share memory, or a page cannot wait for them. */
export const numCores: typeof node.numCores = () =>
  canShare && typeof Atomics.waitAsync === 'function' ? (globalThis.navigator?.hardwareConcurrency ?? 1) : 1

export const readsMessages: typeof node.readsMessages = false
