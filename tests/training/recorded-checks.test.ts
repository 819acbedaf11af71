/** Recordings that cannot be are refused by row and column, what may be meant is told, and what we record ourselves passes. */
import {
  Table as ArrowTable,
  Bool,
  type DataType,
  DateDay,
  Dictionary,
  FixedSizeList,
  Float16,
  Float32,
  Float64,
  Int8,
  Int32,
  Int64,
  Field as Item,
  List,
  Null,
  Utf8,
  type Vector,
  vectorFromArray,
} from 'apache-arrow'
import { describe, expect, test, vi } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import type { Column } from '../../src/components/column.ts'
import { dqn, qNetwork, sac, sacNetwork } from '../../src/entries/algorithms.ts'
import { evaluateOffline } from '../../src/entries/data.ts'
import { createEnvironment } from '../../src/entries/environments.ts'
import {
  type AlgorithmDefinition,
  cartPole,
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  type EpisodeCohort,
  environments,
  mlp,
  type PolicyDefinition,
  pendulum,
  ppo,
  recordEpisodes,
  type Table,
  ticTacToe,
  toArrow,
} from '../../src/index.ts'
import { fromArrow } from '../../src/tables/read-arrow.ts'
import type { Field } from '../../src/tables/table.ts'
import { LogprobSums } from '../../src/training/recorded/logprob-sums.ts'
import { RecordedRollouts } from '../../src/training/recorded/recorded-rollouts.ts'
import * as fc from '../support/properties.ts'
import { isThorough } from '../support/tiers.ts'

const NUM_LANES = 6
const NUM_STEPS = 16

interface Recorded {
  readonly table: Table
  readonly cohort: EpisodeCohort
}

/** A rollout that lanes have collected, in memory of its own. */
async function collected(
  environment: EnvironmentDefinition,
  {
    policy = mlp({ hidden: [3] }),
    algorithm = ppo({ numSteps: NUM_STEPS, numMinibatches: 1 }),
    until = 3,
    ...more
  }: {
    readonly policy?: PolicyDefinition
    readonly algorithm?: AlgorithmDefinition
    readonly until?: number
    readonly autoreset?: 'same-step' | 'next-step' | 'disabled'
  } = {},
): Promise<Recorded> {
  const { numPlayers = 1 } = environment
  const world = await createWorld({ environment, policy, numLanes: NUM_LANES * numPlayers, seed: 1, ...more })
  const trainer = createTrainer(world, algorithm)
  let updates = 0
  // Not the first rollout, in which all lanes are in step.
  for await (const _ of trainer.updates({ totalSteps: 1e9 })) if (++updates === until) break
  const { table } = trainer.rollout
  const copy = structuredClone({
    ...table,
    fields: table.fields.map((field) => ({ ...field })),
    metadata: table.metadata,
  })
  return { table: copy, cohort: world.cohort() as EpisodeCohort }
}

async function episodes(environment: EnvironmentDefinition, count = 8): Promise<Recorded> {
  const { cohort } = await collected(environment)
  const weights = cohort.weights.slice()
  const table = await recordEpisodes({ environment, policy: mlp({ hidden: [3] }), weights, episodes: count, seed: 2 })
  return { table, cohort }
}

const column = (table: Table, name: string) => table.fields.find((field) => field.name === name)!

/** A copy with other numbers in a column: those that `change` gives for each row (of a column with one number a row, or the first). */
function put(table: Table, name: string, change: (row: number, value: number) => number): Table {
  const { column: old, width, rows } = column(table, name)
  const own = old.slice()
  for (let i = 0; i * width < own.length; i++) own[i * width] = change(rows?.[i] ?? i, old[i * width]!)
  return { ...table, fields: table.fields.map((field) => (field.name === name ? { ...field, column: own } : field)) }
}

const at = (row: number, value: number) => (i: number, old: number) => (i === row ? value : old)
const without = (table: Table, ...names: string[]): Table => ({
  ...table,
  fields: table.fields.filter(({ name }) => !names.includes(name)),
})

