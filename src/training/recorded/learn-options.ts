/** The options of `trainer.learn`, which trains on a table. */
import { corrections, vtraceSettings } from '../../algorithms/tokens/staleness.ts'
import { choice, integer, resolveSettings, type SettingValues } from '../../base/settings.ts'
import { checkSignal } from '../loop/training.ts'

export const learnSettings = {
  epochs: integer(1, 'passes over the rollouts of a table, such as the file of from=', { min: 1 }),
  done: integer(0, 'updates of these passes that are already done', { min: 0 }),
  correction: choice('none', corrections, 'correction of rows that another policy chose'),
  ...vtraceSettings,
}

/** How a trainer learns from a table. */
export interface LearnOptions extends Partial<SettingValues<typeof learnSettings>> {
  /** When aborted, no further update is made. */
  readonly signal?: AbortSignal
}

/** The options with defaults. @throws InputError for an unknown or invalid one. */
export function learnOptions({ signal, ...options }: LearnOptions) {
  checkSignal(signal)
  return { signal, ...resolveSettings('trainer.learn', learnSettings, options) }
}
