import { become, defineRunCheck, times } from '../check.ts'

/** Nats between the policies before and after an update: usual are 0.001 to 0.02. */
const LARGE = 0.1
const NONE = 1e-4
/** An entropy bonus that may outweigh the returns. */
const HEAVY_COEF = 0.1
/** The clip range to try. */
const USUAL_CLIP = 0.2
/** Rows outside the clip range, from which the range holds the policy. */
const CLIPPED = 0.3

export const kl = defineRunCheck({
  id: 'kl',
  description: 'updates that change the policy too much, or not at all',
  metrics: ['approxKl'],
  look(run) {
    const largest = run.highest('approxKl')
    if (largest.mean > LARGE) {
      return {
        problem: 'updates change the policy too much',
        evidence: [{ ...largest, expected: `below ${LARGE} nats; usual are 0.001 to 0.02` }],
        changes: [
          ...times(run, 'learningRate', 1 / 10),
          ...become(run, 'targetKl', 0.02).filter(({ value }) => value === null),
        ],
      }
    }
    if (largest.mean >= NONE || run.progress?.isAtTop) return null
    const clipped = run.stretches('clipFraction')[0]?.mean ?? 0
    const coefficient = Number(run.setting('entropyCoef')?.value ?? 0)
    return {
      problem: 'updates hardly change the policy',
      evidence: [{ ...largest, expected: `above ${NONE} nats; usual are 0.001 to 0.02` }],
      changes:
        clipped > CLIPPED
          ? become(run, 'clipCoef', USUAL_CLIP)
          : coefficient >= HEAVY_COEF
            ? times(run, 'entropyCoef', 1 / 100)
            : times(run, 'learningRate', 100),
    }
  },
})
