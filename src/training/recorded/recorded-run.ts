/** Runs that learn from a file of rollouts (`from=FILE`), which must be unchanged when they are resumed. */
import type { AlgorithmDefinition, AlgorithmFactory } from '../../algorithms/algorithm.ts'
import type { DefinitionRecord } from '../../base/definition.ts'
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { sha256 as digest } from '../../base/files/digest.ts'
import { isOfEpisodes } from '../../tables/episodes/episode-rows.ts'
import { type EpisodeSpaces, isOfOthers, readEpisodes } from '../../tables/episodes/read-episodes.ts'
import { fromArrow, readArrow } from '../../tables/read-arrow.ts'
import type { Table } from '../../tables/table.ts'
import type { EpisodeRunDefinition, EpisodeRunSettings, RecordedFile } from '../run/definition.ts'
import { type RecordedCorrection, refuseUnknownLogprob } from './recorded-rollouts.ts'

/** Settings of collecting and of collected rollouts. */
export const OF_COLLECTING = ['totalSteps', 'stopWhenSolved', 'rollouts', 'actors'] as const

/** Checks the user's keys against the data source. @throws InputError for a missing file, or keys without effect. */
export function checkRecorded(
  algorithm: AlgorithmDefinition,
  { from, epochs }: EpisodeRunSettings,
  given: ReadonlyMap<string, unknown>,
  recorded: RecordedFile | null,
  numSystems: number,
): void {
  const { id, needsTable, staleness } = algorithm
  const file =
    'from=FILE: an Arrow file of rollouts or episodes from colonnade export, episodes in JSON Lines, or a dataset of Minari'
  if (from === '') {
    if (needsTable) throw new InputError('algorithm', `${id}, which learns from tables`, file)
    if (given.has('epochs')) throw new InputError('epochs', String(epochs), file)
    return
  }
  const unused = OF_COLLECTING.find((key) => given.has(key))
  if (unused !== undefined) {
    const expected = 'no such key: nothing is collected, and epochs sets the length of the training'
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

/** Reads rollouts or episodes for these spaces, matching `record`. @throws InputError for a bad or changed file. */
export async function readRecorded(path: string, spaces: EpisodeSpaces, record?: RecordedFile): Promise<RecordedFile> {
  if (record !== undefined && record.table !== null) return record
  const table = (await isOfOthers(path)) ? await readEpisodes(path, spaces) : fromArrow(await readArrow(path))
  const hash = digest()
  for (const { name, width, column, rows } of table.fields) {
    hash.update(`${name} ${width} ${rows?.length}\n`)
    for (const part of [column, ...(rows === undefined ? [] : [rows])]) {
      hash.update(new Uint8Array(part.buffer, part.byteOffset, part.byteLength))
    }
  }
  const sha256 = hash.hex()
  if (record !== undefined && record.sha256 !== sha256) {
    const expected = `the ${record.rows} rows with which the run started, with SHA-256 ${record.sha256}`
    throw new InputError(path, `${table.numRows} rows with SHA-256 ${sha256}`, expected)
  }
  return { sha256, rows: table.numRows, table }
}

/** How many lanes collected the rows; undefined for whole episodes. @throws InputError if the file does not say. */
export function lanesOf({ table }: RecordedFile, path: string): number | undefined {
  if (table !== null && isOfEpisodes(table)) return undefined
  const lanes = countIn(table, 'numLanes')
  if (lanes !== undefined) return lanes
  const got = show(table?.metadata.numLanes)
  throw new InputError(`numLanes in the metadata of ${path}`, got, 'a number, or numLanes=N together with from=FILE')
}

/** The length of an algorithm's rollouts, if the file says it and the user does not. */
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

/** The file's record in a run's `config.json`. */
export function recordOfFile({ sha256, rows }: RecordedFile): DefinitionRecord {
  return { id: 'rollouts', parameters: { sha256, rows } }
}

/** The recorded file, to be read again; null for a run that collects. @throws InputError for an invalid record. */
export function fileOfRecord(config: string, record: DefinitionRecord | null | undefined): RecordedFile | null {
  if (record === undefined || record === null) return null
  const { sha256, rows } = (record.parameters ?? {}) as Partial<RecordedFile>
  if (typeof sha256 === 'string' && typeof rows === 'number') return { sha256, rows, table: null }
  throw new InputError(`recorded of ${config}`, show(record), 'the SHA-256 and the number of rows of the file')
}

/** The algorithm's correction of rows chosen by another policy; empty without one. */
export function correctionOf({ staleness }: AlgorithmDefinition): Partial<RecordedCorrection> {
  if (staleness === undefined) return {}
  const { correction, rhoMax, cMax } = staleness
  return { correction, rhoMax, cMax }
}

/** The number of updates of a run from its file: one per rollout and epoch. */
export function recordedUpdates(given: EpisodeRunDefinition): number {
  checkGiven('definition of recordedUpdates', given, ['settings', 'algorithm', 'recorded'])
  const { recorded, algorithm, settings } = given
  return settings.epochs * Math.ceil((recorded?.rows ?? 0) / (algorithm.numSteps * settings.numLanes))
}
