/** JSON Lines: a JSON value per line. Errors contain the line number. */
import { InputError, show } from '../base/errors.ts'

/** A value, with its file and line number (from 1) as `path:number`. */
export interface JsonLine {
  readonly place: string
  readonly value: unknown
}

const NEWLINE = 10

/**
 * Yields the values of a file, line by line, without blank lines.
 * @throws InputError if the file cannot be read, and at a line that is not JSON in UTF-8.
 */
export async function* readJsonLines(path: string): AsyncGenerator<JsonLine, void, undefined> {
  const { readWhole } = await import('../base/files/files.ts')
  const bytes = await readWhole(path, 'a JSONL file that can be read')
  const decoder = new TextDecoder('utf-8', { fatal: true }) // Also removes a byte order mark at the start of a line.
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

/** Writes values as a file with one line each, atomically. @throws InputError if the path cannot be written. */
export async function writeJsonLines(path: string, values: Iterable<object>): Promise<void> {
  const { writeWhole } = await import('../base/files/files.ts')
  await writeWhole(path, lines(values))
}

function* lines(values: Iterable<object>): Generator<string> {
  for (const value of values) yield `${JSON.stringify(value)}\n`
}
