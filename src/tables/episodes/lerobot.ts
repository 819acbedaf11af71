/**
 * Whole episodes as a LeRobot dataset (format v3.0): a folder with `meta/info.json`, `meta/stats.json`, `meta/tasks.parquet`,
 * `meta/episodes/chunk-000/file-000.parquet` (a row per episode) and `data/chunk-000/file-000.parquet` (a row per step, a row group per
 * episode). Observations are flat lists in row-major order. The format has no place for the observation after an episode's last step.
 */
import { basename, join, resolve } from 'node:path'
import type * as Arrow from 'apache-arrow'
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { makeFolder, writeWhole } from '../../base/files/files.ts'
import { type Space, spaceWidth } from '../../base/space.ts'
import { datasetCard } from '../dataset-card.ts'
import { writeParquet } from '../parquet.ts'
import type { Table } from '../table.ts'
import { actionsOf, checkNewFolder, columnOf, episodesOf, flagsOf, valuesOf } from './episode-dataset.ts'

const FORMAT = 'v3.0'
const FILE = 'chunk-000/file-000.parquet'
/** LeRobot's quantiles, besides minimum, maximum, mean and deviation. */
const QUANTILES = { q01: 0.01, q10: 0.1, q50: 0.5, q90: 0.9, q99: 0.99 }

/** Options of a LeRobot dataset. */
export interface LeRobotOptions {
  /** Steps per second for timestamps, since an environment has no clock; a whole number. Default 30. */
  readonly fps?: number
}

/** The written dataset. */
export interface LeRobotExport {
  readonly episodes: number
  /** Number of steps, a row each. */
  readonly steps: number
}

/** A column of the dataset: its numbers row by row, and its Arrow data. */
interface Feature {
  readonly dtype: 'float32' | 'int64' | 'bool'
  readonly width: number
  readonly values: ArrayLike<number>
  readonly data: Arrow.Data
}
type Features = Readonly<Record<string, Feature>>
type Stats = Readonly<Record<string, number[]>>

/**
 * Writes a table of whole episodes (`recordEpisodes`) as a LeRobot dataset into a new folder, with a card, `README.md`. Its columns are
 * `observation.state` and `action` (f32, or i64 for choices), `next.reward`, `next.done` (`next.terminated` or `next.truncated`),
 * `next.terminated`, `next.truncated`, `timestamp` in seconds, and LeRobot's four indices. Its only task is the environment's name.
 * @throws InputError for another table, a folder that is not empty, and an fps that is not a whole number above 0.
 */
export async function writeLeRobot(
  folder: string,
  table: Table,
  spaces: { readonly observationSpace: Space; readonly actionSpace: Space },
  { fps = 30 }: LeRobotOptions = {},
): Promise<LeRobotExport> {
  checkGiven('folder of writeLeRobot', folder, 'a text')
  checkGiven('table of writeLeRobot', table, ['numRows', 'fields', 'metadata'])
  checkGiven('spaces of writeLeRobot', spaces, ['observationSpace', 'actionSpace'])
  if (!(Number.isInteger(fps) && fps > 0)) throw new InputError('fps', show(fps), 'a whole number above 0')
  const episodes = episodesOf(table)
  if (episodes.length === 0) throw new InputError('table', 'no episode', 'one or more')
  await checkNewFolder(folder)
  const arrow = await import('apache-arrow')
  const features = featuresOf(arrow, table, episodes, spaces, fps)
  const { environment = 'unknown', seed, version, checkpoint, policy } = table.metadata
  for (const name of ['data', 'meta/episodes']) await makeFolder(join(folder, name, 'chunk-000'))
  const vectors = Object.entries(features).map(([name, { data }]) => [name, arrow.makeVector(data)])
  const rowGroups = episodes.map(([from, to]) => to - from)
  await writeParquet(join(folder, 'data', FILE), new arrow.Table(Object.fromEntries(vectors)), { rowGroups })
  await writeParquet(join(folder, 'meta/episodes', FILE), episodeTable(arrow, episodes, features, environment))
  await writeParquet(join(folder, 'meta/tasks.parquet'), taskTable(arrow, environment))
  await writeJson(join(folder, 'meta/stats.json'), statsOf(features, 0, table.numRows))
  await writeJson(join(folder, 'meta/info.json'), {
    ...{ codebase_version: FORMAT, robot_type: null, fps },
    ...{ total_episodes: episodes.length, total_frames: table.numRows, total_tasks: 1 },
    ...{ chunks_size: 1000, data_files_size_in_mb: 100, video_files_size_in_mb: 500 },
    splits: { train: `0:${episodes.length}` },
    data_path: 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet',
    video_path: null,
    features: Object.fromEntries(
      Object.entries(features).map(([name, { dtype, width }]) => [name, { dtype, shape: [width], names: null }]),
    ),
  })
  const counts = { episodes: episodes.length, steps: table.numRows }
  const facts = { environment, ...counts, fps, seed, policy, checkpoint, version }
  const card = datasetCard(basename(resolve(folder)), { tags: ['LeRobot'], facts }, 'data/*/*.parquet')
  await writeWhole(join(folder, 'README.md'), [card])
  return counts
}

