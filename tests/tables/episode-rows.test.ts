/** Whole episodes, laid side by side as rollouts. */
import { expect, test } from 'vitest'
import { isOfEpisodes, rolloutsOfEpisodes } from '../../src/tables/episodes/episode-rows.ts'
import type { Field, Table } from '../../src/tables/table.ts'

/** Three episodes of 3, 2 and 4 steps: the second is terminal, the others are cut off. Observations say which row they are of. */
function episodes(changes: Readonly<Record<string, Field['column'] | null>> = {}): Table {
  const columns: Readonly<Record<string, Field['column']>> = {
    step: Int32Array.of(0, 1, 2, 0, 1, 0, 1, 2, 3),
    lane: Uint32Array.of(0, 0, 0, 1, 1, 2, 2, 2, 2),
    episode: new Uint32Array(9),
    observation: Float32Array.from({ length: 18 }, (_, i) => 100 * Math.floor(i / 2) + (i % 2)),
    terminated: Uint8Array.of(0, 0, 0, 0, 1, 0, 0, 0, 0),
    truncated: Uint8Array.of(0, 0, 1, 0, 0, 0, 0, 0, 1),
    valid: new Uint8Array(9).fill(1),
    reward: Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9),
  }
  const fields = Object.entries({ ...columns, ...changes }).flatMap(([name, column]) =>
    column === null ? [] : [{ name, column, width: name === 'observation' ? 2 : 1 }],
  )
  const final = { name: 'finalObservation', width: 2, rows: Uint32Array.of(2, 4, 8) }
  const finalColumn = Float32Array.of(-20, -21, -40, -41, -80, -81)
  return {
    numRows: 9,
    fields: [...fields, { ...final, column: finalColumn }],
    metadata: { layout: 'episodes', numLanes: '3', environment: 'Counting' },
  }
}

const of = (table: Table, name: string) => {
  const { column, rows } = table.fields.find((field) => field.name === name)!
  return { column: [...column], rows: rows && [...rows] }
}

test('rows are cut into stretches of one length, one for each lane of each rollout, and episodes with them', () => {
  const table = episodes()
  expect(isOfEpisodes(table)).toBe(true)
  const rollouts = rolloutsOfEpisodes(table, 2, 3)
  // Rows 0 and 1, then 2 and 3, are those of lane 0; 4 and 5, then 6 to 8, of lane 1.
  expect([rollouts.numRows, isOfEpisodes(rollouts)]).toEqual([12, false])
  expect(rollouts.metadata).toEqual({ numLanes: '2', numSteps: '3', environment: 'Counting' })
  expect(of(rollouts, 'reward').column).toEqual([1, 5, 2, 6, 0, 0, 3, 7, 4, 8, 0, 9])
  expect(of(rollouts, 'valid').column).toEqual([1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 1])
  expect(of(rollouts, 'step').column).toEqual([0, 1, 1, 0, -1, -1, 2, 1, 0, 2, -1, 3])
  expect(of(rollouts, 'lane').column).toEqual([0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
  expect(of(rollouts, 'episode').column).toEqual([0, 1, 0, 2, 0, 0, 0, 2, 1, 2, 0, 2])
  expect(of(rollouts, 'observation').column.slice(0, 8)).toEqual([0, 1, 400, 401, 100, 101, 500, 501])
  // Rows 1, 3 and 5 are the last of a stretch, and not of an episode.
  expect(of(rollouts, 'terminated').column).toEqual([0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
  expect(of(rollouts, 'truncated').column).toEqual([0, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0, 1])
  expect(of(rollouts, 'finalObservation')).toEqual({
    rows: [1, 2, 3, 6, 8, 11],
    column: [-40, -41, 200, 201, 600, 601, -20, -21, 400, 401, -80, -81],
  })
  expect(table).toEqual(episodes()) // A copy.
})

test('more lanes than rows leave lanes empty, and no rows are no rollouts', () => {
  const rollouts = rolloutsOfEpisodes(episodes(), 20, 2)
  expect(rollouts.numRows).toBe(40)
  expect(of(rollouts, 'reward').column.filter((reward) => reward > 0)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9])
  // Each row is a stretch, behind which nothing lies: all but the terminal one are truncated, those at an end once.
  const present = (name: string) =>
    of(rollouts, name).column.filter((_, row) => of(rollouts, 'valid').column[row] === 1)
  expect(present('terminated')).toEqual([0, 0, 0, 0, 1, 0, 0, 0, 0])
  expect(present('truncated')).toEqual([1, 1, 1, 1, 0, 1, 1, 1, 1])
  const { column, rows } = of(rollouts, 'finalObservation')
  expect(rows).toEqual(
    Array.from(of(rollouts, 'valid').column.keys()).filter((row) => of(rollouts, 'valid').column[row]),
  )
  expect(column.filter((_, i) => i % 2 === 0)).toEqual([100, 200, -20, 400, -40, 600, 700, 800, -80])
  const none = { ...episodes(), numRows: 0, fields: episodes().fields.map((field) => empty(field)) }
  expect(rolloutsOfEpisodes(none, 2, 3).numRows).toBe(0)
})

function empty(field: Field): Field {
  const column = field.column.slice(0, 0)
  return field.rows === undefined ? { ...field, column } : { ...field, column, rows: new Uint32Array(0) }
}

test('rows that do not follow one another are refused, and columns that are missing', () => {
  const of = (changes: Parameters<typeof episodes>[0]) => () => rolloutsOfEpisodes(episodes(changes), 2, 3)
  expect(of({ step: Int32Array.of(0, 1, 3, 0, 1, 0, 1, 2, 3) })).toThrow(
    'row 2 of the table: got step 3 of lane 0, expected step 2 of lane 0: whole episodes, one after another',
  )
  expect(of({ lane: Uint32Array.of(0, 0, 0, 1, 1, 2, 2, 3, 2) })).toThrow('row 7 of the table: got step 2 of lane 3')
  const sparse = episodes().fields.map((field) =>
    field.name === 'lane' ? { ...field, rows: Uint32Array.of(0) } : field,
  )
  expect(() => rolloutsOfEpisodes({ ...episodes(), fields: sparse }, 2, 3)).toThrow(
    'column lane of the table: got none',
  )
  expect(of({ step: null })).toThrow('column step of the table: got none, expected a column with a value in each row')
})
