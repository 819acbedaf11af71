/** What an environment that is an object answers with: one object, whose parts have names, so that an end and a cut stay apart. */
import { InputError, show, unknownWord } from '../../base/errors.ts'

/** The parts of what `reset` answers, and of what `step` does; both may have `info` besides. */
export const RESET_PARTS = ['observation'] as const
export const STEP_PARTS = ['observation', 'reward', 'terminated', 'truncated'] as const

/**
 * Checks which parts an answer has.
 * @throws TypeError for an array, InputError for what is no object, has a part that is unknown, or lacks one.
 */
export function checkParts(subject: string, answer: unknown, required: readonly string[]): void {
  const expected = `an object with ${[...required, 'info'].join(', ')}`
  if (Array.isArray(answer)) throw new TypeError(`${subject}: got an array, expected ${expected}`)
  if (typeof answer !== 'object' || answer === null) throw new InputError(subject, show(answer), expected)
  for (const key of Object.keys(answer)) {
    if (!required.includes(key) && key !== 'info') throw unknownWord(`${subject}, key`, key, [...required, 'info'])
  }
  for (const key of required) if (!(key in answer)) throw new InputError(`${subject}, ${key}`, 'none', expected)
}

/** Checks the two flags of a step. @throws InputError for one that is not a boolean. */
export function checkFlags(
  subject: string,
  flags: { readonly terminated: unknown; readonly truncated: unknown },
): void {
  for (const flag of ['terminated', 'truncated'] as const) {
    if (typeof flags[flag] !== 'boolean')
      throw new InputError(`${subject}, ${flag}`, show(flags[flag]), 'true or false')
  }
}
