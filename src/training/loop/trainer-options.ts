import { checkOptions, InputError, show } from '../../base/errors.ts'
import type { LoggerDefinition } from '../../telemetry/loggers/logger.ts'
import type { BackendDefinition } from '../backends/backend.ts'
import { checkIfExists, type IfExists } from '../folder/if-exists.ts'
import { folderOf } from '../folder/snapshot.ts'
import type { CrewDefinition } from '../threads/crew.ts'
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

/** The options with defaults; those of threads are checked elsewhere. @throws InputError for an unknown one. */
export function checkTrainerOptions(options: TrainerOptions) {
  const known = [
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
  checkOptions('createTrainer', options, known)
  const {
    profile = false,
    folder,
    ifExists = 'number',
    stallSeconds = 300,
    loggers = [],
    backend,
    collector,
    crew,
  } = options
  checkIfExists(ifExists)
  if (crew !== undefined && typeof crew !== 'function') {
    throw new InputError('createTrainer, crew', show(crew), 'a crew like joinFleet(…)')
  }
  if (!(Number.isFinite(stallSeconds) && stallSeconds >= 0)) {
    throw new InputError('stallSeconds', show(stallSeconds), 'a number ≥ 0')
  }
  if (folder !== undefined) folderOf('createTrainer(world, algorithms, { folder })', folder)
  return { profile, folder, ifExists, stallSeconds, loggers, backend, collector, crew }
}

/** @throws InputError for an invalid definition, and if no cohort of conversations trains with it. */
export function checkBackend(backend: BackendDefinition | undefined, numConversations: number): void {
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