/** A copy of a table with its rows in another order: row i is what `of(i)` was. */
function ordered(table: Table, of: (row: number) => number): Table {
  const fields = table.fields.map((field): Field => {
    const { column: old, width, rows } = field
    const places = Array.from({ length: table.numRows }, (_, row) =>
      rows === undefined ? of(row) : rows.indexOf(of(row)),
    )
    const there = places.flatMap((place, row) => (place < 0 ? [] : [row]))
    const own = new (old.constructor as Float32ArrayConstructor)(there.length * width)
    for (const [i, row] of there.entries())
      own.set(old.subarray(places[row]! * width, (places[row]! + 1) * width), i * width)
    return rows === undefined ? { ...field, column: own } : { ...field, column: own, rows: Uint32Array.from(there) }
  })
  return { ...table, fields }
}

function swapped(table: Table, one: string, other: string): Table {
  const names = new Map([
    [one, other],
    [other, one],
  ])
  return { ...table, fields: table.fields.map((field) => ({ ...field, name: names.get(field.name) ?? field.name })) }
}

const said = (table: Table, metadata: Record<string, string>): Table => ({
  ...table,
  metadata: { ...table.metadata, ...metadata },
})

const check = ({ table, cohort }: Recorded, change: (table: Table) => Table = (same) => same) =>
  new RecordedRollouts(change(table), cohort).notes

/** CartPole whose episodes end, and are cut off, within a rollout. */
const cart = await collected(cartPole({ maxEpisodeSteps: 13 }))
const swing = await collected(pendulum({ maxEpisodeSteps: 11 }))
const marks = await collected(ticTacToe())
const duel = await collected(createEnvironment('TicTacToeDuel-v0'))
const played = await episodes(cartPole({ maxEpisodeSteps: 13 }))

/** The first row behind its lane's first step in which an episode goes on, and the first that ends one before its lane's last. */
function rowsOf({ table }: Recorded, numLanes = NUM_LANES) {
  const [step, terminated, truncated] = ['step', 'terminated', 'truncated'].map(
    (name) => column(table, name).column,
  ) as [Column, Column, Column]
  const isEnd = (row: number) => terminated[row] === 1 || truncated[row] === 1
  const all = Array.from(step.keys())
  const going = all.find((row) => row >= numLanes && row + numLanes < table.numRows && !isEnd(row) && step[row]! > 0)!
  const ended = all.find((row) => isEnd(row) && row + numLanes < table.numRows)!
  return { going, ended }
}

