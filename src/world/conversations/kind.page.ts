/** The body of `kind.ts` in a page, which has no cohorts of conversations yet. */
import { InputError } from '../../base/errors.ts'
import type * as node from './kind.ts'

const refuse = (): never => {
  throw new InputError('environment', 'one of text, in a page', 'one whose lanes step, like cartPole()')
}

export const conversations: typeof node.conversations = {
  options: [],
  draft: refuse,
  checkThreads: refuse,
  plan: refuse,
  objects: refuse,
  create: refuse,
  owed: refuse,
  canGoOn: refuse,
  release: refuse,
}
