/** Trajectories as Arrow: lists of tokens, and a column for each of the rest. apache-arrow is loaded where it is first used. */
import type * as Arrow from 'apache-arrow'
import { VERSION } from '../version.ts'
import { writeArrow } from './arrow.ts'
import type { Trajectories } from './trajectories.ts'

/** Where trajectories came from. */
export interface TextOrigin {
  readonly environment: string
  readonly model: string
  readonly tokenizer: string
  readonly algorithm: string
  readonly seed: number
  /** The prompt of an example, as JSON: a text, or messages. */
  promptOf(promptId: number): string
}

/**
 * The trajectories as an apache-arrow `Table`, by epoch, group and member, so that the table does not depend on who was done
 * first. Unknown rewards, missing advantages and logprobs of tokens that nobody drew are null.
 */
export async function trajectoryTable(trajectories: Trajectories, origin: TextOrigin): Promise<Arrow.Table> {
  const arrow = await import('apache-arrow')
  const order = trajectories.order()
  const columns = trajectories.take(order).columns()
  const { advantage } = trajectories.columns()
  const { offsets, lossMask, known, error, stopReason, components } = columns
  const count = order.length

  const plain = <T extends Arrow.DataType>(type: T, data: unknown) =>
    arrow.makeData({ type, length: (data as ArrayLike<number>).length, nullCount: 0, data } as never) as Arrow.Data
  const optional = <T extends Arrow.DataType>(type: T, data: ArrayLike<number>, isThere: (i: number) => boolean) => {
    const { bitmap, nullCount } = validity(data.length, isThere)
    return arrow.makeData({ type, length: data.length, nullCount, nullBitmap: bitmap, data } as never) as Arrow.Data
  }
  const list = (child: Arrow.Data, nullable: boolean) =>
    arrow.makeData({
      type: new arrow.List(new arrow.Field('item', child.type, nullable)),
      length: count,
      nullCount: 0,
      valueOffsets: offsets,
      child,
    } as never) as Arrow.Data
  const words = (values: readonly (string | null)[]) => arrow.vectorFromArray(values, new arrow.Utf8()).data[0]!

  const table: Record<string, [Arrow.Data, boolean]> = {
    epoch: [plain(new arrow.Int32(), columns.epoch), false],
    group: [plain(new arrow.Int32(), columns.group), false],
    member: [plain(new arrow.Int32(), columns.member), false],
    promptId: [plain(new arrow.Int32(), columns.promptId), false],
    prompt: [words(Array.from(columns.promptId, (id) => origin.promptOf(id))), false],
    turns: [plain(new arrow.Int32(), columns.turns), false],
    tokens: [list(plain(new arrow.Int32(), columns.token), false), false],
    lossMask: [list(plain(new arrow.Uint8(), lossMask), false), false],
    logprobs: [
      list(
        optional(new arrow.Float32(), columns.logprob, (t) => lossMask[t] === 1),
        true,
      ),
      false,
    ],
    versions: [list(plain(new arrow.Int32(), columns.version), false), false],
    turn: [list(plain(new arrow.Int32(), columns.turn), false), false],
    reward: [optional(new arrow.Float64(), columns.reward, (i) => known[i] === 1), true],
    advantage: [
      optional(
        new arrow.Float64(),
        Float64Array.from(order, (i) => advantage[i]!),
        (i) => !Number.isNaN(advantage[order[i]!]!),
      ),
      true,
    ],
    stopReason: [words(stopReason), false],
    error: [words(error), true],
  }
  for (const [name, values] of components) {
    const numbers = Float64Array.from(values, (value) => value ?? 0)
    table[`reward/${name}`] = [optional(new arrow.Float64(), numbers, (i) => values[i] !== null), true]
  }
  const fields = Object.entries(table).map(([name, [{ type }, nullable]]) => new arrow.Field(name, type, nullable))
  const { promptOf: _, ...said } = origin
  const versions = columns.version.filter((version) => version >= 0)
  const metadata = {
    ...said,
    versionMin: versions.reduce((least, version) => Math.min(least, version), Number.POSITIVE_INFINITY),
    versionMax: versions.reduce((most, version) => Math.max(most, version), -1),
    colonnade: VERSION,
  }
  const schema = new arrow.Schema(fields, new Map(Object.entries(metadata).map(([key, value]) => [key, String(value)])))
  const children = Object.values(table).map(([data]) => data)
  const struct = arrow.makeData({ type: new arrow.Struct(fields), length: count, nullCount: 0, children })
  return new arrow.Table(schema, new arrow.RecordBatch(schema, struct))
}

/**
 * Writes trajectories as an Arrow IPC file, which appears whole or not at all.
 * @throws InputError if the path cannot be written.
 */
export async function writeTrajectories(path: string, trajectories: Trajectories, origin: TextOrigin): Promise<void> {
  await writeArrow(path, await trajectoryTable(trajectories, origin))
}

/** Arrow's bitmap: bit i, from the lowest of the first byte, is 1 where there is a value. */
function validity(length: number, isThere: (i: number) => boolean): { bitmap: Uint8Array; nullCount: number } {
  const bitmap = new Uint8Array(8 * Math.ceil(length / 64))
  let nullCount = 0
  for (let i = 0; i < length; i++) {
    if (isThere(i)) bitmap[i >> 3]! |= 1 << (i & 7)
    else nullCount++
  }
  return { bitmap, nullCount }
}
