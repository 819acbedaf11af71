/**
 * Atomic files: written under a temporary name, synced to disk, then renamed, so an interruption leaves the earlier
 * file.
 *
 * Runs read and write only by the operations of `disk`, which a test replaces to let the n-th fail.
 */
import { joined } from '../bytes.ts'
import { checkGiven, InputError, show } from '../errors.ts'
import { processNumber } from '../host.ts'
import { disk, type OpenFile } from './disk.ts'
import { dirname, join } from './path.ts'

export { APPENDING, disk, openPieces, openPlain, type Pieces } from './disk.ts'

/** Maximum bytes read at once: of a text (V8's string limit), and of bytes. */
const [TEXT_BYTES, BYTES] = [2 ** 29 - 2 ** 20, 2 ** 31 - 1]
/** Maximum bytes of a run's JSON files. */
export const RECORD_BYTES = 2 ** 26

/**
 * A path inside an untrusted folder, such as a run. The folder may be a link; nothing below it may be a link, device,
 * pipe or socket, so that nothing elsewhere is read, written or deleted. Missing files are allowed.
 * @throws InputError that names the first such thing.
 */
export async function within(folder: string, ...names: readonly string[]): Promise<string> {
  checkGiven('folder', folder, 'a text')
  const parts = names.flatMap((name) => name.split('/'))
  if (parts.some((part) => ['', '.', '..'].includes(part) || /[\0\\]/.test(part)))
    throw new InputError(`file of ${folder}`, show(names.join('/')), 'a path below it')
  let path = folder
  for (const [i, part] of parts.entries()) {
    path = join(path, part)
    const kind = await disk.kind(path).catch((cause: Error) => {
      throw new InputError(path, cause.message, 'readable files', { cause })
    })
    if (kind === null) break
    if (kind === 'other')
      throw new InputError(path, 'a link or a special file', 'a plain file or folder, like everything in a run')
    if (kind === 'file' && i + 1 < parts.length) throw new InputError(path, 'a file', 'a folder')
  }
  return join(folder, ...parts)
}

/** Writes chunks to a file that appears, or is replaced, atomically. */
export async function writeWhole(
  path: string,
  chunks: Iterable<Uint8Array | string> | AsyncIterable<Uint8Array>,
): Promise<void> {
  const temporary = `${path}.${processNumber}.tmp`
  try {
    await makeFolder(dirname(path))
    await writeSynced(temporary, chunks)
    await disk.rename(temporary, path)
    await syncFolder(dirname(path))
  } catch (cause) {
    await disk.remove(temporary).catch(() => undefined) // The first error is the one to report.
    throw cannotWrite(path, cause)
  }
}

/** Writes a new file. Returns false if it exists; of several processes that begin at once, one writes it. */
export async function writeNew(path: string, text: string): Promise<boolean> {
  try {
    const handle = await disk.open(path, 'wx')
    await disk.write(handle, encode(text), 0).finally(() => disk.close(handle))
    return true
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw cannotWrite(path, cause)
  }
}

/** A file's bytes; `expected` describes what the reader accepts. @throws InputError with the system's reason. */
export async function readWhole(path: string, expected: string): Promise<Uint8Array> {
  try {
    return await disk.read(path, BYTES, true)
  } catch (cause) {
    throw new InputError(path, (cause as Error).message, expected, { cause })
  }
}

/** A file's JSON object; `expected` describes what the reader accepts. @throws InputError for anything else. */
export async function readJsonObject(
  path: string,
  expected = 'a readable JSON file',
): Promise<Record<string, unknown>> {
  return parseJsonObject(path, await readWhole(path, expected))
}

/** Parses a JSON object; `subject` names its source in errors. */
export function parseJsonObject(subject: string, bytes: Uint8Array): Record<string, unknown> {
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder().decode(bytes))
  } catch (cause) {
    throw new InputError(subject, `a file that is not JSON (${(cause as Error).message})`, 'a JSON object', { cause })
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new InputError(subject, show(value), 'a JSON object')
  }
  return value as Record<string, unknown>
}

/** Maximum nesting of JSON; recursive functions overflow the stack far above it. */
const DEPTH = 200

/** @throws InputError for a parsed value that is nested too deeply. */
export function refuseDeep(subject: string, value: unknown): void {
  if (isDeep(value)) throw new InputError(subject, `JSON nested deeper than ${DEPTH}`, 'less nesting')
}

/** Whether a parsed value is nested too deeply for recursive functions. */
function isDeep(value: unknown): boolean {
  let level = [value]
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > DEPTH) return true
    level = level.flatMap((each) => (typeof each === 'object' && each !== null ? Object.values(each) : []))
  }
  return false
}

/** Whether a path exists. @throws InputError if that cannot be determined. */
export async function isThere(path: string): Promise<boolean> {
  try {
    await disk.isFolder(path)
    return true
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return false
    throw new InputError(path, (cause as Error).message, 'a readable path', { cause })
  }
}

