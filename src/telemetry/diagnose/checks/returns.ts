import { short } from '../../../base/metrics.ts'
import { defineRunCheck, type RunFinding, times } from '../check.ts'
import type { RecordedRun } from '../recorded.ts'

/** The fraction of the gain that a run may lose again. */
const LOST = 0.5

export const returns = defineRunCheck({
  id: 'returns',
  description: 'a return that never rises, or is lost again',
  metrics: [],
  look(run) {
    const { progress } = run
    if (progress === null || progress.isAtTop || run.beganTrained) return null
    const { first, best, last, hasRisen } = progress
    if (!hasRisen) return flat(run)
    const gained = best.mean - first.mean
    const isNoise = last.mean + last.std >= best.mean - best.std
    if (isNoise || best.mean - last.mean <= LOST * gained) return null
    return {
      problem: `the ${run.goal} rose, and was lost again`,
      evidence: [
        { ...best, expected: `the best of it; it began with ${short(first.mean)}` },
        { ...last, expected: 'at least half of what was gained' },
      ],
      changes: [...times(run, 'learningRate', 1 / 3), ...times(run, 'updateEpochs', 1 / 2).filter(isWhole)],
    }
  },
})

function flat(run: RecordedRun): RunFinding {
  const { first, best, last } = run.progress!
  const isConstant = run.values(run.goal).every(({ value }, _, all) => value === all[0]!.value)
  const toThreshold = run.threshold === null ? '' : ` on the way to ${short(run.threshold)}`
  return {
    problem: isConstant
      ? `the ${run.goal} is always the same: nothing that is rewarded was ever found, or the reward ignores the actions`
      : `the ${run.goal} does not rise`,
    evidence: [{ ...(best === first ? last : best), expected: `clearly more than ${short(first.mean)}${toThreshold}` }],
    changes: [],
  }
}

const isWhole = ({ to }: { readonly to: string }) => Number.isInteger(Number(to))
