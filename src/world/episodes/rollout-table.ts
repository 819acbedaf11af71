/** A cohort's recorded rollout as a table. */
import { recordOf } from '../../base/definition.ts'
import { InputError, show } from '../../base/errors.ts'
import type { Column } from '../../components/column.ts'
import { type Field, type RolloutOrigin, type Table, tableOfRollout } from '../../tables/table.ts'
import type { EpisodeCohort } from './cohort.ts'

/**
 * The table of a cohort's rollout with numSteps × numLanes rows, with or without a trainer. It is live: write or copy it before the next
 * rollout. Rows of later steps still have their former contents.
 * @param from metadata of the table: the world's seed, the algorithm's discount factor, and the source of the policy's weights
 * @throws InputError if the cohort's lanes are not lanes of an environment.
 * @example
 * const world = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: 4 })
 * world.reserve(world.draft(), { numSteps: 64, learner: {} })
 * await collect(world, 64)
 * await writeArrow('rollout.arrow', rolloutTable(world.cohort(), { seed: world.seed }))
 */
export function rolloutTable(
  cohort: EpisodeCohort,
  from: Pick<RolloutOrigin, 'seed'> & Partial<Pick<RolloutOrigin, 'gamma' | 'checkpoint'>>,
): Table {
  if (cohort?.finals === undefined)
    throw new InputError('rolloutTable(cohort)', show(cohort?.name), 'a cohort of episodes')
  const { environment, policyDefinition, numLanes, numSteps, rollout, finals } = cohort
  const { id, observationSpace, actionSpace } = environment
  const { seed, gamma = null, checkpoint = null } = from
  const policy = recordOf(policyDefinition)
  const origin = {
    environmentId: id,
    observationSpace,
    actionSpace,
    seed,
    gamma,
    numLanes,
    numSteps,
    policy,
    checkpoint,
  }
  return tableOfRollout(rollout, finals, origin, ownFields(cohort))
}

/** Optional fields: the set of weights that acted, and columns recorded by custom systems, as `<id>.<name>`. */
function ownFields({ systems, league, numSteps, numLanes }: EpisodeCohort): Field[] {
  const acted = league === null ? [] : [{ name: 'policy', column: league.acted, width: 1 }]
  const recorded = systems.flatMap(({ definition, rollout }) =>
    Object.entries(rollout.recorded as Record<string, Column>).map(([name, column]) => ({
      name: `${definition.id}.${name}`,
      column,
      width: column.length / (numSteps * numLanes),
    })),
  )
  return [...acted, ...recorded]
}
