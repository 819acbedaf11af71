/**
 * Follows a growing `metrics.jsonl`, reading in pieces from the last position. For a long run, neighboring lines are averaged, so that
 * memory does not depend on the file's length. A long file is skimmed first: its lines are counted and a few hundred are read, whose
 * values are shown until the whole file has been read. What the run's index has (`metrics-index.ts`) is not read again.
 */
import { type FileHandle, lstat } from 'node:fs/promises'
import { openPlain, parseObject } from '../../base/files/files.ts'
import type { Points } from '../curves.ts'
import { entryOf } from '../loggers/entry.ts'
import {
  type MetricsIndex,
  NAMES_MAX,
  POINTS_MAX,
  readIndex,
  readSums,
  type Sums,
  TAIL_BYTES,
  writeIndex,
} from './metrics-index.ts'

/** Bytes per read. */
const PIECE = 2 ** 20
/** Size from which a file is skimmed before it is read. */
const LONG = 2 ** 18
/** Number of lines read when skimming, besides the last one. */
const SKIMMED_LINES = 256
/** The longest line that is read; longer ones are skipped. */
const MAX_LINE = 64 * 2 ** 20

/** Maximum nesting of objects in a line. */
const DEPTH = 64

/** Means of a metric over stretches of lines. */
class Means {
  sums: number[] = []
  counts: number[] = []
  /** The metric's number in the index in which its values still are; null: they are here. */
  indexed: number | null = null

  add(point: number, value: number): void {
    while (this.sums.length <= point) {
      this.sums.push(0)
      this.counts.push(0)
    }
    this.sums[point] = this.sums[point]! + value
    this.counts[point] = this.counts[point]! + 1
  }

  /** Averages pairs of points. */
  halve(): void {
    for (const list of [this.sums, this.counts]) {
      const half = Math.ceil(list.length / 2)
      for (let i = 0; i < half; i++) list[i] = list[2 * i]! + (list[2 * i + 1] ?? 0)
      list.length = half
    }
  }
}

/** Metrics by name within one object of a line, and nested objects by key. */
interface Level {
  readonly prefix: string
  readonly means: Map<string, Means>
  readonly levels: Map<string, Level>
}

const createLevel = (prefix: string): Level => ({ prefix, means: new Map(), levels: new Map() })

class Figures {
  /** By name, in order of appearance. */
  readonly means = new Map<string, Means>()
  readonly #root = createLevel('')
  /** Number of lines per point. */
  #stride = 1
  lines = 0
  damaged = 0
  /** Whether metrics were omitted. */
  isCut = false
  #levels = 0
  last: object = {}

  /** Figures whose values are still in an index. */
  static of({ head }: MetricsIndex): Figures {
    const figures = new Figures()
    figures.#stride = head.stride
    Object.assign(figures, { lines: head.lines, damaged: head.damaged, last: head.last })
    for (const [i, name] of head.names.entries()) figures.means.set(name, Object.assign(new Means(), { indexed: i }))
    return figures
  }

  get stride(): number {
    return this.#stride
  }

  /** Adds a line. `number` is its line number, higher than before. */
  add(text: string, number = this.lines + 1): void {
    const line = parseObject(text)
    const point = Math.floor((number - 1) / this.#stride)
    try {
      if (line === null) throw new Error('no object')
      this.#meansOf(this.#root, 'line').add(point, number)
      this.#addAll(this.#root, line, point)
    } catch {
      this.damaged++
      return
    }
    this.lines = number
    this.last = line
    // Pairs of points are averaged.
    while (Math.ceil(number / this.#stride) >= POINTS_MAX) {
      this.#stride *= 2
      for (const means of this.means.values()) means.halve()
    }
  }

  #addAll(level: Level, object: Readonly<Record<string, unknown>>, point: number, depth = 0): void {
    if (depth > DEPTH) throw new Error(`objects ${DEPTH} deep`)
    for (const key of Object.keys(object)) {
      const value = object[key]
      if (typeof value === 'number') {
        if (Number.isFinite(value) && (this.#isKnown(level, key) || this.#hasRoom()))
          this.#meansOf(level, key).add(point, value)
      } else if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
        let below = level.levels.get(key)
        if (below === undefined) {
          if (!this.#hasRoom()) continue
          this.#levels++
          below = createLevel(`${level.prefix}${key}/`)
          level.levels.set(key, below)
        }
        this.#addAll(below, value as Readonly<Record<string, unknown>>, point, depth + 1)
      }
    }
  }

  #isKnown(level: Level, key: string): boolean {
    return level.means.has(key) || this.means.has(level.prefix + key)
  }

  #hasRoom(): boolean {
    this.isCut ||= this.means.size + this.#levels >= NAMES_MAX
    return !this.isCut
  }

  #meansOf(level: Level, key: string): Means {
    const known = level.means.get(key)
    if (known !== undefined) return known
    const name = level.prefix + key
    const means = this.means.get(name) ?? new Means() // Two paths may give one name: a key `a/b`, and b within a.
    this.means.set(name, means)
    level.means.set(key, means)
    return means
  }
}

