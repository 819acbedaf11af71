/**
 * The arena: one `WebAssembly.Memory`, shared where threads can share memory, that holds every column that a kernel uses. TypeScript
 * systems, compiled kernels, worker threads and Arrow read the same bytes. It is planned before it is allocated, and does not grow (maximum
 * = initial).
 *
 * Heap objects of a plan (a step's windows, a lane's entity) are counted beforehand too, because a heap overflow ends the process. If
 * memory is short, the error says how much was requested, for what, and how much is available.
 */
import { assert, checkGiven, InputError } from '../base/errors.ts'
import { canShare } from '../base/shared.ts'
import {
  type Column,
  type Columns,
  elementBytes,
  isColumnSpec,
  listColumns,
  type Plan,
  type PlannedColumn,
  viewColumn,
} from './column.ts'

const PAGE_BYTES = 65_536
const PAGES_MAX = 65_536
/** Columns start at multiples of a cache line. */
const ALIGNMENT = 64
/**
 * Bytes of one way of a first-level cache. Columns whose size is a multiple of it, as for 1,024 lanes, would all map to the same cache
 * sets and evict one another, so such a column begins one line later.
 */
const CACHE_WAY_BYTES = 4096
/** No column starts at address 0, so that an offset of 0 is always a bug. */
const FIRST_BYTE = 1024

/** A `WebAssembly.Memory`, typed without the DOM library. */
export interface WasmMemory {
  readonly buffer: ArrayBufferLike
}

/** The memory of a plan's columns, for `createKernels`, and its size. */
export interface Arena {
  readonly memory: WasmMemory
  /** Shared wherever threads can share memory. */
  readonly buffer: ArrayBufferLike
  readonly bytes: number
}

/** Bytes of an arena for this plan, in whole pages. */
export function arenaBytes(plan: Plan): number {
  let end = FIRST_BYTE
  for (const { bytes } of listColumns(plan)) end = placeAfter(end, bytes) + bytes
  return Math.ceil(end / PAGE_BYTES) * PAGE_BYTES
}

/**
 * Allocates zeroed memory for a plan and lays out its columns. `objects` are the plan's heap objects.
 * @throws InputError if the plan exceeds the limit of an arena or the available memory, or its objects exceed the heap; it says how much
 * is needed, for what, and how much is available.
 */
export function takeArena<P extends Plan>(
  plan: P,
  objects: readonly PlannedObjects[] = [],
): { arena: Arena; columns: Columns<P> } {
  checkGiven('plan of takeArena', plan, [])
  return layArena(plan, takeMemory(plan, objects))
}

/** Heap objects of a plan: the number of objects of a kind, and their approximate size. */
export interface PlannedObjects {
  readonly name: string
  readonly count: number
  readonly bytesEach: number
}

/** Rejects a plan whose objects do not fit into the heap, which would end the process. */
function checkHeap(objects: readonly PlannedObjects[]): void {
  const available = availableHeapBytes()
  const bytes = objects.reduce((sum, { count, bytesEach }) => sum + count * bytesEach, 0)
  if (available === undefined || bytes <= available) return
  const words = objects
    .toSorted((a, b) => b.count * b.bytesEach - a.count * a.bytesEach)
    .slice(0, 3)
    .map(
      ({ name, count, bytesEach }) =>
        `${name} ${count} × ${formatBytes(bytesEach)} = ${formatBytes(count * bytesEach)}`,
    )
  throw new InputError(
    'memory',
    `a plan of ${formatBytes(bytes)} of objects (most of it for ${words.join(', ')})`,
    `at most the ${formatBytes(available)} that the runtime's heap has left (node --max-old-space-size sets it)`,
  )
}

/** Maps a plan's columns onto the memory that another thread allocated for the same plan, with its contents. */
export function layArena<P extends Plan>(plan: P, memory: WasmMemory): { arena: Arena; columns: Columns<P> } {
  const { buffer } = memory
  const cursor = { byte: FIRST_BYTE }
  const columns = layOut(plan, buffer, cursor) as Columns<P>
  const bytes = buffer.byteLength
  assert(cursor.byte <= bytes, `columns end at ${cursor.byte}, beyond the arena's ${bytes} bytes`)
  return { arena: { memory, buffer, bytes }, columns }
}

