/** The body of `guarded.ts` in a page, which has no thread that reads files. */
import { InputError } from '../errors.ts'
import type * as node from './guarded.ts'

export const readGuarded: typeof node.readGuarded = async (_entry, path) => {
  throw new InputError(path, 'a file in a page', 'a table in memory')
}
