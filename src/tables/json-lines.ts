/** JSON Lines: a JSON value a line. What is wrong with a line is said with its number. */
import { InputError, show } from '../base/errors.ts'

/** A value, and the file and number (from 1) of the line on which it stands, as `path:number`. */
export interface JsonLine {
  readonly place: string
  readonly value: unknown
}

const NEWLINE = 10

/**
 * The values of a file, line by line; lines of nothing but spaces are passed over.
 * @throws InputError if the file cannot be read, and at a line that is not JSON in UTF-8.
 */
export async function* readJsonLines(path: string): AsyncGenerator<JsonLine, void, undefined> {
  const { readWhole } = await import('../base/files/files.ts')
  const bytes = await readWhole(path, 'a JSONL file that can be read')
  const decoder = new TextDecoder('utf-8', { fatal: true }) // Takes the mark of byte order away where a line begins with it.
  for (let from = 0, number = 1; from < bytes.length; number++) {
    const end = bytes.indexOf(NEWLINE, from)
    const to = end === -1 ? bytes.length : end
    const place = `${path}:${number}`
    const line = decoded(decoder, bytes.subarray(from, to), place)
    from = to + 1
    if (line.trim() !== '') yield { place, value: parsed(line, place) }
  }
}

function decoded(decoder: TextDecoder, bytes: Uint8Array, place: string): string {
  try {
    return decoder.decode(bytes)
  } catch (cause) {
    throw new InputError(place, 'bytes that are not UTF-8', 'a line of JSON', { cause })
  }
}

function parsed(line: string, place: string): unknown {
  try {
    return JSON.parse(line)
  } catch (cause) {
    throw new InputError(place, `${show(line)} (${(cause as Error).message})`, 'a line of JSON', { cause })
  }
}

/**
 * Writes values as a file of a line each, which appears whole or not at all.
 * @throws InputError if the path cannot be written.
 */
export async function writeJsonLines(path: string, values: Iterable<object>): Promise<void> {
  const { writeWhole } = await import('../base/files/files.ts')
  await writeWhole(path, lines(values))
}

function* lines(values: Iterable<object>): Generator<string> {
  for (const value of values) yield `${JSON.stringify(value)}\n`
}
