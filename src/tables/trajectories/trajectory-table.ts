/** Trajectories as Arrow, with token lists and columns. Loads apache-arrow on first use. */

import type * as Arrow from 'apache-arrow'
import { joined } from '../../base/bytes.ts'
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { jsonOrText } from '../../base/files/files.ts'
import { VERSION } from '../../base/version.ts'
import type { StopReason } from '../../environments/text.ts'
import { elementType, writeArrow } from '../arrow.ts'
import { readArrow } from '../read-arrow.ts'
import { Trajectories, type TrajectoryColumns } from './trajectories.ts'
import { completionOf, type Trajectory, type TurnForm } from './trajectory.ts'

/** The origin of trajectories. */
export interface TextOrigin {
  readonly environment: string
  readonly model: string
  readonly tokenizer: string
  readonly algorithm: string
  readonly seed: number
  /** The prompt of an example, as JSON: a string, or messages. */
  promptOf(promptId: number): string
  /** Its right answer, null if it has none; without this function the table has no answers. */
  answerOf?(promptId: number): string | null
  /** Decodes the ids after a prompt; without this function the table has only ids. */
  decode?(ids: readonly number[]): string
  /** The text of each id; without this function the table has no token texts. */
  textsOf?(ids: ArrayLike<number>): readonly string[]
}

/** The texts of a trajectory. */
export interface TrajectoryWords {
  /** As JSON: a string, or messages. */
  readonly prompt: string
  /** The right answer; null if there is none, or if it is unknown. */
  readonly answer: string | null
  /** The text after the prompt; null if unknown. */
  readonly completion: string | null
  /** The text of each token, '' inside a character; null if unknown. */
  readonly tokenTexts: readonly string[] | null
}

const LISTS = {
  tokens: 'token',
  lossMask: 'lossMask',
  logprobs: 'logprob',
  versions: 'version',
  turn: 'turn',
} as const
type TokenLists = Record<(typeof LISTS)[keyof typeof LISTS], number[]>
const IDS = ['epoch', 'group', 'member', 'promptId', 'turns'] as const
/** Number columns that other tables may lack (then 0), with their names in older files. */
const COUNTS = { segment: null, cutTurns: null, droppedReplies: 'unheard' } as const
/** Columns of candidate sets, with their names in older files. */
const CANDIDATES = [
  ['candidateCounts', 'candidateIds'],
  ['supportLengths', 'supportIds'],
] as const
/** Prefix of the columns of reward components. */
const COMPONENT = 'reward/'

/**
 * The trajectories as an apache-arrow `Table`, sorted by source, epoch, group, prompt, member and segment, independent of which finished
 * first. Its lists and numbers use the trajectories' columns without a copy, with a record batch per stretch of rows in this order.
 * Unknown rewards, missing advantages and unrecorded logprobs are null. If a filter removed tokens, `candidateCounts` has the number of
 * candidates of each token (0: all tokens; null: unknown), and `candidateIds` their ids. The texts `prompt`, `answer` and `completion`
 * come from `words`, one per trajectory, or from the origin, and so does `tokenTexts`, if available.
 */
export async function trajectoryTable(
  trajectories: Trajectories,
  origin: TextOrigin,
  words: readonly TrajectoryWords[] = Array.from({ length: known(trajectories).count }, (_, i) =>
    wordsOf(trajectories.row(i), origin),
  ),
): Promise<Arrow.Table> {
  const arrow = await import('apache-arrow')
  const order = trajectories.order()
  const said = order.map((i) => words[i]!)
  const stretches = order.length === 0 ? [trajectories.columns()] : trajectories.stretches(order)
  const hasCandidates = stretches.some(({ candidateCount }) => candidateCount.some((length) => length !== 0))
  const hasForms = stretches.some(({ forms }) => forms.some(({ length }) => length > 0))
  const hasTexts = said.some(({ tokenTexts }) => tokenTexts !== null)
  let first = 0
  const batches = stretches.map((columns) => {
    const some = said.slice(first, first + columns.reward.length)
    first += columns.reward.length
    return batchOf(arrow, columns, some, { hasCandidates, hasForms, hasTexts })
  })
  const fields = Object.entries(batches[0]!).map(
    ([name, { data, nullable = false }]) => new arrow.Field(name, data.type, nullable),
  )
  const metadata = metadataOf(origin, stretches)
  const schema = new arrow.Schema(fields, new Map(Object.entries(metadata)))
  return new arrow.Table(
    schema,
    stretches.map(({ reward }, i) => {
      const children = Object.values(batches[i]!).map(({ data }) => data)
      const type = new arrow.Struct(fields)
      return new arrow.RecordBatch(schema, arrow.makeData({ type, length: reward.length, nullCount: 0, children }))
    }),
  )
}

