/** The body of `backend-factories.ts` in a page, which asks no servers. */
import type * as node from './backend-factories.ts'

export const backendFactories: typeof node.backendFactories = []
