/** The orders of the threads that share the lanes of a training of episodes. */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import { BEAT_WORDS } from '../../base/clock.ts'
import { recordOf } from '../../base/definition.ts'
import { sharedBytes } from '../../base/shared.ts'
import type { World } from '../../world/world.ts'
import { type ActorColumns, CONTROL_WORDS, type LanesOrder, laneCohorts } from './orders.ts'
import type { Sharing } from './sharing.ts'

/** The parts of a training that its threads get. */
export interface OrderedTraining {
  readonly world: World
  readonly algorithms: Readonly<Record<string, AlgorithmDefinition>>
  /** How its threads share work; undefined if it has one. */
  readonly sharing: Sharing | undefined
  /** How many rollouts have columns; undefined for one. */
  readonly numBuffers: number | undefined
  /** Each thread's intervals of work, if recorded. */
  readonly traces: readonly Float64Array[]
  /** Each thread's progress marks. */
  readonly beats: Int32Array
}

/**
 * The orders of threads `from` to `to`, each of which builds its part of the training from definitions. `collect`: what
 * actors share with the thread that they work for.
 */
export function lanesOrders(
  training: OrderedTraining,
  from: number,
  to: number,
  collect: ActorColumns | null = null,
): LanesOrder[] {
  const { world, algorithms, sharing, numBuffers, traces, beats } = training
  const { count, actors } = world.threads
  const command = new Float64Array(sharedBytes(8))
  const control = new Int32Array(sharedBytes(4 * CONTROL_WORDS))
  const cohorts = laneCohorts(world).map((cohort) => ({
    name: cohort.name,
    environment: recordOf(cohort.environment),
    policy: cohort.sharesWith ?? recordOf(cohort.policyDefinition),
    numLanes: cohort.numLanes,
    firstLane: cohort.firstLane,
    ...(cohort.seed !== world.seed && { seed: cohort.seed }),
    autoreset: cohort.autoreset,
    explore: cohort.explore,
    ...(cohort.selfPlay === null
      ? { weightSets: cohort.league?.weights.length ?? 1, learningSets: cohort.league?.learned.length ?? 1 }
      : { selfPlay: cohort.selfPlay.options }),
    systems: cohort.systems.map(({ definition }) => ({ ...recordOf(definition), columns: definition.columns })),
  }))
  const indices = Array.from({ length: to - from }, (_, i) => from + i)
  return indices.map(
    (index): LanesOrder => ({
      kind: 'lanes',
      memory: world.arena.memory,
      control,
      command,
      index,
      count: to - from + 1, // With this one.
      threads: { count, actors },
      actor: collect,
      sharing: collect === null ? sharing!.columns : null,
      numBuffers,
      trace: traces[index - 1],
      beat: beats.subarray(BEAT_WORDS * index, BEAT_WORDS * (index + 1)),
      seed: world.seed,
      kernels: world.kernelBuild,
      cohorts,
      algorithms: Object.fromEntries(
        Object.entries(algorithms).map(([name, algorithm]) => [name, recordOf(algorithm)]),
      ),
    }),
  )
}
