import { type Parameters, assert as tryAll } from 'fast-check'

export * from 'fast-check'

/** How many times as many cases `npm run properties` tries. */
const MORE = 20

const triesMore = import.meta.env.MODE === 'properties'

/**
 * fast-check's, with the same cases each time, so that a commit has one verdict. `npm run properties` tries others, and
 * more of them; the message of a case that fails has its seed.
 */
export const assert = ((property, parameters: Parameters<unknown> = {}) => {
  const { numRuns = 100 } = parameters
  return tryAll(property, triesMore ? { ...parameters, numRuns: numRuns * MORE } : { seed: 1, ...parameters })
}) as typeof tryAll
