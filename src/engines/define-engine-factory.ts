/** Engines by a name and settings, so that a run can be told to use one. */

import { defineFactory } from '../base/definition.ts'
import { checkGiven } from '../base/errors.ts'
import type { Settings, SettingValues } from '../base/settings.ts'
import type { EngineDefinition } from './engine.ts'

/**
 * A kind of engine. A module that exports one is an engine of a run: `engine=./mine.mjs`, with its settings as `engine.…`.
 * @throws InputError for an id or settings that are none.
 * @example
 * export const coin = defineEngineFactory({
 *   id: 'coin',
 *   settings: { bias: number(0.5, 'how often it is 1', { min: 0, max: 1 }) },
 *   make: ({ bias }) => defineEngine('coin', () => ({ … })),
 * })
 */
export function defineEngineFactory<S extends Settings>(given: {
  readonly id: string
  readonly settings: S
  make(settings: SettingValues<S>): EngineDefinition
}) {
  checkGiven('options of defineEngineFactory', given, ['id', 'settings', 'make'])
  const { make, ...options } = given
  return defineFactory('engine', options, (settings: SettingValues<S>): EngineDefinition => make(settings))
}
