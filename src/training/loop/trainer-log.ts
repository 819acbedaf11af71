/** Sends metrics of a program's trainer to its loggers. Runs have their own (`run.ts`). */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import type { DefinitionRecord } from '../../base/definition.ts'
import { basename, resolve } from '../../base/files/path.ts'
import { tell as say } from '../../base/host.ts'
import type { Metrics } from '../../base/metrics.ts'
import { entryOf, flatKeys } from '../../telemetry/loggers/entry.ts'
import type { LoggerDefinition } from '../../telemetry/loggers/logger.ts'
import { Loggers } from '../../telemetry/loggers/logger-queue.ts'
import type { World } from '../../world/world.ts'
import type { TextMetrics } from '../text/evaluate/metrics.ts'
import { lineMetrics, metricsLine as textLine } from '../text/evaluate/metrics-lines.ts'
import { EntropyWatch } from '../watch/entropy-watch.ts'
import { metricsLine, metricsOfRun, type UpdateMetrics } from './metrics.ts'
import type { Phases } from './trainer-options.ts'

/** The algorithms of a trainer's cohorts by name: one for episodes, phases for conversations. */
type AlgorithmsByName = Readonly<Record<string, AlgorithmDefinition | Phases>>

function partsOf(algorithm: AlgorithmDefinition | Phases): (DefinitionRecord & { readonly metrics: Metrics })[] {
  return 'bind' in algorithm ? [algorithm] : Object.values(algorithm)
}

/** All metrics of these algorithms' updates, by name; with self-play's if a cohort has it. */
export function metricsOfAlgorithms(algorithms: AlgorithmsByName, isSelfPlay: boolean): Metrics {
  const declared = Object.values(algorithms).map((algorithm) =>
    'bind' in algorithm
      ? metricsOfRun(algorithm.metrics, algorithm.staleness?.maxStaleness, isSelfPlay)
      : Object.assign({}, lineMetrics, ...partsOf(algorithm).map(({ metrics }) => metrics)),
  )
  return Object.assign({}, ...declared)
}

/** A trainer's loggers, opened at the first update. */
export class TrainerLog {
  readonly #definitions: readonly LoggerDefinition[]
  readonly #open: (done: number) => Loggers
  readonly #entropy: EntropyWatch
  #loggers: Loggers | undefined
  /** The default folder of loggers and name of the training; undefined without a folder. */
  folder: string | undefined
  /** Whether the training has reached its goal. */
  isDone = false

  constructor(
    definitions: readonly LoggerDefinition[],
    { world, algorithms, metrics }: { world: World; algorithms: AlgorithmsByName; metrics: Metrics },
  ) {
    this.#definitions = definitions
    const names = Object.keys(algorithms)
    const settings = names.flatMap((name) =>
      partsOf(algorithms[name]!).map(({ id, parameters }) =>
        flatKeys(parameters, names.length === 1 ? `${id}.` : `${name}.${id}.`),
      ),
    )
    const told = { settings: Object.assign({ seed: world.seed }, ...settings), metrics }
    this.#entropy = new EntropyWatch(world, algorithms)
    this.#open = (done) => {
      const name = this.folder === undefined ? names.join('-') : basename(resolve(this.folder))
      return new Loggers(definitions, { ...told, name, folder: this.folder ?? null, done }, tell)
    }
  }

  /** Logs an update; `cohort` names its cohort if others have updates of their own. */
  log(update: number, metrics: UpdateMetrics | TextMetrics, cohort = ''): void {
    if (!isText(metrics)) for (const line of this.#entropy.look(metrics)) tell(line)
    if (this.#definitions.length === 0) return
    this.#loggers ??= this.#open(update - 1)
    this.isDone = false
    this.#loggers.log(entryOf(update, isText(metrics) ? textLine(metrics) : metricsLine(metrics), cohort))
  }

  /** Settles when everything so far is written, or has failed. */
  async settled(): Promise<void> {
    await this.#loggers?.settled()
  }

  /** Lets the loggers write their queued updates, and end. */
  async close(): Promise<void> {
    const loggers = this.#loggers
    this.#loggers = undefined
    await loggers?.close(this.isDone ? 'complete' : 'interrupted')
  }
}

function tell(message: string): void {
  say(`warning: ${message}`)
}

function isText(metrics: UpdateMetrics | TextMetrics): metrics is TextMetrics {
  return 'phase' in metrics
}
