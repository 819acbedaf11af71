/** The file-system operations with which runs read and write. A page has another body (`disk.page.ts`). */
import { closeSync, constants, fstatSync, fsync, openSync, readSync, writeSync } from 'node:fs'
import { type FileHandle, lstat, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { promisify } from 'node:util'

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = constants
/** Open flags: follow no link, and do not wait for a pipe. */
const FLAGS = {
  w: O_WRONLY | O_CREAT | O_TRUNC,
  wx: O_WRONLY | O_CREAT | O_EXCL,
  a: O_WRONLY | O_CREAT | O_APPEND,
}
/** An open file or folder. */
export type OpenFile = FileHandle

const PLAIN = O_NOFOLLOW | O_NONBLOCK
/** Flags that append to a file and follow no link. */
export const APPENDING = FLAGS.a | PLAIN

/** Maximum bytes read at once. */
const BYTES = 2 ** 31 - 1

/** The file-system operations of runs. A test replaces them to make the n-th one fail. */
export const disk = {
  /** Opens a folder, or a file to write; not a link. */
  open: (path: string, flags: 'r' | keyof typeof FLAGS): Promise<OpenFile> =>
    open(path, flags === 'r' ? flags : FLAGS[flags] | PLAIN),
  /** Resolves to the number of bytes written, which may be fewer than requested. */
  write: async (handle: OpenFile, bytes: Uint8Array, from: number): Promise<number> =>
    (await handle.write(bytes, from, bytes.byteLength - from)).bytesWritten,
  /** By descriptor: the file handles of Yarn's Plug'n'Play cannot sync. */
  sync: (handle: OpenFile): Promise<void> => promisify(fsync)(handle.fd),
  close: (handle: OpenFile): Promise<void> => handle.close(),
  /** Appends to a plain file, not a link. */
  append: (path: string, data: string | Uint8Array): void => {
    const file = openSync(path, APPENDING)
    try {
      if (!fstatSync(file).isFile()) throw new Error(`EINVAL: not a plain file, append '${path}'`)
      const bytes = Buffer.from(data as Uint8Array)
      for (let done = 0; done < bytes.byteLength; ) done += writeSync(file, bytes, done)
    } finally {
      closeSync(file)
    }
  },
  makeFolder: async (path: string): Promise<void> => void (await mkdir(path)),
  list: (path: string): Promise<string[]> => readdir(path),
  /** The bytes of a plain file. Links are followed only on request. */
  read: async (path: string, bytesMax = BYTES, followsLinks = false): Promise<Uint8Array> => {
    const { handle, size } = await openPlain(path, followsLinks)
    try {
      if (size > bytesMax) throw new Error(`a file of ${size} bytes, more than the limit of ${bytesMax}`)
      return await handle.readFile()
    } finally {
      await handle.close()
    }
  },
  /** The kind of a path; links are not followed. Null if nothing exists there. */
  kind: async (path: string): Promise<'file' | 'folder' | 'other' | null> => {
    try {
      const found = await lstat(path)
      return found.isFile() ? 'file' : found.isDirectory() ? 'folder' : 'other'
    } catch (cause) {
      if (['ENOENT', 'ENOTDIR'].includes((cause as NodeJS.ErrnoException).code!)) return null
      throw cause
    }
  },
  rename: (from: string, to: string): Promise<void> => rename(from, to),
  /** Removes a file, or a folder and its contents; does nothing if it does not exist. */
  remove: (path: string): Promise<void> => rm(path, { recursive: true, force: true }),
  isFolder: async (path: string): Promise<boolean> => (await stat(path)).isDirectory(),
}

/** Opens a plain file; links only on request, never devices, pipes or sockets. @throws Error with the reason. */
export async function openPlain(
  path: string,
  followsLinks = false,
): Promise<{ handle: OpenFile; size: number; inode: number }> {
  const handle = await open(path, followsLinks ? O_RDONLY | O_NONBLOCK : O_RDONLY | PLAIN).catch((cause) => {
    throw (cause as NodeJS.ErrnoException).code === 'ELOOP' ? new Error('a symbolic link', { cause }) : cause
  })
  const found = await handle.stat()
  if (found.isFile()) return { handle, size: found.size, inode: found.ino }
  await handle.close()
  throw new Error(found.isDirectory() ? 'a folder' : 'not a plain file')
}

/** An open file that is read piece by piece, of any size. */
export interface Pieces {
  readonly size: number
  /** Fills `into` with the bytes from `from` on. @throws Error if the file ends before. */
  read(into: Uint8Array, from: number): void
  close(): void
}

/** Opens a plain file, or a link to one, to read its pieces. @throws Error with the reason. */
export function openPieces(path: string): Pieces {
  const file = openSync(path, O_RDONLY | O_NONBLOCK)
  const found = fstatSync(file)
  if (!found.isFile()) {
    closeSync(file)
    throw new Error(found.isDirectory() ? 'a folder' : 'not a plain file')
  }
  return {
    size: found.size,
    read(into, from) {
      for (let done = 0; done < into.byteLength; ) {
        const count = readSync(file, into, done, into.byteLength - done, from + done)
        if (count === 0) throw new Error(`a file that ends at byte ${from + done}`)
        done += count
      }
    },
    close: () => closeSync(file),
  }
}