/** Splits a file into lines, piece by piece. */
class Lines {
  /** Pieces of an incomplete line. */
  #rest: Buffer[] = []
  isSkipping = false

  /** Bytes of the line that is not complete yet. */
  get numOpen(): number {
    return this.#rest.reduce((sum, { length }) => sum + length, 0)
  }

  /** Calls `take` for each completed line. Returns the number of lines that were too long. */
  split(piece: Buffer, take: (bytes: Buffer, from: number, end: number) => void): number {
    const isWhole = piece.includes(10)
    const bytes = isWhole && this.#rest.length > 0 ? Buffer.concat([...this.#rest, piece]) : piece
    let from = 0
    for (let end = bytes.indexOf(10); end !== -1; end = bytes.indexOf(10, from)) {
      if (this.isSkipping) this.isSkipping = false
      else if (end > from) take(bytes, from, end)
      from = end + 1
    }
    if (isWhole) this.#rest = []
    if (from < bytes.length) this.#rest.push(Buffer.from(bytes.subarray(from)))
    if (this.numOpen <= MAX_LINE) return 0
    this.#rest = []
    const isFirst = !this.isSkipping
    this.isSkipping = true
    return isFirst ? 1 : 0
  }
}

export class MetricsFile {
  readonly #path: string
  #offset = 0
  /** The file's inode: a replaced file is read from its beginning. */
  #inode = 0
  #lines = new Lines()
  #figures = new Figures()
  /** Metrics of a skimmed file until the whole file is read. */
  #skimmed: Figures | null = null
  /** Where values of `#figures` may still be. */
  #index: MetricsIndex | null = null
  /** Bytes that the file's index has. */
  #indexed = 0
  /** Whether it has begun anew since the last read. */
  #isAnew = false

  constructor(path: string) {
    this.#path = path
  }

