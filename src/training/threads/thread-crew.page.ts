/** The body of `thread-crew.ts` in a page, which has no actors. */
import { InputError } from '../../base/errors.ts'
import type * as node from './thread-crew.ts'

export const ThreadCrew = class {
  constructor() {
    throw new InputError('actors', 'at least 1 in a page', '0')
  }
} as unknown as typeof node.ThreadCrew
export type ThreadCrew = node.ThreadCrew

/** No thread of a page gets the order of an actor. */
export const actorProgram: typeof node.actorProgram = () => {
  throw new Error('a page has no actors')
}
