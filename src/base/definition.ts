/**
 * Definitions can be sent to other threads and files; functions cannot. Another thread, or a resumed run, makes an
 * environment, policy or algorithm again from `{ id, parameters, module }`: the module at that URL has an export with that `id`, which is called with
 * the parameters.
 *
 * A module named by a run folder is a program of the folder's author: `trust.ts` decides before it is imported, which
 * happens only in this file. `config.json` names a project's modules relative to the run folder, so that the project
 * can be moved.
 *
 * A setting may name a part (`part`: a reward, a filter). The record has the part's id among its parameters and its
 * module in `modules`, with the same trust check.
 */
import { checkGiven, InputError, show, thrownText, unknownWord } from './errors.ts'
import { resolveSettings, type Settings, type SettingValues } from './settings.ts'
import type { FolderOrigin } from './trust.ts'

/** The origin of a module's name: the caller, whose modules run, or a folder, whose modules `trust.ts` must admit. */
export type ModuleOrigin = 'caller' | FolderOrigin

/** The serializable part of a definition, as JSON. */
export interface DefinitionRecord {
  readonly id: string
  readonly parameters: Readonly<Record<string, unknown>>
  /** URL of the module whose export with this id makes the thing; absent if it can only run where it was made. */
  readonly module?: string
  /** URLs of its parts' modules, by the parameter with the part's id; absent without any. */
  readonly modules?: Readonly<Record<string, string>>
  /** The wrappers around an environment, innermost first; absent if there are none. */
  readonly wrappers?: readonly DefinitionRecord[]
}

/** The value of a `part` setting: a function with an id, like a reward factory or a filter. */
export interface Part {
  (...values: never[]): unknown
  readonly id: string
  /** URL of the module that exports it; absent if it can only run where it was made. */
  readonly module?: string
}

/** Parts by the settings that name them; built-in and registered ones need not be given. */
export type Parts = Readonly<Record<string, Part>>

/** Makes the definitions of an id from its settings. */
export interface Factory<S extends Settings, D extends DefinitionRecord> {
  (parameters?: Partial<SettingValues<S>>, parts?: Parts): D
  readonly id: string
  readonly settings: S
}

/**
 * A factory from an id, settings and a function that makes the object. `noun` names its kind in errors. `newer` names settings that older
 * runs lack: a record contains them only if they differ from their defaults.
 */
export function defineFactory<S extends Settings, B extends object>(
  noun: string,
  options: { id: string; module?: string; settings: S; newer?: readonly (keyof S)[] },
  make: (parameters: SettingValues<S>, parts: Parts) => B,
): Factory<S, B & DefinitionRecord> {
  checkGiven(`definition of ${/^[aeiou]/.test(noun) ? 'an' : 'a'} ${noun}`, options, [])
  const { id, module, settings, newer = [] } = options
  if (typeof id !== 'string' || id === '') throw new InputError(`${noun} id`, show(id), 'a name, like CartPole-v1')
  if (typeof settings !== 'object' || settings === null) {
    throw new InputError(`${id} settings`, show(settings), 'an object of settings; {} where there are none')
  }
  const factory = (parameters?: Partial<SettingValues<S>>, parts: Parts = {}): B & DefinitionRecord => {
    const resolved = resolveSettings(id, settings, withParts(id, settings, parameters, parts))
    const modules = { ...(module === undefined ? {} : { module }), ...modulesOf(parts) }
    const left = new Set(newer.filter((key) => show(resolved[key]) === show(settings[key]!.default)))
    const recorded = Object.fromEntries(Object.entries(resolved).filter(([key]) => !left.has(key)))
    return Object.freeze({ ...make(resolved, parts), id, parameters: recorded, ...modules })
  }
  return Object.assign(factory, { id, settings })
}

/** Parameters with the ids of given parts. @throws InputError for an invalid part, or one without a setting. */
export function withParts<P extends object>(
  subject: string,
  settings: Settings,
  parameters: P | undefined,
  parts: Parts,
): P | undefined {
  const names = Object.keys(settings).filter((key) => settings[key]!.noun !== undefined)
  for (const [key, given] of Object.entries(parts)) {
    if (!names.includes(key)) throw unknownWord(`${subject} part`, key, names)
    if (typeof given === 'function' && typeof given.id === 'string') continue
    throw new InputError(`${subject} part ${key}`, show(given), `a ${settings[key]!.noun} with an id`)
  }
  if (Object.keys(parts).length === 0) return parameters
  return { ...parameters, ...Object.fromEntries(Object.entries(parts).map(([key, { id }]) => [key, id])) } as P
}

/** The modules of parts for a record; empty without any. */
export function modulesOf(parts: Parts): Pick<DefinitionRecord, 'modules'> {
  const modules = Object.entries(parts).flatMap(([key, { module }]) => (module === undefined ? [] : [[key, module]]))
  return modules.length === 0 ? {} : { modules: Object.fromEntries(modules) }
}

export function recordOf(definition: DefinitionRecord): DefinitionRecord {
  const { id, parameters, module, modules, wrappers } = definition
  return {
    id,
    parameters,
    ...(module === undefined ? {} : { module }),
    ...(modules === undefined ? {} : { modules }),
    ...(wrappers === undefined ? {} : { wrappers: wrappers.map(recordOf) }),
  }
}

/** The part of a definition that a run's bits depend on. */
export function withoutModule({ id, parameters, wrappers }: DefinitionRecord): DefinitionRecord {
  return { id, parameters, ...(wrappers === undefined ? {} : { wrappers: wrappers.map(withoutModule) }) }
}

