/** Finds the loggers that a run names in its `loggers` setting. */
import { findFactory, isModulePath, type ModuleOrigin } from '../../base/definition.ts'
import { byId, InputError } from '../../base/errors.ts'
import { pathToFileURL, resolve } from '../../base/files/path.ts'
import { parseSetting, readSettingTexts, type Settings, type SettingValue } from '../../base/settings.ts'
import type { LoggerDefinition } from './logger.ts'
import { loggerFactories } from './logger-factories.ts'

/** A kind of logger that a run can create. */
interface FoundFactory {
  (settings: Readonly<Record<string, SettingValue>>): LoggerDefinition
  readonly id: string
  readonly settings: Settings
}

const factories = loggerFactories as unknown as readonly FoundFactory[]

/** Rewrites the words of a `loggers` setting so that they mean the same from any working directory. */
export function portableLoggers(words: readonly string[]): string[] {
  return words.map((word) => {
    const [name, ...texts] = word.split('|') as [string, ...string[]]
    return [isModulePath(name) ? resolve(name) : name, ...texts].join('|')
  })
}

/**
 * Returns the loggers that the setting names: ids, `id:value` with the first setting, or paths of modules that export one; further
 * settings follow after |, as in `mlflow:http://127.0.0.1:5000|experiment=mine`.
 * @throws InputError for an unknown logger or setting, with the nearest name, and for a module that may not be loaded.
 */
export async function findLoggers(words: readonly string[], origin: ModuleOrigin): Promise<LoggerDefinition[]> {
  const found = await Promise.all(words.map((word) => makeLogger(word, origin)))
  const twice = found.find(({ id }, i) => found.findIndex((other) => other.id === id) < i)
  if (twice !== undefined) throw new InputError('loggers', `${twice.id} twice`, 'each logger once')
  return found
}

async function makeLogger(word: string, origin: ModuleOrigin): Promise<LoggerDefinition> {
  const [named, ...texts] = word.split('|') as [string, ...string[]]
  if (isModulePath(named)) {
    const factory = await findFactory<FoundFactory>('logger', pathToFileURL(named).href, origin)
    return factory(readSettingTexts('loggers', `logger ${factory.id}`, factory.settings, texts))
  }
  const [, id = named, first] = /^([^:]*):(.*)$/s.exec(named) ?? []
  const factory = byId('logger', factories, id, 'the path of a module that exports one')
  const given = readSettingTexts('loggers', `logger ${id}`, factory.settings, texts)
  if (first === undefined) return factory(given)
  const [key, setting] = Object.entries(factory.settings)[0]!
  return factory({ ...given, [key]: parseSetting(`logger ${id}.${key}`, setting, first) })
}
