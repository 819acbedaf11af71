/** Converts plain objects to a table of apache-arrow, with column types from their values. */
import type * as Arrow from 'apache-arrow'
import { InputError, show } from '../base/errors.ts'

/**
 * Converts rows to a table with a column for each name, null if a row lacks it. Supports strings, numbers (as doubles), booleans, lists
 * and structs of them; a column of only nulls is a string column.
 * @throws InputError for values of two types in a column.
 */
export async function arrowOfRows(rows: readonly object[]): Promise<Arrow.Table> {
  const arrow = await import('apache-arrow')
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))]
  const columns = names.map((name) => {
    const values = rows.map((row) => (row as Record<string, unknown>)[name] ?? null)
    const type = typeOf(arrow, name, values)
    const whole = values.map((value) => filled(value, type))
    return [name, arrow.vectorFromArray(whole, type)] as const
  })
  return new arrow.Table(Object.fromEntries(columns))
}

function typeOf(arrow: typeof Arrow, name: string, values: readonly unknown[]): Arrow.DataType {
  const known = values.filter((value) => value !== null && value !== undefined)
  const kinds = [...new Set(known.map((value) => (Array.isArray(value) ? 'list' : typeof value)))]
  if (kinds.length > 1) throw new InputError(`column ${show(name)}`, kinds.join(' and '), 'values of one type')
  switch (kinds[0] ?? 'string') {
    case 'string':
      return new arrow.Utf8()
    case 'number':
      return new arrow.Float64()
    case 'boolean':
      return new arrow.Bool()
    case 'list':
      return new arrow.List(new arrow.Field('item', typeOf(arrow, name, (known as unknown[][]).flat()), true))
    case 'object': {
      const fields = [...new Set((known as object[]).flatMap((value) => Object.keys(value)))]
      return new arrow.Struct(
        fields.map((field) => {
          const inner = (known as Record<string, unknown>[]).map((value) => value[field])
          return new arrow.Field(field, typeOf(arrow, `${name}.${field}`, inner), true)
        }),
      )
    }
    default:
      throw new InputError(`column ${show(name)}`, kinds[0]!, 'texts, numbers, flags, lists or structs')
  }
}

/** Replaces missing fields of structs by null: the library would write missing strings as ''. */
function filled(value: unknown, type: Arrow.DataType): unknown {
  if (value === null || value === undefined) return null
  const fields = (type.children ?? []) as Arrow.Field[]
  if (Array.isArray(value)) return value.map((each) => filled(each, fields[0]!.type))
  if (typeof value !== 'object') return value
  const given = value as Record<string, unknown>
  return Object.fromEntries(fields.map((field) => [field.name, filled(given[field.name], field.type)]))
}
