/** Checks that a training can have actors. */
import type { AlgorithmDefinition, Learner } from '../../algorithms/algorithm.ts'
import type { GradientPool } from '../../algorithms/shared-gradient.ts'
import { InputError } from '../../base/errors.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { World } from '../../world/world.ts'

/** @throws InputError if a world's rollouts cannot be collected ahead. */
export function checkAhead(world: World, algorithms: Readonly<Record<string, AlgorithmDefinition>>): void {
  const [draft, ...others] = world.drafts
  if (others.length > 0 || draft!.kind !== 'episodes') {
    const got = `cohorts ${world.names.join(', ')}`
    throw new InputError('actors', got, 'a world of one cohort of episodes, whose rollouts are collected ahead')
  }
  const { name, options, isOpen, model, sets } = draft!
  const { staleness } = algorithms[name]!
  const isCorrected = staleness !== undefined && staleness.maxStaleness > 0 && staleness.correction !== 'none'
  const refused = [
    [isOpen, 'lanes that come and go', 'lanes that stay'],
    [sets.all > 1, `${sets.all} sets of weights`, 'one'],
    [(options.systems ?? []).length > 0, 'systems of its own', 'none'],
    [isCorrected && (model.memoryWidth ?? 0) > 0, 'a policy with a memory', "one without, or correction 'none'"],
  ] as const
  for (const [isSo, got, expected] of refused) {
    if (isSo) throw new InputError(`cohort ${name}, whose rollouts are collected ahead`, got, expected)
  }
}

/** @throws InputError if several processes cannot compute the gradients of a trained set of weights. */
export function checkPool(
  { threads: { count, actors } }: World,
  {
    cohort,
    algorithm,
    learners,
  }: {
    readonly cohort: EpisodeCohort
    readonly algorithm: AlgorithmDefinition
    readonly learners: readonly Learner[]
  },
  { shareCount }: GradientPool,
): void {
  const { id, module } = algorithm
  const learning = count - actors
  const refused = [
    [
      learners[0]!.help === undefined,
      `${id}, whose gradients have no shares`,
      'an algorithm that learns from each new rollout, like ppo',
    ],
    [cohort.model.updateOnDevice !== undefined, 'a policy that updates on a device', 'device none'],
    [
      module === undefined,
      `an algorithm ${id} without a module`,
      'a definition with a module, which helpers can import',
    ],
    [learning > 1, `${learning} threads that learn`, 'one thread'],
  ] as const
  for (const [isSo, got, expected] of refused) {
    if (isSo) throw new InputError('learners', `${shareCount}, and ${got}`, `1, or ${expected}`)
  }
}
