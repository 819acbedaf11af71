/** Engines with an id and settings, so that a run can select one by name. */

import { defineFactory } from '../base/definition.ts'
import { checkGiven } from '../base/errors.ts'
import type { Settings, SettingValues } from '../base/settings.ts'
import type { EngineDefinition } from './engine.ts'

/**
 * A kind of engine. A run uses a module that exports one with `engine=./mine.mjs`; its settings are `engine.…`.
 * @throws InputError for an invalid id or invalid settings.
 * @example
 * export const coin = defineEngineFactory({
 *   id: 'coin',
 *   settings: { bias: number(0.5, 'probability of a 1', { min: 0, max: 1 }) },
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
