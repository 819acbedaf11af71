/** What a trainer can be told. */
import { checkOptions, InputError, show } from '../../base/errors.ts'
import type { LoggerDefinition } from '../../telemetry/loggers/logger.ts'
import type { BackendDefinition } from '../backends/backend.ts'
import { checkIfExists, type IfExists } from '../folder/if-exists.ts'
import { folderOf } from '../folder/snapshot.ts'
import type { CollectorDefinition } from './collector.ts'

/** How a trainer goes about its work. */
export interface TrainerOptions {
  /**
   * How many threads share the lanes and the minibatches: this one and workers beside it. Default 1, with an actor 2. The results
   * are the same bits for any number; what can be shared of a minibatch are its blocks of 256 rows, or its micro-batches of tokens.
   */
  readonly threads?: number
  /**
   * How many of the threads only collect rollouts, while the others learn from those before; the others then share the minibatches.
   * Default 1 where an algorithm has a `maxStaleness` above 0, which needs one; else 0: all threads collect, then all learn.
   */
  readonly actors?: number
  /**
   * Seconds after which an actor that makes no progress is given up, while others wait for its rollout: the update fails, and the error
   * names the actor's lanes and the call that has not returned. Default 300; 0: never. A run is watched apart, by a setting of this name.
   */
  readonly stallSeconds?: number
  /** Keep every interval of work, for `trainer.trace()`. Default false. */
  readonly profile?: boolean
  /** Default folder of checkpoints for `save()` and `restore()`. `trainer.folder` is the folder that is finally used. */
  readonly folder?: string
  /**
   * What is done where the folder holds a training that was not restored, at the first update or checkpoint. Default `number`: this
   * training goes to `<folder>-2`, or the first number that is free, and says so. `resume`: it goes on from there, and is refused
   * where it is another one. `replace`: the former one is removed. `refuse`: an InputError.
   */
  readonly ifExists?: IfExists
  /**
   * Who learns, of cohorts of conversations: default this process. What a backend elsewhere keeps of itself lies beside the
   * trainer's checkpoints, or where the backend says.
   */
  readonly backend?: BackendDefinition
  /** Loggers that get each update (`colonnade/loggers`). A logger that fails is reported on standard error, and does not stop the training. */
  readonly loggers?: readonly LoggerDefinition[]
  /** Who collects what the `rl` phase of the world's one cohort of conversations learns from: default its lanes, in its environment. */
  readonly collector?: CollectorDefinition
}

/** The options with their defaults; those of the threads are looked at elsewhere. @throws InputError for an unknown one, and for bad values. */
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
    'loggers',
  ]
  checkOptions('createTrainer', options, known)
  const { profile = false, folder, ifExists = 'number', stallSeconds = 300, loggers = [], backend, collector } = options
  checkIfExists(ifExists)
  if (!(Number.isFinite(stallSeconds) && stallSeconds >= 0)) {
    throw new InputError('stallSeconds', show(stallSeconds), 'a number ≥ 0')
  }
  if (folder !== undefined) folderOf('createTrainer(world, algorithms, { folder })', folder)
  return { profile, folder, ifExists, stallSeconds, loggers, backend, collector }
}
