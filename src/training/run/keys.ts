/** The keys of a run, like `ppo.gamma`: those of several declarations, each behind its prefix. */
import { type DefinitionRecord, recordOf } from '../../base/definition.ts'
import { unknownKey } from '../../base/errors.ts'
import { keysOfToday } from '../../base/former-names.ts'
import { parseSetting, type Setting, type Settings, type SettingValue } from '../../base/settings.ts'

/** A declaration behind a prefix, `''` for the run's own; with what is known to work in place of its defaults. */
export type KeyPart = readonly [prefix: string, settings: Settings, tuned?: Readonly<Record<string, SettingValue>>]

/** Every key with its declaration. */
export function joinKeys(parts: readonly KeyPart[]): Map<string, Setting> {
  const keys = new Map<string, Setting>()
  for (const [prefix, settings, tuned = {}] of parts) {
    for (const [key, setting] of Object.entries(settings)) {
      keys.set(prefix + key, key in tuned ? { ...setting, default: tuned[key]! } : setting)
    }
  }
  return keys
}

/**
 * The values that texts give to keys. A setting of a part has a key behind the part's (`rl.filter.threshold`), and joins the
 * list of them (`rl.filterSettings`). @throws InputError for a key that is not among them, and for a bad value.
 */
export function readTexts(
  keys: ReadonlyMap<string, Setting>,
  texts: Readonly<Record<string, string>>,
): Map<string, SettingValue> {
  const given = new Map<string, SettingValue>()
  const ofParts: [list: string, text: string][] = []
  for (const [key, text] of Object.entries(keysOfToday(keys, texts))) {
    const setting = keys.get(key)
    if (setting !== undefined) {
      given.set(key, parseSetting(key, setting, text))
      continue
    }
    const [, part = '', name] = /^(.+)\.([^.]+)$/.exec(key) ?? []
    if (!keys.has(`${part}Settings`)) throw unknownKey(key, [...keys.keys()])
    ofParts.push([`${part}Settings`, `${name}=${text}`])
  }
  for (const [list, text] of ofParts) given.set(list, [...((given.get(list) ?? []) as readonly string[]), text])
  return given
}

/** The values of the declaration behind a prefix: those given, and the defaults of the others. */
export function valuesOf(
  prefix: string,
  keys: ReadonlyMap<string, Setting>,
  given: ReadonlyMap<string, SettingValue>,
): Record<string, SettingValue> {
  const defaults = new Map([...keys].map(([key, setting]) => [key, setting.default]))
  return givenOf(prefix, new Map([...defaults, ...given]))
}

/** Those of the given values that are of the declaration behind a prefix. */
export function givenOf(prefix: string, given: ReadonlyMap<string, SettingValue>): Record<string, SettingValue> {
  const own = [...given].filter(([key]) => (prefix === '' ? !key.includes('.') : key.startsWith(prefix)))
  return Object.fromEntries(own.map(([key, value]) => [key.slice(prefix.length), value]))
}

/**
 * A definition's record for `config.json`. Built-ins are found by their id wherever Colonnade is installed, so their module is
 * left out; by module too, since somebody's own environment may be called as a built-in one is.
 */
export function portable(
  definition: DefinitionRecord,
  builtIns: readonly { readonly id: string; (): DefinitionRecord }[],
): DefinitionRecord {
  const { module, wrappers, ...bare } = recordOf(definition)
  const record: DefinitionRecord =
    wrappers === undefined ? bare : { ...bare, wrappers: wrappers.map((wrapper) => portable(wrapper, builtIns)) }
  const isBuiltIn = builtIns.some((factory) => factory.id === record.id && factory().module === module)
  return isBuiltIn || module === undefined ? record : { ...record, module }
}

/** The record of a definition that is always ours, without its module. */
export function bare(definition: DefinitionRecord): DefinitionRecord {
  const { module: _, ...record } = recordOf(definition)
  return record
}
