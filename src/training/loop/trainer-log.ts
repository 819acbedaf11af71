/** Sends metrics of a program's trainer to its loggers. Runs have their own (`run.ts`). */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import type { DefinitionRecord } from '../../base/definition.ts'
import { basename, resolve } from '../../base/files/path.ts'
import { tell as say } from '../../base/host.ts'
import type { Metrics } from '../../base/metrics.ts'
import type { LoggerDefinition } from '../../telemetry/loggers/logger.ts'
import type { Loggers } from '../../telemetry/loggers/logger-queue.ts'
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
  readonly #open: (done: number) => Promise<Loggers>
  readonly #entropy: EntropyWatch
  #loggers: Promise<Loggers> | undefined
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
    this.#entropy = new EntropyWatch(world, algorithms)
    this.#open = async (done) => {
      const name = this.folder === undefined ? names.join('-') : basename(resolve(this.folder))
      const training = { metrics, name, folder: this.folder ?? null, done }
      const [{ Loggers }, { flatKeys }] = await Promise.all([
        import('../../telemetry/loggers/logger-queue.ts'),
        entries(),
      ])
      const settings = names.flatMap((each) =>
        partsOf(algorithms[each]!).map(({ id, parameters }) =>
          flatKeys(parameters, names.length === 1 ? `${id}.` : `${each}.${id}.`),
        ),
      )
      const told = { ...training, settings: Object.assign({ seed: world.seed }, ...settings) }
      return new Loggers(definitions, told, tell)
    }
  }

  /** Logs an update; `cohort` names its cohort if others have updates of their own. Settles when the loggers have its entry in their queue. */
  async log(update: number, metrics: UpdateMetrics | TextMetrics, cohort = ''): Promise<void> {
    if (!isText(metrics)) for (const line of this.#entropy.look(metrics)) tell(line)
    if (this.#definitions.length === 0) return
    this.#loggers ??= this.#open(update - 1)
    const opened = this.#loggers
    this.isDone = false
    const line = isText(metrics) ? textLine(metrics) : metricsLine(metrics)
    const [loggers, { entryOf }] = await Promise.all([opened, entries()])
    loggers.log(entryOf(update, line, cohort))
  }

  /** Settles when everything so far is written, or has failed. */
  async settled(): Promise<void> {
    await (await this.#loggers)?.settled()
  }

  /** Lets the loggers write their queued updates, and end. */
  async close(): Promise<void> {
    const opened = this.#loggers
    this.#loggers = undefined
    await (await opened)?.close(this.isDone ? 'complete' : 'interrupted')
  }
}

/** Loaded with the first logger. */
const entries = () => import('../../telemetry/loggers/entry.ts')

function tell(message: string): void {
  say(`warning: ${message}`)
}

function isText(metrics: UpdateMetrics | TextMetrics): metrics is TextMetrics {
  return 'phase' in metrics
}