/** The columns of a record batch by name. */
function batchOf(
  arrow: typeof Arrow,
  columns: TrajectoryColumns,
  said: readonly TrajectoryWords[],
  { hasCandidates, hasForms, hasTexts }: Readonly<Record<'hasCandidates' | 'hasForms' | 'hasTexts', boolean>>,
): Record<string, { readonly data: Arrow.Data; readonly nullable?: true }> {
  const { offsets, token, lossMask, logprob, version, turn, reward, known, advantage, error, stopReason } = columns
  const count = reward.length

  const plain = (data: Int32Array | Uint8Array): Arrow.Data =>
    arrow.makeData({ type: elementType(arrow, data), length: data.length, nullCount: 0, data } as never)
  const optional = (data: Int32Array | Float32Array | Float64Array, isThere: (i: number) => boolean): Arrow.Data => {
    const type = elementType(arrow, data)
    return arrow.makeData({ type, length: data.length, data, ...validity(data.length, isThere) } as never)
  }
  /** Null for NaN. */
  const recorded = (data: Float32Array | Float64Array) => optional(data, (i) => !Number.isNaN(data[i]))
  const list = (child: Arrow.Data, nullable = false, valueOffsets = offsets): Arrow.Data => {
    const type = new arrow.List(new arrow.Field('item', child.type, nullable))
    return arrow.makeData({ type, length: count, nullCount: 0, valueOffsets, child } as never)
  }
  const texts = (values: readonly (string | null)[]): Arrow.Data =>
    count === 0
      ? arrow.makeData({ type: new arrow.Utf8(), length: 0, nullCount: 0 })
      : arrow.vectorFromArray(values, new arrow.Utf8()).data[0]!

  const candidateCounts = optional(columns.candidateCount, (t) => columns.candidateCount[t] !== -1)
  const table: Record<string, { readonly data: Arrow.Data; readonly nullable?: true }> = {
    source: { data: texts(columns.source) },
    epoch: { data: plain(columns.epoch) },
    group: { data: plain(columns.group) },
    member: { data: plain(columns.member) },
    segment: { data: plain(columns.segment) },
    promptId: { data: plain(columns.promptId) },
    prompt: { data: texts(said.map(({ prompt }) => prompt)) },
    answer: { data: texts(said.map(({ answer }) => answer)), nullable: true },
    completion: { data: texts(said.map(({ completion }) => completion)), nullable: true },
    turns: { data: plain(columns.turns) },
    cutTurns: { data: plain(columns.cutTurns) },
    droppedReplies: { data: plain(columns.droppedReplies) },
    tokens: { data: list(plain(token)) },
    ...(hasTexts ? { tokenTexts: { data: listsOfTexts(arrow, said), nullable: true as const } } : {}),
    lossMask: { data: list(plain(lossMask)) },
    logprobs: { data: list(recorded(logprob), true) },
    versions: { data: list(plain(version)) },
    turn: { data: list(plain(turn)) },
    ...(!hasCandidates
      ? {}
      : {
          candidateCounts: { data: list(candidateCounts, true) },
          candidateIds: { data: list(plain(columns.candidateIds), false, columns.candidateOffsets) },
        }),
    ...(hasForms ? { forms: { data: texts(columns.forms.map(spelledForms)), nullable: true as const } } : {}),
    turnRewards: { data: list(recorded(columns.turnReward), true, columns.turnRewardOffsets) },
    reward: { data: optional(reward, (i) => known[i] === 1), nullable: true },
    advantage: { data: recorded(advantage), nullable: true },
    stopReason: { data: texts(stopReason) },
    error: { data: texts(error), nullable: true },
  }
  for (const [name, values] of columns.components) {
    const numbers = Float64Array.from(values, (value) => value ?? 0)
    table[COMPONENT + name] = { data: optional(numbers, (i) => values[i] !== null), nullable: true }
  }
  return table
}

/** Constrained turns as JSON, null for none. */
function spelledForms(forms: readonly TurnForm[]): string | null {
  return forms.length === 0 ? null : JSON.stringify(forms)
}

/** A list of strings per row, null if unknown. */
function listsOfTexts(arrow: typeof Arrow, said: readonly TrajectoryWords[]): Arrow.Data {
  const texts = said.flatMap(({ tokenTexts }) => tokenTexts ?? [])
  const ends = new Int32Array(texts.length + 1)
  const encoded = texts.map((text) => new TextEncoder().encode(text))
  for (const [i, { length }] of encoded.entries()) ends[i + 1] = ends[i]! + length
  const data = joined(encoded)
  const child = arrow.makeData({ type: new arrow.Utf8(), length: texts.length, nullCount: 0, valueOffsets: ends, data })
  const valueOffsets = new Int32Array(said.length + 1)
  for (const [i, { tokenTexts }] of said.entries()) valueOffsets[i + 1] = valueOffsets[i]! + (tokenTexts?.length ?? 0)
  const type = new arrow.List(new arrow.Field('item', child.type, false))
  const known = validity(said.length, (i) => said[i]!.tokenTexts !== null)
  return arrow.makeData({ type, length: said.length, ...known, valueOffsets, child })
}

