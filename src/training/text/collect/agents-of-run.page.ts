/** The agents of a run, in a page: there are none, since a page starts no programs. */
import { InputError } from '../../../base/errors.ts'
import type * as node from './agents-of-run.ts'

export const openAgents: typeof node.openAgents = (_, { agent }) => {
  throw new InputError('agent', agent, 'none in a page, which starts no programs')
}
