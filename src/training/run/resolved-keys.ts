/** The final value of every key of a run: given values, values of its parts, and defaults. */
import type { DefinitionRecord } from '../../base/definition.ts'
import type { Setting, SettingValue } from '../../base/settings.ts'
import type { RunDefinition } from './definition.ts'
import { readTexts } from './keys.ts'

interface Kind {
  records(definition: RunDefinition): Readonly<Record<string, DefinitionRecord | readonly DefinitionRecord[] | null>>
  refuses(definition: RunDefinition, key: string): boolean
}

/** The values of a definition's keys, without those that it refuses; `given` are its original texts. */
export function resolveKeys(
  kind: Kind,
  definition: RunDefinition,
  keys: ReadonlyMap<string, Setting>,
  given: Readonly<Record<string, string>>,
): Map<string, SettingValue> {
  const made = new Map<string, unknown>(Object.entries(definition.settings))
  const add = (prefix: string, values: object) => {
    for (const [key, value] of Object.entries(values)) made.set(`${prefix}.${key}`, value)
  }
  const { environment, ...others } = kind.records(definition)
  const { wrappers = [], parameters } = environment as DefinitionRecord
  for (const part of [...wrappers, ...Object.values(others).flat()]) if (part !== null) add(part.id, part.parameters)
  add('environment', parameters)
  if (definition.kind === 'conversations') add('loss', definition.rl?.loss.settings ?? {})
  const told = readTexts(keys, given) // A module is given by path; a record has its id.
  const resolved = new Map<string, SettingValue>()
  for (const [key, setting] of keys) {
    if (kind.refuses(definition, key)) continue
    const value = told.get(key) ?? made.get(key)
    resolved.set(key, value === undefined ? setting.default : (value as SettingValue))
  }
  return resolved
}
