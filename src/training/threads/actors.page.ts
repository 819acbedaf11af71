/** The body of `actors.ts` in a page, which has one thread so far. */
import { InputError } from '../../base/errors.ts'
import type * as node from './actors.ts'

export const Actors = class {
  constructor() {
    throw new InputError('actors', 'at least 1 in a page', '0')
  }
} as unknown as typeof node.Actors
export type Actors = node.Actors
