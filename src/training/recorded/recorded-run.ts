/**
 * Runs that learn from a file of rollouts (`from=FILE`) in place of what their lanes collect: what such a run may be told, and the
 * file, which has to be the same one when the run is resumed.
 */
import { createHash } from 'node:crypto'
import type { AlgorithmDefinition, AlgorithmFactory } from '../../algorithms/algorithm.ts'
import type { DefinitionRecord } from '../../base/definition.ts'
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { fromArrow, readArrow } from '../../tables/arrow.ts'
import { isOfEpisodes } from '../../tables/episodes/episode-rows.ts'
import { type EpisodeSpaces, isOfOthers, readEpisodes } from '../../tables/episodes/read-episodes.ts'
import type { Table } from '../../tables/table.ts'
import type { EpisodeRunDefinition, EpisodeRunSettings, RecordedFile } from '../run/definition.ts'
import { type RecordedCorrection, refuseUnknownLogprob } from './recorded-rollouts.ts'

/** Settings that say how lanes collect, and what becomes of what they have collected. */
export const OF_COLLECTING = ['totalSteps', 'stopWhenSolved', 'rollouts', 'actors'] as const

/**
 * Compares what a run is told with where it learns from. `given` are the keys that its user has given.
 * @throws InputError for an algorithm that learns from tables where no file is named, and for settings that do nothing.
 */
export function checkRecorded(
  algorithm: AlgorithmDefinition,
  { from, epochs }: EpisodeRunSettings,
  given: ReadonlyMap<string, unknown>,
  recorded: RecordedFile | null,
  numSystems: number,
): void {
  const { id, needsTable, staleness } = algorithm
  const file =
    'from=FILE beside it: an Arrow file of rollouts or episodes, as colonnade export writes it, episodes in JSON Lines, or a dataset of Minari'
  if (from === '') {
    if (needsTable) throw new InputError('algorithm', `${id}, which learns from tables`, file)
    if (given.has('epochs')) throw new InputError('epochs', String(epochs), file)
    return
  }
  const unused = OF_COLLECTING.find((key) => given.has(key))
  if (unused !== undefined) {
    const expected = 'no such key: nothing is collected, and epochs says how long the training is'
    throw new InputError(unused, `${show(given.get(unused))}, with from=${from}`, expected)
  }
  if (numSystems > 0) {
    throw new InputError('systems', `${numSystems}, with from=${from}`, 'none: systems work on rows that lanes collect')
  }
  const table = recorded?.table ?? null
  if (table !== null) refuseUnknownLogprob(table, algorithm, staleness?.correction ?? 'none')
  const maxStaleness = staleness?.maxStaleness ?? 0
  if (maxStaleness > 0) {
    const expected = '0: nothing is collected meanwhile'
    throw new InputError(`${id}.maxStaleness`, `${maxStaleness}, with from=${from}`, expected)
  }
}

/**
 * Reads a file of rollouts, or what others have recorded in an environment of these spaces (`readEpisodes`); where a record of it is
 * given, the file that it is of.
 * @throws InputError for a file that cannot be read or is damaged, and for another one than was recorded.
 */
export async function readRecorded(path: string, spaces: EpisodeSpaces, record?: RecordedFile): Promise<RecordedFile> {
  if (record !== undefined && record.table !== null) return record
  const table = (await isOfOthers(path)) ? await readEpisodes(path, spaces) : fromArrow(await readArrow(path))
  const hash = createHash('sha256')
  for (const { name, width, column, rows } of table.fields) {
    hash.update(`${name} ${width} ${rows?.length}\n`)
    for (const part of [column, ...(rows === undefined ? [] : [rows])]) {
      hash.update(new Uint8Array(part.buffer, part.byteOffset, part.byteLength))
    }
  }
  const sha256 = hash.digest('hex')
  if (record !== undefined && record.sha256 !== sha256) {
    const expected = `the ${record.rows} rows with which the run began, with SHA-256 ${record.sha256}`
    throw new InputError(path, `${table.numRows} rows with SHA-256 ${sha256}`, expected)
  }
  return { sha256, rows: table.numRows, table }
}

/** How many lanes have collected the rows; undefined for whole episodes. @throws InputError where the file does not say. */
export function lanesOf({ table }: RecordedFile, path: string): number | undefined {
  if (table !== null && isOfEpisodes(table)) return undefined
  const lanes = countIn(table, 'numLanes')
  if (lanes !== undefined) return lanes
  const got = show(table?.metadata.numLanes)
  throw new InputError(`numLanes in the metadata of ${path}`, got, 'a number, or numLanes=N beside from=FILE')
}

/** How long an algorithm's rollouts are, where the file says it and the user does not. */
export function lengthOf(
  { table }: RecordedFile,
  { id, settings }: AlgorithmFactory,
  given: ReadonlyMap<string, unknown>,
): { readonly numSteps?: number } {
  const numSteps = countIn(table, 'numSteps')
  const isOpen = Object.hasOwn(settings, 'numSteps') && !given.has(`${id}.numSteps`)
  return isOpen && numSteps !== undefined ? { numSteps } : {}
}

function countIn(table: Table | null, name: 'numLanes' | 'numSteps'): number | undefined {
  const text = table?.metadata[name] ?? ''
  return /^[1-9]\d*$/.test(text) ? Number(text) : undefined
}

/** The file in a run's `config.json`. */
export function recordOfFile({ sha256, rows }: RecordedFile): DefinitionRecord {
  return { id: 'rollouts', parameters: { sha256, rows } }
}

/** The file again, to be read; null for a run whose lanes collect. @throws InputError where the record is none. */
export function fileOfRecord(config: string, record: DefinitionRecord | null | undefined): RecordedFile | null {
  if (record === undefined || record === null) return null
  const { sha256, rows } = (record.parameters ?? {}) as Partial<RecordedFile>
  if (typeof sha256 === 'string' && typeof rows === 'number') return { sha256, rows, table: null }
  throw new InputError(`recorded of ${config}`, show(record), 'the SHA-256 and the number of rows of the file')
}

/** What the algorithm's settings say is done about rows that another policy has chosen; nothing, of one that has none. */
export function correctionOf({ staleness }: AlgorithmDefinition): Partial<RecordedCorrection> {
  if (staleness === undefined) return {}
  const { correction, rhoMax, cMax } = staleness
  return { correction, rhoMax, cMax }
}

/** How many updates a run makes of the file of rollouts that it learns from: one for each rollout, in each of its epochs. */
export function recordedUpdates(given: EpisodeRunDefinition): number {
  checkGiven('definition of recordedUpdates', given, ['settings', 'algorithm', 'recorded'])
  const { recorded, algorithm, settings } = given
  return settings.epochs * Math.ceil((recorded?.rows ?? 0) / (algorithm.numSteps * settings.numLanes))
}
