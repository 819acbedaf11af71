/**
 * Collects rollouts for a trainer. A world collects with one lane per worker; plain functions as environments and
 * policies run in workers side by side, and their episodes are combined. Each collection returns the episodes since the
 * last one, in an order that does not depend on which finished first.
 */
import { checkCount, checkOptions, InputError, show, unknownWord } from '../base/errors.ts'
import type { EnvironmentDefinition } from '../environments/environment.ts'
import type { TextEnvironmentDefinition } from '../environments/text.ts'
import type { LanguageModelDefinition } from '../language/language-model.ts'
import type { PolicyDefinition } from '../policies/policy.ts'
import { collect, tick } from '../systems/tick.ts'
import type { EpisodeBuffer } from '../tables/episodes/episode-buffer.ts'
import type { Table } from '../tables/table.ts'
import type { Trajectories } from '../tables/trajectories/trajectories.ts'
import { asConversations } from '../world/cohort.ts'
import type { ConversationCohort } from '../world/conversations/cohort.ts'
import type { EpisodeCohort } from '../world/episodes/cohort.ts'
import { rolloutTable } from '../world/episodes/rollout-table.ts'
import { createWorld, World } from '../world/world.ts'
import { BufferAggregator } from './aggregator.ts'
import { type PlainService, RolloutWorker, type RunnerOptions, type WorkerFn } from './runner.ts'
import { createStrategy, type PolicyFn, strategies } from './strategy.ts'

/** The source of a coordinator: a world of conversations, an environment's definition, or a service. */
export type CoordinatedEnvironment = World | TextEnvironmentDefinition | EnvironmentDefinition | PlainService

/** The policy for it. */
export type CoordinatedPolicy<E> = E extends TextEnvironmentDefinition
  ? LanguageModelDefinition
  : E extends EnvironmentDefinition
    ? PolicyDefinition
    : PolicyFn

/** A collection: trajectories of conversations; a live table of lanes' rollouts; or a buffer of services' episodes. */
export type CollectedFrom<E> = E extends World | TextEnvironmentDefinition
  ? Trajectories
  : E extends EnvironmentDefinition
    ? Table
    : EpisodeBuffer

/** Options of `RolloutCoordinator`. */
export interface CoordinatorOptions extends RunnerOptions {
  /** The loss that the rows are for (`grpo`, `ppo` …). For stepping lanes: `ppo`, `a2c` or `bc`. */
  readonly algorithm: string
  /** Environments side by side: a whole number ≥ 0; default 0, which also means one. */
  readonly numWorkers?: number
  /** Conversations per prompt, in a world: a whole number ≥ 1, default 1. Collections are whole groups. */
  readonly groupSize?: number
}
const OPTIONS: readonly string[] = Object.keys({
  ...{ algorithm: 0, numWorkers: 0, groupSize: 0, maxSteps: 0, maxEpisodes: 0, stepSeconds: 0, seed: 0, time: 0 },
} satisfies Record<keyof CoordinatorOptions, 0>)
/** Algorithms for which stepping lanes can be collected. */
const LANE_ALGORITHMS = ['ppo', 'a2c', 'bc']

interface Source {
  collect(): Promise<Trajectories | Table | EpisodeBuffer>
  close(): Promise<void>
  readonly world: World | null
}

/**
 * Collects rollouts.
 * @example
 * const coordinator = new RolloutCoordinator(createEnv, () => policyFn, { algorithm: 'grpo', numWorkers: 0, maxSteps: 100 })
 * const buffer = await coordinator.collect()
 */
export class RolloutCoordinator<E extends CoordinatedEnvironment> {
  readonly #open: () => Promise<Source>
  #source: Promise<Source> | null = null
  #isCollecting = false
  #isClosed = false

