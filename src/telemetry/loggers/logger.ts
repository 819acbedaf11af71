/**
 * The contract of loggers. A logger receives each update of a training, for example to write a TensorBoard file or call a server. A
 * training has any number of them. Failures are counted and reported, and never stop the training (`logger-queue.ts`).
 *
 * A custom logger is one file: `defineLogger` with a function `open` that returns an object with a function `write`.
 */
import { type DefinitionRecord, defineFactory } from '../../base/definition.ts'
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { within } from '../../base/files/files.ts'
import type { Metrics } from '../../base/metrics.ts'
import type { Settings, SettingValue, SettingValues } from '../../base/settings.ts'

/** Many numbers under one name, like the rewards of an update's groups. */
export interface Distribution {
  readonly values: readonly number[]
  /** How often each value occurs; default: once each. */
  readonly counts?: readonly number[]
}

/** An update. Nested names are joined by a slash: `phaseSeconds/forward`. */
export interface LogEntry {
  /** Number of updates so far, this one and supervised steps included. */
  readonly step: number
  /** Milliseconds since 1970. */
  readonly time: number
  /** Numbers by name. Unknown ones, such as a mean of nothing, are left out. */
  readonly values: Readonly<Record<string, number>>
  readonly distributions: Readonly<Record<string, Distribution>>
  readonly texts: Readonly<Record<string, string>>
}

/** A training, described to its loggers before the first update. */
export interface LoggedTraining {
  /** For a run, the last part of its folder's path. */
  readonly name: string
  /** Folder of its files; null if it has none. */
  readonly folder: string | null
  /** Its settings, by keys like `ppo.gamma`. */
  readonly settings: Readonly<Record<string, SettingValue>>
  /** Descriptions of the values by the first part of their names. */
  readonly metrics: Metrics
  /** Number of earlier updates: a resumed training repeats later ones, so remove them from the log. */
  readonly done: number
}

/** How a training ended. */
export type LoggedEnd = 'complete' | 'interrupted' | 'failed'

/** An open log. */
export interface Logger {
  /** Where its output can be viewed: a path or an address. */
  readonly place?: string
  /** Whether failed entries may be written again; then they are repeated before later entries. */
  readonly isRepeatable?: boolean
  /** Writes entries in the order of their steps. While its promise is pending, new entries wait for the next call. */
  write(entries: readonly LogEntry[]): void | Promise<void>
  /** Called after the last entry. */
  close?(end: LoggedEnd): void | Promise<void>
}

/** A kind of logger with its settings, as passed to a training. */
export interface LoggerDefinition extends DefinitionRecord {
  open(training: LoggedTraining): Logger | Promise<Logger>
}

/**
 * Defines a factory of loggers. The command line can name a module that exports one: `loggers=./mine.mjs`. Text after a colon
 * (`csv:out.csv`) is its first setting.
 * @throws InputError for an invalid id or settings, and without `open`.
 * @example
 * export const lines = defineLogger({
 *   id: 'lines',
 *   settings: { metric: text('loss', 'what is printed') },
 *   open: ({ metric }) => ({
 *     write(entries) {
 *       for (const { step, values } of entries) console.log(step, values[metric])
 *     },
 *   }),
 * })
 */
export function defineLogger<S extends Settings>(given: {
  readonly id: string
  readonly module?: string
  readonly settings: S
  open(settings: SettingValues<S>, training: LoggedTraining): Logger | Promise<Logger>
}) {
  checkGiven('options of defineLogger', given, ['id', 'settings', 'open'])
  const { open, ...options } = given
  if (typeof open !== 'function') throw new InputError(`logger ${options.id} open`, show(open), 'a function')
  return defineFactory('logger', options, (settings: SettingValues<S>) => ({
    open: (training: LoggedTraining): Logger | Promise<Logger> => open(settings, training),
  }))
}

/**
 * The path of a file logger: the given one, or `name` in the run's folder.
 * @throws InputError without either, and if a link or a special file has that name in the run.
 */
export async function placeOf(id: string, told: string, { folder }: LoggedTraining, name: string): Promise<string> {
  if (told !== '') return told
  if (folder !== null) return within(folder, name)
  throw new InputError(`logger ${id}`, 'no path, and a training without a folder', `a path, like ${id}:${name}`)
}
