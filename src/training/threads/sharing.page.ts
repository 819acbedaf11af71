/** The body of `sharing.ts` in a page, which has one thread so far. */
import { InputError } from '../../base/errors.ts'
import type * as node from './sharing.ts'

const refuse = (): never => {
  throw new InputError('threads', 'more than 1 in a page', '1')
}

export const aborting: typeof node.aborting = refuse
export const sharingColumns: typeof node.sharingColumns = refuse
export const Sharing = class {
  constructor() {
    refuse()
  }
} as unknown as typeof node.Sharing
export type Sharing = node.Sharing