/** The 64-bit FNV-1a hash of these values as JSON, 16 hexadecimal digits; for names, not against forgery. */
export function fingerprint(...parts: readonly unknown[]): string {
  let hash = 0xcbf29ce484222325n
  for (const byte of new TextEncoder().encode(JSON.stringify(parts))) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n)
  }
  return hash.toString(16).padStart(16, '0')
}

/** Makes a definition by importing its record's module. @throws InputError if it is missing or not trusted. */
export async function revive<D extends DefinitionRecord>(
  noun: string,
  record: DefinitionRecord,
  origin: ModuleOrigin,
): Promise<D> {
  if (record.module === undefined) {
    const expected = 'one made with `module: import.meta.url`, so that a file or another thread can recreate it'
    throw new InputError(`${noun} ${record.id}`, 'a definition without a module', expected)
  }
  const factory = await findFactory<Factory<Settings, D>>(noun, record.module, origin, record.id)
  let made = await remake(factory, factory.settings, record, origin)
  for (const wrapper of record.wrappers ?? []) {
    made = (await revive<DefinitionRecord & { around(inside: D): D }>('wrapper', wrapper, origin)).around(made)
  }
  return made
}

/** Makes a definition with an existing factory, importing parts. @throws InputError for missing or untrusted ones. */
export async function remake<D extends DefinitionRecord>(
  factory: (parameters: never, parts: Parts) => D,
  settings: Settings,
  record: DefinitionRecord,
  origin: ModuleOrigin,
): Promise<D> {
  const parts: Record<string, Part> = {}
  for (const [key, module] of Object.entries(record.modules ?? {})) {
    const noun = Object.hasOwn(settings, key) ? settings[key]!.noun : undefined
    const id = record.parameters[key]
    if (noun === undefined || typeof id !== 'string') {
      throw new InputError(`${record.id} modules`, `one for ${key}`, 'modules for parameters that name a part')
    }
    parts[key] = await findPart(noun, module, origin, id)
  }
  return factory(record.parameters as never, parts)
}

/** A module's part by id, or its only one, with its module set. @throws InputError if it is missing or untrusted. */
export async function findPart(noun: string, module: string, origin: ModuleOrigin, id?: string): Promise<Part> {
  const found = await findExport<Part>(noun, module, origin, id)
  return Object.assign((...values: never[]) => found(...values), found, { module })
}

/** A module's factory by id, or its only one; its definitions get the module. @throws InputError if not trusted. */
export async function findFactory<F extends { id: string }>(
  noun: string,
  module: string,
  origin: ModuleOrigin,
  id?: string,
): Promise<F> {
  const found = await findExport<F>(noun, module, origin, id)
  const make = found as unknown as Factory<Settings, DefinitionRecord>
  const makeFound = (...given: Parameters<typeof make>): DefinitionRecord => {
    const definition = make(...given)
    return definition?.module === undefined ? { ...definition, module } : definition
  }
  return Object.assign(makeFound, found) as unknown as F
}

/** What Colonnade's own modules export, in a thread of a page, which cannot import them: all of it together. */
let own: Readonly<Record<string, unknown>> | undefined

/** Takes the exports of Colonnade's own modules, whose addresses begin with `colonnade:`. */
export function giveOwn(exports: Readonly<Record<string, unknown>>): void {
  own = exports
}

/** A module's export by id, or its only one. Imports all user modules. @throws InputError if missing or untrusted. */
async function findExport<F extends { id: string }>(
  noun: string,
  module: string,
  origin: ModuleOrigin,
  id?: string,
): Promise<F> {
  if (origin !== 'caller') await (await import('./trust.ts')).admitModule(noun, module, origin)
  let exports: Readonly<Record<string, unknown>>
  try {
    exports = (module.startsWith('colonnade:') && own) || ((await import(module)) as Record<string, unknown>)
  } catch (cause) {
    const path = module.startsWith('file:') ? decodeURIComponent(new URL(module).pathname) : module
    const code = cause instanceof Error ? (cause as NodeJS.ErrnoException).code : undefined
    const message = thrownText(cause)
    // A module that it imports may be missing, too; Node then names that one first.
    const isNamed = [path, module].some((name) => message.startsWith(`Cannot find module '${name}'`))
    const isMissing = code === 'ERR_MODULE_NOT_FOUND' && isNamed
    const isTypeScript = code === 'ERR_UNKNOWN_FILE_EXTENSION' && /\.m?ts$/.test(module)
    const isScript =
      cause instanceof SyntaxError && /^(Cannot use import statement outside|Unexpected token 'export')/.test(message)
    const expected = isMissing
      ? 'an existing file'
      : isTypeScript
        ? 'JavaScript, since this Node runs no TypeScript: compile it (npx tsc), or use Node 22.18 or newer'
        : isScript
          ? `an ES module: set "type": "module" in the package.json beside it, or give it a name ending in .m${path.slice(-2)}`
          : `a module that can be imported (${message})`
    throw new InputError(`${noun} module`, path, expected, { cause })
  }
  const factories = Object.values(exports).filter(
    (value) => typeof value === 'function' && 'id' in value,
  ) as unknown as F[]
  const found =
    id === undefined && factories.length === 1 ? factories[0] : factories.find((factory) => factory.id === id)
  if (found === undefined) {
    const ids = factories.map((factory) => factory.id).join(', ') || 'none'
    const expected = id ?? 'exactly one export with an id'
    throw new InputError(`${noun} module ${module}`, `exports with these ids: ${ids}`, expected)
  }
  return found
}

/** Whether a name is a module's path and not an id. */
export function isModulePath(name: string): boolean {
  return /\.m?[jt]s$/.test(name)
}
