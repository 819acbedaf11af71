/** Settings that run programs, write outside a run's folder or send keys: `resume` takes them only from the caller. */
import { isModulePath } from '../../base/definition.ts'
import { InputError } from '../../base/errors.ts'
import type { SettingValue } from '../../base/settings.ts'

/** Engine and backend settings that name a key, or a folder to write to. */
const REACHING = /^(apiKeyVariable|weights|deltas)=/

/** These settings of a run, as texts of a command line. */
export function reachOf(settings: object): Record<string, string> {
  const told = settings as Readonly<Record<string, SettingValue>>
  const list = (key: string) => (told[key] ?? []) as readonly string[]
  const keys = list('loggers').some(isPlaced) ? ['loggers'] : []
  if (told.agent) keys.push('agent')
  for (const key of ['engine', 'backend']) {
    if (list(`${key}Settings`).some((text) => REACHING.test(text))) keys.push(key, `${key}Settings`)
  }
  return Object.fromEntries(keys.map((key) => [key, String(told[key])]))
}

/** Whether a logger has a setting, such as its output path. */
function isPlaced(word: string): boolean {
  return word.includes('|') || (word.includes(':') && !isModulePath(word))
}

/** @throws InputError if the folder's run has such a setting that the caller does not give. */
export function refuseReach(folder: string, settings: object, given: ReadonlyMap<string, SettingValue>): void {
  for (const [key, text] of Object.entries(reachOf(settings))) {
    if (given.has(key)) continue
    const expected = `${key} given by you, since it runs, writes or sends outside the run: ${key}='${text}', or others`
    throw new InputError(`${key} of ${folder}`, `${text} from its config.json only`, expected)
  }
}
