/** Lanes that the program adds and removes: entities that the next query of the cohort finds, or no longer finds. */
import { checkGiven, InputError, show } from '../base/errors.ts'
import type { Cohort } from './cohort.ts'
import type { LaneEntities } from './lanes.ts'

/**
 * Adds lanes to a cohort: entities of `world.ecs`, returned. Those of episodes act from the next rollout on, each in an episode of
 * its own that `environment.reset` begins, with random numbers that no lane before them had; the cohort needs the option `present`,
 * for which such numbers are kept. Those of conversations take the next ones, in rows that others have left.
 * @throws InputError if the cohort has no room or no lane numbers for so many.
 */
export function spawn(cohort: Cohort, count = 1): number[] {
  const entities = entitiesOf('spawn', cohort)
  const { name, numLanes } = cohort
  if (cohort.kind === 'episodes' && cohort.numNumbers === numLanes) {
    throw new InputError(
      'spawn(cohort, count)',
      `cohort ${name}, which takes no new lanes`,
      'one with the option `present`',
    )
  }
  const room = numLanes - entities.count
  if (!Number.isSafeInteger(count) || count < 0 || count > room) {
    const expected = `a whole number from 0 to ${room}, for which there is room`
    throw new InputError(`spawn into cohort ${name}`, show(count), expected)
  }
  return entities.spawn(count)
}

/**
 * Removes lanes from a cohort, by their entities. The rows of these lanes in the current rollout are still trained on; in the next
 * one they are not there. Lanes of conversations finish what they have begun, and begin no other.
 * @throws InputError if an entity is not a lane of the cohort, before any is removed.
 */
export function despawn(cohort: Cohort, lanes: Iterable<number>): void {
  const entities = entitiesOf('despawn', cohort)
  const doomed = [...lanes]
  for (const entity of doomed) {
    if (!entities.has(entity))
      throw new InputError(`despawn from cohort ${cohort.name}`, `entity ${show(entity)}`, 'one of its lanes')
  }
  for (const entity of doomed) entities.remove(entity)
}

function entitiesOf(caller: string, cohort: Cohort): LaneEntities {
  checkGiven(`cohort of ${caller}`, cohort, ['kind'])
  if (cohort.entities !== null) return cohort.entities
  throw new InputError(
    `${caller} in cohort ${cohort.name}`,
    "a thread that shares another's lanes",
    'the thread of the world',
  )
}
