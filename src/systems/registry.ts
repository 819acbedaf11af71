/** Colonnade's optional systems, which a cohort's options can name. */
import { byId } from '../base/errors.ts'
import type { SystemFactory } from '../world/system.ts'
import { prioritizedLevels } from './levels.ts'
import { clipRewards, normalizeRewards } from './rewards.ts'

export const ownSystems: readonly SystemFactory[] = [
  normalizeRewards,
  clipRewards,
  prioritizedLevels,
] as unknown as SystemFactory[]

/**
 * Returns the factory of an optional system. `otherwise` describes, for the error, what the caller accepts besides.
 * @throws InputError with the nearest id.
 */
export function systemFactory(id: string, otherwise?: string): SystemFactory {
  return byId('system', ownSystems, id, otherwise)
}
