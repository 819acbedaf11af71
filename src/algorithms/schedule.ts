/**
 * Schedules of a number over a training: fixed courses, and formulas of the user's. A schedule depends only on the update's index, so a
 * resumed run continues it.
 */
import { InputError, show } from '../base/errors.ts'
import { type Formula, readFormula } from '../base/expressions/formula.ts'
import type { Setting, Settings, SettingValue, SettingValues } from '../base/settings.ts'

/** The course after the warm-up: constant, or a fall to 0 along a line or half a cosine. */
export const schedules = ['constant', 'linear', 'cosine'] as const

export type Schedule = (typeof schedules)[number]

/**
 * The factor for update `update` of `numUpdates`, counted from 0. With p = update / numUpdates and f = `warmupFraction`:
 *
 *     p < f      min(1, (update + 1) / (f numUpdates)), so that no update has a factor of 0
 *     constant   1
 *     linear     1 − q                       q = (p − f) / (1 − f)
 *     cosine     ½ (1 + cos(π q))
 *
 * The warm-up is that of Goyal et al. 2017 (§ 2.2), starting one step above 0; linear decay as in openai/baselines' PPO; half a cosine as
 * in Loshchilov and Hutter 2017 (SGDR, equation 5, without restarts, η_min = 0).
 */
export function scheduleFactor(schedule: Schedule, warmupFraction: number, update: number, numUpdates: number): number {
  const progress = update / numUpdates
  if (progress < warmupFraction) return Math.min(1, (update + 1) / (warmupFraction * numUpdates))
  if (schedule === 'constant') return 1
  const decayed = (progress - warmupFraction) / (1 - warmupFraction)
  return schedule === 'linear' ? 1 - decayed : 0.5 * (1 + Math.cos(Math.PI * decayed))
}

/** The name in formulas of the finished fraction of the training: update / numUpdates, at least 0 and below 1. */
const PROGRESS = 'progress'

/** Points at which a formula is tried before a training. */
const TRIED = 1000

/** Settings of which those with a number that need not be whole may also have a formula. */
export type WithFormulas<S extends Settings> = {
  readonly [K in keyof S]: Setting<S[K] extends Setting<infer T> ? ([number] extends [T] ? T | string : T) : never>
}

/**
 * Lets the settings of an algorithm have formulas of `progress`, like `0.01 * (1 - progress)`, in place of numbers; not whole numbers,
 * nor the settings that `fixed` names, which other parts than the learner read. `id` names the owner in errors.
 */
export function withFormulas<S extends Settings>(id: string, settings: S, fixed: readonly string[]): WithFormulas<S> {
  const entries = Object.entries(settings).map(([key, setting]): [string, Setting] => {
    if (setting.isContinuous !== true || fixed.includes(key)) return [key, setting]
    const accepts = (value: unknown) =>
      setting.accepts(value) || (typeof value === 'string' && isFormula(`${id}.${key}`, setting, value))
    return [key, { ...setting, expected: `${setting.expected}, or a formula of ${PROGRESS}`, accepts }]
  })
  return Object.fromEntries(entries) as unknown as WithFormulas<S>
}

/** @throws InputError for a text with `progress` that is no formula, or whose value is out of range at some time. */
function isFormula(subject: string, setting: Setting, text: string): boolean {
  if (!new RegExp(`\\b${PROGRESS}\\b`).test(text)) return false
  const formula = readFormula(subject, text, [PROGRESS])
  for (let i = 0; i < TRIED; i++) valueAt(subject, setting, text, formula, i / TRIED)
  return true
}

function valueAt(subject: string, setting: Setting, text: string, formula: Formula, progress: number): number {
  const value = formula(() => progress)
  if (Number.isFinite(value) && setting.accepts(value)) return value
  throw new InputError(subject, `${show(text)}, which is ${value} at progress ${progress}`, setting.expected)
}

/** The values of a learner's settings in the current update. */
export class ScheduledValues<S extends Settings> {
  /** Those with a formula change from update to update; before the first they are those of progress 0. */
  readonly values: SettingValues<S>
  update = -1
  numUpdates = 0
  readonly #id: string
  readonly #settings: S
  readonly #given: Readonly<Record<string, SettingValue>>
  readonly #formulas: ReadonlyMap<string, Formula>

  /** @throws InputError for a formula beside another schedule of the same setting. */
  constructor(id: string, settings: S, given: SettingValues<WithFormulas<S>>) {
    this.#id = id
    this.#settings = settings
    this.#given = given as Readonly<Record<string, SettingValue>>
    const texts = Object.entries(this.#given).filter(
      ([key, value]) => settings[key]?.isContinuous === true && typeof value === 'string',
    ) as [string, string][]
    this.#formulas = new Map(texts.map(([key, text]) => [key, readFormula(`${id}.${key}`, text, [PROGRESS])]))
    for (const [key, text] of texts) {
      const course = this.#given[`${key}Schedule`] ?? 'constant'
      if (course === 'constant') continue
      const expected = `${key}Schedule constant, since the formula is the schedule`
      throw new InputError(`${id}.${key}`, `${show(text)} with ${key}Schedule ${course}`, expected)
    }
    this.values = { ...given } as unknown as SettingValues<S>
    this.#fill(0)
  }

  /** The settings that have formulas. */
  get scheduled(): readonly string[] {
    return [...this.#formulas.keys()]
  }

  /** Goes to an update. Returns whether a value may have changed. @throws InputError for a value out of range. */
  begin(update: number, numUpdates: number): boolean {
    if (update === this.update && numUpdates === this.numUpdates) return false
    this.update = update
    this.numUpdates = numUpdates
    this.#fill(update / numUpdates)
    return this.#formulas.size > 0
  }

  #fill(progress: number): void {
    const values = this.values as Record<string, SettingValue>
    for (const [key, formula] of this.#formulas) {
      values[key] = valueAt(`${this.#id}.${key}`, this.#settings[key]!, String(this.#given[key]), formula, progress)
    }
  }
}