function wordsOf(row: Trajectory, { promptOf, answerOf, decode, textsOf }: TextOrigin): TrajectoryWords {
  return {
    prompt: promptOf(row.promptId),
    answer: answerOf?.(row.promptId) ?? null,
    completion: decode?.(completionOf(row)) ?? null,
    tokenTexts: textsOf?.(row.token) ?? null,
  }
}

/** Schema metadata: the origin of the trajectories, and the range of weights versions if weights chose a token. */
function metadataOf(
  { promptOf: _, answerOf: __, decode: ___, textsOf: ____, ...origin }: TextOrigin,
  stretches: readonly Pick<TrajectoryColumns, 'version'>[],
): Record<string, string> {
  let [versionMin, versionMax] = [Number.POSITIVE_INFINITY, -1]
  for (const { version } of stretches) {
    for (const number of version) {
      if (number === -1) continue
      versionMin = Math.min(versionMin, number)
      versionMax = Math.max(versionMax, number)
    }
  }
  const range = versionMax === -1 ? {} : { versionMin, versionMax }
  const metadata = { ...origin, ...range, colonnade: VERSION }
  return Object.fromEntries(Object.entries(metadata).map(([name, value]) => [name, String(value)]))
}

/**
 * Writes trajectories as an Arrow IPC file of one record batch, atomically. Copies them first if they are not in the table's order.
 * @throws InputError if the path cannot be written.
 */
export async function writeTrajectories(
  path: string,
  trajectories: Trajectories,
  origin: TextOrigin,
  order: readonly number[] = known(trajectories).order(),
): Promise<void> {
  await writeArrow(path, await trajectoryTable(inOrder(trajectories, order), origin))
}

function known(trajectories: Trajectories): Trajectories {
  checkGiven('trajectories', trajectories, ['order', 'rows'])
  return trajectories
}

/** The trajectories in the order of the table; without a copy if they already are. */
function inOrder(trajectories: Trajectories, order: readonly number[]): Trajectories {
  const isAll = order.length === trajectories.count
  if (isAll && (order.length === 0 || trajectories.stretches(order).length === 1)) return trajectories
  const taken = trajectories.take(order)
  taken.setAdvantages(trajectories.rows(order).advantage)
  return taken
}

/** A table of trajectories read from files, as by `trajectoryTable`, with the texts and the origin of the files. */
export async function trajectoryTableOfFile({ trajectories, words, metadata }: TrajectoriesRead): Promise<Arrow.Table> {
  const { versionMin: _, versionMax: __, colonnade: ___, ...origin } = metadata
  return trajectoryTable(trajectories, origin as unknown as TextOrigin, words)
}

/** Trajectories read from files. */
export interface TrajectoriesRead {
  readonly trajectories: Trajectories
  readonly words: readonly TrajectoryWords[]
  /** Schema metadata of the first file. */
  readonly metadata: Readonly<Record<string, string>>
}

/**
 * Reads Arrow files of `writeTrajectories`, or others with the same columns, with their advantages. A file without a column `source`,
 * such as an older one, is a source named by its path.
 * @throws InputError for a file that cannot be read or lacks a column, and for an invalid trajectory.
 */
export async function readTrajectories(...paths: string[]): Promise<TrajectoriesRead> {
  const tables = await Promise.all(paths.map(async (path) => [path, await readArrow(path)] as const))
  const [first] = tables
  if (first === undefined) throw new InputError('readTrajectories(paths)', 'no path', 'at least one')
  const trajectories = new Trajectories()
  const words: TrajectoryWords[] = []
  const advantages: number[] = []
  for (const [path, table] of tables) {
    const read = rowsOf(path, table)
    for (let i = 0; i < table.numRows; i++) {
      const { trajectory, advantage, ...said } = read(i)
      trajectories.append(trajectory)
      words.push(said)
      advantages.push(advantage)
    }
  }
  trajectories.setAdvantages(advantages)
  return { trajectories, words, metadata: Object.fromEntries(first[1].schema.metadata) }
}

