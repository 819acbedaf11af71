/**
 * The arena: one `WebAssembly.Memory`, shared where threads can share memory, that holds every column that a kernel uses. TypeScript
 * systems, compiled kernels, worker threads and Arrow read the same bytes. It is planned before it is allocated, and does not grow (maximum
 * = initial).
 *
 * Such a memory has at most 4 GiB. In a larger plan, columns that may lie apart (`apart` in column.ts) share a plain buffer of their own,
 * which native and plain kernels reach, but WebAssembly does not.
 *
 * Heap objects of a plan (a step's windows, a lane's entity) are counted beforehand too, because a heap overflow ends the process. If
 * memory is short, the error says how much was requested, for what, and how much is available.
 */
import { checkGiven, InputError } from '../base/errors.ts'
import { canShare } from '../base/shared.ts'
import {
  type Column,
  type Columns,
  type ColumnType,
  elementBytes,
  isColumnSpec,
  type Plan,
  type PlannedColumn,
} from './column.ts'

const PAGE_BYTES = 65_536
/** What WebAssembly can address, in bytes. An object, so that tests can lower it. */
export const addressable = { bytes: 65_536 * PAGE_BYTES }
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
  /** The buffer of the columns that lie apart; null if none do. */
  readonly apart: SharedArrayBuffer | null
  /** Where the columns lie, for `createKernels`. */
  readonly columns: 'lasting' | 'apart'
  /** Both buffers. */
  readonly bytes: number
}

/** Bytes of an arena for this plan, in whole pages. */
export function arenaBytes(plan: Plan): number {
  const { memory, apart } = sizesOf(plan)
  return memory + apart
}

/** Bytes of the memory and of the buffer beside it, each in whole pages. */
function sizesOf(plan: Plan): { readonly memory: number; readonly apart: number } {
  const columns = listColumns(plan)
  const whole = bytesOf(columns)
  const beside = columns.filter(({ apart }) => apart && whole > addressable.bytes)
  if (beside.length === 0) return { memory: whole, apart: 0 }
  return { memory: bytesOf(columns.filter(({ apart }) => !apart)), apart: bytesOf(beside) }
}

function bytesOf(columns: readonly PlannedColumn[]): number {
  let end = FIRST_BYTE
  for (const { bytes } of columns) end = placeAfter(end, bytes) + bytes
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
  checkRoom(plan)
  checkHeap(objects)
  return layArena(plan, ...takeMemory(plan))
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
export function layArena<P extends Plan>(
  plan: P,
  memory: WasmMemory,
  apart: SharedArrayBuffer | null = null,
): { arena: Arena; columns: Columns<P> } {
  const { buffer } = memory
  const near = { buffer, byte: FIRST_BYTE }
  const far = apart === null ? near : { buffer: apart, byte: FIRST_BYTE }
  const columns = layOut(plan, near, far) as Columns<P> // A column beyond the end of its buffer is a RangeError.
  const bytes = buffer.byteLength + (apart?.byteLength ?? 0)
  return { arena: { memory, buffer, apart, columns: apart === null ? 'lasting' : 'apart', bytes }, columns }
}

/** Recreates columns, which were views in another thread, as views of the memory that it sent. Those that lie apart, came with it. */
export function viewColumns<C extends object>(columns: C, memory: WasmMemory, apart: SharedArrayBuffer | null): C {
  if (ArrayBuffer.isView(columns)) {
    if (columns.buffer === apart) return columns
    const { byteOffset, length } = columns as unknown as Column
    return new (columns.constructor as Float32ArrayConstructor)(memory.buffer, byteOffset, length) as unknown as C
  }
  return Object.fromEntries(
    Object.entries(columns).map(([name, node]) => [name, viewColumns(node, memory, apart)]),
  ) as C
}

/** Available bytes for a plan: WebAssembly's limit where it holds, or the machine's available memory. */
export function arenaRoom(plan: Plan): number {
  const { memory, apart } = sizesOf(plan)
  const limit = apart === 0 || memory > addressable.bytes ? addressable.bytes : Infinity
  return Math.min(limit, availableBytes() ?? Infinity)
}

/**
 * Rejects a plan that does not fit, before anything is allocated. `remedy` says how to make it smaller.
 * @throws InputError with the requested size, its purpose, and the available size.
 */
export function checkRoom(plan: Plan, remedy = ''): void {
  const bytes = arenaBytes(plan)
  const room = arenaRoom(plan)
  if (bytes <= room) return
  const whose = room === addressable.bytes ? 'WebAssembly addresses' : 'this machine has left'
  throw tooLarge(plan, bytes, `at most the ${formatBytes(room)} that ${whose}${remedy === '' ? '' : `: ${remedy}`}`)
}

function takeMemory(plan: Plan): [memory: WasmMemory, apart: SharedArrayBuffer | null] {
  const { memory, apart } = sizesOf(plan)
  const pages = memory / PAGE_BYTES
  try {
    const taken = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: canShare })
    return [taken, apart === 0 ? null : new SharedArrayBuffer(apart)]
  } catch (cause) {
    throw tooLarge(plan, memory + apart, `what the runtime grants (${(cause as Error).message})`, cause)
  }
}

/** Where the next column of a buffer may begin. */
interface Cursor {
  readonly buffer: ArrayBufferLike
  byte: number
}

function layOut(plan: Plan, near: Cursor, far: Cursor): object {
  const columns: Record<string, Column | object> = {}
  for (const [name, node] of Object.entries(plan)) {
    if (isColumnSpec(node)) {
      const cursor = node.apart ? far : near
      cursor.byte = placeAfter(cursor.byte, node.rows * node.width * elementBytes[node.type])
      const view = viewColumn(node.type, cursor.buffer, cursor.byte, node.rows * node.width)
      cursor.byte += view.byteLength
      columns[name] = view
    } else columns[name] = layOut(node, near, far)
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

/** Every column of a plan, in the order of declaration. */
export function listColumns(plan: Plan, prefix = ''): PlannedColumn[] {
  return Object.entries(plan).flatMap(([key, node]) => {
    const name = prefix === '' ? key : `${prefix}.${key}`
    if (!isColumnSpec(node)) return listColumns(node, name)
    return [{ ...node, name, bytes: node.rows * node.width * elementBytes[node.type] }]
  })
}

/** Every column of a plan with its typed array, in the order of declaration. */
export function zipColumns(plan: Plan, columns: object, prefix = ''): { planned: PlannedColumn; column: Column }[] {
  const planned = listColumns(plan, prefix)
  const flat: Column[] = []
  const walk = (node: object): void => {
    for (const child of Object.values(node)) {
      if (ArrayBuffer.isView(child)) flat.push(child as Column)
      else walk(child)
    }
  }
  walk(columns)
  return planned.map((entry, index) => ({ planned: entry, column: flat[index]! }))
}

export function viewColumn(type: ColumnType, buffer: ArrayBufferLike, byteOffset: number, length: number): Column {
  switch (type) {
    case 'f32':
      return new Float32Array(buffer, byteOffset, length)
    case 'f64':
      return new Float64Array(buffer, byteOffset, length)
    case 'i32':
      return new Int32Array(buffer, byteOffset, length)
    case 'u32':
      return new Uint32Array(buffer, byteOffset, length)
    case 'u8':
      return new Uint8Array(buffer, byteOffset, length)
  }
}
