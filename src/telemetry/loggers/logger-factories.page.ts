/** The body of `logger-factories.ts` in a page: metrics stay in the run's folder. */
import type * as node from './logger-factories.ts'

export const loggerFactories: typeof node.loggerFactories = []