describe('refuses', () => {
  const { going, ended } = rowsOf(cart)
  const last = played.table.numRows - 1
  const behind = NUM_LANES + going
  const [over, cut] = ['terminated', 'truncated'].map((name) => column(duel.table, name).column) as [Column, Column]
  const game = 2 * Array.from({ length: over.length / 2 }).findIndex((_, i) => over[2 * i] === 0 && cut[2 * i] === 0)
  const everyRow = (value: number) => () => value
  test.each<[string, Recorded, (table: Table) => Table, string | RegExp]>([
    // Those of the issue.
    [
      'a reward of 3e38',
      cart,
      (t) => put(t, 'reward', at(8, 3e38)),
      /reward of row 8: got 3.*e\+38, expected at most 1125899906842624 either/,
    ],
    [
      'an observation of 1e30 outside its space',
      cart,
      (t) => put(t, 'observation', at(9, 1e30)),
      /observation of row 9: got 1.*e\+30 at place 0, expected a finite number from -4.8.* to 4.8.*, as in the observation space/,
    ],
    [
      'terminated = 1 in every row',
      cart,
      (t) => put(t, 'terminated', everyRow(1)),
      /(step|episode) of row \d+: got \d+, behind .* with terminated = 1 and truncated = \d in row \d+, expected/,
    ],
    ['terminated = 2', cart, (t) => put(t, 'terminated', at(7, 2)), 'terminated of row 7: got 2, expected 0 or 1'],
    [
      'a log-probability 3 too high',
      cart,
      (t) => put(t, 'logprob', (_, each) => each + 3),
      /logprob of row 0: got 2\.\d+, expected at most 0/,
    ],
    [
      'one log-probability 3 too high',
      cart,
      (t) => put(t, 'logprob', at(11, 2.3)),
      /logprob of row 11: got 2\.2\d+, expected at most 0/,
    ],
    // And their kind.
    [
      'a reward that is no number',
      cart,
      (t) => put(t, 'reward', at(3, Number.NaN)),
      'reward of row 3: got NaN, expected a finite number',
    ],
    ['a reward of -Infinity', cart, (t) => put(t, 'reward', at(3, -Infinity)), 'reward of row 3: got -Infinity'],
    [
      'an observation that is no number',
      cart,
      (t) => put(t, 'observation', at(5, Number.NaN)),
      'observation of row 5: got NaN at place 0',
    ],
    [
      'what came last outside its space',
      cart,
      (t) => put(t, 'finalObservation', at(ended, -99)),
      `finalObservation of row ${ended}: got -99 at place 0`,
    ],
    [
      'a box observation a little outside',
      swing,
      (t) => put(t, 'observation', at(2, 1.001)),
      /observation of row 2: got 1.00\d+ at place 0, expected a finite number from -1 to 1/,
    ],
    ['truncated = 255', cart, (t) => put(t, 'truncated', at(4, 255)), 'truncated of row 4: got 255, expected 0 or 1'],
    ['valid = 3', cart, (t) => put(t, 'valid', at(4, 3)), 'valid of row 4: got 3, expected 0 or 1'],
    [
      'an end in the middle of an episode',
      cart,
      (t) => put(t, 'terminated', at(going, 1)),
      `step of row ${behind}: got`,
    ],
    [
      'a truncation in the middle of an episode',
      cart,
      (t) => put(t, 'truncated', at(going, 1)),
      /truncated = 1 in row \d+, expected 0: an end begins a new episode/,
    ],
    [
      'an end left out',
      cart,
      (t) => put(put(t, 'terminated', everyRow(0)), 'truncated', everyRow(0)),
      /step of row \d+: got 0, behind step \d+ with terminated = 0 and truncated = 0 in row \d+, expected \d+: the next step/,
    ],
    [
      'an end left out, by its episode alone',
      cart,
      (t) => without(put(put(t, 'terminated', everyRow(0)), 'truncated', everyRow(0)), 'step'),
      /episode of row \d+: got \d+, behind episode \d+ .*, expected the same episode/,
    ],
    [
      'an end too many, by its episode alone',
      cart,
      (t) => without(put(t, 'terminated', at(going, 1)), 'step'),
      /episode of row \d+: got \d+, .*, expected another episode/,
    ],
    [
      'a step left out',
      cart,
      (t) => put(t, 'step', (row, step) => (row === behind ? step + 1 : step)),
      `step of row ${behind}: got`,
    ],
    ['a step below 0', cart, (t) => put(t, 'step', at(0, -7)), 'step of row 0: got -7, expected at least 0'],
    ['all steps 0', cart, (t) => put(t, 'step', everyRow(0)), /step of row \d+: got 0, behind step 0/],
    [
      'a choice that there is not',
      cart,
      (t) => put(t, 'action', at(6, 2)),
      'action of row 6: got 2, expected a choice below 2',
    ],
    ['a choice below 0', cart, (t) => put(t, 'action', at(6, -1)), 'action of row 6: got -1'],
    [
      'a number for an action that is none',
      swing,
      (t) => put(t, 'action', at(6, Number.NaN)),
      'action of row 6: got NaN, expected a finite number',
    ],
    [
      'an action of 1e30',
      swing,
      (t) => put(put(t, 'action', at(6, 1e30)), 'appliedAction', at(6, 2)),
      /action of row 6: got 1.*e\+30, expected at most/,
    ],
    [
      'an applied action outside its box',
      swing,
      (t) => put(t, 'appliedAction', at(6, 5)),
      /appliedAction of row 6: got 5, expected -?[\d.]+: its action/,
    ],
    [
      'an applied action that is not its action',
      swing,
      (t) => put(t, 'appliedAction', at(6, 0.123)),
      /appliedAction of row 6: got 0.12/,
    ],
    [
      'a density that is no number',
      swing,
      (t) => put(t, 'logprob', at(6, Infinity)),
      'logprob of row 6: got Infinity, expected a finite number',
    ],
    ['an action that its mask forbids', marks, (t) => put(t, 'actionMask', at(0, 0)), ''],
    [
      'a mask of 7',
      marks,
      (t) => put(t, 'actionMask', at(3, 7)),
      'actionMask of row 3: got 7 at place 0, expected 0 or 1',
    ],
    [
      'the end of one player of two',
      duel,
      (t) => put(t, 'truncated', at(game + 1, 1)),
      /terminated and truncated of row \d+: got 0 and 1, and 0 and 0 in row \d+, expected an end for all 2 players/,
    ],
    [
      'episodes without an end',
      played,
      (t) => put(put(t, 'terminated', at(last, 0)), 'truncated', at(last, 0)),
      `terminated and truncated of row ${last}: got 0 and 0, expected an end of the last episode`,
    ],
    [
      'episodes whose beginning is missing',
      played,
      (t) => put(t, 'step', (row, step) => (row < 2 ? step + 1 : step)),
      'step of row 0: got 1, expected 0, where an episode begins',
    ],
    [
      'episodes that change their lane',
      played,
      (t) => put(t, 'lane', at(1, 5)),
      /episode of row 1: got 0 of lane 5, behind episode 0 of lane 0 .*, expected the same episode/,
    ],
    [
      'a column too short',
      cart,
      (t) => ({
        ...t,
        fields: t.fields.map((f) => (f.name === 'reward' ? { ...f, column: f.column.slice(0, 50) } : f)),
      }),
      'column reward of the table: got one number a row in a Float32Array of 50 for 96 rows',
    ],
    [
      'nulls',
      cart,
      (t) => ({
        ...t,
        fields: t.fields.map((f) =>
          f.name === 'reward'
            ? { ...f, column: f.column.slice(1), rows: Uint32Array.from({ length: 95 }, (_, i) => i + 1) }
            : f,
        ),
      }),
      'column reward of the table: got one number a row in a Float32Array, and null in 1 of 96 rows, expected one number a row',
    ],
    [
      'a density that f32 has none of',
      swing,
      (t) => put(t, 'logprob', everyRow(105)),
      'logprob of row 0: got 105, expected at most 104',
    ],
    [
      'a log-probability of -Infinity',
      cart,
      (t) => put(t, 'logprob', at(9, -Infinity)),
      'logprob of row 9: got -Infinity',
    ],
    [
      'what came last that is no number',
      cart,
      (t) => put(t, 'finalObservation', everyRow(Number.NaN)),
      /finalObservation of row \d+: got NaN/,
    ],
    ['steps that begin with 1', cart, (t) => put(t, 'step', (_, step) => step + 1), /step of row \d+: got 1, behind/],
    [
      'episodes of one number',
      cart,
      (t) => put(t, 'episode', everyRow(0)),
      /episode of row \d+: got 0, behind episode 0 .* expected another/,
    ],
    ['rows in reverse', cart, (t) => ordered(t, (row) => 95 - row), /step of row \d+: got/],
    [
      'rows in reverse, without numbers',
      cart,
      (t) =>
        without(
          ordered(t, (row) => 95 - row),
          'lane',
          'step',
          'episode',
        ),
      /of row \d+: got/,
    ],
    [
      'lanes one after another',
      cart,
      (t) => ordered(t, (row) => (row % 16) * 6 + Math.floor(row / 16)),
      /step of row \d+: got/,
    ],
    [
      'two lanes changed about',
      cart,
      (t) => ordered(t, (row) => (row === 30 ? 31 : row === 31 ? 30 : row)),
      'of row 30: got',
    ],
    [
      'rows that are missing',
      cart,
      (t) => ordered(t, (row) => Math.min(row < behind - (behind % 6) ? row : row + 6, 95)),
      /step of row \d+: got/,
    ],
    ['rows that are there twice', cart, (t) => ordered(t, (row) => (row < 48 ? row : row - 6)), /step of row \d+: got/],
    [
      'rewards and log-probabilities in each other’s place',
      cart,
      (t) => swapped(t, 'reward', 'logprob'),
      'logprob of row 0: got 1, expected at most 0',
    ],
    [
      'lanes and episodes in each other’s place',
      cart,
      (t) => swapped(t, 'lane', 'episode'),
      /(lane|episode) of row \d+: got/,
    ],
    [
      'two columns of a name',
      cart,
      (t) => ({ ...t, fields: [...t.fields, column(t, 'reward')] }),
      'column reward of the table: got two of that name, expected one',
    ],
    [
      'nothing of what came last',
      cart,
      (t) => ({
        ...t,
        fields: t.fields.map((f) =>
          f.name === 'finalObservation' ? { ...f, column: new Float32Array(0), width: 0, rows: new Uint32Array(0) } : f,
        ),
      }),
      'got 0 numbers a row in a Float32Array, and null in 96 of 96 rows, expected 4',
    ],
    [
      'another environment',
      cart,
      (t) => said(t, { environment: 'Acrobot-v1' }),
      'environment of the table: got "Acrobot-v1"',
    ],
    [
      'no environment',
      cart,
      (t) => said(t, { environment: '' }),
      'environment of the table: got "", expected "CartPole-v1"',
    ],
    [
      'a space that is no JSON',
      cart,
      (t) => said(t, { observationSpace: '{{' }),
      'observationSpace of the table: got "{{"',
    ],
    ['an environment of a million letters', cart, (t) => said(t, { environment: 'x'.repeat(1e6) }), /^.{0,200}$/],
    ['an environment in red', cart, (t) => said(t, { environment: '\u001b[31m\u2028' }), '\\u001b'],
    [
      'a last observation of a row that is not there',
      cart,
      (t) => ({
        ...t,
        fields: t.fields.map((f) =>
          f.name === 'finalObservation' ? { ...f, rows: f.rows!.map((row) => row + 90) } : f,
        ),
      }),
      /column finalObservation of the table: got \d+ numbers for the rows .* below 96/,
    ],
  ])('%s', (_, recorded, change, message) => {
    if (message === '') {
      // The mask of the first row that takes choice 0.
      const { column: action } = column(recorded.table, 'action')
      const row = action.indexOf(0 as never)
      const forbidden = put(recorded.table, 'actionMask', at(row, 0))
      expect(() => check({ ...recorded, table: forbidden })).toThrow(
        `action of row ${row}: got 0, expected a choice that the action mask of the row allows`,
      )
      return
    }
    expect(() => check(recorded, change)).toThrow(message)
  })

  test('the same where a policy is judged by recorded episodes', async () => {
    const { table, cohort } = played
    const { environment } = cohort
    const judge = (given: Table) =>
      evaluateOffline({ environment, policy: mlp({ hidden: [3] }), weights: cohort.weights.slice(), table: given })
    await expect(judge(put(table, 'reward', at(2, 3e38)))).rejects.toThrow('reward of row 2: got 3')
    await expect(judge(put(table, 'terminated', () => 1))).rejects.toThrow(/of row 1: got/)
    await expect(judge(put(table, 'logprob', (_, each) => each + 3))).rejects.toThrow('logprob of row 0: got 2.')
    await expect(judge(put(table, 'observation', at(2, 1e30)))).rejects.toThrow('observation of row 2: got 1')
  })
})

