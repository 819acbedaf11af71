/**
 * Which folder a training gets where the one that was asked for holds a training already: a numbered one beside it, the same one to
 * go on in, the same one emptied, or none. One rule for trainers of programs, runs and groups of runs.
 */
import { basename, resolve } from 'node:path'
import { InputError, unknownWord } from '../../base/errors.ts'
import { choice } from '../../base/settings.ts'

/** A folder that a training cannot have, because of another training. */
export class TakenError extends InputError {
  declare readonly folder: string
  /** What follows the folder's name: `holds a run`. */
  declare readonly why: string

  constructor(subject: string, folder: string, why: string, expected = 'a new folder') {
    super(subject, `${folder}, which ${why}`, expected)
    for (const [key, value] of Object.entries({ folder, why })) Object.defineProperty(this, key, { value })
  }
}

/**
 * What a training does where its folder holds one. `number`: it takes the first free of `<folder>-2`, `<folder>-3`, …. `resume`: it
 * goes on from there, or is refused if it is another one. `replace`: it removes the former one. `refuse`: it ends with an error.
 */
export type IfExists = 'number' | 'resume' | 'replace' | 'refuse'

export const IF_EXISTS = ['number', 'resume', 'replace', 'refuse'] as const satisfies readonly IfExists[]

/** The key of commands that begin runs. */
export const ifExistsSetting = choice(
  'number',
  IF_EXISTS,
  'if out=DIR already has a run: number: use the first free of DIR-2, DIR-3, …; resume: continue it; replace: delete it; refuse: end with an error',
)

/** @throws InputError for anything else. */
export function checkIfExists(value: unknown): asserts value is IfExists {
  if (!IF_EXISTS.includes(value as IfExists)) throw unknownWord('ifExists', value, IF_EXISTS)
}

/** A folder that was free, and where it is numbered why the one that was asked for was not. */
export interface FreeFolder<T> {
  readonly path: string
  readonly found: T
  readonly taken: TakenError | null
}

/** The n-th folder for a training, from 1 on: the one that is asked for, then those with a number behind its name. */
export function numbered(folder: string): (number: number) => string {
  const isNamed = !['', '.', '..'].includes(basename(folder))
  const base = isNamed ? folder.replace(/[/\\]+$/, '') : resolve(folder)
  return (number) => (number === 1 ? folder : `${base}-${number}`)
}

/**
 * Tries one folder after another until `attempt` finds one that is free.
 * @throws what `attempt` throws but a TakenError; that too where `ifExists` is not `number`.
 */
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

/** What a user is told of a training that goes to a numbered folder; null of others. `option` is ifExists as the user writes it. */
export function tellNumbered(
  { path, taken }: Pick<FreeFolder<unknown>, 'path' | 'taken'>,
  option: (value: IfExists) => string,
): string | null {
  if (taken === null) return null
  const others = `${option('resume')} goes on there, ${option('replace')} starts over`
  return `${taken.folder} ${taken.why}, so this training goes to ${path} (${others})`
}
