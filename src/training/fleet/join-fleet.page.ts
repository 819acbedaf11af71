/** The body of `join-fleet.ts` in a page, which joins none. */
import { InputError } from '../../base/errors.ts'
import type * as node from './join-fleet.ts'

export const joinFleet: typeof node.joinFleet = ({ address }) => {
  throw new InputError('fleet', `${address} in a page`, "''")
}
