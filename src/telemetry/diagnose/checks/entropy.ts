import { short } from '../../../base/metrics.ts'
import { become, defineRunCheck, times } from '../check.ts'

/** Fractions of the first entropy: below the first one a policy no longer explores, above the second it has learned no preference. */
const COLLAPSED = 0.05
const RANDOM = 0.98
/** Nats below which a policy was never random. */
const DECIDED = 0.1
/** Nats that the entropy of a policy of numbers may rise. */
const RISEN = 1
/** The entropy coefficient to try if the run has none. */
const USUAL_COEF = 0.01

export const entropy = defineRunCheck({
  id: 'entropy',
  description: 'a policy that stops exploring before it has learned, or stays random',
  metrics: ['entropy'],
  look(run) {
    const stretches = run.stretches('entropy')
    const { value: begin, update } = run.values('entropy')[0]!
    const last = stretches.at(-1)!
    const { progress } = run
    const hasLearned = progress === null || progress.isAtTop || progress.hasRisen
    const collapsed = begin > 0 ? stretches.find(({ mean }) => mean < COLLAPSED * begin) : undefined
    const coefficient = run.setting('entropyCoef')
    const began = `${short(begin)} nats of update ${update}`
    if (collapsed !== undefined && !hasLearned) {
      const evidence = [
        { ...collapsed, expected: `above ${short(COLLAPSED * begin)}, a twentieth of the ${began}` },
        { ...progress!.last, expected: 'a policy that is sure has learned something' },
      ]
      const more = coefficient?.value === 0 ? become(run, 'entropyCoef', USUAL_COEF) : times(run, 'entropyCoef', 3)
      return {
        problem: 'the policy stopped exploring before it had learned',
        evidence,
        changes: [...times(run, 'learningRate', 1 / 10), ...more],
      }
    }
    if (coefficient === null) return null
    const isHeld = Number(coefficient.value) > USUAL_COEF
    const isRandom = isHeld && begin > DECIDED && stretches.every(({ mean }) => mean > RANDOM * begin) && !hasLearned
    const hasRisen = last.mean > begin + RISEN
    if (!isRandom && !hasRisen) return null
    return {
      problem: hasRisen ? 'the policy becomes ever more random' : 'the policy stays as random as it began',
      evidence: [{ ...last, expected: `less than the ${began}` }],
      changes: isHeld ? times(run, 'entropyCoef', 1 / 100) : times(run, 'learningRate', 1 / 10),
    }
  },
})
