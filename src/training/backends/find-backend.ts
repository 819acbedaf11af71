/** Finds a run's training backend by name, and reads its `backend` settings. */
import { InputError, show, unknownWord } from '../../base/errors.ts'
import { readSettingTexts, type SettingValues, strings, text } from '../../base/settings.ts'
import type { BackendDefinition } from './backend.ts'
import { backendFactories } from './backend-factories.ts'
import { localBackend } from './local-backend.ts'

export const backendRunSettings = {
  backend: text(
    localBackend.id,
    'training backend: local, or a service with Tinker’s protocol, like tinker:http://127.0.0.1:8000; the engine can be the same service',
  ),
  backendSettings: strings(
    [],
    'settings of the backend, like baseModel=Qwen/Qwen3-8B; each also has its own key (backend.baseModel)',
  ),
}

/** The training backend of a run's settings. @throws InputError for an unknown backend or setting. */
export function backendOf({
  backend: word,
  backendSettings: texts,
}: SettingValues<typeof backendRunSettings>): BackendDefinition {
  const [, id = word, url] = /^([^:]*):(.*)$/s.exec(word) ?? []
  if (word === localBackend.id) {
    if (texts.length > 0) throw new InputError('backendSettings', show(texts), `none: backend ${word} takes none`)
    return localBackend
  }
  const factory = backendFactories.find((each) => each.id === id)
  if (factory === undefined)
    throw unknownWord('backend', id, [localBackend.id, ...backendFactories.map((each) => each.id)])
  const given = readSettingTexts('backendSettings', `backend ${id}`, factory.settings, texts)
  return factory(url === undefined ? given : { ...given, url })
}