describe('what others write as Arrow', () => {
  const { table, cohort } = cart
  const rows = <T>(make: (row: number) => T): T[] => Array.from({ length: 96 }, (_, row) => make(row))
  const item = new Item('item', new Float32(), true)
  const fixed = (width: number) => new FixedSizeList(width, item)
  const list = new List(item)
  /** The table with another column under a name. */
  async function withColumn(name: string, vector: Vector) {
    const arrow = await toArrow(table)
    const columns = arrow.schema.fields.map((field) => [field.name, arrow.getChild(field.name)!] as const)
    const own = new ArrowTable(Object.fromEntries(columns.map(([each, old]) => [each, each === name ? vector : old])))
    return fromArrow(own as never)
  }

  test('has flags of truth, also of rows in the middle', async () => {
    const { column: flags } = column(table, 'truncated')
    const read = await withColumn('truncated', vectorFromArray(Array.from(flags, Boolean), new Bool()))
    expect(column(read, 'truncated').column).toEqual(flags)
    expect(check({ table: { ...read, metadata: table.metadata }, cohort })).toEqual([])
    const part = fromArrow(
      (await toArrow(table))
        .select(['reward'])
        .assign(
          new ArrowTable({
            truncated: vectorFromArray(Array.from(flags, Boolean), new Bool()),
          }) as never,
        )
        .slice(11, 50),
    )
    expect(column(part, 'truncated').column).toEqual(flags.slice(11, 50))
  })

  test.each([
    ['Utf8', 'reward', vectorFromArray(rows(String), new Utf8())],
    ['Dictionary<Int32, Utf8>', 'action', vectorFromArray(rows((i) => `a${i % 2}`))],
    [
      'Date32<DAY>',
      'action',
      vectorFromArray(
        rows(() => new Date(0)),
        new DateDay(),
      ),
    ],
    [
      'Int64',
      'action',
      vectorFromArray(
        rows((i) => BigInt(i % 2)),
        new Int64(),
      ),
    ],
    [
      'Int8',
      'action',
      vectorFromArray(
        rows((i) => i % 2),
        new Int8(),
      ),
    ],
    [
      'Float16',
      'reward',
      vectorFromArray(
        rows(() => 1),
        new Float16(),
      ),
    ],
    [
      'Null',
      'reward',
      vectorFromArray(
        rows(() => null),
        new Null(),
      ),
    ],
    [
      'Dictionary<Int32, Int32>',
      'action',
      vectorFromArray(
        rows(() => 1),
        new Dictionary(new Int32(), new Int32()),
      ),
    ],
    ['Utf8', 'lane', vectorFromArray(rows(String), new Utf8())],
    ['Int64', 'step', vectorFromArray(rows(BigInt), new Int64())],
    ['Utf8', 'finalObservation', vectorFromArray(rows(String), new Utf8())],
  ])('is not taken for numbers where it is %s, as %s', async (type, name, vector) => {
    const read = await withColumn(name, vector)
    expect(() => check({ table: read, cohort })).toThrow(`column ${name} of the table: got ${type}, expected`)
  })

  test.each<[string, (seen: (number | null)[][]) => unknown, DataType, string]>([
    [
      'null in a list',
      (seen) => seen.with(50, [0, null, 0, 0]),
      fixed(4),
      'observation of row 50: got null at index 1',
    ],
    ['null in a list of any length', (seen) => seen.with(50, [0, 0, null, 0]), list, 'observation of row 50: got null'],
    ['null for a list', (seen) => (seen as unknown[]).with(7, null), fixed(4), 'null in 1 of 96 rows, expected 4'],
    [
      'a list too short',
      (seen) => seen.with(7, [0]),
      list,
      'observation of the table: got lists of 4 and of 1 numbers',
    ],
    [
      'a number too many',
      (seen) => seen.map((each) => [...each, 0]),
      fixed(5),
      'got 5 numbers a row in a Float32Array',
    ],
    [
      'lists in a list',
      (seen) => seen.map((each) => [each]),
      new FixedSizeList(1, new Item('item', fixed(4))),
      'got FixedSizeList',
    ],
    [
      'f64',
      (seen) => seen,
      new FixedSizeList(4, new Item('item', new Float64())),
      'got 4 numbers a row in a Float64Array',
    ],
  ])('is refused with %s', async (_, change, type, message) => {
    const { column: own } = column(table, 'observation')
    const seen = rows((row) => Array.from(own.subarray(4 * row, 4 * row + 4)))
    const vector = vectorFromArray(change(seen) as never, type as never) as Vector
    await expect(withColumn('observation', vector).then((read) => check({ table: read, cohort }))).rejects.toThrow(
      message,
    )
  })

  test('names the row of the whole table where null in a list is of a later batch, and minds none where a list is null', async () => {
    const finals = column(table, 'finalObservation')
    const seen = rows((row): (number | null)[] | null => {
      const place = finals.rows!.indexOf(row)
      return place < 0 ? null : Array.from(finals.column.subarray(4 * place, 4 * place + 4))
    })
    const wide = new ArrowTable({ finalObservation: vectorFromArray(seen, fixed(4) as never) as Vector })
    const read = fromArrow(wide.slice(0, 40).concat(wide.slice(40)) as never)
    expect(column(read, 'finalObservation')).toEqual(finals)
    const last = finals.rows!.at(-1)!
    const broken = new ArrowTable({ x: vectorFromArray(seen.with(last, [0, 0, 0, null]), fixed(4) as never) as Vector })
    expect(() => fromArrow(broken.slice(0, 40).concat(broken.slice(40)) as never)).toThrow(
      `x of row ${last}: got null at index 3, expected a number`,
    )
  })
})

