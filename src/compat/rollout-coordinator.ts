/**
 * Who collects for a trainer. A world collects by its lanes, one for each worker, which are the workers then; environments and
 * policies that are plain functions are run by workers side by side, and their episodes put together. Each collection gives out
 * what is new since the last, in an order that does not depend on who was done first.
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
import type { EnvironmentService } from './environment-service.ts'
import { RolloutWorker, type RunnerOptions, type WorkerFn } from './runner.ts'
import { createStrategy, type PolicyFn, strategies } from './strategy.ts'

/** What a coordinator collects from: a world of conversations, an environment of the house, or a service. */
export type CoordinatedEnvironment =
  | World
  | TextEnvironmentDefinition
  | EnvironmentDefinition
  | EnvironmentService<readonly number[], readonly number[]>

/** The policy that goes with it. */
export type CoordinatedPolicy<E> = E extends TextEnvironmentDefinition
  ? LanguageModelDefinition
  : E extends EnvironmentDefinition
    ? PolicyDefinition
    : PolicyFn

/** What a collection is: of conversations, trajectories; of lanes, the rollout's table, which is live; of services, a buffer. */
export type CollectedFrom<E> = E extends World | TextEnvironmentDefinition
  ? Trajectories
  : E extends EnvironmentDefinition
    ? Table
    : EpisodeBuffer

/** How a coordinator collects. */
export interface CoordinatorOptions extends RunnerOptions {
  /** What the collected rows are for: the name of a loss (`grpo`, `ppo` …). Of lanes that step: `ppo`, `a2c` or `bc`. */
  readonly algorithm: string
  /** Environments side by side: a whole number ≥ 0, default 0, which is one as well. */
  readonly numWorkers?: number
  /** Conversations of one prompt, of a world: a whole number ≥ 1, default 1. Collections are whole groups. */
  readonly groupSize?: number
}
const OPTIONS: readonly string[] = Object.keys({
  ...{ algorithm: 0, numWorkers: 0, groupSize: 0, maxSteps: 0, maxEpisodes: 0, stepSeconds: 0, seed: 0, time: 0 },
} satisfies Record<keyof CoordinatorOptions, 0>)
/** What lanes that step can be collected for. */
const LANE_ALGORITHMS = ['ppo', 'a2c', 'bc']

/** What stands behind a coordinator. */
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
   * `envFn` and `policyFn` are asked for each worker, by its number. Of definitions (`defineTextEnvironment` with `languageModel`,
   * `cartPole()` with `mlp()`) a world is made with a lane for each; its `maxSteps` and `maxEpisodes` are those of services: turns
   * and conversations of a collection, or steps of a lane.
   * @throws InputError for what is no function, and for numbers and names that are none.
   */
  constructor(envFn: WorkerFn<E>, policyFn: WorkerFn<CoordinatedPolicy<E>>, options: CoordinatorOptions)
  /** Of a world that stands: `episodes` of each collection, whole groups. */
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
      if (typeof value !== 'function') throw new InputError(name, show(value), 'a function that makes one for a worker')
    }
    const { numWorkers = 0, groupSize = 1, maxSteps = 1000, maxEpisodes = 100 } = given
    checkCount('numWorkers', numWorkers, 0)
    for (const [name, value] of Object.entries({ groupSize, maxSteps, maxEpisodes })) checkCount(name, value)
    const names = [...strategies, ...LANE_ALGORITHMS]
    if (!names.includes(given.algorithm)) throw unknownWord('algorithm', given.algorithm, [...new Set(names)])
    this.#open = () => openSource(from as WorkerFn<E>, second as WorkerFn<CoordinatedPolicy<E>>, given)
  }

  /**
   * What is new since the last collection: of services the episodes that have ended, while those that have not go on in the next
   * one; of conversations as many as were asked for; of lanes the rows of a rollout, whose episodes go on.
   * @throws InputError for a second call before the first has settled; what an environment or a policy failed with.
   */
  async collect(): Promise<CollectedFrom<E>> {
    if (this.#isClosed) throw new InputError('collect', 'a coordinator that is closed', 'one that is open')
    if (this.#isCollecting) throw new InputError('collect', 'a second call', 'one after another')
    this.#isCollecting = true
    try {
      return (await (await this.#opened()).collect()) as CollectedFrom<E>
    } finally {
      this.#isCollecting = false
    }
  }

  /** The world that collects: what a `Trainer` takes as its model. @throws InputError where services are run by workers. */
  async world(): Promise<World> {
    const { world } = await this.#opened()
    if (world === null) throw new InputError('world', 'a coordinator of plain functions', 'one of definitions')
    return world
  }

  /** Ends what is under way and gives back what it holds. */
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
  type Service = EnvironmentService<readonly number[], readonly number[]>
  const services = (worker: number) => (worker === 0 ? environment : envFn(worker)) as Service
  const policies = policyFn as WorkerFn<PolicyFn>
  const workers = Array.from({ length: count }, (_, i) => new RolloutWorker(services, policies, strategy, runner, i))
  return new WorkerSource(workers, maxEpisodes)
}

function refuse(options: CoordinatorOptions, names: readonly (keyof CoordinatorOptions)[], of: string): void {
  for (const name of names) {
    if (options[name] !== undefined) throw new InputError(name, show(options[name]), `none for ${of}`)
  }
}

/** Plain environments, each with a worker. */
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

/** A world of conversations: so many begin, and all of them end under the weights as they are. */
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

/** A world of lanes that step: a rollout of so many steps a lane, whose table is live. */
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
