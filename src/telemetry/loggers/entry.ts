/** A line of metrics as loggers are given it: flat, by kinds of values. */
import type { DefinitionRecord } from '../../base/definition.ts'
import type { Distribution, LogEntry } from './logger.ts'

/**
 * The entry of a metrics line; `prefix` stands before each name. Arrays of numbers are distributions, and `counts` among the values of an
 * object say how often 0, 1, … occurred of what the object tells. NaN and null are of what nobody can tell: they are left out.
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

/** What is nested as one object of keys like `ppo.gamma`: for settings. */
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
 * What a run is made of as such keys: of each part its id by the part's name, or the ids of a list, and its settings behind its id. What is
 * laid around an environment is `wrappers`. A part whose name is its id has no key of its own, and what is no record is left out.
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
