/**
 * A column is one typed array: one value, or one fixed-size vector, per row. Before there is memory a column is a
 * `ColumnSpec`; a `Plan` is an object whose leaves are specs. An arena turns a plan into the same object with typed
 * arrays for leaves, so whatever owns columns declares them once and names them once.
 */
import { checkCount } from '../base/errors.ts'

/** The typed array of each column type. */
export interface ColumnArrays {
  f32: Float32Array
  f64: Float64Array
  i32: Int32Array
  u32: Uint32Array
  u8: Uint8Array
}

/** The element type of a column. */
export type ColumnType = keyof ColumnArrays
/** A column: one typed array. */
export type Column = ColumnArrays[ColumnType]

/** Bytes of one element. */
export const elementBytes: Readonly<Record<ColumnType, number>> = { f32: 4, f64: 8, i32: 4, u32: 4, u8: 1 }

/** A column before it has memory. */
export interface ColumnSpec<T extends ColumnType = ColumnType> {
  readonly type: T
  readonly rows: number
  /** Elements a row. */
  readonly width: number
  /** Whether a checkpoint keeps the column: a resumed run needs its values. */
  readonly saved: boolean
}

/** Columns to be allocated, by name, nested as their owner likes. */
export interface Plan {
  readonly [name: string]: ColumnSpec | Plan
}

/** A plan with memory: the same names, typed arrays for leaves. */
export type Columns<P> = {
  readonly [K in keyof P]: P[K] extends ColumnSpec<infer T> ? ColumnArrays[T] : Columns<P[K]>
}

/** One line of a plan: the place of a column and its size. */
export interface PlannedColumn extends ColumnSpec {
  /** Path of names, joined by dots: `agent.rollout.observation`. */
  readonly name: string
  readonly bytes: number
}

/** Declares a column of `rows` rows, `width` elements each. */
export function column<T extends ColumnType>(type: T, rows: number, width = 1): ColumnSpec<T> {
  for (const [name, value] of [
    ['rows', rows],
    ['width', width],
  ] as const) {
    // However large: the arena that is asked for it says what the whole would take, and for what.
    checkCount(`column ${name}`, value, 0)
  }
  return { type, rows, width, saved: false }
}

/** The same column, kept by checkpoints. */
export function saved<T extends ColumnType>(spec: ColumnSpec<T>): ColumnSpec<T> {
  return { ...spec, saved: true }
}

/** True for a leaf of a plan. */
export function isColumnSpec(node: ColumnSpec | Plan): node is ColumnSpec {
  return typeof (node as ColumnSpec).type === 'string' && typeof (node as ColumnSpec).rows === 'number'
}

/** Every column of a plan, in the order in which it was declared. */
export function listColumns(plan: Plan, prefix = ''): PlannedColumn[] {
  return Object.entries(plan).flatMap(([key, node]) => {
    const name = prefix === '' ? key : `${prefix}.${key}`
    if (!isColumnSpec(node)) return listColumns(node, name)
    return [{ ...node, name, bytes: node.rows * node.width * elementBytes[node.type] }]
  })
}

/** Every column of a plan with its typed array, in the order in which it was declared. */
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

/** A view of a column's type over `buffer`. */
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