  /**
   * `envFn` and `policyFn` are called with each worker's index. Definitions (`defineTextEnvironment` with
   * `languageModel`, `cartPole()` with `mlp()`) become a world with a lane per worker. There `maxSteps` and
   * `maxEpisodes` limit turns and conversations of a collection, or steps of a lane.
   * @throws InputError for arguments that are not functions, and invalid numbers and names.
   */
  constructor(envFn: WorkerFn<E>, policyFn: WorkerFn<CoordinatedPolicy<E>>, options: CoordinatorOptions)
  /** With an existing world: `episodes` per collection, whole groups. */
  constructor(world: E, options: { readonly episodes: number })
  constructor(
    from: WorkerFn<E> | E,
    second: WorkerFn<CoordinatedPolicy<E>> | { readonly episodes: number },
    options?: CoordinatorOptions,
  ) {
    if (from instanceof World) {
      checkOptions('RolloutCoordinator', second, ['episodes'])
      const source = new ConversationSource(from as World, (second as { readonly episodes: number }).episodes)
      this.#open = async () => source
      return
    }
    const given = options ?? ({} as CoordinatorOptions)
    checkOptions('RolloutCoordinator', given, OPTIONS)
    for (const [name, value] of Object.entries({ envFn: from, policyFn: second })) {
      if (typeof value !== 'function')
        throw new InputError(name, show(value), 'a factory, which is called once per worker')
    }
    const { numWorkers = 0, groupSize = 1, maxSteps = 1000, maxEpisodes = 100 } = given
    checkCount('numWorkers', numWorkers, 0)
    for (const [name, value] of Object.entries({ groupSize, maxSteps, maxEpisodes })) checkCount(name, value)
    const names = [...strategies, ...LANE_ALGORITHMS]
    if (!names.includes(given.algorithm)) throw unknownWord('algorithm', given.algorithm, [...new Set(names)])
    this.#open = () => openSource(from as WorkerFn<E>, second as WorkerFn<CoordinatedPolicy<E>>, given)
  }