/** The rows of a table with the columns of `trajectoryTable`. `subject`: its name in errors. @throws InputError for a missing column. */
export function trajectoriesIn(subject: string, table: Arrow.Table): Trajectory[] {
  const read = rowsOf(subject, table)
  return Array.from({ length: table.numRows }, (_, i) => read(i).trajectory)
}

function rowsOf(path: string, table: Arrow.Table) {
  const names = table.schema.fields.map((field) => field.name)
  const column = (name: string): Arrow.Vector => {
    const found = table.getChild(name)
    if (found !== null) return found
    throw new InputError(path, `no column ${show(name)} among ${names.join(', ')}`, 'a table of trajectories')
  }
  const source = names.includes('source') ? column('source') : null
  const ids = IDS.map((name) => [name, column(name)] as const)
  const counts = Object.entries(COUNTS).map(([name, older]) => {
    return [name, table.getChild(name) ?? (older && table.getChild(older))] as const
  })
  const lists = Object.entries(LISTS).map(([name, into]) => [into, column(name)] as const)
  const sets = CANDIDATES.find(([, ids]) => names.includes(ids))
  const candidates = sets === undefined ? null : ([column(sets[0]), column(sets[1])] as const)
  const [prompt, reward, advantage, stopReason, error] = (
    ['prompt', 'reward', 'advantage', 'stopReason', 'error'] as const
  ).map(column) as [Arrow.Vector, Arrow.Vector, Arrow.Vector, Arrow.Vector, Arrow.Vector]
  const forms = table.getChild('forms')
  const turnRewards = names.includes('turnRewards') ? column('turnRewards') : null
  const components = names
    .filter((name) => name.startsWith(COMPONENT))
    .map((name) => [name.slice(COMPONENT.length), column(name)] as const)
  const [answer, completion, tokenTexts] = ['answer', 'completion', 'tokenTexts'].map((name) => table.getChild(name))
  return (i: number): TrajectoryWords & { readonly trajectory: Trajectory; readonly advantage: number } => {
    const row = Object.fromEntries(ids.map(([name, vector]) => [name, numberOf(vector.get(i))]))
    const counted = counts.map(([name, vector]) => [name, vector === null ? 0 : numberOf(vector.get(i))])
    const tokens = Object.fromEntries(lists.map(([name, vector]) => [name, elements(vector.get(i))])) as TokenLists
    return {
      trajectory: {
        source: source === null ? path : source.get(i),
        ...(row as Record<(typeof IDS)[number], number>),
        ...(Object.fromEntries(counted) as Record<keyof typeof COUNTS, number>),
        ...tokens,
        ...(candidates === null
          ? {}
          : { candidateCount: elements(candidates[0].get(i), -1), candidateIds: elements(candidates[1].get(i)) }),
        ...formsIn(path, forms?.get(i) ?? null),
        ...(turnRewards === null ? {} : { turnReward: elements(turnRewards.get(i)) }),
        reward: reward.get(i),
        stopReason: stopReason.get(i) as StopReason,
        error: error.get(i),
        components: Object.fromEntries(components.map(([name, vector]) => [name, vector.get(i)])),
      },
      prompt: prompt.get(i),
      answer: answer?.get(i) ?? null,
      completion: completion?.get(i) ?? null,
      tokenTexts: textsOf(tokenTexts?.get(i) ?? null),
      advantage: advantage.get(i) ?? Number.NaN,
    }
  }
}

/** Constrained turns that were written as JSON. */
function formsIn(path: string, spelled: string | null): { readonly forms?: readonly TurnForm[] } {
  if (spelled === null) return {}
  const forms = jsonOrText(spelled)
  if (Array.isArray(forms)) return { forms }
  throw new InputError(`${path}, forms`, show(spelled), 'a list of turns with their constraints, as JSON')
}

/** The elements of a list, empty for null; null elements become `unknown`, which is rejected where it is not allowed. */
function elements(list: Iterable<number | bigint | null> | null, unknown = Number.NaN): number[] {
  return list === null ? [] : Array.from(list, (value) => numberOf(value, unknown))
}

function textsOf(list: Iterable<string> | null): readonly string[] | null {
  return list === null ? null : [...list]
}

function numberOf(value: number | bigint | null, unknown = Number.NaN): number {
  return value === null ? unknown : Number(value)
}

/** Arrow's validity bitmap: bit i, from the lowest of the first byte, is 1 if there is a value. */
function validity(length: number, isThere: (i: number) => boolean): { nullBitmap: Uint8Array; nullCount: number } {
  const nullBitmap = new Uint8Array(8 * Math.ceil(length / 64))
  let nullCount = 0
  for (let i = 0; i < length; i++) {
    if (isThere(i)) nullBitmap[i >> 3]! |= 1 << (i & 7)
    else nullCount++
  }
  return { nullBitmap, nullCount }
}
