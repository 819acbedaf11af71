/** The contract of a check of recorded runs. A check is one file; yours is a module that exports one. */
import { InputError, show } from '../../base/errors.ts'
import type { KnownSetting, RecordedRun, Stretch } from './recorded.ts'

/** A figure that shows a problem, and its usual range. */
export interface Evidence extends Stretch {
  /** Like `above 0.1 is too much`. */
  readonly expected: string
}

/** A setting to change, and a value to try. */
export interface SettingChange extends KnownSetting {
  /** As on a command line. */
  readonly to: string
}

/** A problem that a check has found. */
export interface RunFinding {
  /** One sentence. */
  readonly problem: string
  /** At least one figure. */
  readonly evidence: readonly Evidence[]
  /** The most promising first; empty if no setting of the run would help. */
  readonly changes: readonly SettingChange[]
}

/** A check of recorded runs. */
export interface RunCheck {
  (run: RecordedRun): RunFinding | null
  readonly id: string
  /** The problem that it looks for, in one phrase. */
  readonly description: string
  /** The metrics that it reads; runs that lack one are not checked. */
  readonly metrics: readonly string[]
}

/**
 * A check with an id. `look` gets only runs with at least 8 updates that have each of the metrics.
 * @throws InputError for a definition without these fields.
 * @example
 * export const slow = defineRunCheck({
 *   id: 'slow',
 *   description: 'fewer than 1000 steps a second',
 *   metrics: ['stepsPerSecond'],
 *   look(run) {
 *     const last = run.last('stepsPerSecond')
 *     if (last.mean >= 1000) return null
 *     return { problem: 'it is slow', evidence: [{ ...last, expected: 'at least 1000' }], changes: [] }
 *   },
 * })
 */
export function defineRunCheck(definition: {
  readonly id: string
  readonly description: string
  readonly metrics: readonly string[]
  readonly look: (run: RecordedRun) => RunFinding | null
}): RunCheck {
  const { id, description, metrics, look } = Object(definition) as typeof definition
  if (typeof id !== 'string' || id === '') throw new InputError('check id', show(id), 'a name, like slow')
  if (typeof description !== 'string') throw new InputError(`${id} description`, show(description), 'a phrase')
  if (!Array.isArray(metrics)) throw new InputError(`${id} metrics`, show(metrics), 'a list of names')
  if (typeof look !== 'function') throw new InputError(`${id} look`, show(look), 'a function of a recorded run')
  const check = (run: RecordedRun) => {
    const found = look(run)
    const isFinding = typeof found?.problem === 'string' && found.evidence?.length > 0 && Array.isArray(found.changes)
    if (found === null || isFinding) return found
    throw new InputError(`${id} look`, show(found), 'null, or a problem with its evidence and changes')
  }
  return Object.assign(check, { id, description, metrics })
}

/** A change of a number by a factor, if the run has the setting and it is above 0. */
export function times(run: RecordedRun, name: string, factor: number): SettingChange[] {
  const found = run.setting(name)
  if (found === null || typeof found.value !== 'number' || found.value <= 0) return []
  return [{ ...found, to: String(Number((found.value * factor).toPrecision(2))) }]
}

/** A change to a value, if the run has the setting with another one. */
export function become(run: RecordedRun, name: string, to: number | string | null): SettingChange[] {
  const found = run.setting(name)
  return found === null || found.value === to ? [] : [{ ...found, to: String(to) }]
}
