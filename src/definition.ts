/**
 * Definitions travel, functions do not. What acts or learns in another thread, on another machine or after a resume is
 * made there from `{ id, parameters, module }`: the module at that URL has an export with that `id`, and calling it with
 * the parameters makes the thing again.
 */
import { InputError, show } from './errors.ts'
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
}

/** Makes definitions of one id, and says which parameters they take. */
export interface Factory<S extends Settings, D extends DefinitionRecord> {
  (parameters?: Partial<SettingValues<S>>): D
  readonly id: string
  readonly settings: S
}

/**
 * A factory from its id, its settings and what it makes of them.
 * `noun` names the kind of thing in errors (`environment`).
 */
export function defineFactory<S extends Settings, B extends object>(
  noun: string,
  options: { id: string; module?: string; settings: S },
  make: (parameters: SettingValues<S>) => B,
): Factory<S, B & DefinitionRecord> {
  const { id, module, settings } = options
  if (typeof id !== 'string' || id === '') throw new InputError(`${noun} id`, show(id), 'a name, like CartPole-v1')
  if (typeof settings !== 'object' || settings === null) {
    throw new InputError(`${id} settings`, show(settings), 'an object of settings; {} where there are none')
  }
  const factory = (parameters?: Partial<SettingValues<S>>): B & DefinitionRecord => {
    const resolved = resolveSettings(id, settings, parameters)
    return Object.freeze({ ...make(resolved), id, parameters: resolved, ...(module === undefined ? {} : { module }) })
  }
  return Object.assign(factory, { id, settings })
}

/** The part of a definition that travels. */
export function recordOf(definition: DefinitionRecord): DefinitionRecord {
  const { id, parameters, module } = definition
  return { id, parameters, ...(module === undefined ? {} : { module }) }
}

/** The part of a definition on which a run's bits depend. */
export function withoutModule({ id, parameters }: DefinitionRecord): DefinitionRecord {
  return { id, parameters }
}

/** Sixteen hexadecimal digits that stand for these parts as JSON, by FNV-1a of 64 bits; for names, not against forgery. */
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
  return factory(record.parameters as never)
}

/**
 * The export with the given id (or the only one that has an id) of a module. What it makes can be made again elsewhere,
 * whether its definition names the module or not. Every module of somebody's own is imported here and nowhere else.
 * @throws InputError for a module that may not be run, or has no such export.
 */
export async function findFactory<F extends { id: string }>(
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
    throw new InputError(`${noun} module`, module, `a module that can be imported (${(cause as Error).message})`, {
      cause,
    })
  }
  const factories = Object.values(exports).filter(
    (value) => typeof value === 'function' && 'id' in value,
  ) as unknown as F[]
  const found =
    id === undefined && factories.length === 1 ? factories[0] : factories.find((factory) => factory.id === id)
  if (found === undefined) {
    const ids = factories.map((factory) => factory.id).join(', ') || 'none'
    throw new InputError(
      `${noun} module ${module}`,
      `exports with these ids: ${ids}`,
      id ?? 'exactly one export with an id',
    )
  }
  const make = found as unknown as Factory<Settings, DefinitionRecord>
  const makeFound = (parameters?: Parameters<typeof make>[0]): DefinitionRecord => {
    const definition = make(parameters)
    return definition?.module === undefined ? { ...definition, module } : definition
  }
  return Object.assign(makeFound, found) as unknown as F
}
