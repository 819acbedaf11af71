/** The body of `compile-own.ts` in a page, which has no compiler. */
import { InputError } from '../base/errors.ts'
import type * as node from './compile-own.ts'

export const compileKernels: typeof node.compileKernels = async (source) => {
  throw new InputError(`kernels ${source}`, 'a page', 'the command line: colonnade compile')
}
