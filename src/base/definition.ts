/**
 * Definitions travel, functions do not. What acts or learns in another thread, on another machine or after a resume is
 * made there from `{ id, parameters, module }`: the module at that URL has an export with that `id`, and calling it with
 * the parameters makes the thing again.
 *
 * A module that a run folder names is a program of the person who made the folder: `trust.ts` decides before it is imported,
 * which happens here and nowhere else. `config.json` names modules of a project by their way from the run folder, so that
 * the project can be moved.
 *
 * A setting may name a part (`part`: a reward, a filter): the record has the part's id among its parameters and its module
 * under `modules`, and it goes through the same gate.
 */
import { checkGiven, InputError, show, thrownText, unknownWord } from './errors.ts'
import { resolveSettings, type Settings, type SettingValues } from './settings.ts'
import type { FolderOrigin } from './trust.ts'

/**
 * Who names a module. The caller runs what the caller names: by a path on the command line, or as the module of a
 * definition that the program itself has made. What a folder names is run only where `trust.ts` admits it.
 */
export type ModuleOrigin = 'caller' | FolderOrigin

/** The part of a definition that travels, as JSON. */
export interface DefinitionRecord {
  readonly id: string
  readonly parameters: Readonly<Record<string, unknown>>
  /** URL of the module whose export with this id makes the thing; absent for what can only run where it was made. */
  readonly module?: string
  /** URLs of the modules of its parts, by the parameter that has the part's id; absent where no part has one. */
  readonly modules?: Readonly<Record<string, string>>
  /** The wrappers around an environment, innermost first; absent if there are none. */
  readonly wrappers?: readonly DefinitionRecord[]
}

/** What a setting made by `part` names: a function with an id, like a factory of rewards or a filter. */
export interface Part {
  (...values: never[]): unknown
  readonly id: string
  /** URL of the module that exports it; absent for what can only run where it was made. */
  readonly module?: string
}

/** Parts by the settings that name them; those that come with Colonnade or are registered need not be given. */
export type Parts = Readonly<Record<string, Part>>

/** Makes definitions of one id, and says which parameters they take. */
export interface Factory<S extends Settings, D extends DefinitionRecord> {
  (parameters?: Partial<SettingValues<S>>, parts?: Parts): D
  readonly id: string
  readonly settings: S
}

/**
 * A factory from an id, settings and a function that makes the object from them.
 * `noun` names the kind of thing in errors (`environment`).
 */
export function defineFactory<S extends Settings, B extends object>(
  noun: string,
  options: { id: string; module?: string; settings: S },
  make: (parameters: SettingValues<S>, parts: Parts) => B,
): Factory<S, B & DefinitionRecord> {
  checkGiven(`definition of ${/^[aeiou]/.test(noun) ? 'an' : 'a'} ${noun}`, options, [])
  const { id, module, settings } = options
  if (typeof id !== 'string' || id === '') throw new InputError(`${noun} id`, show(id), 'a name, like CartPole-v1')
  if (typeof settings !== 'object' || settings === null) {
    throw new InputError(`${id} settings`, show(settings), 'an object of settings; {} where there are none')
  }
  const factory = (parameters?: Partial<SettingValues<S>>, parts: Parts = {}): B & DefinitionRecord => {
    const resolved = resolveSettings(id, settings, withParts(id, settings, parameters, parts))
    const modules = { ...(module === undefined ? {} : { module }), ...modulesOf(parts) }
    return Object.freeze({ ...make(resolved, parts), id, parameters: resolved, ...modules })
  }
  return Object.assign(factory, { id, settings })
}

/**
 * Parameters with the ids of the parts that are given for them.
 * @throws InputError for a part that no setting names, or that is none.
 */
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

/** The modules of parts, as a record has them; nothing where none has one. */
export function modulesOf(parts: Parts): Pick<DefinitionRecord, 'modules'> {
  const modules = Object.entries(parts).flatMap(([key, { module }]) => (module === undefined ? [] : [[key, module]]))
  return modules.length === 0 ? {} : { modules: Object.fromEntries(modules) }
}

/** The part of a definition that travels. */
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

