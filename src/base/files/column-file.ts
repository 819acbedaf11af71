/**
 * Columns that two processes share through a file, and the text lines with which they notify each other. Node cannot
 * map files, so it reads or writes a request's columns by one positioned call; the other process maps the pages (in
 * /dev/shm if possible, so never on disk). A doorbell is a pair of pipes: the reader sleeps, and gets the end of file
 * when the other process is gone.
 *
 * Protocol `colonnade-columns`, version 1. `python/colonnade.py` has the other side, and describes it.
 */
import { closeSync, existsSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export const PROTOCOL = 'colonnade-columns'
export const PROTOCOL_VERSION = 1

/** Columns are aligned to cache lines, in bytes. */
const ALIGNMENT = 64

interface Arrays {
  f32: Float32Array
  f64: Float64Array
  i32: Int32Array
  u32: Uint32Array
  u8: Uint8Array
}

type ColumnType = keyof Arrays

export interface FileColumn {
  readonly type: ColumnType
  /** Bytes from the start of the file. */
  readonly offset: number
  readonly shape: readonly number[]
}

const arrays = { f32: Float32Array, f64: Float64Array, i32: Int32Array, u32: Uint32Array, u8: Uint8Array }

/** Plans columns one after another, in the given order. */
export function planFile(columns: Readonly<Record<string, readonly [ColumnType, readonly number[]]>>): {
  columns: Record<string, FileColumn>
  bytes: number
} {
  let bytes = 0
  const planned = Object.entries(columns).map(([name, [type, shape]]): [string, FileColumn] => {
    const column = { type, offset: bytes, shape }
    bytes += Math.ceil(bytesOf(column) / ALIGNMENT) * ALIGNMENT
    return [name, column]
  })
  return { columns: Object.fromEntries(planned), bytes }
}

function bytesOf({ type, shape }: FileColumn): number {
  return shape.reduce((product, side) => product * side, arrays[type].BYTES_PER_ELEMENT)
}

/** This process's copy of the columns, and the file that the other process maps. */
export class ColumnFile {
  readonly columns: Readonly<Record<string, FileColumn>>
  readonly #fd: number
  readonly #bytes: Uint8Array<ArrayBuffer>

  constructor(path: string, columns: Readonly<Record<string, FileColumn>>, bytes: number) {
    this.columns = columns
    this.#bytes = new Uint8Array(bytes)
    this.#fd = openSync(path, 'r+')
  }

  /** This process's copy of a column: as last read, or to be written. */
  column<T extends ColumnType>(name: string): Arrays[T] {
    const { type, offset, shape } = this.columns[name]!
    const length = shape.reduce((product, side) => product * side, 1)
    return new arrays[type](this.#bytes.buffer, offset, length) as unknown as Arrays[T]
  }

  /** Writes the columns from `first` to `last`, which are adjacent, by one call. */
  write(first: string, last: string): void {
    const [from, to] = this.#stretch(first, last)
    for (let at = from; at < to; ) at += writeSync(this.#fd, this.#bytes, at, to - at, at)
  }

  /** Reads the columns from `first` to `last` by one call. */
  read(first: string, last: string): void {
    const [from, to] = this.#stretch(first, last)
    for (let at = from; at < to; ) {
      const read = readSync(this.#fd, this.#bytes, at, to - at, at)
      if (read === 0)
        throw new Error(`columns ${first} to ${last}: got the end of their file, expected ${to - at} bytes`)
      at += read
    }
  }

  close(): void {
    closeSync(this.#fd)
  }

  #stretch(first: string, last: string): [from: number, to: number] {
    return [this.columns[first]!.offset, this.columns[last]!.offset + bytesOf(this.columns[last]!)]
  }
}

/** A folder of this process for a column file, in memory if possible. */
export function columnFolder(): string {
  return mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'colonnade-'))
}

/** Deletes such a folder and its contents; processes that have opened a file of it keep the file. */
export function removeColumnFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true })
}

/** Text lines to and from another process. Reading blocks the thread. */
export class Doorbell {
  readonly #from: number
  readonly #to: number
  readonly #chunk = new Uint8Array(65_536)
  readonly #decoder = new TextDecoder()
  #text = ''

  constructor(from: number, to: number) {
    this.#from = from
    this.#to = to
  }

  /** The next line, without its end; null if the other process is gone. */
  read(): string | null {
    for (;;) {
      const end = this.#text.indexOf('\n')
      if (end >= 0) {
        const line = this.#text.slice(0, end)
        this.#text = this.#text.slice(end + 1)
        return line
      }
      const count = readSync(this.#from, this.#chunk)
      if (count === 0) return null
      this.#text += this.#decoder.decode(this.#chunk.subarray(0, count), { stream: true })
    }
  }

  /** Writes a line. Returns false if the other process is gone. */
  write(line: string): boolean {
    try {
      writeSync(this.#to, `${line}\n`)
      return true
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EPIPE') return false
      throw error
    }
  }
}
