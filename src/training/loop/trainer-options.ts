/** What `createTrainer` takes, and its checks. */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import type { RlDefinition } from '../../algorithms/tokens/rl.ts'
import type { SftDefinition } from '../../algorithms/tokens/sft.ts'
import { checkOptions, InputError, show, unknownWord } from '../../base/errors.ts'
import type { LoggerDefinition } from '../../telemetry/loggers/logger.ts'
import { checkWorld, type World } from '../../world/world.ts'
import type { BackendDefinition } from '../backends/backend.ts'
import { checkIfExists, type IfExists } from '../folder/if-exists.ts'
import { folderOf } from '../folder/snapshot.ts'
import { checkAhead } from '../threads/check-actors.ts'
import type { CrewDefinition } from '../threads/crew.ts'
import { refuseInWorker } from '../threads/orders.ts'
import { threadsFor } from '../threads/threads.ts'
import type { CollectorDefinition } from './collector.ts'

/** Options of `createTrainer`. */
export interface TrainerOptions {
  /** Threads that share lanes and minibatches (by 256 rows); default 1, with an actor 2. Bits do not depend on it. */
  readonly threads?: number
  /** Threads that only collect, while others learn; default 1 if an algorithm has `maxStaleness` above 0, else 0. */
  readonly actors?: number
  /** Seconds without progress after which an awaited actor fails the update. Default 300; 0: never. */
  readonly stallSeconds?: number
  /** Record every interval of work, for `trainer.trace()`; default false. */
  readonly profile?: boolean
  /** Default folder of checkpoints for `save()` and `restore()`; `trainer.folder` is the one finally used. */
  readonly folder?: string
  /**
   * What to do at the first update or checkpoint if the folder has a training that was not restored. Default `number`:
   * use `<folder>-2`, or the first free number, and report it. `resume`: continue it, or throw if it is another
   * training. `replace`: delete it. `refuse`: throw an InputError.
   */
  readonly ifExists?: IfExists
  /** The training backend of conversations; default this process. Outside state is saved beside checkpoints. */
  readonly backend?: BackendDefinition
  /** Loggers of each update (`colonnade/loggers`). A failing one is reported, and the training continues. */
  readonly loggers?: readonly LoggerDefinition[]
  /** The collector for `rl` of the world's only cohort of conversations; default its lanes. */
  readonly collector?: CollectorDefinition
  /** The crew that collects for a learner with `actors`: `joinFleet(…)`; default: threads of this process. */
  readonly crew?: CrewDefinition
}

/** The phases of a training of conversations, in this order; missing ones are skipped. */
export interface Phases {
  readonly sft?: SftDefinition
  readonly rl?: RlDefinition
}

/** A cohort's algorithm, or the phases of its training in order. */
export type Algorithms = AlgorithmDefinition | SftDefinition | RlDefinition | readonly (SftDefinition | RlDefinition)[]

/** What is to be trained, with which options: everything that `createTrainer` was given, checked. */
export type TrainingPlan = ReturnType<typeof planTraining>

/**
 * Checks the arguments of `createTrainer`, and gives each cohort its algorithm, or its phases, by name.
 * @throws InputError for an option or algorithm that is unknown or does not fit, and in a worker.
 */
export function planTraining(world: World, given: object, options: TrainerOptions) {
  refuseInWorker('createTrainer')
  checkWorld('createTrainer(world, algorithms)', world)
  const isSole = Array.isArray(given) || isAlgorithm(given) || isPhase(given)
  const algorithms: Readonly<Record<string, Algorithms>> = isSole ? { [soleCohort(world)]: given } : { ...given }
  checkOptions('createTrainer', options, KNOWN)
  const { profile = false, folder, ifExists = 'number', stallSeconds = 300, loggers = [], crew } = options
  const { backend, collector } = options
  checkIfExists(ifExists)
  if (crew !== undefined && typeof crew !== 'function') {
    throw new InputError('createTrainer, crew', show(crew), 'a crew like joinFleet(…)')
  }
  if (!(Number.isFinite(stallSeconds) && stallSeconds >= 0)) {
    throw new InputError('stallSeconds', show(stallSeconds), 'a number ≥ 0')
  }
  if (folder !== undefined) folderOf('createTrainer(world, algorithms, { folder })', folder)
  if (Object.keys(algorithms).length === 0) {
    throw new InputError('createTrainer(world, algorithms)', 'none', 'at least one algorithm')
  }
  const episodes: Record<string, AlgorithmDefinition> = {}
  const conversations: Record<string, Phases> = {}
  const { threads, actors, maxStaleness } = threadsFor(Object.values(algorithms).filter(isAlgorithm), options)
  for (const [name, algorithm] of Object.entries(algorithms)) {
    const draft = world.drafts.find((draft) => draft.name === name)
    if (draft === undefined) throw unknownWord('cohort', name, world.names)
    if (draft.kind === 'conversations') conversations[name] = phasesOf(name, algorithm)
    else if (isAlgorithm(algorithm)) episodes[name] = checkThreads(name, algorithm, threads)
    else throw new InputError(`algorithm of ${name}`, show(algorithm), 'an algorithm for episodes, like ppo()')
  }
  checkLoggers(loggers)
  checkBackend(backend, Object.keys(conversations).length)
  checkCollector(collector, Object.keys(conversations).length)
  if (actors > 0) checkAhead(world, episodes)
  const learning = { ...episodes, ...conversations }
  const ofThreads = { threads, actors, maxStaleness, stallSeconds, crew }
  return { episodes, conversations, learning, ...ofThreads, profile, folder, ifExists, loggers, backend, collector }
}

