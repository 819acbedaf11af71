/**
 * The arena: one shared `WebAssembly.Memory` in which every column lies that a kernel touches. The same bytes are read
 * by TypeScript systems, by compiled kernels, by worker threads and by Arrow. It is planned before it is taken, and does
 * not grow (maximum = initial).
 *
 * What comes with a plan but lies in the runtime's heap (a step's windows, a lane's entity) is summed before, too: a
 * heap that overflows ends the process. Where there is no room, the error says what was asked, for what, and what there
 * is.
 */
import { assert, checkGiven, InputError } from '../base/errors.ts'
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
 * Bytes of one way of a first-level cache. Columns of a multiple of it, as 1,024 lanes have, would all begin at the same
 * place of it, and rows that are used together would take each other's room: so such a column begins a line later.
 */
const CACHE_WAY_BYTES = 4096
/** No column starts at address 0, so that an offset of 0 is always a bug. */
const FIRST_BYTE = 1024

/** A `WebAssembly.Memory`, in a type that needs neither the DOM's library nor another. */
export interface WasmMemory {
  readonly buffer: ArrayBufferLike
}

/** The memory in which a plan's columns lie, for `createKernels`, and how large it is. */
export interface Arena {
  readonly memory: WasmMemory
  readonly buffer: SharedArrayBuffer
  readonly bytes: number
}

/** Bytes an arena for this plan takes, in whole pages. */
export function arenaBytes(plan: Plan): number {
  let end = FIRST_BYTE
  for (const { bytes } of listColumns(plan)) end = placeAfter(end, bytes) + bytes
  return Math.ceil(end / PAGE_BYTES) * PAGE_BYTES
}

/**
 * Takes the memory for a plan and lays its columns out in it, zeroed. `objects` are what comes with it in the heap.
 * @throws InputError if the plan needs more than an arena can hold or the machine has left, or its objects more than the
 * heap has; it says how much, for what, and how much there is.
 */
export function takeArena<P extends Plan>(
  plan: P,
  objects: readonly PlannedObjects[] = [],
): { arena: Arena; columns: Columns<P> } {
  checkGiven('plan of takeArena', plan, [])
  return layArena(plan, takeMemory(plan, objects))
}

/** Objects that come with a plan but lie in the runtime's heap: so many of a kind, and about how large each is. */
export interface PlannedObjects {
  readonly name: string
  readonly count: number
  readonly bytesEach: number
}

/** Refuses a plan whose objects do not fit into the runtime's heap, which would end the process. */
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
  const buffer = memory.buffer as unknown as SharedArrayBuffer
  const cursor = { byte: FIRST_BYTE }
  const columns = layOut(plan, buffer, cursor) as Columns<P>
  const bytes = buffer.byteLength
  assert(cursor.byte <= bytes, `columns end at ${cursor.byte}, beyond the arena's ${bytes} bytes`)
  return { arena: { memory, buffer, bytes }, columns }
}

/** The columns as views of a memory that another thread has sent, of whose buffer they were views there. */
export function viewColumns<C extends object>(columns: C, memory: WasmMemory): C {
  if (ArrayBuffer.isView(columns)) {
    const { byteOffset, length } = columns as unknown as Column
    return new (columns.constructor as Float32ArrayConstructor)(memory.buffer, byteOffset, length) as unknown as C
  }
  return Object.fromEntries(Object.entries(columns).map(([name, node]) => [name, viewColumns(node, memory)])) as C
}

/**
 * Bytes that an arena may have: as many as WebAssembly can address, or as the machine has left beside `besides` bytes that
 * will lie elsewhere.
 */
export function arenaRoom(besides = 0): number {
  return Math.min(PAGES_MAX * PAGE_BYTES, Math.max(0, (availableBytes() ?? Infinity) - besides))
}

/**
 * Refuses a plan that there is no room for, before anything is taken. `remedy` says what would make it smaller.
 * @throws InputError that says how much is asked for, for what, and how much there is.
 */
export function checkRoom(plan: Plan, besides = 0, remedy = ''): void {
  const bytes = arenaBytes(plan)
  const room = arenaRoom(besides)
  if (bytes <= room) return
  const beside = besides === 0 ? '' : ` beside ${formatBytes(besides)} that are read into the heap`
  const isAddressed = room === PAGES_MAX * PAGE_BYTES
  const limit = isAddressed ? formatBytes(room) : `the ${formatBytes(room)} that this machine has left${beside}`
  throw tooLarge(plan, bytes, `at most ${limit}${remedy === '' ? '' : `: ${remedy}`}`)
}

function takeMemory(plan: Plan, objects: readonly PlannedObjects[]): WasmMemory {
  checkRoom(plan)
  checkHeap(objects)
  if (typeof SharedArrayBuffer === 'undefined') {
    throw new InputError(
      'memory',
      'a runtime without SharedArrayBuffer',
      'Node, or a page that is cross-origin isolated',
    )
  }
  const bytes = arenaBytes(plan)
  const pages = bytes / PAGE_BYTES
  try {
    return new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })
  } catch (cause) {
    throw tooLarge(plan, bytes, `what the runtime grants (${(cause as Error).message})`, cause)
  }
}

function layOut(plan: Plan, buffer: SharedArrayBuffer, cursor: { byte: number }): object {
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

/** Where a column of so many bytes begins whose predecessor ends at `end`. */
function placeAfter(end: number, bytes: number): number {
  const aligned = Math.ceil(end / ALIGNMENT) * ALIGNMENT
  return bytes < CACHE_WAY_BYTES ? aligned : aligned + ALIGNMENT
}

/** What the machine has left for this process; undefined where the runtime does not tell (a browser). */
function availableBytes(): number | undefined {
  const runtime = globalThis.process as (NodeJS.Process & { availableMemory?: () => number }) | undefined
  return runtime?.availableMemory?.()
}

/** What the runtime's heap has left; undefined where the runtime does not tell (a browser). */
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

/** Bytes for people: 1.5 GiB. */
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
