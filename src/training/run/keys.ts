/** The keys of a run, like `ppo.gamma`: several declarations, each with a prefix. */
import {
  type DefinitionRecord,
  findPart,
  isModulePath,
  type Part,
  type Parts,
  recordOf,
} from '../../base/definition.ts'
import { unknownKey } from '../../base/errors.ts'
import { pathToFileURL } from '../../base/files/path.ts'
import { keysOfToday } from '../../base/former-names.ts'
import { parseSetting, type Setting, type Settings, type SettingValue } from '../../base/settings.ts'

/** Settings with a prefix (`''` for the run's own), and tuned values that replace defaults. */
export type KeyPart = readonly [prefix: string, settings: Settings, tuned?: Readonly<Record<string, SettingValue>>]

export function joinKeys(parts: readonly KeyPart[]): Map<string, Setting> {
  const keys = new Map<string, Setting>()
  for (const [prefix, settings, tuned = {}] of parts) {
    for (const [key, setting] of Object.entries(settings)) {
      keys.set(prefix + key, key in tuned ? { ...setting, default: tuned[key]! } : setting)
    }
  }
  return keys
}

/** Reads texts; a part's setting joins the part's list. @throws InputError for an unknown key or a bad value. */
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

/** The values of a prefix's settings, with defaults. */
export function valuesOf(
  prefix: string,
  keys: ReadonlyMap<string, Setting>,
  given: ReadonlyMap<string, SettingValue>,
): Record<string, SettingValue> {
  const defaults = new Map([...keys].map(([key, setting]) => [key, setting.default]))
  return givenOf(prefix, new Map([...defaults, ...given]))
}

export function givenOf(prefix: string, given: ReadonlyMap<string, SettingValue>): Record<string, SettingValue> {
  const own = [...given].filter(([key]) => (prefix === '' ? !key.includes('.') : key.startsWith(prefix)))
  return Object.fromEntries(own.map(([key, value]) => [key.slice(prefix.length), value]))
}

/** A definition's record for `config.json`, without the module of a built-in (with the same id and module). */
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

/** The record of a built-in definition, without its module. */
export function bare(definition: DefinitionRecord): DefinitionRecord {
  const { module: _, ...record } = recordOf(definition)
  return record
}

/** Imports parts named by module path; keys have `prefix`. @throws InputError unless a module exports exactly one. */
export async function partsGiven(
  prefix: string,
  settings: Settings,
  given: Readonly<Record<string, string>>,
): Promise<Parts> {
  const parts: Record<string, Part> = {}
  for (const [key, { noun }] of Object.entries(settings)) {
    const path = given[prefix + key]
    if (noun === undefined || path === undefined || !isModulePath(path)) continue
    parts[key] = await findPart(noun, pathToFileURL(path).href, 'caller')
  }
  return parts
}