const KNOWN = [
  'threads',
  'actors',
  'stallSeconds',
  'profile',
  'folder',
  'ifExists',
  'backend',
  'collector',
  'crew',
  'loggers',
]

function soleCohort(world: World): string {
  const [first, ...others] = world.names
  if (others.length === 0) return first!
  throw new InputError(
    'createTrainer(world, algorithm)',
    `one algorithm for ${world.names.length} cohorts`,
    `an object with one of ${world.names.join(', ')} for each key`,
  )
}

function isPhase(value: object | undefined): value is SftDefinition | RlDefinition {
  const { id, loss, settings } = (value ?? {}) as Partial<RlDefinition>
  return (id === 'sft' || id === 'rl') && typeof loss === 'object' && typeof settings === 'object'
}

/** @throws InputError for invalid phases, a repeated one, or another order than sft, rl. */
function phasesOf(name: string, algorithms: Algorithms): Phases {
  const list = Array.isArray(algorithms) ? (algorithms as readonly object[]) : [algorithms]
  const ids = list.map((each) => (isPhase(each) ? each.id : show(each)))
  if (!['sft', 'rl', 'sft rl'].includes(ids.join(' '))) {
    throw new InputError(
      `algorithm of ${name}`,
      ids.length === 0 ? 'none' : ids.join(', '),
      'sft(), rl(), or [sft(), rl()]',
    )
  }
  return Object.fromEntries(list.map((each, i) => [ids[i], each]))
}

/** @throws InputError if other threads could not make the algorithm. */
function checkThreads(name: string, algorithm: AlgorithmDefinition, threads: number): AlgorithmDefinition {
  if (threads === 1 || algorithm.module !== undefined) return algorithm
  const got = `no module, and ${threads} threads`
  throw new InputError(`algorithm ${algorithm.id} of ${name}`, got, 'a definition with a module, or threads: 1')
}

function isAlgorithm(value: object | undefined): value is AlgorithmDefinition {
  return typeof (value as AlgorithmDefinition | undefined)?.bind === 'function'
}

/** @throws InputError for invalid loggers. */
function checkLoggers(loggers: readonly LoggerDefinition[]): void {
  if (!Array.isArray(loggers)) throw new InputError('loggers', show(loggers), 'a list, like [tensorboard()]')
  for (const logger of loggers) {
    if (typeof logger?.open === 'function') continue
    throw new InputError('loggers', show(logger), 'loggers, like tensorboard()')
  }
}

/** @throws InputError for an invalid definition, and if no cohort of conversations trains with it. */
function checkBackend(backend: BackendDefinition | undefined, numConversations: number): void {
  if (backend === undefined) return
  if (typeof backend?.id !== 'string' || typeof backend.create !== 'function') {
    throw new InputError(
      'createTrainer, backend',
      show(backend),
      'a backend like defineBackend(…), with an id and create()',
    )
  }
  if (numConversations > 0) return
  const expected = 'at least one of conversations: cohorts of episodes train in this process'
  throw new InputError('createTrainer, backend', `${backend.id}, and cohorts of episodes`, expected)
}

/** @throws InputError for an invalid collector, and unless there is exactly one cohort for it. */
function checkCollector(collector: CollectorDefinition | undefined, numConversations: number): void {
  if (collector === undefined) return
  if (typeof collector !== 'function') {
    throw new InputError('createTrainer, collector', show(collector), 'a collector like runAgents(…).collector')
  }
  if (numConversations === 1) return
  throw new InputError('createTrainer, collector', `one for ${numConversations} cohorts of conversations`, 'one cohort')
}
