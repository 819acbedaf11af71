/** The body of `model-file.ts` in a page, which reads no files. */
import { InputError } from '../../base/errors.ts'
import type * as node from './model-file.ts'

export const readModel: typeof node.readModel = ({ pathname }) => {
  throw new InputError(`model ${pathname}`, 'a file in a page', "the model's text")
}
