/** Lanes that the program adds and removes, as entities that the cohort's next query finds or no longer finds. */
import { checkGiven, InputError, show } from '../base/errors.ts'
import type { Cohort } from './cohort.ts'
import type { LaneEntities } from './lanes.ts'

/**
 * Adds lanes to a cohort and returns their entities in `world.ecs`. Lanes of episodes act from the next rollout on, in new episodes with
 * random numbers that no earlier lane had; their cohort needs the option `present`, which reserves lane numbers. Lanes of conversations
 * start the next conversations, in rows that others have left.
 * @throws InputError if the cohort has too little room or too few lane numbers.
 */
export function spawn(cohort: Cohort, count = 1): number[] {
  const entities = entitiesOf('spawn', cohort)
  const { name, numLanes } = cohort
  if (cohort.kind === 'episodes' && cohort.numNumbers === numLanes) {
    const expected = 'a cohort with the option `present`'
    throw new InputError('spawn(cohort, count)', `cohort ${name}, which accepts no new lanes`, expected)
  }
  const room = numLanes - entities.count
  if (!Number.isSafeInteger(count) || count < 0 || count > room) {
    const expected = `a whole number from 0 to ${room}, the room left`
    throw new InputError(`spawn into cohort ${name}`, show(count), expected)
  }
  return entities.spawn(count)
}

/**
 * Removes lanes from a cohort by their entities. Their rows in the current rollout are still trained on; they are absent from the next
 * one. Lanes of conversations finish their current conversation.
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
  const expected = "a call in the world's thread"
  throw new InputError(`${caller} in cohort ${cohort.name}`, "a call in a thread that shares another's lanes", expected)
}
