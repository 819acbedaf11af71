/** The loggers that a run finds by name, and how its `loggers` setting is read. */
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { findFactory, isModulePath, type ModuleOrigin } from '../../base/definition.ts'
import { byId, InputError } from '../../base/errors.ts'
import { parseSetting, readSettingTexts, type Settings, type SettingValue } from '../../base/settings.ts'
import { csv } from './csv.ts'
import { jsonl } from './jsonl.ts'
import type { LoggerDefinition } from './logger.ts'
import { mlflow } from './mlflow.ts'
import { prometheus } from './prometheus.ts'
import { tensorboard } from './tensorboard.ts'
import { trackio } from './trackio.ts'

/** A kind of logger, as a run makes one. */
interface FoundFactory {
  (settings: Readonly<Record<string, SettingValue>>): LoggerDefinition
  readonly id: string
  readonly settings: Settings
}

const factories = [tensorboard, csv, jsonl, prometheus, trackio, mlflow] as unknown as readonly FoundFactory[]

/** Words of a `loggers` setting that mean the same wherever one looks from. */
export function portableLoggers(words: readonly string[]): string[] {
  return words.map((word) => {
    const [name, ...texts] = word.split('|') as [string, ...string[]]
    return [isModulePath(name) ? resolve(name) : name, ...texts].join('|')
  })
}

/**
 * The loggers that the words of a setting name: ids, `id:value` with its first setting, or paths of modules that export one; with
 * further settings behind |, like `mlflow:http://127.0.0.1:5000|experiment=mine`.
 * @throws InputError for an unknown logger or setting, which names the nearest, and for a module that may not be run.
 */
export async function findLoggers(words: readonly string[], origin: ModuleOrigin): Promise<LoggerDefinition[]> {
  const found = await Promise.all(words.map((word) => makeLogger(word, origin)))
  const twice = found.find(({ id }, i) => found.findIndex((other) => other.id === id) < i)
  if (twice !== undefined) throw new InputError('loggers', `${twice.id} twice`, 'each once')
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
