/**
 * A logger is somebody who is told what each update of a training did: a file for TensorBoard, a server. A training has any
 * number of them. One that fails is counted and told of, and never stops the training (`loggers.ts`).
 *
 * A logger of one's own is one file: `defineLogger` with a function `open`, which returns an object with a function `write`.
 */
import { type DefinitionRecord, defineFactory } from '../../base/definition.ts'
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { within } from '../../base/files/files.ts'
import type { Metrics } from '../../base/metrics.ts'
import type { Settings, SettingValue, SettingValues } from '../../base/settings.ts'

/** Numbers of which there are many, like the rewards of an update's groups. */
export interface Distribution {
  readonly values: readonly number[]
  /** How often each value occurs; each once where this is not given. */
  readonly counts?: readonly number[]
}

/** What an update did. Names within names have a slash between them: `phaseSeconds/forward`. */
export interface LogEntry {
  /** Updates done, this one included; with supervised steps. */
  readonly step: number
  /** Milliseconds since 1970. */
  readonly time: number
  /** Numbers by name. One that nobody can tell, like a mean of nothing, is left out. */
  readonly values: Readonly<Record<string, number>>
  readonly distributions: Readonly<Record<string, Distribution>>
  readonly texts: Readonly<Record<string, string>>
}

/** A training as its loggers are told of it before the first update. */
export interface LoggedTraining {
  /** Of a run the last part of its folder. */
  readonly name: string
  /** Where its files lie; null where it has no folder. */
  readonly folder: string | null
  /** What it was told, by keys like `ppo.gamma`. */
  readonly settings: Readonly<Record<string, SettingValue>>
  /** What is known of the values by their first names. */
  readonly metrics: Metrics
  /** Updates that were done before: what a log has of later ones, a resumed training does anew. */
  readonly done: number
}

/** How a training ended. */
export type LoggedEnd = 'complete' | 'interrupted' | 'failed'

/** An open log. */
export interface Logger {
  /** Where it can be looked at: a path or an address. */
  readonly place?: string
  /** Whether entries whose writing failed may be written again: they come once more, before those after them. */
  readonly isRepeatable?: boolean
  /** Takes entries in the order of their steps. While its promise is open, those that come wait for the next call. */
  write(entries: readonly LogEntry[]): void | Promise<void>
  /** After the last entry. */
  close?(end: LoggedEnd): void | Promise<void>
}

/** A kind of logger with its settings, as a training is given it. */
export interface LoggerDefinition extends DefinitionRecord {
  open(training: LoggedTraining): Logger | Promise<Logger>
}

/**
 * A factory of loggers. A module that exports one can be named on the command line: `loggers=./mine.mjs`. What comes after a colon
 * (`csv:out.csv`) is its first setting.
 * @throws InputError for an id or settings that are none, and without `open`.
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
 * Where a logger of files writes: where it was told to, or under that name in the run's folder.
 * @throws InputError without either, and where a link or a special file has that name in the run.
 */
export async function placeOf(id: string, told: string, { folder }: LoggedTraining, name: string): Promise<string> {
  if (told !== '') return told
  if (folder !== null) return within(folder, name)
  throw new InputError(`logger ${id}`, 'no path, and a training without a folder', `a path, like ${id}:${name}`)
}
