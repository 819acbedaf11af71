/**
 * Files that are whole or not there: written under a temporary name, forced to disk, then renamed. What was there before
 * stays until the new file is complete, whatever interrupts the writing.
 */
import { type FileHandle, mkdir, open, readFile, rename, rm, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { InputError, show } from './errors.ts'

/** Writes chunks to a file that appears, or is replaced, at once and whole. */
export async function writeWhole(
  path: string,
  chunks: Iterable<Uint8Array | string> | AsyncIterable<Uint8Array>,
): Promise<void> {
  const temporary = `${path}.${process.pid}.tmp`
  try {
    await makeFolder(dirname(path))
    await writeSynced(temporary, chunks)
    await rename(temporary, path)
    await syncFolder(dirname(path))
  } catch (cause) {
    await rm(temporary, { force: true }).catch(() => undefined) // The first error is the one to report.
    throw cannotWrite(path, cause)
  }
}

/**
 * A file's bytes. `expected` is what the reader would have accepted.
 * @throws InputError with the system's reason where it cannot be read.
 */
export async function readWhole(path: string, expected: string): Promise<Uint8Array> {
  try {
    return await readFile(path)
  } catch (cause) {
    throw new InputError(path, (cause as Error).message, expected, { cause })
  }
}

/**
 * The JSON object in a file. `expected` is what the reader would have accepted.
 * @throws InputError where it cannot be read, or is something else.
 */
export async function readJsonObject(
  path: string,
  expected = 'a JSON file that can be read',
): Promise<Record<string, unknown>> {
  return parseJsonObject(path, await readWhole(path, expected))
}

/** The JSON object that some bytes are; `subject` names them in errors. */
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

/** True if there is something at a path. Throws InputError where that cannot be seen. */
export async function isThere(path: string): Promise<boolean> {
  try {
    await stat(path)
    return true
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return false
    throw new InputError(path, (cause as Error).message, 'a place that can be read', { cause })
  }
}

/** Writes chunks to a file and forces them to disk. */
export async function writeSynced(
  path: string,
  chunks: Iterable<Uint8Array | string> | AsyncIterable<Uint8Array>,
): Promise<void> {
  const handle = await open(path, 'w')
  try {
    for await (const chunk of chunks) await writeAll(handle, typeof chunk === 'string' ? Buffer.from(chunk) : chunk)
    await handle.sync()
  } finally {
    await handle.close()
  }
}

async function writeAll(handle: FileHandle, bytes: Uint8Array): Promise<void> {
  let done = 0
  while (done < bytes.byteLength) done += (await handle.write(bytes, done, bytes.byteLength - done)).bytesWritten
}

/**
 * Makes a folder and those above it that are missing. (Node's own recursive mkdir never returns where a parent is there
 * and refuses the child with ENOENT, as /proc does.)
 */
export async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path)
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException
    const parent = dirname(path)
    if (code === 'EEXIST' && (await stat(path)).isDirectory()) return
    if (code !== 'ENOENT' || parent === path) throw cause
    const parentIsThere = await stat(parent).then(
      () => true,
      () => false,
    )
    if (!parentIsThere) await makeFolder(parent)
    await mkdir(path).catch((second: NodeJS.ErrnoException) => {
      if (second.code !== 'EEXIST') throw second // Else somebody was faster.
    })
  }
}

/** Forces a folder's entries to disk, so that a rename in it outlives a power failure. */
export async function syncFolder(path: string): Promise<void> {
  await sync(await open(path, 'r'))
}

/** Forces what was appended to a file to disk. */
export async function syncFile(path: string): Promise<void> {
  try {
    await sync(await open(path, 'a'))
  } catch (cause) {
    throw cannotWrite(path, cause)
  }
}

async function sync(handle: FileHandle): Promise<void> {
  try {
    await handle.sync()
  } finally {
    await handle.close()
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
  return new InputError(path, `${reasons[code ?? ''] ?? 'an error'} (${message})`, 'a place that can be written', {
    cause,
  })
}
