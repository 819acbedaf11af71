/** The body of `thread.ts` in a page, which has one thread so far. */
import { InputError } from '../errors.ts'
import type * as node from './thread.ts'

export type { Thread } from './thread.ts'

export const numCores: typeof node.numCores = () => 1

export const startThread: typeof node.startThread = () => {
  throw new InputError('threads', 'more than 1 in a page', '1')
}
