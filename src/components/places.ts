/**
 * Columns of the buffer that lies apart (`arena.ts`), in messages to other threads. A message has their places instead of views: in
 * Node.js 20, a view in a message keeps only the lower 32 bits of its place, so one beyond 4 GiB arrives elsewhere, or not at all.
 */

import { viewColumn } from './arena.ts'
import type { Column, ColumnType } from './column.ts'

/** A value in which places stand for the views of the buffer that lies apart. */
export interface Sent<T> {
  readonly sent: T
}

class Place {
  readonly type: ColumnType
  readonly byteOffset: number
  readonly length: number
  readonly isPlace = true

  constructor(type: ColumnType, { byteOffset, length }: Column) {
    this.type = type
    this.byteOffset = byteOffset
    this.length = length
  }
}

const types: Record<string, ColumnType> = {
  Float32Array: 'f32',
  Float64Array: 'f64',
  Int32Array: 'i32',
  Uint32Array: 'u32',
  Uint8Array: 'u8',
}

/** Replaces the views of `apart` in objects, however deep; lists stay as they are. */
export function sendColumns<T>(value: T, apart: SharedArrayBuffer | null): Sent<T> {
  return {
    sent: mapped(value, (each) => {
      if (!ArrayBuffer.isView(each) || each.buffer !== apart) return undefined
      return new Place(types[each.constructor.name]!, each as Column)
    }),
  }
}

/** The value that was sent, with views of `apart`, which came with it. */
export function receiveColumns<T>({ sent }: Sent<T>, apart: SharedArrayBuffer | null): T {
  return mapped(sent, (each) => {
    if ((each as Partial<Place>).isPlace !== true) return undefined
    const { type, byteOffset, length } = each as Place
    return viewColumn(type, apart!, byteOffset, length)
  })
}

/** A copy of nested objects with `replace` of each, where that is defined. */
function mapped<T>(value: T, replace: (each: object) => object | undefined): T {
  if (typeof value !== 'object' || value === null) return value
  const replaced = replace(value)
  if (replaced !== undefined) return replaced as T
  if (ArrayBuffer.isView(value) || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, mapped(each, replace)])) as T
}
