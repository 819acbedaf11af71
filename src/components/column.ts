/**
 * A column is one typed array with one value, or one fixed-size vector, per row. A `ColumnSpec` declares a column before it has memory; a
 * `Plan` is an object whose leaves are specs. An arena turns a plan into the same object with typed arrays as leaves, so owners declare
 * and name their columns once.
 */
import { InputError, show } from '../base/errors.ts'

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

export const elementBytes: Readonly<Record<ColumnType, number>> = { f32: 4, f64: 8, i32: 4, u32: 4, u8: 1 }

/** A column before it has memory. */
export interface ColumnSpec<T extends ColumnType = ColumnType> {
  readonly type: T
  readonly rows: number
  /** Elements per row. */
  readonly width: number
  /** Whether checkpoints contain the column, because a resumed run needs its values. */
  readonly saved: boolean
  /** Whether it may lie outside of WebAssembly's memory; then only kernels that reach it there take it. */
  readonly apart?: true
}

/** Columns to allocate, by name, in any nesting. */
export interface Plan {
  readonly [name: string]: ColumnSpec | Plan
}

/** A plan with memory: the same names, typed arrays as leaves. */
export type Columns<P> = {
  readonly [K in keyof P]: P[K] extends ColumnSpec<infer T> ? ColumnArrays[T] : Columns<P[K]>
}

/** A column's name and specification in a flat list. */
export interface PlannedColumn extends ColumnSpec {
  /** Path of names, joined by dots: `mlp.rollout.observation`. */
  readonly name: string
  readonly bytes: number
}

/** Declares a column of `rows` rows, `width` elements each. */
export function column<T extends ColumnType>(type: T, rows: number, width = 1): ColumnSpec<T> {
  for (const [name, value] of [
    ['rows', rows],
    ['width', width],
  ] as const) {
    // Not checkCount: numbers beyond the safe integers pass here, and the arena's error covers the whole plan.
    if (!Number.isInteger(value) || value < 0) throw new InputError(`column ${name}`, show(value), 'a whole number ≥ 0')
  }
  return { type, rows, width, saved: false }
}

/** The same column, saved in checkpoints. */
export function saved<T extends ColumnType>(spec: ColumnSpec<T>): ColumnSpec<T> {
  return { ...spec, saved: true }
}

export function isColumnSpec(node: ColumnSpec | Plan): node is ColumnSpec {
  return typeof (node as ColumnSpec).type === 'string' && typeof (node as ColumnSpec).rows === 'number'
}

/**
 * Values that lanes carry from one tick to the next: two windows of numLanes × width elements. In a recorded cohort they slide along the
 * rollout, so that `next` of one tick is `current` of the following one, without a copy.
 */
export interface Sliding<C extends Column> {
  current: C
  next: C
}
