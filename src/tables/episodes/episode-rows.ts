/** Converts whole episodes, whose rows are consecutive (`recordEpisodes`), to rollouts with parallel lanes, for learning from tables. */
import { InputError } from '../../base/errors.ts'
import type { Column } from '../../components/column.ts'
import type { Field, Table } from '../table.ts'

/** The mark in a table's metadata for unknown log-probabilities of its actions; its column is then 0. */
export const UNKNOWN_LOGPROB = { logprob: 'unknown' } as const

/** Metadata of a table of whole episodes. */
export const LAYOUT_OF_EPISODES = { layout: 'episodes' } as const

/** Whether the metadata describe whole, consecutive episodes. */
export function isOfEpisodes({ metadata }: Pick<Table, 'metadata'>): boolean {
  return metadata.layout === LAYOUT_OF_EPISODES.layout
}

/**
 * Copies a table of whole episodes into the fewest rollouts of numSteps × numLanes rows. Its rows are divided in order into stretches,
 * one per lane and rollout, whose lengths differ by at most one. A stretch begins at its rollout's first step; the rows after it are not
 * valid. If it ends within an episode, the episode is truncated there, with the next observation as its final one. Lanes are those of the
 * rollouts, and episodes get new numbers.
 * @throws InputError if a column for the order of rows is missing, or a row does not continue the previous one.
 */
export function rolloutsOfEpisodes(table: Table, numLanes: number, numSteps: number): Table {
  const isOver = endsOf(table)
  const numRollouts = Math.ceil(table.numRows / (numLanes * numSteps))
  const numRows = numRollouts * numSteps * numLanes
  const { target, cut } = stretchesOf(table.numRows, numRollouts, numLanes, numSteps)
  const truncatedAt = cut.filter((row) => !isOver(row))
  const observation = columnOf(table, 'observation')
  const fields = table.fields.map((field) =>
    field.rows === undefined
      ? moved(field, target, numRows)
      : movedSome(field, field.rows, target, observation, field.name === 'finalObservation' ? truncatedAt : []),
  )
  const { layout, ...metadata } = table.metadata
  const rollouts = {
    numRows,
    fields,
    metadata: { ...metadata, numLanes: String(numLanes), numSteps: String(numSteps) },
  }
  const [lane, episode, truncated] = [
    columnOf(rollouts, 'lane'),
    columnOf(rollouts, 'episode'),
    columnOf(rollouts, 'truncated'),
  ]
  for (const row of truncatedAt) truncated[target[row]!] = 1
  for (let row = 0; row < numRows; row++) lane[row] = row % numLanes
  let number = 0
  for (const [row, place] of target.entries()) {
    episode[place] = number
    if (isOver(row)) number++
  }
  return rollouts
}

/** The target of each row, and the last rows of stretches that end early. */
function stretchesOf(numRows: number, numRollouts: number, numLanes: number, numSteps: number) {
  const numStretches = numRollouts * numLanes
  const target = new Uint32Array(numRows)
  const cut: number[] = []
  for (let stretch = 0, begin = 0; stretch < numStretches; stretch++) {
    const lane = Math.floor(stretch / numRollouts)
    const firstStep = (stretch % numRollouts) * numSteps
    const end = Math.floor(((stretch + 1) * numRows) / numStretches)
    for (let row = begin; row < end; row++) target[row] = (firstStep + row - begin) * numLanes + lane
    if (begin < end && end < numRows) cut.push(end - 1)
    begin = end
  }
  return { target, cut }
}

function columnOf({ fields }: Table, name: string): Column {
  const field = fields.find((each) => each.name === name)
  if (field !== undefined && field.rows === undefined) return field.column
  throw new InputError(`column ${name} of the table`, 'none', 'a column with a value in each row')
}

/** Whether an episode ends at a row. @throws InputError if it does not and the next row is not its next step. */
function endsOf(table: Table): (row: number) => boolean {
  const [step, lane] = [columnOf(table, 'step'), columnOf(table, 'lane')]
  const [terminated, truncated] = [columnOf(table, 'terminated'), columnOf(table, 'truncated')]
  const isOver = (row: number) => terminated[row] !== 0 || truncated[row] !== 0
  for (let row = 1; row < table.numRows; row++) {
    if (isOver(row - 1) || (step[row] === step[row - 1]! + 1 && lane[row] === lane[row - 1])) continue
    const got = `step ${step[row]} of lane ${lane[row]}`
    const expected = `step ${step[row - 1]! + 1} of lane ${lane[row - 1]}: whole episodes, one after another`
    throw new InputError(`row ${row} of the table`, got, expected)
  }
  return isOver
}

/** Moves a field with a value in each row to target rows. Steps of invalid rows are −1. */
function moved({ name, column, width }: Field, target: Uint32Array, numRows: number): Field {
  const own = new (column.constructor as Float32ArrayConstructor)(numRows * width)
  if (name === 'step') own.fill(-1)
  for (const [row, place] of target.entries()) {
    own.set(column.subarray(row * width, (row + 1) * width), place * width)
  }
  return { name, column: own, width }
}

/** Moves a field with values in `rows`, and adds values for rows in `cut` from `next` at the following row. */
function movedSome(
  { name, column, width }: Field,
  rows: Uint32Array,
  target: Uint32Array,
  next: Column,
  cut: readonly number[],
): Field {
  const valuesOf = (from: Column, row: number) => from.subarray(row * width, (row + 1) * width)
  const entries = [
    ...Array.from(rows, (row, i) => ({ place: target[row]!, values: valuesOf(column, i) })),
    ...cut.map((row) => ({ place: target[row]!, values: valuesOf(next, row + 1) })),
  ].sort((a, b) => a.place - b.place)
  const own = new (column.constructor as Float32ArrayConstructor)(entries.length * width)
  for (const [i, { values }] of entries.entries()) own.set(values, i * width)
  return { name, column: own, width, rows: Uint32Array.from(entries, ({ place }) => place) }
}