/** The columns of the dataset, a row per step. */
function featuresOf(
  arrow: typeof Arrow,
  table: Table,
  episodes: readonly (readonly [from: number, to: number])[],
  { observationSpace, actionSpace }: { readonly observationSpace: Space; readonly actionSpace: Space },
  fps: number,
): Features {
  const { numRows } = table
  const ofSpace = (space: Space, values: ReturnType<typeof columnOf>): Feature => {
    const width = spaceWidth(space)
    const list = valuesOf(arrow, space, [values], numRows)
    // A single number is not a list.
    const data = width === 1 && space.kind !== 'discrete' ? (list.children[0] as Arrow.Data) : list
    return { dtype: space.kind === 'box' ? 'float32' : 'int64', width, values, data }
  }
  const floats = (values: Float32Array): Feature => {
    const data = arrow.makeData({ type: new arrow.Float32(), length: numRows, nullCount: 0, data: values })
    return { dtype: 'float32', width: 1, values, data }
  }
  const flags = (values: Uint8Array): Feature => ({
    ...{ dtype: 'bool', width: 1, values, data: flagsOf(arrow, values) },
  })
  const indices = (values: Float64Array): Feature => {
    const data = BigInt64Array.from(values, BigInt)
    const type = new arrow.Int64()
    return { dtype: 'int64', width: 1, values, data: arrow.makeData({ type, length: numRows, nullCount: 0, data }) }
  }
  const [terminated, truncated] = [columnOf(table, 'terminated'), columnOf(table, 'truncated')].map((column) =>
    Uint8Array.from(column, (flag) => (flag === 0 ? 0 : 1)),
  ) as [Uint8Array, Uint8Array]
  const [frame, episode] = [new Float64Array(numRows), new Float64Array(numRows)]
  for (const [number, [from, to]] of episodes.entries()) {
    episode.fill(number, from, to)
    for (let row = from; row < to; row++) frame[row] = row - from
  }
  return {
    'observation.state': ofSpace(observationSpace, columnOf(table, 'observation')),
    action: ofSpace(actionSpace, actionsOf(table)),
    'next.reward': floats(Float32Array.from(columnOf(table, 'reward'))),
    'next.done': flags(terminated.map((flag, row) => flag | truncated[row]!)),
    'next.terminated': flags(terminated),
    'next.truncated': flags(truncated),
    timestamp: floats(Float32Array.from(frame, (step) => step / fps)),
    frame_index: indices(frame),
    episode_index: indices(episode),
    index: indices(Float64Array.from(frame, (_, row) => row)),
    task_index: indices(new Float64Array(numRows)),
  }
}

