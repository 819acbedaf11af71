/**
 * A run's `metrics.jsonl`, followed while it grows: read in pieces, from where the last look ended. Of a long run neighboring
 * lines are put together, so that a file of any length takes the same memory. A long file is skimmed first: all of its lines are
 * counted, and a few hundred are read. What these tell is shown until all of it has been read.
 */
import type { FileHandle } from 'node:fs/promises'
import { openPlain, parseObject } from '../../base/files/files.ts'
import type { Points } from '../curves.ts'
import { entryOf } from '../loggers/entry.ts'

/** Bytes that are read at once. */
const PIECE = 2 ** 20
/** A file of more bytes than this is skimmed before it is read. */
const LONG = 2 ** 18
/** Lines that are read of a file that is skimmed, and its last one. */
const SKIMMED_LINES = 256
/** Points of a curve that are kept; with twice as many, each two become one. */
const POINTS = 1024
/** The longest line that is read; a longer one is passed over. */
const MAX_LINE = 64 * 2 ** 20

/** Objects in one another of a line that is read. */
const DEPTH = 64
/** Figures of a file that are kept, and objects that have some. */
const NAMES = 4096

/** The mean of the values that a stretch of lines has for a figure. */
class Means {
  readonly sums: number[] = []
  readonly counts: number[] = []

  add(point: number, value: number): void {
    while (this.sums.length <= point) {
      this.sums.push(0)
      this.counts.push(0)
    }
    this.sums[point] = this.sums[point]! + value
    this.counts[point] = this.counts[point]! + 1
  }

  /** Lets each two points become one. */
  halve(): void {
    for (const list of [this.sums, this.counts]) {
      const half = Math.ceil(list.length / 2)
      for (let i = 0; i < half; i++) list[i] = list[2 * i]! + (list[2 * i + 1] ?? 0)
      list.length = half
    }
  }
}

/** Figures by their names within one object of a line; names below it by the objects' keys. */
interface Level {
  readonly prefix: string
  readonly means: Map<string, Means>
  readonly levels: Map<string, Level>
}

const createLevel = (prefix: string): Level => ({ prefix, means: new Map(), levels: new Map() })

/** What lines tell. */
class Figures {
  /** By name, in the order in which they appeared. */
  readonly means = new Map<string, Means>()
  readonly #root = createLevel('')
  /** Lines that one point stands for. */
  #stride = 1
  lines = 0
  damaged = 0
  /** Whether there are more figures than are kept. */
  isCut = false
  #levels = 0
  /** The last line that is an object. */
  last: object = {}

  /** Adds a line; `number`: how many lines there are up to it, more than before. */
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
    while (Math.floor((number - 1) / this.#stride) + 1 >= 2 * POINTS) {
      this.#stride *= 2
      for (const means of this.means.values()) means.halve()
    }
  }

  #addAll(level: Level, object: Readonly<Record<string, unknown>>, point: number, depth = 0): void {
    if (depth > DEPTH) throw new Error(`objects ${DEPTH} deep`)
    for (const key of Object.keys(object)) {
      const value = object[key]
      if (typeof value === 'number') {
        if (Number.isFinite(value) && (level.means.has(key) || this.#hasRoom()))
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

  #hasRoom(): boolean {
    this.isCut ||= this.means.size + this.#levels >= NAMES
    return !this.isCut
  }

  #meansOf(level: Level, key: string): Means {
    const known = level.means.get(key)
    if (known !== undefined) return known
    const name = level.prefix + key
    const means = this.means.get(name) ?? new Means() // `a/b` may be a key, and b a key of the object a.
    this.means.set(name, means)
    level.means.set(key, means)
    return means
  }
}

/** The lines of a file, a piece at a time. */
class Lines {
  /** What is not whole yet, in the pieces in which it came. */
  #rest: Buffer[] = []
  #isSkipping = false

  /** Calls `take` for each line that has become whole. Returns how many lines were too long. */
  split(piece: Buffer, take: (bytes: Buffer, from: number, end: number) => void): number {
    const isWhole = piece.includes(10)
    const bytes = isWhole && this.#rest.length > 0 ? Buffer.concat([...this.#rest, piece]) : piece
    let from = 0
    for (let end = bytes.indexOf(10); end !== -1; end = bytes.indexOf(10, from)) {
      if (this.#isSkipping) this.#isSkipping = false
      else if (end > from) take(bytes, from, end)
      from = end + 1
    }
    if (isWhole) this.#rest = []
    if (from < bytes.length) this.#rest.push(Buffer.from(bytes.subarray(from)))
    if (this.#rest.reduce((sum, { length }) => sum + length, 0) <= MAX_LINE) return 0
    this.#rest = []
    const isFirst = !this.#isSkipping
    this.#isSkipping = true
    return isFirst ? 1 : 0
  }
}

/** What can be told of a metrics file. */
export class MetricsFile {
  readonly #path: string
  #offset = 0
  /** Which file it was: one that has taken its place is read from its beginning. */
  #inode = 0
  #lines = new Lines()
  #figures = new Figures()
  /** What a skimmed file tells until all of it is read. */
  #skimmed: Figures | null = null

  constructor(path: string) {
    this.#path = path
  }

  get #told(): Figures {
    return this.#skimmed ?? this.#figures
  }

  /** Whether lines are left out that are still to be read. */
  get isSkimmed(): boolean {
    return this.#skimmed !== null
  }

  /** Lines that there are, and those that were read and are no JSON objects. */
  get lines(): number {
    return this.#told.lines
  }

  get damaged(): number {
    return this.#told.damaged
  }

  /** Whether there are more figures than are shown. */
  get isCut(): boolean {
    return this.#told.isCut
  }

  /** The names of the numbers, in the order in which they appeared. */
  get names(): string[] {
    return [...this.#told.means.keys()]
  }

  /** The numbers of the last line. */
  get last(): Readonly<Record<string, number>> {
    const { lines, last, means } = this.#told
    const values = Object.entries(entryOf(lines, last).values).filter(([name]) => means.has(name))
    return lines === 0 ? {} : { line: lines, ...Object.fromEntries(values) }
  }

  /** Skims a long file of which nothing has been read. True if it did. */
  async skim(signal?: AbortSignal): Promise<boolean> {
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

  /** Reads what is new. True if there was anything. */
  async read(signal?: AbortSignal): Promise<boolean> {
    const found = await this.#open()
    if (found === null) return false
    const { handle, size } = found
    try {
      const before = this.#offset
      for await (const piece of pieces(handle, before, size, signal)) {
        this.#offset += piece.length
        const figures = this.#figures
        const tooLong = this.#lines.split(piece, (bytes, from, end) => figures.add(bytes.toString('utf8', from, end)))
        figures.damaged += tooLong
      }
      if (signal?.aborted) return false
      this.#skimmed = null
      return this.#offset > before
    } finally {
      await handle.close()
    }
  }

  /** A figure over another one; lines that lack one of the two are left out. */
  curve(name: string, over: string): Points {
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

  /** The file, and how long it is; null if there is none. One that is another than before is begun anew. */
  async #open(): Promise<{ handle: FileHandle; size: number } | null> {
    const found = await openPlain(this.#path).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return null
      throw error
    })
    if (found === null) return null
    const { handle, size } = found
    const { ino } = await handle.stat()
    if (ino !== this.#inode || size < this.#offset) {
      this.#inode = ino
      this.#offset = 0
      this.#lines = new Lines()
      this.#figures = new Figures()
      this.#skimmed = null
    }
    return { handle, size }
  }
}

/** A file's bytes between two places. Each piece stands where the next one will. */
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
