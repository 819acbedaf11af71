/** The body of `own-files.ts` in a page, which has no files of the package. */
import { InputError } from '../errors.ts'
import type * as node from './own-files.ts'

export const ownFile: typeof node.ownFile = (url) => {
  throw new InputError(`colonnade's ${url.pathname.split('/').at(-1)}`, 'a page', 'Node, in which it is a file')
}
