/**
 * Whole episodes as a dataset of Minari (format `arrow`, of 0.5): a folder with `data/metadata.json`, and of each episode
 * `data/<n>/part-0.arrow` and `data/<n>/metadata.json`. An episode of T steps has T + 1 observations, so its file has T + 1 rows;
 * what else there is has a 0 in the last one, which Minari leaves out.
 */
import { basename, join, resolve } from 'node:path'
import type * as Arrow from 'apache-arrow'
import type { Column } from '../components/column.ts'
import { InputError } from '../errors.ts'
import { listFolder, makeFolder, writeWhole } from '../files.ts'
import { type Space, spaceWidth } from '../space.ts'
import { writeArrow } from './arrow.ts'
import { datasetCard } from './dataset-card.ts'
import { isOfEpisodes } from './episode-rows.ts'
import type { Field, Table } from './table.ts'

/** The version of the layout. */
const MINARI_VERSION = '0.5.3'

/** What was written. */
export interface MinariExport {
  /** By which Minari finds it below its folder of datasets: the folder's name. */
  readonly datasetId: string
  readonly episodes: number
  readonly steps: number
}

/**
 * Writes the table of whole episodes (`recordEpisodes`) as a dataset of Minari into a new folder, with a card, `README.md`. Minari finds it
 * where `MINARI_DATASETS_PATH` is the folder above.
 * @throws InputError for a table of anything else, a folder whose name is no id of a dataset or that is not empty.
 */
export async function writeMinari(
  folder: string,
  table: Table,
  spaces: { readonly observationSpace: Space; readonly actionSpace: Space },
): Promise<MinariExport> {
  if (!isOfEpisodes(table)) throw new InputError('table', 'no whole episodes', 'those of recordEpisodes')
  const datasetId = basename(resolve(folder))
  if (!/^[\w-]+-v\d+$/.test(datasetId)) {
    throw new InputError(
      'out',
      datasetId,
      "a folder whose name is a dataset's id with its version, like cartpole-expert-v0",
    )
  }
  if ((await listFolder(folder)).length > 0)
    throw new InputError('out', `${folder}, which is not empty`, 'a new folder')
  const episodes = episodesOf(table)
  const finalPlace = new Map(Array.from(fieldOf(table, 'finalObservation').rows ?? [], (row, place) => [row, place]))
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

/** The rows of each episode: from, and up to. @throws InputError for a last one that has not ended. */
function episodesOf(table: Table): (readonly [from: number, to: number])[] {
  const [terminated, truncated] = [columnOf(table, 'terminated'), columnOf(table, 'truncated')]
  const episodes: (readonly [number, number])[] = []
  let from = 0
  for (let row = 0; row < table.numRows; row++) {
    if (terminated[row] === 0 && truncated[row] === 0) continue
    episodes.push([from, row + 1])
    from = row + 1
  }
  if (from < table.numRows) throw new InputError('table', 'an episode that has not ended', 'whole episodes')
  return episodes
}

/** The rows `from` to `to` of a table, and one more for the observation after them, which is number `place` of those of ends. */
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
    fieldOf(table, 'finalObservation').column.subarray(place * width, (place + 1) * width),
  ]
  const wide = spaceWidth(actionSpace)
  const actions = table.fields.some(({ name }) => name === 'appliedAction') ? 'appliedAction' : 'action' // Within its bounds.
  const done = [columnOf(table, actions).subarray(from * wide, to * wide)]
  const rewards = new Float64Array(length)
  rewards.set(columnOf(table, 'reward').subarray(from, to))
  const flags = (name: string) => {
    const bits = new Uint8Array(Math.ceil(length / 64) * 8)
    const column = columnOf(table, name)
    for (let i = 0; i < length - 1; i++) if (column[from + i] !== 0) bits[i >> 3]! |= 1 << (i & 7)
    return arrow.makeData({ type: new arrow.Bool(), length, nullCount: 0, data: bits })
  }
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

/**
 * Values of a space as Minari has them: of one choice a number, of several choices and of a box a list of its size. They are those
 * of `parts`, one after another, and then 0.
 */
function valuesOf(arrow: typeof Arrow, space: Space, parts: readonly Column[], length: number): Arrow.Data {
  const width = spaceWidth(space)
  const each = space.kind === 'box' ? floatsOf(arrow, parts, length * width) : choicesOf(arrow, parts, length * width)
  if (space.kind === 'discrete') return each
  const item = new arrow.Field('item', each.type as Arrow.DataType, false)
  const type = new arrow.FixedSizeList(width, item)
  return arrow.makeData({ type, length, nullCount: 0, child: each as never }) as Arrow.Data
}

function floatsOf(arrow: typeof Arrow, parts: readonly Column[], length: number): Arrow.Data {
  const data = new Float32Array(length)
  let at = 0
  for (const part of parts) {
    data.set(part, at)
    at += part.length
  }
  return arrow.makeData({ type: new arrow.Float32(), length, nullCount: 0, data })
}

function choicesOf(arrow: typeof Arrow, parts: readonly Column[], length: number): Arrow.Data {
  const data = new BigInt64Array(length)
  let at = 0
  for (const part of parts) for (const value of part) data[at++] = BigInt(value)
  return arrow.makeData({ type: new arrow.Int64(), length, nullCount: 0, data })
}

/** A space as Minari writes it: JSON, in which bounds may be infinite as in Python's. */
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

/** Numbers in the lists that a shape says. */
function nested(values: readonly number[], [size, ...rest]: readonly number[]): string {
  if (size === undefined) return String(values[0]) // Infinity, as Python's JSON has it.
  const part = values.length / size
  return `[${Array.from({ length: size }, (_, i) => nested(values.slice(i * part, (i + 1) * part), rest)).join(',')}]`
}

function fieldOf({ fields }: Table, name: string): Field {
  const field = fields.find((each) => each.name === name)
  if (field === undefined)
    throw new InputError(`column ${name} of the table`, 'none', 'one, as recordEpisodes writes it')
  return field
}

function columnOf(table: Table, name: string): Field['column'] {
  return fieldOf(table, name).column
}
