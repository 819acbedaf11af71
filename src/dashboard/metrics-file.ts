/**
 * A run's `metrics.jsonl`, followed while it grows: read in pieces, from where the last look ended. Of a long run neighboring
 * lines are put together, so that a file of any length takes the same memory.
 */
import { open } from 'node:fs/promises'
import { entryOf } from '../loggers/entry.ts'

/** Bytes that are read at once. */
const PIECE = 2 ** 20
/** Points of a curve that are kept; with twice as many, each two become one. */
const POINTS = 8192
/** The longest line that is read; a longer one is passed over. */
const MAX_LINE = 64 * 2 ** 20

/** Points of a figure, in the order of the lines. */
export interface Curve {
  readonly x: number[]
  readonly y: number[]
}

/** The mean of the values that a stretch of lines has for a figure. */
class Means {
  readonly sums: number[] = []
  readonly counts: number[] = []
}

/** What can be told of a metrics file. */
export class MetricsFile {
  readonly #path: string
  #offset = 0
  /** Which file it was: one that has taken its place is read from its beginning. */
  #inode = 0
  #rest: Buffer = Buffer.alloc(0)
  #isSkipping = false
  /** Lines that one point stands for. */
  #stride = 1
  #figures = new Map<string, Means>()
  #lines = 0
  #damaged = 0
  #last: Readonly<Record<string, number>> = {}

  constructor(path: string) {
    this.#path = path
  }

  /** Lines that were read, and those of them that are no JSON objects. */
  get lines(): number {
    return this.#lines
  }

  get damaged(): number {
    return this.#damaged
  }

  /** The names of the numbers, in the order in which they appeared. */
  get names(): string[] {
    return [...this.#figures.keys()]
  }

  /** The numbers of the last line. */
  get last(): Readonly<Record<string, number>> {
    return this.#last
  }

  /** Reads what is new. True if there was anything. */
  async read(): Promise<boolean> {
    const handle = await open(this.#path, 'r').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return null
      throw error
    })
    if (handle === null) return false
    try {
      const { size, ino } = await handle.stat()
      if (ino !== this.#inode || size < this.#offset) this.#reset(ino)
      const before = this.#offset
      const piece = Buffer.alloc(Math.min(PIECE, Math.max(0, size - this.#offset)))
      while (this.#offset < size) {
        const { bytesRead } = await handle.read(piece, 0, piece.length, this.#offset)
        if (bytesRead === 0) break
        this.#offset += bytesRead
        this.#take(piece.subarray(0, bytesRead))
      }
      return this.#offset > before
    } finally {
      await handle.close()
    }
  }

  /** A figure over another one; lines that lack one of the two are left out. */
  curve(name: string, over: string): Curve {
    const [x, y] = [this.#figures.get(over), this.#figures.get(name)]
    const curve: Curve = { x: [], y: [] }
    if (x === undefined || y === undefined) return curve
    for (let i = 0; i < y.sums.length; i++) {
      if (!(y.counts[i]! > 0 && x.counts[i]! > 0)) continue
      curve.x.push(x.sums[i]! / x.counts[i]!)
      curve.y.push(y.sums[i]! / y.counts[i]!)
    }
    return curve
  }

  #reset(inode: number): void {
    this.#inode = inode
    this.#offset = 0
    this.#rest = Buffer.alloc(0)
    this.#isSkipping = false
    this.#stride = 1
    this.#figures = new Map()
    this.#lines = 0
    this.#damaged = 0
    this.#last = {}
  }

  #take(piece: Buffer): void {
    const bytes = this.#rest.length === 0 ? piece : Buffer.concat([this.#rest, piece])
    let from = 0
    for (let end = bytes.indexOf(10); end !== -1; end = bytes.indexOf(10, from)) {
      if (this.#isSkipping) this.#isSkipping = false
      else if (end > from) this.#line(bytes.toString('utf8', from, end))
      from = end + 1
    }
    this.#rest = Buffer.from(bytes.subarray(from)) // What is not whole yet.
    if (this.#rest.length <= MAX_LINE) return
    this.#rest = Buffer.alloc(0)
    if (!this.#isSkipping) this.#damaged++
    this.#isSkipping = true
  }

  #line(text: string): void {
    let line: unknown
    try {
      line = JSON.parse(text)
    } catch {
      line = null
    }
    if (typeof line !== 'object' || line === null || Array.isArray(line)) {
      this.#damaged++
      return
    }
    this.#lines++
    const { values } = entryOf(this.#lines, line)
    this.#last = { line: this.#lines, ...values }
    const point = Math.floor((this.#lines - 1) / this.#stride)
    for (const [name, value] of Object.entries(this.#last)) {
      if (!Number.isFinite(value)) continue
      let means = this.#figures.get(name)
      if (means === undefined) {
        means = new Means()
        this.#figures.set(name, means)
      }
      while (means.sums.length <= point) {
        means.sums.push(0)
        means.counts.push(0)
      }
      means.sums[point] = means.sums[point]! + value
      means.counts[point] = means.counts[point]! + 1
    }
    if (point + 1 >= 2 * POINTS) this.#halve()
  }

  /** Lets each two points become one. */
  #halve(): void {
    this.#stride *= 2
    for (const { sums, counts } of this.#figures.values()) {
      for (const list of [sums, counts]) {
        const half = Math.ceil(list.length / 2)
        for (let i = 0; i < half; i++) list[i] = list[2 * i]! + (list[2 * i + 1] ?? 0)
        list.length = half
      }
    }
  }
}
