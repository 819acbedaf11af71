import { become, defineRunCheck, times } from '../check.ts'

/** Fraction of the variance of returns. A value function that learns soon explains a fifth of it or more. */
const LITTLE = 0.05
const USUAL_COEF = 0.5

export const values = defineRunCheck({
  id: 'values',
  description: 'a value function that explains nothing of the returns',
  metrics: ['explainedVariance'],
  look(run) {
    const most = run.highest('explainedVariance')
    if (most.mean >= LITTLE) return null
    const coefficient = run.setting('valueCoef')
    return {
      problem: 'the value function explains nothing of the returns, so advantages are noise',
      evidence: [{ ...most, expected: `above ${LITTLE} at its best; usual are 0.2 to 1` }],
      changes: coefficient?.value === 0 ? become(run, 'valueCoef', USUAL_COEF) : times(run, 'learningRate', 10),
    }
  },
})
