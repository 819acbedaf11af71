/** The body of `check-actors.ts` in a page, which has no actors. */
import { InputError } from '../../base/errors.ts'
import type * as node from './check-actors.ts'

const refuse = (): never => {
  throw new InputError('actors', 'at least 1 in a page', '0')
}

export const checkAhead: typeof node.checkAhead = refuse
export const checkPool: typeof node.checkPool = refuse
