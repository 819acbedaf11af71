/** A checkpoint's record of cohorts of episodes besides their columns, and its comparison with a training. */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import { stalenessSettings } from '../../algorithms/tokens/staleness.ts'
import { type DefinitionRecord, withoutModule } from '../../base/definition.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { EpisodeRecord } from '../folder/checkpoint.ts'
import type { RunRecord } from '../folder/run-record.ts'
import { compare } from '../folder/snapshot.ts'
import type { TrainedSet } from './trained-sets.ts'

/** The record of a cohort's learners, the first of which has the first set of weights; `counts` are the training's. */
export function recordOfSets(
  sets: readonly TrainedSet[],
  worldSeed: number,
  counts: Pick<EpisodeRecord, 'update' | 'steps' | 'seconds'>,
): EpisodeRecord {
  const [{ cohort, algorithm, ...first }, ...further] = sets as [TrainedSet, ...TrainedSet[]]
  const { environment, policyDefinition, numLanes, firstLane, autoreset, explore, version } = cohort
  return {
    kind: 'episodes',
    environment: withoutModule(environment),
    policy: withoutModule(policyDefinition),
    algorithm: withoutModule(algorithm),
    ...{ numLanes, firstLane, autoreset, explore, version },
    ...keptOf(first),
    ...(cohort.seed !== worldSeed && { seed: cohort.seed }),
    ...(cohort.systems.length > 0 && { systems: systemsOf(cohort) }),
    ...(cohort.selfPlay !== null && { selfPlay: cohort.selfPlay.options }),
    ...(further.length > 0 && { learningSets: further.map(keptOf) }),
    ...counts,
  }
}

export function takeUpRecord(trained: TrainedSet, record: EpisodeRecord): void {
  trained.cohort.version = record.version
  Object.assign(trained, keptOf(trained.set === 0 ? record : record.learningSets![trained.set - 1]!))
}

function keptOf({
  episodes,
  solvedAtStep,
  solvedAtSeconds,
}: Pick<TrainedSet, 'episodes' | 'solvedAtStep' | 'solvedAtSeconds'>) {
  return { episodes, solvedAtStep, solvedAtSeconds }
}

/** @throws InputError with the first difference between a cohort and a record, whose world has `seed`. */
export function compareRecord(subject: string, trained: TrainedSet, record: EpisodeRecord, seed: number): void {
  const { cohort } = trained
  compare(subject, `kind of cohort ${cohort.name}`, record.kind, cohort.kind)
  const { firstLane, autoreset, explore, systems = [], learningSets = [], selfPlay = null } = record
  compareCohort(subject, record, trained)
  compare(subject, 'firstLane', firstLane, cohort.firstLane)
  compare(subject, `seed of cohort ${cohort.name}`, record.seed ?? seed, cohort.seed)
  compare(subject, 'autoreset', autoreset, cohort.autoreset)
  compare(subject, 'explore', explore, cohort.explore)
  compare(subject, 'systems', systems, systemsOf(cohort))
  compare(subject, 'selfPlay', selfPlay, cohort.selfPlay?.options ?? null)
  compare(subject, 'learningSets', 1 + learningSets.length, cohort.league?.learned.length ?? 1)
}

/** @throws InputError that names the first difference between a cohort's algorithm and its record. */
export function compareCohort(
  subject: string,
  record: Pick<RunRecord, 'environment' | 'policy' | 'algorithm' | 'numLanes'>,
  { cohort, algorithm }: TrainedSet,
): void {
  compare(subject, 'environment', record.environment, withoutModule(cohort.environment))
  compare(subject, 'policy', record.policy, withoutModule(cohort.policyDefinition))
  compare(subject, 'algorithm', withStaleness(record.algorithm, algorithm), withoutModule(algorithm))
  compare(subject, 'numLanes', record.numLanes, cohort.numLanes)
}

/** Adds default staleness settings to an older algorithm's record: its training had no actors. */
function withStaleness(record: DefinitionRecord, { staleness }: AlgorithmDefinition): DefinitionRecord {
  if (staleness === undefined || 'maxStaleness' in record.parameters) return record
  const defaults = Object.entries(stalenessSettings()).map(([name, setting]) => [name, setting.default])
  return { ...record, parameters: { ...Object.fromEntries(defaults), ...record.parameters } }
}

/** A cohort's own systems, as far as bits depend on them. */
function systemsOf({ systems }: EpisodeCohort): DefinitionRecord[] {
  return systems.map(({ definition }) => withoutModule(definition))
}
