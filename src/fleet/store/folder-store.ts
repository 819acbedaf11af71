/** A store in a folder, which may be a file system that several machines mount. */
import { createHash, randomUUID } from 'node:crypto'
import { stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { OpenFile } from '../../base/files/disk.ts'
import { cannotWrite, disk, listFolder, makeFolder, openPlain, syncFolder, writeAll } from '../../base/files/files.ts'
import { givePiece, PIECE_BYTES, takePiece } from '../../base/pieces.ts'
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

  put(bytes: Uint8Array): Promise<string> {
    return this.#keep(async (handle) => {
      const [hash] = await Promise.all([hashOfBlob(bytes), writeAll(handle, bytes)])
      return hash
    })
  }

  /** Keeps pieces as one blob, like `put`. Each piece is used before the next one is requested. */
  putPieces(pieces: AsyncIterable<Uint8Array>): Promise<string> {
    return this.#keep(async (handle) => {
      const digest = createHash('sha256')
      for await (const piece of pieces) {
        const writing = writeAll(handle, piece)
        writing.catch(() => {}) // It is awaited below.
        digest.update(piece)
        await writing
      }
      return digest.digest('hex')
    })
  }

  /** Writes a blob to a file of its own, which moves to its place under the hash that `write` returns. */
  async #keep(write: (handle: OpenFile) => Promise<string>): Promise<string> {
    // Several machines may put the same blob at once.
    const temporary = join(this.#folder, `${randomUUID()}.tmp`)
    try {
      const handle = await this.#inFolder(this.#folder, () => disk.open(temporary, 'w'))
      let hash: string
      try {
        hash = await write(handle)
        await disk.sync(handle)
      } finally {
        await disk.close(handle)
      }
      const path = this.#pathOf(hash)
      const folder = dirname(path)
      await this.#inFolder(folder, () => disk.rename(temporary, path))
      await syncFolder(folder)
      return hash
    } catch (cause) {
      await disk.remove(temporary).catch(() => undefined) // The first error is the one to report.
      throw cannotWrite(this.#folder, cause)
    }
  }

  /** Does something in a folder; if that is missing, it is made first. */
  async #inFolder<T>(folder: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== 'ENOENT') throw cause
      await makeFolder(folder)
      return work()
    }
  }

  async get(hash: string, range?: BlobRange): Promise<Uint8Array> {
    if (range !== undefined) checkRange(range)
    const found = await this.#open(hash)
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

  async #open(hash: string): ReturnType<typeof openPlain> {
    return openPlain(this.#pathOf(hash)).catch((cause: NodeJS.ErrnoException) => {
      throw cause.code === 'ENOENT' ? new BlobError(hash, true) : cause
    })
  }

  /** The bytes of a blob. @throws BlobError if it is missing. */
  async sizeOf(hash: string): Promise<number> {
    const { handle, size } = await this.#open(hash)
    await handle.close()
    return size
  }

  /**
   * Reads a range, which is cut at the blob's end and not compared with the hash, in pieces: a piece is valid until the next one is
   * requested. While one is used, the next one is read. @throws BlobError if the blob is missing.
   */
  async *pieces(hash: string, range: BlobRange): AsyncGenerator<Uint8Array, void, undefined> {
    checkRange(range)
    const { handle, size } = await this.#open(hash)
    const memory = [takePiece(), takePiece()] as const
    let [at, to, turn] = [range.from, Math.min(range.to, size), 0]
    const read = () => handle.read(memory[turn % 2]!, 0, Math.min(PIECE_BYTES, to - at), at)
    let reading = at < to ? read() : null
    try {
      while (reading !== null) {
        const { bytesRead, buffer } = await reading
        if (bytesRead === 0) throw new BlobError(hash, false)
        at += bytesRead
        turn++
        reading = at < to ? read() : null
        reading?.catch(() => {}) // It is awaited later.
        yield buffer.subarray(0, bytesRead)
      }
    } finally {
      await reading?.catch(() => {})
      memory.forEach(givePiece)
      await handle.close()
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