describe('passes what we record ourselves', () => {
  /** Of the bodies of MuJoCo the fast tier has the small ones. */
  const isLight = (id: string) => !/^(HalfCheetah|Ant|Humanoid|Swimmer|Walker2d|Pusher)-/.test(id)

  test.each(environments.map(({ id }) => id).filter((id) => isThorough || isLight(id)))('of %s', async (id) => {
    const environment = createEnvironment(id)
    expect(check(await collected(environment))).toEqual([])
    if (environment.maxEpisodeSteps === null || environment.maxEpisodeSteps > 1000) return
    const { table, cohort } = await episodes(environment, 4 * (environment.numPlayers ?? 1))
    expect(check({ table, cohort })).toEqual([])
  })

  test.each(['same-step', 'next-step', 'disabled'] as const)('where episodes begin anew by %s', async (autoreset) => {
    for (const environment of [cartPole({ maxEpisodeSteps: 13 }), pendulum({ maxEpisodeSteps: 11 }), ticTacToe()]) {
      expect(check(await collected(environment, { autoreset, until: autoreset === 'disabled' ? 1 : 3 }))).toEqual([])
    }
  })

  test('of rollouts that do not follow one another', async () => {
    const { table, cohort } = cart
    const arrow = await toArrow(table)
    expect(check({ table: fromArrow(arrow.concat(arrow)), cohort })).toEqual([])
  })

  test('of algorithms that explore in their own ways', async () => {
    const wide = { hidden: [8] }
    const values = { policy: qNetwork(wide), algorithm: dqn({ learningStarts: 64 }) }
    const soft = { policy: sacNetwork(wide), algorithm: sac({ learningStarts: 64 }) }
    expect(check(await collected(cartPole(), values))).toEqual([])
    expect(check(await collected(pendulum(), soft))).toEqual([])
  })
})

