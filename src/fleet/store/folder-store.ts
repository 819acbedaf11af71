/** A store in a folder, which may be a file system that several machines mount. */
import { randomUUID } from 'node:crypto'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import {
  cannotWrite,
  disk,
  listFolder,
  makeFolder,
  openPlain,
  syncFolder,
  writeSynced,
} from '../../base/files/files.ts'
import { BlobError, type BlobRange, checkHash, checkRange, hashOfBlob, type OwnStore, readHashed } from './store.ts'

/** Age in milliseconds after which a file with a temporary name belongs to a writer that has died. */
const ABANDONED_MS = 3_600_000

export class FolderStore implements OwnStore {
  readonly #folder: string

  constructor(folder: string) {
    this.#folder = folder
  }

  /** Blobs are in 256 folders, by the first two digits of their hash, and move there once they are whole. */
  #pathOf(hash: string): string {
    checkHash(hash)
    return join(this.#folder, hash.slice(0, 2), hash)
  }

  async put(bytes: Uint8Array): Promise<string> {
    // Several machines may put the same blob at once.
    const temporary = join(this.#folder, `${randomUUID()}.tmp`)
    try {
      await makeFolder(this.#folder)
      const [hash] = await Promise.all([hashOfBlob(bytes), writeSynced(temporary, [bytes])])
      const path = this.#pathOf(hash)
      const folder = join(path, '..')
      await disk.rename(temporary, path).catch(async (cause: NodeJS.ErrnoException) => {
        if (cause.code !== 'ENOENT') throw cause
        await makeFolder(folder)
        await disk.rename(temporary, path)
      })
      await syncFolder(folder)
      return hash
    } catch (cause) {
      await disk.remove(temporary).catch(() => undefined) // The first error is the one to report.
      throw cannotWrite(this.#folder, cause)
    }
  }

  async get(hash: string, range?: BlobRange): Promise<Uint8Array> {
    if (range !== undefined) checkRange(range)
    const found = await openPlain(this.#pathOf(hash)).catch((cause: NodeJS.ErrnoException) => {
      throw cause.code === 'ENOENT' ? new BlobError(hash, true) : cause
    })
    try {
      const { handle, size } = found
      const { from, to } = range ?? { from: 0, to: size }
      const bytes = Buffer.allocUnsafeSlow(Math.max(0, Math.min(to, size) - from)) // All of it is read.
      const read = async (at: number, length: number) => (await handle.read(bytes, at, length, from + at)).bytesRead
      await readHashed(hash, range === undefined, bytes, read)
      return bytes
    } finally {
      await found.handle.close()
    }
  }

  drop(hash: string): Promise<void> {
    return disk.remove(this.#pathOf(hash))
  }

  async list(): Promise<string[]> {
    const hashes: string[] = []
    const names = (await listFolder(this.#folder)).sort()
    for (const part of names.filter((name) => /^[\da-f]{2}$/.test(name))) {
      const blobs = await listFolder(join(this.#folder, part))
      hashes.push(...blobs.filter((name) => /^[\da-f]{64}$/.test(name)).sort())
    }
    for (const name of names.filter((each) => each.endsWith('.tmp'))) await this.#dropAbandoned(name)
    return hashes
  }

  async #dropAbandoned(name: string): Promise<void> {
    const path = join(this.#folder, name)
    const found = await stat(path).catch(() => null) // Its writer has just renamed it.
    if (found !== null && Date.now() - found.mtimeMs > ABANDONED_MS) await disk.remove(path)
  }

  async close(): Promise<void> {}
}
