/** The common part of datasets of whole episodes: the rows of an episode, and their values in Arrow. */
import type * as Arrow from 'apache-arrow'
import { InputError } from '../../base/errors.ts'
import { listFolder } from '../../base/files/files.ts'
import { type Space, spaceWidth } from '../../base/space.ts'
import type { Column } from '../../components/column.ts'
import type { Table } from '../table.ts'
import { isOfEpisodes } from './episode-rows.ts'

/** @throws InputError for a folder that is not empty. */
export async function checkNewFolder(folder: string): Promise<void> {
  if ((await listFolder(folder)).length > 0)
    throw new InputError('out', `${folder}, which is not empty`, 'a new folder')
}

/** Returns the row range of each episode. @throws InputError for a table without episodes, and for an unfinished last episode. */
export function episodesOf(table: Table): (readonly [from: number, to: number])[] {
  if (!isOfEpisodes(table)) throw new InputError('table', 'no whole episodes', 'a table of recordEpisodes')
  const [terminated, truncated] = [columnOf(table, 'terminated'), columnOf(table, 'truncated')]
  const episodes: (readonly [number, number])[] = []
  let from = 0
  for (let row = 0; row < table.numRows; row++) {
    if (terminated[row] === 0 && truncated[row] === 0) continue
    episodes.push([from, row + 1])
    from = row + 1
  }
  if (from < table.numRows) throw new InputError('table', 'an unfinished episode', 'whole episodes')
  return episodes
}

/**
 * Values of a space in Arrow: a number for one choice, a fixed-size list for several choices and for a box. The values of `parts` are
 * concatenated and padded with 0.
 */
export function valuesOf(arrow: typeof Arrow, space: Space, parts: readonly Column[], length: number): Arrow.Data {
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

/** Flags in Arrow, a bit each; 0 beyond the column. */
export function flagsOf(arrow: typeof Arrow, column: Column, length = column.length): Arrow.Data<Arrow.Bool> {
  const bits = new Uint8Array(Math.ceil(length / 64) * 8)
  for (const [i, flag] of column.entries()) if (flag !== 0) bits[i >> 3]! |= 1 << (i & 7)
  return arrow.makeData({ type: new arrow.Bool(), length, nullCount: 0, data: bits })
}

/** The applied actions, within their bounds. */
export function actionsOf(table: Table): Column {
  return columnOf(table, table.fields.some(({ name }) => name === 'appliedAction') ? 'appliedAction' : 'action')
}

/** The column with that name. @throws InputError if the table has none. */
export function columnOf({ fields }: Table, name: string): Column {
  const field = fields.find((each) => each.name === name)
  if (field === undefined) throw new InputError(`column ${name} of the table`, 'none', 'a column of recordEpisodes')
  return field.column
}
