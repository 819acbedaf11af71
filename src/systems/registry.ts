/** Colonnade's further systems beside the four, which a cohort has if its options name them. */
import { byId } from '../base/errors.ts'
import type { SystemFactory } from '../world/system.ts'
import { clipRewards, normalizeRewards } from './rewards.ts'

/** Every such system's factory. */
export const ownSystems: readonly SystemFactory[] = [normalizeRewards, clipRewards] as unknown as SystemFactory[]

/**
 * The factory of one of them. `otherwise` is what the caller would take besides.
 * @throws InputError that names the nearest id.
 */
export function systemFactory(id: string, otherwise?: string): SystemFactory {
  return byId('system', ownSystems, id, otherwise)
}
