import { type Parameters, assert as tryAll } from 'fast-check'
import { isThorough } from './tiers.ts'

export * from 'fast-check'

/** The factor of cases in `npm run properties`. */
const MORE = 20

const triesMore = import.meta.env.MODE === 'properties'
/** The fraction of cases in `npm test`: the first ones. */
const FAST = 0.25

/**
 * fast-check's assert with fixed cases, so that a commit has one verdict; the fast tier runs a quarter of them. `npm
 * run properties` runs other and more cases; the message of a failing one has its seed.
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