describe('tells what may be meant', () => {
  test.each<[string, Recorded, (table: Table) => Table, string | RegExp]>([
    [
      'that every row ends an episode',
      cart,
      (t) =>
        without(
          put(t, 'terminated', () => 1),
          'step',
          'episode',
        ),
      /^terminated and truncated: each of 96 rows ends an episode, and no column step says whether that is so/,
    ],
    [
      'that all episodes have one step',
      cart,
      (t) =>
        put(
          put(
            put(t, 'terminated', () => 1),
            'step',
            () => 0,
          ),
          'episode',
          (row) => row,
        ),
      /^terminated and truncated: each of 96 rows ends an episode; nothing/,
    ],
    [
      'that log-probabilities are all 0',
      cart,
      (t) => put(t, 'logprob', () => 0),
      'logprob: 0 in every row, as of a policy that',
    ],
    [
      'that densities are all 1',
      swing,
      (t) => put(t, 'logprob', () => 0),
      /0 in every row, .* metadata of the table have logprob = unknown$/,
    ],
    ['that nobody acted', cart, (t) => put(t, 'valid', () => 0), 'valid: 0 in every row: nobody acted'],
    [
      'that actions are outside their space',
      swing,
      (t) => without(put(t, 'action', at(7, -2.5)), 'appliedAction'),
      /^action: \d+ numbers are outside the action space, the first in row \d+; they are learned from as they are/,
    ],
    [
      'that log-probabilities are too low',
      cart,
      (t) => put(t, 'logprob', (_, each) => each - 3),
      /^logprob: the mean of 1\/p over 96 rows is 4\d.* for 2 actions, .* are lower/,
    ],
    ['that one log-probability cannot be', cart, (t) => put(t, 'logprob', at(7, -60)), /are lower than those/],
  ])('%s', (_, recorded, change, note) => {
    const notes = check(recorded, change)
    expect(notes).toHaveLength(1)
    expect(notes[0]).toMatch(note)
  })

  test('once for a table, on standard error', async () => {
    const write = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
    const table = put(cart.table, 'logprob', (_, each) => each - 3)
    const world = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: NUM_LANES })
    const trainer = createTrainer(world, ppo({ numSteps: NUM_STEPS }))
    for (const given of [table, table, cart.table]) for await (const _ of trainer.learn(given));
    expect(write.mock.calls).toEqual([
      [expect.stringMatching(/^colonnade: warning: table: logprob: the mean of 1\/p over 96 rows is .*\n$/)],
    ])
    write.mockRestore()
  })
})

