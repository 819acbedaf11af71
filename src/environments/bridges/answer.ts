/** Checks the answers of object environments: one object with named parts, so that termination and truncation are distinct. */
import { InputError, show, unknownWord } from '../../base/errors.ts'

/** The parts of an answer of `reset` and of `step`; both may also have `info`. */
export const RESET_PARTS = ['observation'] as const
export const STEP_PARTS = ['observation', 'reward', 'terminated', 'truncated'] as const

/**
 * Checks the parts of an answer.
 * @throws TypeError for an array, InputError for a value that is not an object, and for an unknown or missing part.
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

/** Checks the two flags of a step. @throws InputError for a flag that is not a boolean. */
export function checkFlags(
  subject: string,
  flags: { readonly terminated: unknown; readonly truncated: unknown },
): void {
  for (const flag of ['terminated', 'truncated'] as const) {
    if (typeof flags[flag] !== 'boolean')
      throw new InputError(`${subject}, ${flag}`, show(flags[flag]), 'true or false')
  }
}