/** The part of a definition on which a run's bits depend. */
export function withoutModule({ id, parameters, wrappers }: DefinitionRecord): DefinitionRecord {
  return { id, parameters, ...(wrappers === undefined ? {} : { wrappers: wrappers.map(withoutModule) }) }
}

/** Sixteen hexadecimal digits: the 64-bit FNV-1a hash of these parts as JSON; for names, not against forgery. */
export function fingerprint(...parts: readonly unknown[]): string {
  let hash = 0xcbf29ce484222325n
  for (const byte of new TextEncoder().encode(JSON.stringify(parts))) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n)
  }
  return hash.toString(16).padStart(16, '0')
}

/**
 * Makes a definition again from its record, by importing its module.
 * @throws InputError if the record has no module, it may not be run, or it has no export with that id.
 */
export async function revive<D extends DefinitionRecord>(
  noun: string,
  record: DefinitionRecord,
  origin: ModuleOrigin,
): Promise<D> {
  if (record.module === undefined) {
    throw new InputError(
      `${noun} ${record.id}`,
      'a definition without a module',
      'one made with `module: import.meta.url`, so that it can be made again from a file or in another thread',
    )
  }
  const factory = await findFactory<Factory<Settings, D>>(noun, record.module, origin, record.id)
  let made = await remake(factory, factory.settings, record, origin)
  for (const wrapper of record.wrappers ?? []) {
    made = (await revive<DefinitionRecord & { around(inside: D): D }>('wrapper', wrapper, origin)).around(made)
  }
  return made
}

/**
 * Makes a definition again from its record by a factory that is here; the modules of its parts are imported.
 * @throws InputError if one of them may not be run, or has no export with the part's id.
 */
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

/**
 * The part with the given id (or the only one) of a module, with that module as its own.
 * @throws InputError for a module that may not be run, or has no such export.
 */
export async function findPart(noun: string, module: string, origin: ModuleOrigin, id?: string): Promise<Part> {
  const found = await findExport<Part>(noun, module, origin, id)
  return Object.assign((...values: never[]) => found(...values), found, { module })
}

/**
 * The factory with the given id (or the only one that has an id) of a module. What it makes can be made again elsewhere,
 * whether its definition names the module or not.
 * @throws InputError for a module that may not be run, or has no such export.
 */
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

/**
 * The function with the given id (or the only one that has an id) that a module exports. Every module of somebody's own is
 * imported here and nowhere else.
 * @throws InputError for a module that may not be run, or has no such export.
 */
async function findExport<F extends { id: string }>(
  noun: string,
  module: string,
  origin: ModuleOrigin,
  id?: string,
): Promise<F> {
  if (origin !== 'caller') await (await import('./trust.ts')).admitModule(noun, module, origin)
  let exports: Record<string, unknown>
  try {
    exports = (await import(module)) as Record<string, unknown>
  } catch (cause) {
    const path = module.startsWith('file:') ? decodeURIComponent(new URL(module).pathname) : module
    const code = cause instanceof Error ? (cause as NodeJS.ErrnoException).code : undefined
    const message = thrownText(cause)
    // A module that it imports may be missing, too: then Node names that one first.
    const isNamed = [path, module].some((name) => message.startsWith(`Cannot find module '${name}'`))
    const isMissing = code === 'ERR_MODULE_NOT_FOUND' && isNamed
    const isTypeScript = code === 'ERR_UNKNOWN_FILE_EXTENSION' && /\.m?ts$/.test(module)
    const isScript =
      cause instanceof SyntaxError && /^(Cannot use import statement outside|Unexpected token 'export')/.test(message)
    const expected = isMissing
      ? 'a file that is there'
      : isTypeScript
        ? 'JavaScript, since this Node runs no TypeScript: compile it (npx tsc), or use Node 22.18 or newer'
        : isScript
          ? `an ES module: set "type": "module" in the package.json beside it, or let its name end in .m${path.slice(-2)}`
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

/** Whether a name is the path of a module, and no id. */
export function isModulePath(name: string): boolean {
  return /\.m?[jt]s$/.test(name)
}
