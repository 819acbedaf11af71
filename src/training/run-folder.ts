/** What every kind of run does with its folder: takes one of its own, appends lines, and reads back what is there. */
import { appendFileSync } from 'node:fs'
import { access, mkdir, readdir } from 'node:fs/promises'
import { isAbsolute, join, relative, resolve, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { DefinitionRecord } from '../definition.ts'
import { InputError, show } from '../errors.ts'
import { cannotWrite, makeFolder } from '../files.ts'
import { checkpointsFolder } from './checkpoint.ts'

/** @throws InputError if the folder holds anything. */
export async function refuseOccupied(folder: string): Promise<void> {
  if (folder === '') throw new InputError('out', 'an empty name', 'a folder')
  const present = await readdir(folder).catch((cause: NodeJS.ErrnoException): string[] => {
    if (cause.code === 'ENOENT') return []
    throw cannotWrite(folder, cause)
  })
  if (present.includes('config.json') && present.includes('checkpoints')) {
    const expected = `a new folder (to go on with it: colonnade resume ${folder})`
    throw new InputError('out', `${folder}, which holds a run`, expected)
  }
  if (present.length > 0) throw new InputError('out', `${folder}, which is not empty`, 'a new or empty folder')
}

/**
 * Makes a run folder of one's own: the one asked for, or `runs/<environment>-<n>` with the lowest free number. Of several
 * runs that begin at once only one gets a folder: who makes `checkpoints` in it.
 */
export async function claimFolder(environment: string, folder: string | undefined): Promise<string> {
  if (folder !== undefined) {
    if (!(await claims(folder))) {
      throw new InputError('out', `${folder}, which another run has just taken`, 'a new folder')
    }
    return folder
  }
  for (let number = 1; ; number++) {
    const free = join('runs', `${environment}-${number}`)
    if (!(await isPresent(free)) && (await claims(free))) return free
  }
}

async function claims(folder: string): Promise<boolean> {
  try {
    await makeFolder(folder)
    await mkdir(checkpointsFolder(folder))
    return true
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'EEXIST' && (await isPresent(checkpointsFolder(folder)))) return false
    throw cannotWrite(folder, cause)
  }
}

async function isPresent(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}

/** @throws InputError if the file cannot be written. */
export function appendLine(path: string, line: string): void {
  try {
    appendFileSync(path, line)
  } catch (cause) {
    throw cannotWrite(path, cause)
  }
}

/** The lines that end in a line break: a last one that was cut off by a crash is not among them. */
export function wholeLines(text: string): string[] {
  return text
    .slice(0, text.lastIndexOf('\n') + 1)
    .split('\n')
    .filter(Boolean)
}

/** What was read, or `none` if it is not there. Any other error stands: what cannot be read must not be taken for nothing. */
export function unlessMissing<T>(reading: Promise<T>, none: T): Promise<T> {
  return reading.catch((cause: NodeJS.ErrnoException) => {
    if (cause.code === 'ENOENT') return none
    throw new InputError('run', cause.message, 'files that can be read', { cause })
  })
}

/**
 * A definition's record as it stands in `config.json`. Where module and run lie under the working directory both, as in a
 * project, the module is named by its way from the run folder, so that the project can be moved; else by its URL.
 */
export function recordIn(folder: string, record: DefinitionRecord): DefinitionRecord {
  if (!record.module?.startsWith('file:')) return record
  const path = fileURLToPath(record.module)
  const isHere = [path, resolve(folder)].every((place) => {
    const way = relative(process.cwd(), place)
    return !way.startsWith('..') && !isAbsolute(way)
  })
  return isHere ? { ...record, module: relative(folder, path).split(sep).join('/') } : record
}

/** The record again, with its module as a URL. @throws InputError for a module that is no text. */
export function recordFrom(folder: string, record: DefinitionRecord): DefinitionRecord {
  const { module } = record
  if (typeof module !== 'string') throw new InputError(`module of ${folder}`, show(module), 'the path of a module')
  const isUrl = /^[a-z][a-z0-9+.-]+:/i.test(module) // One letter and a colon would be a drive.
  return isUrl ? record : { ...record, module: pathToFileURL(resolve(folder, module)).href }
}
