/** What people write of a run, in its `notes.json`: a note and tags. */
import { join } from 'node:path'
import { InputError, show } from '../../base/errors.ts'
import {
  isThere,
  parseObject,
  RECORD_BYTES,
  readText,
  removeWhole,
  within,
  writeWhole,
} from '../../base/files/files.ts'

/** The file in a run's folder. */
export const NOTES_FILE = 'notes.json'
/** Maximum characters of a note and of a tag, and tags of a run. */
const [NOTE_MAX, TAG_MAX, TAGS_MAX] = [4000, 50, 20]

/** A person's note on a run, and its tags: words without spaces. */
export interface Annotation {
  readonly note: string
  readonly tags: readonly string[]
}

export const NO_ANNOTATION: Annotation = { note: '', tags: [] }

/** Takes a JSON object as an annotation. @throws InputError that names the first wrong part. */
export function annotationOf({ note = '', tags = [] }: Readonly<Record<string, unknown>>): Annotation {
  if (typeof note !== 'string' || note.length > NOTE_MAX)
    throw new InputError('note', described(note), `a text of at most ${NOTE_MAX} characters`)
  if (!Array.isArray(tags) || tags.length > TAGS_MAX)
    throw new InputError('tags', described(tags), `a list of at most ${TAGS_MAX} words`)
  for (const tag of tags) {
    if (typeof tag !== 'string' || tag.length > TAG_MAX || !/^[^\s\p{Cc}]+$/u.test(tag))
      throw new InputError('tag', described(tag), `a word of at most ${TAG_MAX} characters without spaces`)
  }
  return { note, tags: [...new Set(tags as string[])] }
}

/**
 * Writes the annotation of a run's folder; an empty one removes the file.
 * @throws InputError for a link, for a run that is there no more, for a damaged file, which stays, or if it cannot be written.
 */
export async function writeAnnotation(folder: string, { note, tags }: Annotation): Promise<void> {
  const path = await within(folder, NOTES_FILE)
  if (!(await isThere(join(folder, 'config.json')))) throw new InputError('run', 'a run that was removed', 'a run')
  if (await isThere(path)) await refuseDamaged(path)
  if (note === '' && tags.length === 0) await removeWhole(path)
  else await writeWhole(path, [`${JSON.stringify({ note, tags }, null, 2)}\n`])
}

/** @throws InputError for an annotation that nobody could read, which a person may still mend. */
async function refuseDamaged(path: string): Promise<void> {
  try {
    const before = parseObject(await readText(path, RECORD_BYTES))
    if (before === null) throw new InputError('text', 'no JSON object', 'a note and tags')
    annotationOf(before)
  } catch (cause) {
    const got = `a damaged file (${(cause as Error).message})`
    throw new InputError(NOTES_FILE, got, 'one that can be read: mend or remove it first', { cause })
  }
}

function described(value: unknown): string {
  if (typeof value === 'string' && value.length > TAG_MAX) return `a text of ${value.length} characters`
  return Array.isArray(value) ? `a list of ${value.length}` : show(value)
}