/** Log-probabilities of actions that policies at random draw, each in as many states as there are rows. */
function drawn(random: () => number, rows: number, numActions: number, sharpness: number) {
  return Array.from({ length: rows }, () => {
    const weights = Array.from({ length: numActions }, () => Math.exp(sharpness * (random() - 0.5) * 2))
    const sum = weights.reduce((total, weight) => total + weight, 0)
    let left = random() * sum
    const chosen = weights.findIndex((weight) => {
      left -= weight
      return left < 0
    })
    const best = weights.indexOf(Math.max(...weights))
    return [chosen, best].map((action) => Math.log(weights[action === -1 ? 0 : action]! / sum)) as [number, number]
  })
}

function verdictOf(logprobs: readonly number[], numActions: number): string | null {
  const sums = new LogprobSums()
  for (const logprob of logprobs) sums.add(logprob, numActions)
  return sums.verdict()
}

describe('the sums of 1/p', () => {
  test('say nothing of log-probabilities that are right, however sharp the policy is', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 5000 }),
        fc.integer({ min: 1, max: 40 }),
        fc.double({ min: 0, max: 12, noNaN: true }),
        fc.nat(),
        (rows, numActions, sharpness, seed) => {
          const random = seeded(seed)
          const logprobs = drawn(random, rows, numActions, sharpness).map(([logprob]) => logprob)
          expect(verdictOf(logprobs, numActions)).toBeNull()
        },
      ),
    )
  })

  test.each([
    ['lower', 2, 0, -3, 200],
    ['lower', 18, 1, -1, 500],
    ['lower', 6, 1, -0.5, 4000],
    ['higher', 2, 0, 0.6, 1000],
    ['higher', 100, 0, 3, 2000],
    ['higher', 18, 1, 1, 2000],
    ['higher', 1000, 0, 3, 2000],
  ])(
    'say that they are %s, of %i actions by a policy of sharpness %d, %d nats off in %i rows',
    (which, n, sharpness, off, rows) => {
      const logprobs = drawn(seeded(3), rows, n, sharpness).map(([logprob]) => Math.min(0, logprob + off))
      expect(verdictOf(logprobs, n)).toContain(`are ${which} than those with which the actions were drawn`)
    },
  )

  test('say that actions were not drawn, but the most probable ones', () => {
    const best = drawn(seeded(5), 2000, 2, 2).map(([, logprob]) => logprob)
    expect(verdictOf(best, 2)).toContain('or the most probable were taken')
  })
})

/** Numbers from 0 to 1 by a seed. */
function seeded(seed: number): () => number {
  const random = new Random(seed)
  let drawn = 0
  return () => {
    random.draw(Stream.shuffle, 0, 0, drawn++)
    return random.uniform(0)
  }
}
