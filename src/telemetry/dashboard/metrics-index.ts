/**
 * A run's `metrics.index`: the reduced curves of the first bytes of its `metrics.jsonl`, so that a page with hundreds of long runs opens
 * without reading their lines. The file is the length of a JSON object (4 bytes), the object, padding to 8 bytes, and for each metric its
 * sums and its counts as f64.
 */
import type { FileHandle } from 'node:fs/promises'
import { openPlain, parseObject, refuseDeep, writeWhole } from '../../base/files/files.ts'

const VERSION = 1
/** A curve has fewer points than this. */
export const POINTS_MAX = 2048
/** Maximum metrics kept of a file, and maximum objects that contain them. */
export const NAMES_MAX = 4096
/** Maximum bytes of a head: it has a line of the file. */
const HEAD_BYTES = 2 ** 27
/** Last bytes of the indexed part by which a file is known again. */
export const TAIL_BYTES = 256

/** What the index says of the lines before `offset`. */
export interface IndexHead {
  readonly version: number
  readonly offset: number
  /** The bytes before `offset`, in base64: a file that was written anew has others. */
  readonly tail: string
  readonly lines: number
  readonly damaged: number
  /** Lines per point. */
  readonly stride: number
  readonly last: object
  readonly names: readonly string[]
  /** Points of each metric. */
  readonly points: readonly number[]
}

/** An opened index: its head, the text of the head, and where the numbers of each metric begin. */
export interface MetricsIndex {
  readonly head: IndexHead
  readonly text: string
  readonly places: readonly number[]
}

/** Sums and counts of a metric's points. */
export interface Sums {
  readonly sums: readonly number[]
  readonly counts: readonly number[]
}

const beginOf = (headBytes: number) => Math.ceil((4 + headBytes) / 8) * 8

export async function writeIndex(
  path: string,
  head: Omit<IndexHead, 'version' | 'names' | 'points'>,
  means: ReadonlyMap<string, Sums>,
): Promise<void> {
  const [names, all] = [[...means.keys()], [...means.values()]]
  const whole: IndexHead = { version: VERSION, ...head, names, points: all.map(({ sums }) => sums.length) }
  const bytes = Buffer.from(JSON.stringify(whole))
  const begin = Buffer.alloc(beginOf(bytes.length))
  begin.writeUInt32LE(bytes.length)
  begin.set(bytes, 4)
  const numbers = all.flatMap(({ sums, counts }) =>
    [sums, counts].map((list) => new Uint8Array(Float64Array.from(list).buffer)),
  )
  await writeWhole(path, [begin, ...numbers])
}

/** Reads an index without its numbers; null where there is none, or one that is damaged or of another version. */
export async function readIndex(path: string): Promise<MetricsIndex | null> {
  const found = await openPlain(path).catch(() => null) // Without one, the lines are read.
  if (found === null) return null
  try {
    const text = await headOf(found.handle, found.size)
    const head = text === null ? null : parseHead(text)
    if (head === null) return null
    let at = beginOf(Buffer.byteLength(text!))
    const places = head.points.map((count) => {
      const place = at
      at += 16 * count
      return place
    })
    return at === found.size ? { head, text: text!, places } : null
  } finally {
    await found.handle.close()
  }
}

/** The numbers of these metrics, by their numbers in the head; null if the index is another by now. */
export async function readSums(
  path: string,
  { head, text, places }: MetricsIndex,
  metrics: readonly number[],
): Promise<Sums[] | null> {
  const found = await openPlain(path).catch(() => null)
  if (found === null) return null
  try {
    if ((await headOf(found.handle, found.size)) !== text) return null
    const all: Sums[] = []
    for (const metric of metrics) {
      const count = head.points[metric]!
      const numbers = new Float64Array(2 * count)
      const { bytesRead } = await found.handle.read(
        new Uint8Array(numbers.buffer),
        0,
        numbers.byteLength,
        places[metric]!,
      )
      if (bytesRead < numbers.byteLength) return null
      all.push({ sums: [...numbers.subarray(0, count)], counts: [...numbers.subarray(count)] })
    }
    return all
  } finally {
    await found.handle.close()
  }
}

function isHead(found: object): found is IndexHead {
  const { version, offset, tail, lines, damaged, stride, last, names, points } = found as Partial<IndexHead>
  const isCount = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0
  return (
    version === VERSION &&
    [offset, lines, damaged, stride].every(isCount) &&
    stride! >= 1 &&
    Math.ceil(lines! / stride!) < POINTS_MAX &&
    typeof tail === 'string' &&
    typeof last === 'object' &&
    last !== null &&
    Array.isArray(names) &&
    names.every((name) => typeof name === 'string') &&
    names.length <= NAMES_MAX &&
    new Set(names).size === names.length &&
    Array.isArray(points) &&
    points.length === names.length &&
    points.every((count) => isCount(count) && count <= POINTS_MAX)
  )
}

function parseHead(text: string): IndexHead | null {
  try {
    const found = parseObject(text)
    refuseDeep('metrics.index', found)
    return found !== null && isHead(found) ? found : null
  } catch {
    return null // It is damaged: the lines are read.
  }
}

async function headOf(handle: FileHandle, size: number): Promise<string | null> {
  const length = Buffer.alloc(4)
  if ((await handle.read(length, 0, 4, 0)).bytesRead < 4) return null
  const bytes = length.readUInt32LE()
  if (bytes > HEAD_BYTES || 4 + bytes > size) return null
  const text = Buffer.alloc(bytes)
  return (await handle.read(text, 0, bytes, 4)).bytesRead < bytes ? null : text.toString()
}
