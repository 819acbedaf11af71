/** What happens if a training's folder already has one: a numbered folder, resuming, deleting, or an error. */

import { unknownWord } from '../../base/errors.ts'

/** `number`: use the first free `<folder>-2`, `-3` …; `resume` the same training; `replace` it; `refuse`: throw. */
export type IfExists = 'number' | 'resume' | 'replace' | 'refuse'

export const IF_EXISTS = ['number', 'resume', 'replace', 'refuse'] as const satisfies readonly IfExists[]

/** @throws InputError for anything else. */
export function checkIfExists(value: unknown): asserts value is IfExists {
  if (!IF_EXISTS.includes(value as IfExists)) throw unknownWord('ifExists', value, IF_EXISTS)
}
