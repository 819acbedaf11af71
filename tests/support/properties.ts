import { type Parameters, assert as tryAll } from 'fast-check'
import { isThorough } from './tiers.ts'

export * from 'fast-check'

/** How many times as many cases `npm run properties` tries. */
const MORE = 20

const triesMore = import.meta.env.MODE === 'properties'
/** What part of the cases `npm test` tries: the first ones. */
const FAST = 0.25

/**
 * fast-check's, with the same cases each time, so that a commit has one verdict; the fast tier tries a quarter of them. `npm run
 * properties` tries others, and more of them; the message of a case that fails has its seed.
 */
export const assert = ((property, parameters: Parameters<unknown> = {}) => {
  const { numRuns = 100 } = parameters
  return tryAll(
    property,
    triesMore
      ? { ...parameters, numRuns: numRuns * MORE }
      : { seed: 1, ...parameters, numRuns: isThorough ? numRuns : Math.ceil(FAST * numRuns) },
  )
}) as typeof tryAll
