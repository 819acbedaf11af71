/** The body of `engine-factories.ts` in a page, which uses no servers. */
import type * as node from './engine-factories.ts'

export const engineFactories: typeof node.engineFactories = []
