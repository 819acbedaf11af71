/** Finds the engines that a run names in its `engine` setting. */
import { findFactory, isModulePath, type ModuleOrigin } from '../base/definition.ts'
import { checkGiven, InputError, show, unknownWord } from '../base/errors.ts'
import { pathToFileURL, resolve } from '../base/files/path.ts'
import { readSettingTexts, type Settings, type SettingValue, type SettingValues, strings } from '../base/settings.ts'
import type { EngineDefinition } from './engine.ts'
import { engineFactories } from './engine-factories.ts'
import { poolEngine } from './pool.ts'

/** The engine in this process, which needs no server. */
const LOCAL = 'local'

export const engineRunSettings = {
  engine: strings(
    [LOCAL],
    'engine that samples tokens: local, a server like vllm:http://127.0.0.1:8000, sglang:… or tinker:…, or the path of a module that exports an engine; several make a pool',
  ),
  engineSettings: strings(
    [],
    'settings of the engines, like weights=/dev/shm/weights; each also has its own key (engine.weights)',
  ),
} satisfies Settings

/** A kind of engine that a run can create. */
interface FoundFactory {
  (settings: Readonly<Record<string, SettingValue>>): EngineDefinition
  readonly id: string
  readonly settings: Settings
}

const factories = engineFactories as unknown as readonly FoundFactory[]

const engineIds = [LOCAL, ...factories.map(({ id }) => id)]

/** Rewrites the words of an `engine` setting so that they mean the same from any working directory. */
export function portableEngines(words: readonly string[]): string[] {
  return words.map((word) => (isModulePath(word) ? resolve(word) : word))
}

/**
 * Returns the engine that the setting names: `local`, `vllm:http://127.0.0.1:8000`, or the path of a module that exports a factory.
 * Several words make a pool. Every engine gets the settings in `texts`, like `weights=/dev/shm/weights`. Null: the local engine.
 * @throws InputError for an unknown engine or setting, with the nearest name, and for a module that may not be loaded.
 */
export async function findEngine(
  words: readonly string[],
  texts: readonly string[],
  origin: ModuleOrigin,
): Promise<EngineDefinition | null> {
  checkGiven('words of findEngine', words, 'a list')
  checkGiven('texts of findEngine', texts, 'a list')
  if (words.length === 0) throw new InputError('engine', 'none', `at least one, like ${LOCAL}`)
  if (words.includes(LOCAL)) {
    if (words.length > 1) throw new InputError('engine', words.join(','), `${LOCAL} alone, or only other engines`)
    if (texts.length > 0) throw new InputError('engineSettings', show(texts), `no settings: engine ${LOCAL} has none`)
    return null
  }
  const engines = await Promise.all(words.map((word) => makeEngine(word, texts, origin)))
  return engines.length === 1 ? engines[0]! : poolEngine(engines)
}

/** Returns the engine of a run. @throws InputError in mode sft and for an engine that cannot train. */
export async function engineOf(
  { engine: words, engineSettings, mode }: SettingValues<typeof engineRunSettings> & { readonly mode: string },
  origin: ModuleOrigin,
): Promise<EngineDefinition | null> {
  const engine = await findEngine(words, engineSettings, origin)
  if (engine === null) return null
  if (mode === 'sft') throw new InputError('engine', words.join(','), 'no engine: mode sft samples no tokens')
  if (engine.noTraining !== undefined)
    throw new InputError('engine', engine.noTraining, 'an engine that accepts weights')
  return engine
}

async function makeEngine(word: string, texts: readonly string[], origin: ModuleOrigin): Promise<EngineDefinition> {
  if (isModulePath(word)) {
    const factory = await findFactory<FoundFactory>('engine', pathToFileURL(word).href, origin)
    return factory(readSettingTexts('engineSettings', `engine ${factory.id}`, factory.settings ?? {}, texts))
  }
  const [, id = word, url] = /^([^:]*):(.*)$/s.exec(word) ?? []
  const factory = factories.find((each) => each.id === id)
  if (factory === undefined) throw unknownWord('engine', id, engineIds)
  const given = readSettingTexts('engineSettings', `engine ${id}`, factory.settings, texts)
  return factory(url === undefined ? given : { ...given, url })
}