/** Statistics of each feature over a range of rows, with a number per element of a row. */
function statsOf(features: Features, from: number, to: number): Readonly<Record<string, Stats>> {
  return Object.fromEntries(
    Object.entries(features).map(([name, { width, values }]) => {
      const places = Array.from({ length: width }, (_, k) => {
        const column = Float64Array.from({ length: to - from }, (_, row) => values[(from + row) * width + k]!).sort()
        return figuresOf(column)
      })
      const figures = Object.keys(places[0]!).map((figure) => [figure, places.map((place) => place[figure]!)])
      return [name, { ...Object.fromEntries(figures), count: [to - from] }]
    }),
  )
}

/** Statistics of sorted numbers. Quantiles are interpolated linearly. */
function figuresOf(sorted: Float64Array): Record<string, number> {
  const last = sorted.length - 1
  const mean = sorted.reduce((sum, value) => sum + value, 0) / sorted.length
  const variance = sorted.reduce((sum, value) => sum + (value - mean) ** 2, 0) / sorted.length
  const quantiles = Object.entries(QUANTILES).map(([name, part]) => {
    const [below, share] = [Math.floor(part * last), (part * last) % 1]
    return [name, sorted[below]! + share * (sorted[Math.min(below + 1, last)]! - sorted[below]!)]
  })
  const figures = { min: sorted[0]!, max: sorted[last]!, mean, std: Math.sqrt(variance) }
  return { ...figures, ...Object.fromEntries(quantiles) }
}

/** A row per episode: its rows, its task and its statistics. */
function episodeTable(
  arrow: typeof Arrow,
  episodes: readonly (readonly [from: number, to: number])[],
  features: Features,
  task: string,
): Arrow.Table {
  const longs = (values: readonly number[]) => arrow.vectorFromArray(values.map(BigInt), new arrow.Int64())
  const lists = (values: readonly unknown[][], type: Arrow.DataType) =>
    arrow.vectorFromArray(values, new arrow.List(new arrow.Field('item', type, false)))
  const zeros = longs(episodes.map(() => 0))
  const columns: Record<string, Arrow.Vector> = {
    episode_index: longs(episodes.map((_, episode) => episode)),
    tasks: lists(
      episodes.map(() => [task]),
      new arrow.Utf8(),
    ),
    length: longs(episodes.map(([from, to]) => to - from)),
    'data/chunk_index': zeros,
    'data/file_index': zeros,
    dataset_from_index: longs(episodes.map(([from]) => from)),
    dataset_to_index: longs(episodes.map(([, to]) => to)),
    'meta/episodes/chunk_index': zeros,
    'meta/episodes/file_index': zeros,
  }
  const stats = episodes.map(([from, to]) => statsOf(features, from, to))
  for (const [feature, figures] of Object.entries(stats[0]!)) {
    for (const figure of Object.keys(figures)) {
      const values = stats.map((each) => each[feature]![figure]!)
      columns[`stats/${feature}/${figure}`] =
        figure === 'count'
          ? lists(
              values.map((counts) => counts.map(BigInt)),
              new arrow.Int64(),
            )
          : lists(values, new arrow.Float64())
    }
  }
  return new arrow.Table(columns)
}

/** The task table. LeRobot reads it with pandas, with the task names as the index. */
function taskTable(arrow: typeof Arrow, task: string): Arrow.Table {
  const table = new arrow.Table({
    task_index: arrow.vectorFromArray([0n], new arrow.Int64()),
    task: arrow.vectorFromArray([task], new arrow.Utf8()),
  })
  const column = (name: string, type: string, numpy: string) => ({
    ...{ name, field_name: name, pandas_type: type, numpy_type: numpy, metadata: null },
  })
  const columns = [column('task_index', 'int64', 'int64'), column('task', 'unicode', 'object')]
  table.schema.metadata.set(
    'pandas',
    JSON.stringify({ index_columns: ['task'], column_indexes: [], columns, creator: { library: 'colonnade' } }),
  )
  return table
}

async function writeJson(path: string, value: unknown): Promise<void> {
  await writeWhole(path, [`${JSON.stringify(value, null, 4)}\n`])
}
