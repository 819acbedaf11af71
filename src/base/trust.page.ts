/** The body of `trust.ts` in a page: no folder's modules run. */
import { InputError } from './errors.ts'
import type * as node from './trust.ts'

export type { FolderOrigin, ForeignModule, ModuleTrust } from './trust.ts'

export const admitModule: typeof node.admitModule = async (noun, module, { folder }) => {
  throw new InputError(`${noun} module of ${folder}`, module, 'none: a page runs no modules that folders name')
}
