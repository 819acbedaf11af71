/**
 * Columns that two processes share through a file, and the line of text by which one tells the other that they are written. Node cannot
 * map a file: it moves the columns that a request or an answer takes by one positioned write or read, of pages that the other has mapped
 * (in /dev/shm, where there is one, they are never on a disk). A doorbell is a pair of pipes. Whoever waits for it sleeps, and reads its end
 * when the other process is gone.
 *
 * Protocol `colonnade-columns`, version 1: `python/colonnade.py` has the other side, and says how it goes.
 */
import { closeSync, existsSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export const PROTOCOL = 'colonnade-columns'
export const PROTOCOL_VERSION = 1

/** Columns begin at multiples of so many bytes: cache lines. */
const ALIGNMENT = 64

/** The typed array of each type of columns. */
interface Arrays {
  f32: Float32Array
  f64: Float64Array
  i32: Int32Array
  u32: Uint32Array
  u8: Uint8Array
}

type ColumnType = keyof Arrays

/** The place of a column in the file. */
export interface FileColumn {
  readonly type: ColumnType
  /** Bytes from the file's beginning. */
  readonly offset: number
  readonly shape: readonly number[]
}

const arrays = { f32: Float32Array, f64: Float64Array, i32: Int32Array, u32: Uint32Array, u8: Uint8Array }

/** Plans columns one after another, in the order in which they are given. */
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

/** This process's copy of the columns, and the file that another has mapped. */
export class ColumnFile {
  readonly columns: Readonly<Record<string, FileColumn>>
  readonly #fd: number
  readonly #bytes: Uint8Array<ArrayBuffer>

  /** Opens a file that has so many bytes. */
  constructor(path: string, columns: Readonly<Record<string, FileColumn>>, bytes: number) {
    this.columns = columns
    this.#bytes = new Uint8Array(bytes)
    this.#fd = openSync(path, 'r+')
  }

  /** A column as this process has it: what was read last, or will be written. */
  column<T extends ColumnType>(name: string): Arrays[T] {
    const { type, offset, shape } = this.columns[name]!
    const length = shape.reduce((product, side) => product * side, 1)
    return new arrays[type](this.#bytes.buffer, offset, length) as unknown as Arrays[T]
  }

  /** Writes the columns from the first to the last of these, which stand one after another, at once. */
  write(first: string, last: string): void {
    const [from, to] = this.#stretch(first, last)
    for (let at = from; at < to; ) at += writeSync(this.#fd, this.#bytes, at, to - at, at)
  }

  /** Reads the columns from the first to the last of these at once. */
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

/** A folder of this process's own for a file of columns: in memory where the machine has such a place. */
export function columnFolder(): string {
  return mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'colonnade-'))
}

/** Deletes such a folder and its contents; processes that have opened a file of it keep the file. */
export function removeColumnFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true })
}

/** Lines of text to and from another process. Reading waits: the thread sleeps meanwhile. */
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

  /** The next line, without its end; null where the other is gone. */
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

  /** Writes a line. Returns false where the other is gone. */
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
