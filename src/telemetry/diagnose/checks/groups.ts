import { become, defineRunCheck, times } from '../check.ts'

/** Of the groups. */
const MANY = 0.8

export const groups = defineRunCheck({
  id: 'groups',
  description: 'groups whose rewards are equal, from which nothing is learned',
  metrics: ['fracRewardZeroStd', 'reward'],
  look(run) {
    if (run.progress?.isAtTop) return null
    const last = run.last('fracRewardZeroStd')
    if (last.mean <= MANY) return null
    const reward = run.last('reward')
    const temperature = run.setting('temperature')
    const isCold = typeof temperature?.value === 'number' && temperature.value < 0.7
    return {
      problem: 'in most groups all rewards are equal, so that nothing is learned from them',
      evidence: [
        { ...last, expected: `at most ${MANY} of the groups` },
        { ...reward, expected: 'rewards that differ between answers to one prompt: partial credit, easier prompts' },
      ],
      changes: [
        ...(isCold ? become(run, 'temperature', 1) : []),
        ...times(run, 'groupSize', 2),
        ...(run.setting('filter')?.value === 'none' ? become(run, 'filter', 'reward-nonzero-std') : []),
      ],
    }
  },
})
