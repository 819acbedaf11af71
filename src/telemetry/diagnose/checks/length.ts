import { short } from '../../../base/metrics.ts'
import { become, defineRunCheck } from '../check.ts'

/** Growth from which it must pay. */
const FACTOR = 1.5

export const length = defineRunCheck({
  id: 'length',
  description: 'answers that grow without a better reward',
  metrics: ['completionLength', 'reward'],
  look(run) {
    const { progress } = run
    const stretches = run.stretches('completionLength')
    const [first] = stretches
    const last = stretches.at(-1)!
    if (progress === null || last.mean < FACTOR * first!.mean || progress.isAtTop) return null
    const { first: before, last: after, hasRisen } = progress
    if (hasRisen && after.mean > before.mean) return null
    return {
      problem: 'answers grow, and the reward does not',
      evidence: [
        { ...last, expected: `less than ${FACTOR} times the ${short(first!.mean)} tokens of the beginning` },
        { ...after, expected: `more than ${short(before.mean)}` },
      ],
      changes: [
        ...(run.setting('aggregation')?.value === 'constant-length' ? [] : become(run, 'loss', 'dr-grpo')),
        ...become(run, 'overlongCache', 8).filter(({ value }) => value === null),
      ],
    }
  },
})
