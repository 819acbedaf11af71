/** Converts a line of metrics to a logger entry: flat, by kinds of values. */
import type { DefinitionRecord } from '../../base/definition.ts'
import type { Distribution, LogEntry } from './logger.ts'

/**
 * Converts a metrics line to an entry, with `prefix` before each name. Arrays of numbers become distributions, and so does a field
 * `counts` of an object, which counts the values 0, 1, … NaN and null are unknown and left out.
 */
export function entryOf(step: number, line: object, prefix = ''): LogEntry {
  const values: Record<string, number> = {}
  const distributions: Record<string, Distribution> = {}
  const texts: Record<string, string> = {}
  const add = (within: string, object: object): void => {
    for (const [key, value] of Object.entries(object)) {
      const name = within === '' ? key : `${within}/${key}`
      if (typeof value === 'number') {
        if (!Number.isNaN(value)) values[name] = value
      } else if (typeof value === 'string') texts[name] = value
      else if (Array.isArray(value)) {
        if (key === 'counts') distributions[within] = { values: value.map((_, i) => i), counts: value }
        else if (value.length > 0 && value.every((each) => Number.isFinite(each)))
          distributions[name] = { values: value }
      } else if (typeof value === 'object' && value !== null) add(name, value)
    }
  }
  add(prefix, line)
  return { step, time: Date.now(), values, distributions, texts }
}

/** Flattens nested settings to keys like `ppo.gamma`. */
export function flatKeys(object: object, prefix = ''): Record<string, string | number | boolean> {
  const flat: Record<string, string | number | boolean> = {}
  for (const [key, value] of Object.entries(object)) {
    const name = prefix + key
    if (Array.isArray(value)) flat[name] = value.join(',')
    else if (typeof value === 'object' && value !== null) Object.assign(flat, flatKeys(value, `${name}.`))
    else if (['string', 'number', 'boolean'].includes(typeof value)) flat[name] = value
  }
  return flat
}

/**
 * Flattens the parts of a run to such keys: each part's id under the part's name (a list's ids joined), and its settings after its id.
 * Wrappers of an environment are `wrappers`. A part whose name is its id has no key of its own; a part without a record is left out.
 */
export function flatParts(parts: Readonly<Record<string, unknown>>): Record<string, string | number | boolean> {
  const flat: Record<string, string | number | boolean> = {}
  for (const [name, part] of Object.entries(parts)) {
    const records = [part].flat().filter(isRecord)
    const ids = records.map(({ id }) => id).join(',')
    if (records.length > 0 && ids !== name) flat[name] = ids
    for (const { id, parameters, wrappers = [] } of records) {
      Object.assign(flat, flatKeys(Object(parameters), `${id}.`), flatParts({ wrappers }))
    }
  }
  return flat
}

function isRecord(value: unknown): value is DefinitionRecord {
  return typeof (value as { readonly id?: unknown } | null)?.id === 'string'
}
