import { short } from '../../../base/metrics.ts'
import { defineRunCheck } from '../check.ts'

/** Fraction of a component's size that counts as a rise or a fall. */
const MUCH = 0.2

export const components = defineRunCheck({
  id: 'components',
  description: 'a part of the reward that rises while another falls',
  metrics: ['components', 'reward'],
  look(run) {
    const parts = run.namesIn('components').flatMap((name) => {
      const stretches = run.stretches(`components/${name}`)
      const [first] = stretches
      const last = stretches.at(-1)
      if (first === undefined || last === undefined || first === last) return []
      const size = Math.max(...stretches.map(({ mean }) => Math.abs(mean)))
      return [{ name, first, last, change: size === 0 ? 0 : (last.mean - first.mean) / size }]
    })
    const [least] = parts.toSorted((a, b) => a.change - b.change)
    const most = parts.toSorted((a, b) => b.change - a.change)[0]
    if (least === undefined || most === undefined || least.change > -MUCH || most.change < MUCH) return null
    return {
      problem: `the policy learns ${most.name} at the expense of ${least.name}`,
      evidence: [
        { ...most.last, expected: `it was ${short(most.first.mean)} at the beginning` },
        { ...least.last, expected: `at least the ${short(least.first.mean)} of the beginning` },
      ],
      changes: [],
    }
  },
})
