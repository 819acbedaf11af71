/**
 * Whole episodes as a Minari dataset (format `arrow`, version 0.5): a folder with `data/metadata.json`, and for each episode
 * `data/<n>/part-0.arrow` and `data/<n>/metadata.json`. An episode of T steps has T + 1 observations, so its file has T + 1 rows; other
 * columns have a 0 in the last row, which Minari ignores.
 */
import { basename, join, resolve } from 'node:path'
import type * as Arrow from 'apache-arrow'
import { checkGiven, InputError } from '../../base/errors.ts'
import { makeFolder, writeWhole } from '../../base/files/files.ts'
import { type Space, spaceWidth } from '../../base/space.ts'
import { writeArrow } from '../arrow.ts'
import { datasetCard } from '../dataset-card.ts'
import type { Table } from '../table.ts'
import { actionsOf, checkNewFolder, columnOf, episodesOf, flagsOf, valuesOf } from './episode-dataset.ts'

const MINARI_VERSION = '0.5.3'

/** The written dataset. */
export interface MinariExport {
  /** Minari's name of the dataset: the folder's name. */
  readonly datasetId: string
  readonly episodes: number
  readonly steps: number
}

/**
 * Writes a table of whole episodes (`recordEpisodes`) as a Minari dataset into a new folder, with a card, `README.md`. Minari finds it if
 * `MINARI_DATASETS_PATH` is the parent folder.
 * @throws InputError for another table, a folder name that is not a dataset id, and a folder that is not empty.
 */
export async function writeMinari(
  folder: string,
  table: Table,
  spaces: { readonly observationSpace: Space; readonly actionSpace: Space },
): Promise<MinariExport> {
  checkGiven('folder of writeMinari', folder, 'a text')
  checkGiven('table of writeMinari', table, ['numRows', 'fields', 'metadata'])
  checkGiven('spaces of writeMinari', spaces, ['observationSpace', 'actionSpace'])
  const datasetId = basename(resolve(folder))
  if (!/^[\w-]+-v\d+$/.test(datasetId)) {
    const expected = "a folder whose name is a dataset's id with its version, like cartpole-expert-v0"
    throw new InputError('out', datasetId, expected)
  }
  const episodes = episodesOf(table)
  await checkNewFolder(folder)
  const finals = table.fields.find(({ name }) => name === 'finalObservation')
  const finalPlace = new Map(Array.from(finals?.rows ?? [], (row, place) => [row, place]))
  for (const [id, [from, to]] of episodes.entries()) {
    const place = finalPlace.get(to - 1)
    if (place === undefined)
      throw new InputError('table', 'an episode without its last observation', 'finalObservation at its end')
    const path = join(folder, 'data', String(id))
    await makeFolder(path)
    await writeArrow(join(path, 'part-0.arrow'), await episodeTable(table, from, to, place, spaces))
    await writeWhole(join(path, 'metadata.json'), [JSON.stringify({ id, total_steps: to - from })])
  }
  const { environment = 'unknown', seed, version, checkpoint, policy } = table.metadata
  const metadata = {
    total_episodes: episodes.length,
    total_steps: table.numRows,
    data_format: 'arrow',
    observation_space: spaceText(spaces.observationSpace),
    action_space: spaceText(spaces.actionSpace),
    dataset_id: datasetId,
    minari_version: MINARI_VERSION,
    algorithm_name: policy ?? '',
    description: `Episodes of ${environment} that a policy of Colonnade has played.`,
  }
  await writeWhole(join(folder, 'data', 'metadata.json'), [JSON.stringify(metadata)])
  const facts = { environment, episodes: episodes.length, steps: table.numRows, seed, policy, checkpoint, version }
  await writeWhole(join(folder, 'README.md'), [datasetCard(datasetId, { tags: ['minari'], facts })])
  return { datasetId, episodes: episodes.length, steps: table.numRows }
}

/** Rows `from` to `to` of a table, and one more for the observation after them, entry `place` of the final observations. */
async function episodeTable(
  table: Table,
  from: number,
  to: number,
  place: number,
  { observationSpace, actionSpace }: { readonly observationSpace: Space; readonly actionSpace: Space },
): Promise<Arrow.Table> {
  const arrow = await import('apache-arrow')
  const length = to - from + 1
  const width = spaceWidth(observationSpace)
  const seen = [
    columnOf(table, 'observation').subarray(from * width, to * width),
    table.fields.find(({ name }) => name === 'finalObservation')!.column.subarray(place * width, (place + 1) * width),
  ]
  const wide = spaceWidth(actionSpace)
  const done = [actionsOf(table).subarray(from * wide, to * wide)]
  const rewards = new Float64Array(length)
  rewards.set(columnOf(table, 'reward').subarray(from, to))
  const flags = (name: string) => flagsOf(arrow, columnOf(table, name).subarray(from, to), length)
  const children = {
    observations: valuesOf(arrow, observationSpace, seen, length),
    actions: valuesOf(arrow, actionSpace, done, length),
    rewards: arrow.makeData({ type: new arrow.Float64(), length, nullCount: 0, data: rewards }),
    terminations: flags('terminated'),
    truncations: flags('truncated'),
  }
  const fields = Object.entries(children).map(
    ([name, { type }]) => new arrow.Field(name, type as Arrow.DataType, false),
  )
  const schema = new arrow.Schema(fields)
  const struct = arrow.makeData({
    type: new arrow.Struct(fields),
    length,
    nullCount: 0,
    children: Object.values(children) as Arrow.Data[],
  })
  return new arrow.Table(schema, new arrow.RecordBatch(schema, struct as never))
}

/** A space in Minari's JSON, in which bounds may be infinite, as in Python's. */
function spaceText(space: Space): string {
  switch (space.kind) {
    case 'discrete':
      return JSON.stringify({ type: 'Discrete', dtype: 'int64', start: 0, n: space.n })
    case 'multi-discrete':
      return JSON.stringify({ type: 'MultiDiscrete', dtype: 'int64', nvec: space.sizes })
    case 'box': {
      const [low, high] = [space.low, space.high].map((bounds) => nested(bounds, space.shape))
      return `{"type":"Box","dtype":"float32","shape":${JSON.stringify(space.shape)},"low":${low},"high":${high}}`
    }
  }
}

/** Formats numbers as nested lists of a shape. */
function nested(values: readonly number[], [size, ...rest]: readonly number[]): string {
  if (size === undefined) return String(values[0]) // Infinity as in Python's JSON.
  const part = values.length / size
  return `[${Array.from({ length: size }, (_, i) => nested(values.slice(i * part, (i + 1) * part), rest)).join(',')}]`
}
