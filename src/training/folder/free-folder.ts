/** Finds a training's folder: the requested one, or a numbered one. */

import { InputError } from '../../base/errors.ts'
import { basename, resolve } from '../../base/files/path.ts'
import { choice } from '../../base/settings.ts'
import { IF_EXISTS, type IfExists } from './if-exists.ts'

/** A folder that is taken by another training. */
export class TakenError extends InputError {
  declare readonly folder: string
  /** A phrase that follows the folder's name: `holds a run`. */
  declare readonly why: string

  constructor(subject: string, folder: string, why: string, expected = 'a new folder') {
    super(subject, `${folder}, which ${why}`, expected)
    for (const [key, value] of Object.entries({ folder, why })) Object.defineProperty(this, key, { value })
  }
}

/** The setting of commands that start runs. */
export const ifExistsSetting = choice(
  'number',
  IF_EXISTS,
  'if out=DIR already has a run: number: use the first free of DIR-2, DIR-3, …; resume: continue it; replace: delete it; refuse: end with an error',
)

/** A free folder; if it is numbered, also why the requested one was not free. */
export interface FreeFolder<T> {
  readonly path: string
  readonly found: T
  readonly taken: TakenError | null
}

/** Names the n-th folder to try, from 1: the requested one, then numbered ones. */
export function numbered(folder: string): (number: number) => string {
  const isNamed = !['', '.', '..'].includes(basename(folder))
  const base = isNamed ? folder.replace(/[/\\]+$/, '') : resolve(folder)
  return (number) => (number === 1 ? folder : `${base}-${number}`)
}

/** Tries folders until `attempt` finds a free one. @throws its errors, except TakenErrors with `ifExists` `number`. */
export async function firstFree<T>(
  folderOf: (number: number) => string,
  ifExists: IfExists,
  attempt: (path: string) => Promise<T>,
): Promise<FreeFolder<T>> {
  let taken: TakenError | null = null
  for (let number = 1; ; number++) {
    const path = folderOf(number)
    try {
      return { path, found: await attempt(path), taken }
    } catch (error) {
      if (ifExists !== 'number' || !(error instanceof TakenError)) throw error
      taken ??= error
    }
  }
}

/** The message for a numbered folder, otherwise null. `option` formats ifExists for the user. */
export function tellNumbered(
  { path, taken }: Pick<FreeFolder<unknown>, 'path' | 'taken'>,
  option: (value: IfExists) => string,
): string | null {
  if (taken === null) return null
  const others = `${option('resume')} continues it, ${option('replace')} starts over`
  return `${taken.folder} ${taken.why}, so this training goes to ${path} (${others})`
}
