/** A store in a folder, which may be a file system that several machines mount. */
import { randomUUID } from 'node:crypto'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import {
  cannotWrite,
  disk,
  isThere,
  listFolder,
  makeFolder,
  openPlain,
  syncFolder,
  writeSynced,
} from '../../base/files/files.ts'
import { BlobError, type BlobRange, checkBlob, checkHash, checkRange, hashOfBlob, type OwnStore } from './store.ts'

/** Age in milliseconds after which a file with a temporary name belongs to a writer that has died. */
const ABANDONED_MS = 3_600_000

export class FolderStore implements OwnStore {
  readonly #folder: string

  constructor(folder: string) {
    this.#folder = folder
  }

  /** Blobs are in 256 folders, by the first two digits of their hash. */
  #pathOf(hash: string): string {
    checkHash(hash)
    return join(this.#folder, hash.slice(0, 2), hash)
  }

  async put(bytes: Uint8Array): Promise<string> {
    const hash = hashOfBlob(bytes)
    const path = this.#pathOf(hash)
    if (await isThere(path)) return hash
    // Several machines may put the same blob at once.
    const temporary = `${path}.${randomUUID()}.tmp`
    const folder = join(path, '..')
    try {
      await makeFolder(folder)
      await writeSynced(temporary, [bytes])
      await disk.rename(temporary, path)
      await syncFolder(folder)
    } catch (cause) {
      await disk.remove(temporary).catch(() => undefined) // The first error is the one to report.
      throw cannotWrite(path, cause)
    }
    return hash
  }

  async get(hash: string, range?: BlobRange): Promise<Uint8Array> {
    if (range !== undefined) checkRange(range)
    const found = await openPlain(this.#pathOf(hash)).catch((cause: NodeJS.ErrnoException) => {
      throw cause.code === 'ENOENT' ? new BlobError(hash, true) : cause
    })
    try {
      const { handle, size } = found
      const { from, to } = range ?? { from: 0, to: size }
      const bytes = new Uint8Array(Math.max(0, Math.min(to, size) - from))
      for (let done = 0; done < bytes.length; ) {
        const { bytesRead } = await handle.read(bytes, done, bytes.length - done, from + done)
        if (bytesRead === 0) throw new BlobError(hash, false)
        done += bytesRead
      }
      if (range === undefined) checkBlob(hash, bytes)
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
    for (const part of (await listFolder(this.#folder)).filter((name) => /^[\da-f]{2}$/.test(name)).sort()) {
      const names = await listFolder(join(this.#folder, part))
      hashes.push(...names.filter((name) => /^[\da-f]{64}$/.test(name)).sort())
      for (const name of names.filter((each) => each.endsWith('.tmp'))) await this.#dropAbandoned(part, name)
    }
    return hashes
  }

  async #dropAbandoned(part: string, name: string): Promise<void> {
    const path = join(this.#folder, part, name)
    const found = await stat(path).catch(() => null) // Its writer has just renamed it.
    if (found !== null && Date.now() - found.mtimeMs > ABANDONED_MS) await disk.remove(path)
  }

  async close(): Promise<void> {}
}
