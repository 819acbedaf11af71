/**
 * The settings by which a training writes files outside its folder or sends a key to a server. A run's `config.json` may come from a
 * stranger, so `resume` takes these settings only from the caller.
 */
import { isModulePath } from '../../base/definition.ts'
import { InputError } from '../../base/errors.ts'
import type { SettingValue } from '../../base/settings.ts'

/** Settings of engines and backends that name a key, or a folder to write to. */
const REACHING = /^(apiKeyVariable|weights|deltas)=/

/** Those settings of a run, as texts of a command line. */
export function reachOf(settings: object): Record<string, string> {
  const told = settings as Readonly<Record<string, SettingValue>>
  const list = (key: string) => (told[key] ?? []) as readonly string[]
  const keys = list('loggers').some(isPlaced) ? ['loggers'] : []
  for (const key of ['engine', 'backend']) {
    if (list(`${key}Settings`).some((text) => REACHING.test(text))) keys.push(key, `${key}Settings`)
  }
  return Object.fromEntries(keys.map((key) => [key, String(told[key])]))
}

/** Whether a logger has a setting, such as the place where it writes. */
function isPlaced(word: string): boolean {
  return word.includes('|') || (word.includes(':') && !isModulePath(word))
}

/** @throws InputError where the run in a folder has such a setting, and the caller does not give it. */
export function refuseReach(folder: string, settings: object, given: ReadonlyMap<string, SettingValue>): void {
  for (const [key, text] of Object.entries(reachOf(settings))) {
    if (given.has(key)) continue
    const expected = `${key} given by you, because it writes or sends to places outside the run: ${key}='${text}', or others`
    throw new InputError(`${key} of ${folder}`, `${text} from its config.json alone`, expected)
  }
}
