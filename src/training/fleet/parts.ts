/**
 * The messages between a learner and the actors of a fleet: a member's part of a rollout, and the state of its lanes
 * between two rollouts, as Arrow IPC streams; and the messages that name them.
 *
 * A part depends only on its lanes' state before it, the weights, and the code. So any actor can collect it again,
 * with the same bits.
 */
import { fingerprint } from '../../base/definition.ts'
import { InputError, show } from '../../base/errors.ts'
import type { Column } from '../../components/column.ts'
import type { Message } from '../../fleet/bus/bus.ts'
import { toArrow } from '../../tables/arrow.ts'
import { arrowStreams, fromArrow } from '../../tables/read-arrow.ts'
import type { Field } from '../../tables/table.ts'
import { beginningOf } from '../../world/episodes/ahead-buffers.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import { type Share, sharesOf } from '../../world/episodes/shares.ts'

/** Parts of rollouts that a member has to collect, in order; each begins from the state that the previous one left. */
export interface PartTask {
  readonly id: string
  readonly member: number
  /** Rollouts `from` ≤ r < `until`. */
  readonly from: number
  readonly until: number
  /** The weights' version and hash. */
  readonly version: number
  readonly weights: string
  /** The hash of the lanes' state at the start of the first one. */
  readonly before: string
}

/** A member's collected part of a rollout. */
export interface PartResult {
  /** The task's. */
  readonly id: string
  readonly actor: string
  readonly member: number
  readonly rollout: number
  readonly version: number
  readonly weights: string
  readonly before: string
  /** The hashes of the rows, and of the lanes' state after them. */
  readonly rows: string
  readonly after: string
  /** Seconds of collecting, and of waiting for the task. */
  readonly seconds: number
  readonly waited: number
  /** The error, if collecting failed several times; otherwise null. */
  readonly error: string | null
}

export function messageOf(sent: PartTask | PartResult): Message {
  return sent as unknown as Message
}

/** Columns that a learner writes. */
const LEARNED: readonly string[] = ['advantage', 'return']

/** The columns of a rollout that collecting writes, with their elements per row. */
function rowColumns({ rollout, numSteps, numLanes }: EpisodeCohort): Field[] {
  return Object.entries(rollout as unknown as Record<string, Column>)
    .filter(([name, column]) => column.length > 0 && !LEARNED.includes(name))
    .map(([name, column]) => ({ name, column, width: column.length / (numSteps * numLanes) }))
}

function stateColumns({ numLanes }: EpisodeCohort, columns: Iterable<Column>): Field[] {
  return [...columns]
    .map((column, i) => ({ name: `column${i}`, column, width: column.length / numLanes }))
    .filter(({ column }) => column.length > 0)
}

/** A fingerprint of the columns' types and sizes, which must be equal for a learner and its actors. */
export function schemaOf(cohort: EpisodeCohort): string {
  const describe = ({ name, column, width }: Field) => [name, column.constructor.name, width]
  const { numSteps, numLanes, carried } = cohort
  return fingerprint(numSteps, numLanes, rowColumns(cohort).map(describe), stateColumns(cohort, carried).map(describe))
}

/** A member's share of the lanes. */
export function shareOfMember(cohort: EpisodeCohort, member: number, numMembers: number): Share {
  return sharesOf(cohort, numMembers, cohort.numLanes)[member]!
}

async function toBytes(numRows: number, fields: readonly Field[]): Promise<Uint8Array> {
  const { toStream } = await arrowStreams()
  return toStream(await toArrow({ numRows, fields, metadata: {} }))
}

/** A stream's columns. @throws InputError if they are not the expected ones. */
async function fromBytes(what: string, bytes: Uint8Array, expected: readonly Field[], numRows: number) {
  const { fromStream } = await arrowStreams()
  const { fields } = fromArrow(fromStream(bytes))
  const describe = ({ name, column, width }: Field) => `${name} ${column.constructor.name} × ${width}`
  const [got, wanted] = [fields.map(describe), expected.map(describe)].map((each) => each.join(', '))
  if (got !== wanted) throw new InputError(what, `columns ${show(got)}`, `the learner's: ${show(wanted)}`)
  const wrong = fields.find(({ column, width }) => column.length !== numRows * width)
  if (wrong === undefined) return fields
  throw new InputError(what, `${wrong.column.length / wrong.width} rows of ${wrong.name}`, `${numRows}`)
}

/** The state of a member's lanes at the start of a rollout. */
export function stateToBytes(cohort: EpisodeCohort, rollout: number, { from, to }: Share): Promise<Uint8Array> {
  const fields = stateColumns(cohort, beginningOf(cohort, rollout).values()).map(({ name, column, width }) => {
    return { name, column: column.slice(from * width, to * width), width }
  })
  return toBytes(to - from, fields)
}