/** Recreates columns, which were views in another thread, as views of the memory that it sent. */
export function viewColumns<C extends object>(columns: C, memory: WasmMemory): C {
  if (ArrayBuffer.isView(columns)) {
    const { byteOffset, length } = columns as unknown as Column
    return new (columns.constructor as Float32ArrayConstructor)(memory.buffer, byteOffset, length) as unknown as C
  }
  return Object.fromEntries(Object.entries(columns).map(([name, node]) => [name, viewColumns(node, memory)])) as C
}

/** Available bytes for an arena: WebAssembly's limit, or the machine's available memory. */
export function arenaRoom(): number {
  return Math.min(PAGES_MAX * PAGE_BYTES, availableBytes() ?? Infinity)
}

/**
 * Rejects a plan that does not fit, before anything is allocated. `remedy` says how to make it smaller.
 * @throws InputError with the requested size, its purpose, and the available size.
 */
export function checkRoom(plan: Plan, remedy = ''): void {
  const bytes = arenaBytes(plan)
  const room = arenaRoom()
  if (bytes <= room) return
  const isAddressed = room === PAGES_MAX * PAGE_BYTES
  const limit = isAddressed ? formatBytes(room) : `the ${formatBytes(room)} that this machine has left`
  throw tooLarge(plan, bytes, `at most ${limit}${remedy === '' ? '' : `: ${remedy}`}`)
}

function takeMemory(plan: Plan, objects: readonly PlannedObjects[]): WasmMemory {
  checkRoom(plan)
  checkHeap(objects)
  const bytes = arenaBytes(plan)
  const pages = bytes / PAGE_BYTES
  try {
    return new WebAssembly.Memory({ initial: pages, maximum: pages, shared: canShare })
  } catch (cause) {
    throw tooLarge(plan, bytes, `what the runtime grants (${(cause as Error).message})`, cause)
  }
}

function layOut(plan: Plan, buffer: ArrayBufferLike, cursor: { byte: number }): object {
  const columns: Record<string, Column | object> = {}
  for (const [name, node] of Object.entries(plan)) {
    if (isColumnSpec(node)) {
      cursor.byte = placeAfter(cursor.byte, node.rows * node.width * elementBytes[node.type])
      const view = viewColumn(node.type, buffer, cursor.byte, node.rows * node.width)
      cursor.byte += view.byteLength
      columns[name] = view
    } else columns[name] = layOut(node, buffer, cursor)
  }
  return columns
}

/** The first byte of a column of `bytes` bytes after a column that ends at `end`. */
function placeAfter(end: number, bytes: number): number {
  const aligned = Math.ceil(end / ALIGNMENT) * ALIGNMENT
  return bytes < CACHE_WAY_BYTES ? aligned : aligned + ALIGNMENT
}

/** Available memory of the machine; undefined if the runtime does not report it (a browser). */
function availableBytes(): number | undefined {
  const runtime = globalThis.process as (NodeJS.Process & { availableMemory?: () => number }) | undefined
  return runtime?.availableMemory?.()
}

/** Available heap; undefined if the runtime does not report it (a browser). */
function availableHeapBytes(): number | undefined {
  const v8 = (globalThis.process as NodeJS.Process | undefined)?.getBuiltinModule?.('node:v8')
  if (v8 === undefined) return undefined
  const { heap_size_limit, used_heap_size } = v8.getHeapStatistics()
  return Math.max(0, heap_size_limit - used_heap_size)
}

function tooLarge(plan: Plan, bytes: number, expected: string, cause?: unknown): InputError {
  return new InputError('memory', `a plan of ${formatBytes(bytes)} (${largest(listColumns(plan))})`, expected, {
    cause,
  })
}

/** The three largest columns in words. */
function largest(columns: PlannedColumn[]): string {
  const top = columns.toSorted((a, b) => b.bytes - a.bytes).slice(0, 3)
  const words = top.map(
    ({ name, bytes, rows, width, type }) => `${name} ${rows} × ${width} ${type} = ${formatBytes(bytes)}`,
  )
  return `most of it for ${words.join(', ')}`
}

/** Formats bytes for people: 1.5 GiB. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']
  let value = bytes
  let unit = 0
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024
    unit++
  }
  return `${unit === 0 ? value : value.toFixed(2)} ${units[unit]}`
}
