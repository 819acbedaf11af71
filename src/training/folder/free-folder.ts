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

/** A free folder, and a message for the user if it is not the requested one. */
export interface FreeFolder<T> {
  readonly path: string
  readonly found: T
  readonly moved: string | null
}

/** A requested folder, or what the names of folders begin with, which are numbered from 1, if none is. */
export type Requested = string | { readonly usual: string }

/** Names the n-th folder to try, from 1: the requested one, then numbered ones. */
function numbered(folder: string): (number: number) => string {
  const isNamed = !['', '.', '..'].includes(basename(folder))
  const base = isNamed ? folder.replace(/[/\\]+$/, '') : resolve(folder)
  return (number) => (number === 1 ? folder : `${base}-${number}`)
}

/**
 * Tries the requested folder, then numbered ones, until `attempt` finds a free one. `option` formats ifExists for the user.
 * @throws its errors, except TakenErrors where folders are numbered.
 */
export async function firstFree<T>(
  requested: Requested,
  ifExists: IfExists,
  attempt: (path: string) => Promise<T>,
  option = (value: IfExists) => `ifExists=${value}`,
): Promise<FreeFolder<T>> {
  const isUsual = typeof requested === 'object'
  const folderOf = isUsual ? (number: number) => `${requested.usual}-${number}` : numbered(requested)
  let taken: TakenError | null = null
  for (let number = 1; ; number++) {
    const path = folderOf(number)
    try {
      const found = await attempt(path)
      if (taken === null || isUsual) return { path, found, moved: null }
      const others = `${option('resume')} continues it, ${option('replace')} starts over`
      return { path, found, moved: `${taken.folder} ${taken.why}, so this training goes to ${path} (${others})` }
    } catch (error) {
      if (!(isUsual || ifExists === 'number') || !(error instanceof TakenError)) throw error
      taken ??= error
    }
  }
}