/** Writes chunks to a file and syncs it to disk. */
export async function writeSynced(
  path: string,
  chunks: Iterable<Uint8Array | string> | AsyncIterable<Uint8Array>,
): Promise<void> {
  const handle = await disk.open(path, 'w')
  try {
    for await (const chunk of chunks) await writeAll(handle, typeof chunk === 'string' ? encode(chunk) : chunk)
    await disk.sync(handle)
  } finally {
    await disk.close(handle)
  }
}

/** Writes all bytes to an open file, after those that were written before. */
export async function writeAll(handle: OpenFile, bytes: Uint8Array): Promise<void> {
  let done = 0
  while (done < bytes.byteLength) done += await disk.write(handle, bytes, done)
}

/** Adds text to the end of a file. @throws InputError if it cannot be written. */
export function appendText(path: string, text: string): void {
  try {
    disk.append(path, text)
  } catch (cause) {
    throw cannotWrite(path, cause)
  }
}

/** Adds bytes to the end of a file. @throws InputError if it cannot be written. */
export function appendBytes(path: string, chunks: readonly Uint8Array[]): void {
  try {
    disk.append(path, joined(chunks))
  } catch (cause) {
    throw cannotWrite(path, cause)
  }
}

function encode(text: string): Uint8Array {
  return new TextEncoder().encode(text)
}

/** Decodes UTF-8 and keeps a byte-order mark at the beginning. */
export function decodeText(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)
}

/** The names in a folder; none if it does not exist. @throws InputError if it cannot be read. */
export async function listFolder(path: string): Promise<string[]> {
  return unlessMissing(path, disk.list(path), [])
}

/** A plain file's text; '' if it does not exist. @throws InputError if it is unreadable, a link, or too long. */
export async function readText(path: string, bytesMax = TEXT_BYTES): Promise<string> {
  return decodeText(await unlessMissing(path, disk.read(path, bytesMax), new Uint8Array()))
}

function unlessMissing<T>(path: string, reading: Promise<T>, none: T): Promise<T> {
  return reading.catch((cause: NodeJS.ErrnoException) => {
    if (cause.code === 'ENOENT') return none
    throw new InputError(path, cause.message, 'readable files', { cause })
  })
}

/** Removes a file, or a folder and its contents, if it exists. @throws InputError if it cannot be removed. */
export async function removeWhole(path: string): Promise<void> {
  try {
    await disk.remove(path)
  } catch (cause) {
    throw cannotWrite(path, cause)
  }
}

/** Makes a folder and its parents. Node's recursive mkdir hangs if a parent refuses with ENOENT, as /proc does. */
export async function makeFolder(path: string): Promise<void> {
  try {
    await disk.makeFolder(path)
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException
    const parent = dirname(path)
    if (code === 'EEXIST' && (await disk.isFolder(path))) return
    if (code !== 'ENOENT' || parent === path) throw cause
    const parentIsThere = await disk.isFolder(parent).then(
      () => true,
      () => false,
    )
    if (!parentIsThere) await makeFolder(parent)
    await disk.makeFolder(path).catch((second: NodeJS.ErrnoException) => {
      if (second.code !== 'EEXIST') throw second // Otherwise another process was faster.
    })
  }
}

/** Syncs a folder's entries to disk, so that a rename in it survives a power failure. */
export async function syncFolder(path: string): Promise<void> {
  await sync(await disk.open(path, 'r'))
}

/** Syncs the data appended to a file. */
export async function syncFile(path: string): Promise<void> {
  try {
    await sync(await disk.open(path, 'a'))
  } catch (cause) {
    throw cannotWrite(path, cause)
  }
}

async function sync(handle: OpenFile): Promise<void> {
  try {
    await disk.sync(handle)
  } finally {
    await disk.close(handle)
  }
}

/** The error for a path that cannot be written, with the system's reason. */
export function cannotWrite(path: string, cause: unknown): Error {
  if (cause instanceof InputError) return cause
  const { code, message } = cause as NodeJS.ErrnoException
  const reasons: Record<string, string> = {
    ENOSPC: 'a disk that is full',
    EDQUOT: 'a disk quota that is used up',
    EACCES: 'a folder without permission to write',
    EPERM: 'a folder without permission to write',
    EROFS: 'a file system that is read-only',
    ENOTDIR: 'a path through something that is not a folder',
    ENOENT: 'a folder that cannot be made',
    EEXIST: 'a path that is taken by something else',
  }
  return new InputError(path, `${reasons[code ?? ''] ?? 'an error'} (${message})`, 'a writable path', {
    cause,
  })
}

/** Parses a JSON object; null for any other text. */
export function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null
  } catch {
    return null
  }
}

/** Parses JSON (`false`, `3`, `"3"`); any other text stays as it is, and so does one that is nested too deeply. */
export function jsonOrText(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text)
    return isDeep(value) ? text : value
  } catch {
    return text
  }
}
