/** The body of `packages.ts` in a page, which has no folder of installed packages. */
import type * as node from './packages.ts'

export class NotInstalled extends Error {
  override readonly name = 'NotInstalled'

  constructor(name: string) {
    super(`package ${name} is not loaded in a page: this needs Node`)
  }
}

export const findPackage: typeof node.findPackage = (name) => {
  throw new NotInstalled(name)
}

export const importPackage: typeof node.importPackage = async (specifier) => {
  throw new NotInstalled(specifier)
}
