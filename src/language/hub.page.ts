/** The body of `hub.ts` in a page, which has no folder for models: the page writes their files (`writeFile`). */
import { InputError } from '../base/errors.ts'
import type * as node from './hub.ts'

export type { HubOptions, Listing } from './hub.ts'

export const downloadModel: typeof node.downloadModel = async (id) => {
  throw new InputError('model', id, "a folder of the page's files, or a new model")
}

export const download: typeof node.download = async (kind, id) => {
  throw new InputError(kind, id, "a path among the page's files")
}