  /**
   * Returns what is new since the last collection: of services finished episodes, while others continue in the next
   * one; of conversations the requested number; of lanes a rollout's rows, whose episodes continue.
   * @throws InputError for a second call before the first has settled, and errors of an environment or policy.
   */
  async collect(): Promise<CollectedFrom<E>> {
    if (this.#isClosed) throw new InputError('collect', 'a closed coordinator', 'an open coordinator')
    if (this.#isCollecting) throw new InputError('collect', 'a second call at the same time', 'one call at a time')
    this.#isCollecting = true
    try {
      return (await (await this.#opened()).collect()) as CollectedFrom<E>
    } finally {
      this.#isCollecting = false
    }
  }

  /** The collecting world, for a `Trainer`'s model. @throws InputError if workers run services. */
  async world(): Promise<World> {
    const { world } = await this.#opened()
    if (world === null)
      throw new InputError('world', 'a coordinator of plain functions', 'a coordinator of definitions')
    return world
  }

  async close(): Promise<void> {
    this.#isClosed = true
    await (await this.#source?.catch(() => null))?.close()
  }

  #opened(): Promise<Source> {
    this.#source ??= this.#open()
    return this.#source
  }
}

async function openSource<E extends CoordinatedEnvironment>(
  envFn: WorkerFn<E>,
  policyFn: WorkerFn<CoordinatedPolicy<E>>,
  options: CoordinatorOptions,
): Promise<Source> {
  const { numWorkers = 0, groupSize, algorithm, ...runner } = options
  const { seed = 0 } = runner
  const { maxSteps = 1000, maxEpisodes = 100 } = runner
  const count = Math.max(1, numWorkers)
  const environment: CoordinatedEnvironment = envFn(0)
  if ('observationSpace' in environment) {
    if (!LANE_ALGORITHMS.includes(algorithm)) throw unknownWord('algorithm', algorithm, LANE_ALGORITHMS)
    refuse(options, ['maxEpisodes', 'groupSize', 'stepSeconds', 'time'], environment.id)
    const policy = policyFn(0) as PolicyDefinition
    const world: World<EpisodeCohort> = await createWorld({ environment, policy, numLanes: count, seed })
    return new LaneSource(world, maxSteps)
  }
  if ('kind' in environment && environment.kind === 'text') {
    refuse(options, ['stepSeconds', 'time'], environment.id)
    const policy = policyFn(0) as LanguageModelDefinition
    const members = groupSize ?? 1
    const most = Math.min(maxEpisodes, Math.floor(maxSteps / environment.maxTurns))
    const episodes = Math.floor(most / members) * members
    if (episodes === 0) {
      const got = `${maxSteps} and ${maxEpisodes}, less than a group of ${members} with ${environment.maxTurns} turns each`
      throw new InputError('maxSteps and maxEpisodes', got, 'room for a group')
    }
    const lanes = { environment, policy, numLanes: count, groupSize: members, seed }
    const world: World<ConversationCohort> = await createWorld(lanes)
    return new ConversationSource(world, episodes)
  }
  refuse(options, ['groupSize'], 'a plain environment, whose groups are its prompts')
  const strategy = createStrategy(algorithm)
  const services = (worker: number) => (worker === 0 ? environment : envFn(worker)) as PlainService
  const policies = policyFn as WorkerFn<PolicyFn>
  const workers = Array.from({ length: count }, (_, i) => new RolloutWorker(services, policies, strategy, runner, i))
  return new WorkerSource(workers, maxEpisodes)
}

function refuse(options: CoordinatorOptions, names: readonly (keyof CoordinatorOptions)[], of: string): void {
  for (const name of names) {
    if (options[name] !== undefined) throw new InputError(name, show(options[name]), `none for ${of}`)
  }
}

/** Plain environments, one per worker. */
class WorkerSource implements Source {
  readonly world = null
  readonly #workers: readonly RolloutWorker[]
  readonly #maxEpisodes: number

  constructor(workers: readonly RolloutWorker[], maxEpisodes: number) {
    this.#workers = workers
    this.#maxEpisodes = maxEpisodes
  }

  async collect(): Promise<EpisodeBuffer> {
    const settled = await Promise.allSettled(this.#workers.map((worker) => worker.collectAsync()))
    const failed = settled.find((each) => each.status === 'rejected')
    if (failed !== undefined) throw failed.reason
    const aggregator = new BufferAggregator({ maxEpisodes: this.#workers.length * this.#maxEpisodes })
    for (const worker of this.#workers) aggregator.addWorker(worker)
    aggregator.consumeAll()
    return aggregator.buffer
  }

  async close(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.close()))
  }
}

/** A world of conversations: starts a number of them and finishes all under the current weights. */
class ConversationSource implements Source {
  readonly world: World
  readonly #cohort: ConversationCohort
  readonly #episodes: number

  constructor(world: World, episodes: number) {
    const cohort = asConversations('new RolloutCoordinator(world)', world.cohort())
    if (!(Number.isSafeInteger(episodes) && episodes >= 1 && episodes % cohort.groupSize === 0)) {
      throw new InputError('episodes', show(episodes), `a multiple of the group size, ${cohort.groupSize}`)
    }
    this.world = world
    this.#cohort = cohort
    this.#episodes = episodes
    cohort.released = cohort.conversation.begun[0]!
  }

  async collect(): Promise<Trajectories> {
    const { trajectories } = this.#cohort
    trajectories.clear()
    this.#cohort.released += this.#episodes
    while (trajectories.numConversations < this.#episodes) {
      const waiting = tick(this.world)
      if (waiting !== undefined) await waiting
    }
    return trajectories.take(trajectories.order())
  }

  async close(): Promise<void> {
    this.world.close()
  }
}

/** A world of stepping lanes: a rollout with a number of steps per lane, as a live table. */
class LaneSource implements Source {
  readonly world: World<EpisodeCohort>
  readonly #numSteps: number

  constructor(world: World<EpisodeCohort>, numSteps: number) {
    world.reserve(world.draft(), { numSteps, learner: {} })
    this.world = world
    this.#numSteps = numSteps
  }

  async collect(): Promise<Table> {
    await collect(this.world, this.#numSteps)
    return rolloutTable(this.world.cohort(), { seed: this.world.seed })
  }

  async close(): Promise<void> {
    this.world.close()
  }
}