  get #told(): Figures {
    return this.#skimmed ?? this.#figures
  }

  /** Whether some lines are still unread. */
  get isSkimmed(): boolean {
    return this.#skimmed !== null
  }

  /** Number of lines, and of damaged ones, which are not JSON objects. */
  get lines(): number {
    return this.#told.lines
  }

  get damaged(): number {
    return this.#told.damaged
  }

  /** Whether metrics were omitted. */
  get isCut(): boolean {
    return this.#told.isCut
  }

  /** The names of the metrics, in order of appearance. */
  get names(): string[] {
    return [...this.#told.means.keys()]
  }

  get last(): Readonly<Record<string, number>> {
    const { lines, last, means } = this.#told
    const values = Object.entries(entryOf(lines, last).values).filter(([name]) => means.has(name))
    return lines === 0 ? {} : { line: lines, ...Object.fromEntries(values) }
  }

  /** Skims a long unread file. Returns whether it did. */
  async skim(signal?: AbortSignal): Promise<boolean> {
    if (await this.#isRead()) return false
    const found = await this.#open()
    if (found === null) return false
    const { handle, size } = found
    try {
      if (this.#offset > 0 || size <= LONG) return false
      const [figures, lines] = [new Figures(), new Lines()]
      const step = size / SKIMMED_LINES
      let [number, offset, next, last] = [0, 0, 0, '']
      for await (const piece of pieces(handle, 0, size, signal)) {
        let keepLast = (): void => {}
        lines.split(piece, (bytes, from, end) => {
          number++
          if (offset >= next) {
            figures.add(bytes.toString('utf8', from, end), number)
            next += step
          }
          offset += end - from + 1
          keepLast = () => {
            last = bytes.toString('utf8', from, end)
          }
        })
        keepLast()
      }
      if (number > figures.lines) figures.add(last, number)
      this.#skimmed = figures
      return true
    } finally {
      await handle.close()
    }
  }

  /** Reads new lines. Returns whether there were any, or the file began anew. */
  async read(signal?: AbortSignal): Promise<boolean> {
    if (!this.#isAnew && (await this.#isRead())) return false
    const found = await this.#open()
    if (found === null) return false
    const { handle, size } = found
    try {
      const before = this.#offset
      if (before < size) await this.#fill([...this.#figures.means.keys()])
      if (this.#inode === 0) return false // The index was replaced: the next look begins anew.
      const isAnew = this.#isAnew
      this.#isAnew = false
      for await (const piece of pieces(handle, before, size, signal)) {
        this.#offset += piece.length
        const figures = this.#figures
        const tooLong = this.#lines.split(piece, (bytes, from, end) => figures.add(bytes.toString('utf8', from, end)))
        figures.damaged += tooLong
      }
      if (signal?.aborted) return false
      this.#skimmed = null
      return isAnew || this.#offset > before
    } finally {
      await handle.close()
    }
  }

  /** A metric over another; lines without one of them are left out. */
  async curve(name: string, over: string): Promise<Points> {
    await this.#fill([name, over])
    const { means } = this.#told
    const [x, y] = [means.get(over), means.get(name)]
    const curve = { x: [] as number[], y: [] as number[] }
    if (x === undefined || y === undefined) return curve
    for (let i = 0; i < y.sums.length; i++) {
      if (!(y.counts[i]! > 0 && x.counts[i]! > 0)) continue
      curve.x.push(x.sums[i]! / x.counts[i]!)
      curve.y.push(y.sums[i]! / y.counts[i]!)
    }
    return curve
  }

  /**
   * Writes an index of all lines that have been read, for files so long that it pays, unless it is there or metrics were omitted. The run
   * does so at its checkpoints; `read` comes first. `isLast`: the file hardly grows any more, so that its values need not stay in memory.
   */
  async keepIndex(isLast = false): Promise<void> {
    const end = this.#offset - this.#lines.numOpen
    if (this.#skimmed !== null || this.#lines.isSkipping || this.isCut || end <= LONG || end === this.#indexed) return
    await this.#fill([...this.#figures.means.keys()])
    const found = await this.#open()
    if (found === null) return
    try {
      if (this.#offset - this.#lines.numOpen !== end) return // The file or its index was replaced: it begins anew.
      const tail = await tailOf(found.handle, end)
      const { lines, damaged, stride, last, means } = this.#figures
      await writeIndex(this.#indexPath, { offset: end, tail, lines, damaged, stride, last }, means)
      this.#indexed = end
    } finally {
      await found.handle.close()
    }
    if (isLast) await this.#leaveToIndex(end)
  }

  /** Forgets values that an index of the first `end` bytes has. */
  async #leaveToIndex(end: number): Promise<void> {
    const index = await readIndex(this.#indexPath)
    const { means } = this.#figures
    if (index === null || index.head.offset !== end || index.head.names.length !== means.size) return
    this.#index = index
    for (const [i, each] of [...means.values()].entries()) Object.assign(each, { sums: [], counts: [], indexed: i })
  }

  get #indexPath(): string {
    return this.#path.replace(/jsonl$/, 'index')
  }

  /** Begins with what an index has, if it is of this file. */
  async #takeIndex(handle: FileHandle, size: number): Promise<void> {
    if (this.#offset > 0 || size <= LONG) return
    const index = await readIndex(this.#indexPath)
    if (index === null || index.head.offset > size) return
    if ((await tailOf(handle, index.head.offset)) !== index.head.tail) return
    this.#index = index
    this.#figures = Figures.of(index)
    this.#offset = this.#indexed = index.head.offset
  }

  /** Reads the values of these metrics that are still in the index. One that was replaced is no longer of use: the file starts over. */
  async #fill(names: readonly string[]): Promise<void> {
    const figures = this.#figures
    const wanted = names.flatMap((name) => figures.means.get(name) ?? []).filter(({ indexed }) => indexed !== null)
    if (wanted.length === 0) return
    const sums: readonly Sums[] | null = await readSums(
      this.#indexPath,
      this.#index!,
      wanted.map(({ indexed }) => indexed!),
    )
    if (figures !== this.#figures) return
    if (sums === null) this.#begin(0)
    for (const [i, each] of (sums ?? []).entries()) {
      // Another call may have read them meanwhile, and `read` added lines.
      if (wanted[i]!.indexed !== null) Object.assign(wanted[i]!, each, { indexed: null })
    }
  }

  #begin(inode: number): void {
    this.#inode = inode
    this.#isAnew ||= this.#offset > 0
    this.#offset = this.#indexed = 0
    this.#lines = new Lines()
    this.#figures = new Figures()
    this.#skimmed = this.#index = null
  }

  /** Whether all of it has been read, without opening it. */
  async #isRead(): Promise<boolean> {
    if (this.#inode === 0 || this.#skimmed !== null) return false
    const found = await lstat(this.#path).catch(() => null) // `#open` tells why.
    return found?.ino === this.#inode && found.size === this.#offset
  }

  /** Opens the file with its length; null if there is none. A replaced file starts over. */
  async #open(): Promise<{ handle: FileHandle; size: number } | null> {
    const found = await openPlain(this.#path).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return null
      throw error
    })
    if (found === null) return null
    const { handle, size, inode } = found
    if (inode !== this.#inode || size < this.#offset) {
      this.#begin(inode)
      await this.#takeIndex(handle, size)
    }
    return { handle, size }
  }
}

async function tailOf(handle: FileHandle, end: number): Promise<string> {
  const tail = Buffer.alloc(Math.min(TAIL_BYTES, end))
  const { bytesRead } = await handle.read(tail, 0, tail.length, end - tail.length)
  return tail.toString('base64', 0, bytesRead)
}

/** Yields a file's bytes between two positions. Each piece overwrites the previous one. */
async function* pieces(handle: FileHandle, from: number, to: number, signal?: AbortSignal): AsyncGenerator<Buffer> {
  const piece = Buffer.alloc(Math.min(PIECE, Math.max(0, to - from)))
  let offset = from
  while (offset < to && !signal?.aborted) {
    const { bytesRead } = await handle.read(piece, 0, Math.min(piece.length, to - offset), offset)
    if (bytesRead === 0) return
    offset += bytesRead
    yield piece.subarray(0, bytesRead)
  }
}
