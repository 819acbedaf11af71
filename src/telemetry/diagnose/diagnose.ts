/** Why a run does not learn: checks of its recorded figures. */
import { InputError } from '../../base/errors.ts'
import type { RunCheck, RunFinding } from './check.ts'
import { clip } from './checks/clip.ts'
import { components } from './checks/components.ts'
import { entropy } from './checks/entropy.ts'
import { groups } from './checks/groups.ts'
import { kl } from './checks/kl.ts'
import { length } from './checks/length.ts'
import { returns } from './checks/returns.ts'
import { truncation } from './checks/truncation.ts'
import { values } from './checks/values.ts'
import { RecordedRun, STRETCHES } from './recorded.ts'

/** The built-in checks: causes first, the return last. */
export const runChecks: readonly RunCheck[] = [
  ...[entropy, kl, clip, values],
  ...[groups, truncation, length, components, returns],
]

/** The findings of the checks of a run. */
export interface Diagnosis {
  readonly environment: string
  readonly algorithm: string
  /** Updates that were looked at. */
  readonly updates: number
  readonly findings: readonly (RunFinding & { readonly check: string })[]
  /** Checks that were made. */
  readonly checked: readonly string[]
  /** Checks that were not made, with the reason. */
  readonly skipped: Readonly<Record<string, string>>
}

/** Checks a run by its `config.json` and the lines of its `metrics.jsonl`. */
export function diagnosisOf(
  config: Readonly<Record<string, unknown>>,
  lines: readonly Readonly<Record<string, unknown>>[],
  own: readonly RunCheck[] = [],
): Diagnosis {
  const run = new RecordedRun(config, lines)
  const all = [...own, ...runChecks]
  const twice = own.find(({ id }) => all.filter((check) => check.id === id).length > 1)
  if (twice !== undefined)
    throw new InputError('checks', `two with the id ${twice.id}`, 'ids that differ, also from the built-in ones')
  const findings: (RunFinding & { check: string })[] = []
  const checked: string[] = []
  const skipped: Record<string, string> = {}
  for (const check of all) {
    const lacking = [run.goal, ...check.metrics].find((name) => !run.has(name))
    if (run.updates < STRETCHES) skipped[check.id] = `${run.updates} updates, and it needs ${STRETCHES}`
    else if (lacking !== undefined) skipped[check.id] = `the run has no ${lacking}`
    else {
      const found = check(run)
      checked.push(check.id)
      if (found !== null) findings.push({ check: check.id, ...found })
    }
  }
  const { environment, algorithm, updates } = run
  return { environment, algorithm, updates, findings, checked, skipped }
}