/**
 * Reads the state of a member's lanes. The result writes it to where the start of a rollout is kept, or with `isCurrent` into the lanes.
 * @throws InputError if it is not of these columns.
 */
export async function readState(
  cohort: EpisodeCohort,
  { from, to }: Share,
  bytes: Uint8Array,
): Promise<(rollout: number, isCurrent?: boolean) => void> {
  const fields = await fromBytes('state of the lanes', bytes, stateColumns(cohort, cohort.carried), to - from)
  return (rollout, isCurrent = false) => {
    const kept = beginningOf(cohort, rollout)
    const targets = stateColumns(cohort, isCurrent ? kept.keys() : kept.values())
    for (const [i, { column, width }] of targets.entries()) column.set(fields[i]!.column, from * width)
  }
}

/** Bytes before the streams of a part: the lengths of the two, each in 8 bytes. */
const HEAD = 16

/** A member's rows of a rollout, and the final observations that no row has. */
export async function rowsToBytes(
  cohort: EpisodeCohort,
  rollout: number,
  member: number,
  share: Share,
): Promise<Uint8Array> {
  const { numSteps, numLanes, ahead } = cohort
  const { rollout: columns, finals } = ahead!.buffers[rollout % ahead!.buffers.length]!
  const lanes = share.to - share.from
  const fields = rowColumns({ ...cohort, rollout: columns }).map(({ name, column, width }) => {
    const own = new (column.constructor as Float32ArrayConstructor)(numSteps * lanes * width)
    for (let t = 0; t < numSteps; t++) {
      const at = (t * numLanes + share.from) * width
      own.set(column.subarray(at, at + lanes * width), t * lanes * width)
    }
    return { name, column: own as Column, width }
  })
  const count = finals[member]!.count[0]!
  const ends = finalColumns(finals[member]!).map((field) => {
    return { ...field, column: field.column.slice(0, count * field.width) }
  })
  const streams = [
    await toBytes(numSteps * lanes, fields),
    count === 0 ? new Uint8Array(0) : await toBytes(count, ends),
  ]
  // Arrow reads columns in place: both streams begin at multiples of 8, as they end.
  const bytes = new Uint8Array(HEAD + streams[0]!.length + streams[1]!.length)
  const head = new DataView(bytes.buffer)
  for (const [i, { length }] of streams.entries()) head.setBigUint64(8 * i, BigInt(length), true)
  bytes.set(streams[0]!, HEAD)
  bytes.set(streams[1]!, HEAD + streams[0]!.length)
  return bytes
}

function finalColumns({ row, observation, actionMask }: EpisodeCohort['final']): Field[] {
  return Object.entries({ row, observation, actionMask })
    .filter(([, column]) => column.length > 0)
    .map(([name, column]) => ({ name, column: column as Column, width: column.length / row.length }))
}

/** Writes a member's rows into a rollout's buffer. @throws InputError if they are not as the learner's. */
export async function rowsFromBytes(
  cohort: EpisodeCohort,
  rollout: number,
  member: number,
  share: Share,
  given: Uint8Array,
): Promise<void> {
  const what = `rollout ${rollout}, member ${member}`
  const bytes = given.byteOffset % 8 === 0 ? given : given.slice()
  if (bytes.length < HEAD) throw new InputError(what, `${bytes.length} bytes`, 'two Arrow streams')
  const { numSteps, numLanes, ahead } = cohort
  const { rollout: columns, finals } = ahead!.buffers[rollout % ahead!.buffers.length]!
  const lanes = share.to - share.from
  const targets = rowColumns({ ...cohort, rollout: columns })
  const end = HEAD + Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true))
  const rows = await fromBytes(what, bytes.subarray(HEAD, end), targets, numSteps * lanes)
  const final = finals[member]!
  const lists = finalColumns(final)
  const count = end === bytes.length ? 0 : await writeFinals(what, bytes.subarray(end), lists)
  final.count[0] = count
  for (const [i, { column, width }] of targets.entries()) {
    const part = rows[i]!.column
    for (let t = 0; t < numSteps; t++) {
      column.set(part.subarray(t * lanes * width, (t + 1) * lanes * width), (t * numLanes + share.from) * width)
    }
  }
}

/** Writes final observations, and returns their number. */
async function writeFinals(what: string, bytes: Uint8Array, lists: readonly Field[]): Promise<number> {
  const { fromStream } = await arrowStreams()
  const count = fromStream(bytes).numRows
  const fields = await fromBytes(`${what}, final observations`, bytes, lists, count)
  if (count > lists[0]!.column.length) throw new InputError(what, `${count} final observations`, 'as many as rows')
  for (const [i, { column }] of lists.entries()) column.set(fields[i]!.column)
  return count
}
