/** Nested objects as named columns, which files and stores keep. What is no column is JSON in a column of bytes. */
import type { Column } from './column.ts'

/** Packs an object of columns, numbers, words and lists. `unpackNested` returns an equal one. */
export function packNested(value: object): Record<string, Column> {
  const columns: Record<string, Column> = {}
  const json = JSON.stringify(value, (_, each) => {
    if (ArrayBuffer.isView(each)) {
      const name = `column${Object.keys(columns).length}`
      columns[name] = each as Column
      return { $column: name }
    }
    return typeof each === 'number' && (!Number.isFinite(each) || Object.is(each, -0))
      ? { $number: numberText(each) }
      : each
  })
  return { ...columns, json: new TextEncoder().encode(json) }
}

export function unpackNested<T>(columns: Readonly<Record<string, Column>>): T {
  return JSON.parse(new TextDecoder().decode(columns.json as Uint8Array), (_, each) => {
    if (typeof each?.$column === 'string') return columns[each.$column]
    return typeof each?.$number === 'string' ? Number(each.$number) : each
  })
}

/** JSON has neither −0 nor numbers that are not finite. */
function numberText(value: number): string {
  return Object.is(value, -0) ? '-0' : String(value)
}
