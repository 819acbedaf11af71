/**
 * Checks whether rows of a table can come from an environment, so that training from files has the same checks as live
 * training. One pass per column. Impossible values are errors with row and column; suspicious ones are warnings of one
 * line.
 */
import { InputError } from '../../base/errors.ts'
import { tell } from '../../base/host.ts'
import { type BoxSpace, choiceSizes } from '../../base/space.ts'
import type { Column } from '../../components/column.ts'
import { REWARD_MAX } from '../../environments/environment.ts'
import { isOfEpisodes, UNKNOWN_LOGPROB } from '../../tables/episodes/episode-rows.ts'
import type { Field, Table } from '../../tables/table.ts'
import { LOGPROB_MAX } from '../../tables/trajectories/trajectory.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import { LogprobSums } from './logprob-sums.ts'

/** The checked columns, if the table has them. `finalObservation` exists for some rows only. */
type Fields = ReadonlyMap<string, Field>

/**
 * Checks the rows of a table in which a lane acted.
 *
 * @returns warnings, one sentence each.
 * @throws InputError, with row and column, for a number that is not finite or outside its space, a reward beyond ±2^50,
 * a flag that is neither 0 nor 1, an illegal action, a log-probability of choices above 0, and a row that is not the
 * next step of the one before.
 */
export function checkRecordedRows(table: Table, given: Fields, cohort: EpisodeCohort): string[] {
  const final = table.fields.find(({ name }) => name === 'finalObservation')
  const fields = new Map([...given, ...(final === undefined ? [] : [[final.name, final] as const])])
  const valid = checkFlags(fields, table.numRows)
  const notes: (string | null)[] = []
  for (const name of ['observation', 'finalObservation'] as const) checkObservations(fields.get(name)!, valid, cohort)
  checkWithin(fields.get('reward')!, valid, REWARD_MAX)
  notes.push(checkActions(fields, valid, cohort))
  notes.push(checkEnds(table, fields, valid, cohort))
  notes.push(checkLogprobs(table, fields, valid, cohort))
  return notes.filter((note) => note !== null)
}

const told = new WeakSet<object>()

/** The warnings about a table: `notes` at the first call, nothing later. */
export function untold(table: object, notes: readonly string[]): readonly string[] {
  if (told.has(table)) return []
  told.add(table)
  return notes.map((note) => `table: ${note}`)
}

/** Writes a table's warnings to standard error, once. */
export function tellOnce(table: object, notes: readonly string[]): void {
  for (const note of untold(table, notes)) tell(`warning: ${note}`)
}

/** The rows in which a lane acted. @throws InputError for a flag that is neither 0 nor 1. */
function checkFlags(fields: Fields, numRows: number): Column {
  const valid = fields.get('valid')!.column
  for (const name of ['valid', 'terminated', 'truncated']) {
    const { column } = fields.get(name)!
    for (let row = 0; row < numRows; row++) {
      const value = column[row]!
      if (value > 1 && (name === 'valid' || valid[row] === 1)) throw refuse(name, row, value, '0 or 1')
    }
  }
  return valid
}

function checkObservations({ name, column, width, rows }: Field, valid: Column, cohort: EpisodeCohort): void {
  const { low, high } = cohort.observationBounds
  const count = rows?.length ?? column.length / width
  for (let i = 0; i < count; i++) {
    const row = rows === undefined ? i : rows[i]!
    if (valid[row] !== 1) continue
    for (let k = 0; k < width; k++) {
      const value = column[i * width + k]!
      if (value >= low[k]! && value <= high[k]!) continue
      const { low: lowest, high: highest } = cohort.environment.observationSpace as BoxSpace
      const expected = `a finite number from ${lowest[k]} to ${highest[k]}, as in the observation space`
      throw refuse(name, row, at(value, k, width), expected)
    }
  }
}

/** @throws InputError for a number that is not finite, or beyond ±limit. */
function checkWithin({ name, column, width }: Field, valid: Column, limit: number): void {
  for (let row = 0; row * width < column.length; row++) {
    if (valid[row] !== 1) continue
    for (let k = 0; k < width; k++) {
      const value = column[row * width + k]!
      if (value >= -limit && value <= limit) continue
      const expected = Number.isFinite(value) ? `at most ${limit} either way` : 'a finite number'
      throw refuse(name, row, at(value, k, width), expected)
    }
  }
}

/** Checks that actions are existing legal choices, or numbers whose applied values are in the action space. */
function checkActions(fields: Fields, valid: Column, { environment, bounds }: EpisodeCohort): string | null {
  const action = fields.get('action')!
  const { column, width } = action
  const sizes = choiceSizes(environment.actionSpace)
  if (sizes.length > 0) {
    for (let row = 0; row < valid.length; row++) {
      if (valid[row] !== 1) continue
      for (let k = 0; k < width; k++) {
        const value = column[row * width + k]!
        if (value >= 0 && value < sizes[k]!) continue
        throw refuse('action', row, at(value, k, width), `a choice below ${sizes[k]}`)
      }
    }
    const mask = fields.get('actionMask')
    if (mask !== undefined) checkMask(mask, action, valid, sizes)
    return null
  }
  checkWithin(action, valid, REWARD_MAX)
  const applied = fields.get('appliedAction')?.column
  const { low, high } = bounds
  let outside = 0
  let first = -1
  for (let i = 0; i < column.length; i++) {
    const row = Math.floor(i / width)
    if (valid[row] !== 1) continue
    const k = i % width
    const clipped = Math.min(Math.max(column[i]!, low[k]!), high[k]!)
    if (applied !== undefined && applied[i] !== clipped) {
      const expected = `${clipped}: its action, ${column[i]}, within ${low[k]} to ${high[k]}`
      throw refuse('appliedAction', row, at(applied[i]!, k, width), expected)
    }
    if (clipped === column[i]) continue
    outside++
    if (first < 0) first = row
  }
  if (applied !== undefined || outside === 0) return null
  return `action: ${outside} numbers are outside the action space, the first in row ${first}; they are learned from as they are`
}

function checkMask(mask: Field, action: Field, valid: Column, sizes: readonly number[]): void {
  for (let row = 0; row < valid.length; row++) {
    if (valid[row] !== 1) continue
    let first = row * mask.width
    for (const [k, size] of sizes.entries()) {
      for (let choice = 0; choice < size; choice++) {
        const value = mask.column[first + choice]!
        if (value > 1)
          throw refuse('actionMask', row, at(value, first + choice - row * mask.width, mask.width), '0 or 1')
      }
      const chosen = action.column[row * action.width + k]!
      if (mask.column[first + chosen] === 0) {
        throw refuse('action', row, at(chosen, k, action.width), 'a choice that the action mask of the row allows')
      }
      first += size
    }
  }
}

/** Checks that a lane's rows follow one another: after an end an episode begins, otherwise the next step follows. */
function checkEnds(table: Table, fields: Fields, valid: Column, cohort: EpisodeCohort): string | null {
  const [terminated, truncated] = ['terminated', 'truncated'].map((name) => fields.get(name)!.column) as [
    Column,
    Column,
  ]
  const [step, episode, lane] = ['step', 'episode', 'lane'].map((name) => fields.get(name)?.column)
  const hasEpisodes = isOfEpisodes(table)
  const numLanes = hasEpisodes ? 1 : cohort.numLanes
  const rolloutRows = hasEpisodes ? table.numRows : numLanes * stepsOf(table, cohort)
  const { numPlayers = 1 } = cohort.environment
  const before = new Int32Array(numLanes).fill(-1)
  let [acted, ended] = [0, 0]
  for (let row = 0; row < table.numRows; row++) {
    const n = row % numLanes
    if (row % rolloutRows < numLanes) before[n] = -1 // The rollouts of a table need not follow one another.
    if (valid[row] !== 1) continue
    const isOver = (terminated[row]! | truncated[row]!) === 1
    acted++
    if (isOver) ended++
    const first = row - (n % numPlayers)
    if (
      !hasEpisodes &&
      first !== row &&
      valid[first] === 1 &&
      isOver !== (terminated[first]! | truncated[first]!) > 0
    ) {
      const got = `${terminated[row]} and ${truncated[row]}, and ${terminated[first]} and ${truncated[first]} in row ${first}`
      throw refuse('terminated and truncated', row, got, `an end for all ${numPlayers} players of a game, or for none`)
    }
    const last = before[n]!
    before[n] = row
    if (last < 0) {
      const isWrong = step !== undefined && (hasEpisodes ? step[row] !== 0 : step[row]! < 0)
      if (isWrong) throw refuse('step', row, step[row]!, hasEpisodes ? '0, where an episode begins' : 'at least 0')
      continue
    }
    const isBegun = (terminated[last]! | truncated[last]!) === 1
    const said = `terminated = ${terminated[last]} and truncated = ${truncated[last]} in row ${last}`
    if (step !== undefined && step[row] !== (isBegun ? 0 : step[last]! + 1)) {
      const got = `${step[row]}, behind step ${step[last]} with ${said}`
      throw refuse('step', row, got, isBegun ? '0: an end begins a new episode' : `${step[last]! + 1}: the next step`)
    }
    // Recorded episodes are numbered per lane.
    const isSame = episode?.[row] === episode?.[last] && (!hasEpisodes || lane?.[row] === lane?.[last])
    if (episode !== undefined && isSame === isBegun) {
      const ofLane = hasEpisodes && lane !== undefined ? [` of lane ${lane[row]}`, ` of lane ${lane[last]}`] : ['', '']
      const got = `${episode[row]}${ofLane[0]}, behind episode ${episode[last]}${ofLane[1]} with ${said}`
      throw refuse('episode', row, got, isBegun ? 'another episode' : 'the same episode')
    }
  }
  if (hasEpisodes && before[0]! >= 0 && (terminated[before[0]!]! | truncated[before[0]!]!) === 0) {
    throw refuse('terminated and truncated', before[0]!, '0 and 0', 'an end of the last episode: whole episodes')
  }
  if (acted === 0) return 'valid: 0 in every row: nobody acted, and nothing is learned'
  if (ended < acted || acted === 1) return null
  const unless = step === undefined ? ', and no column step says whether that is so' : ''
  return `terminated and truncated: each of ${acted} rows ends an episode${unless}; nothing is learned of what comes later`
}

/** Steps of a rollout as recorded, if the table says it; otherwise the cohort's. */
function stepsOf({ metadata, numRows }: Table, { numLanes, numSteps }: EpisodeCohort): number {
  const own = Number(metadata.numSteps)
  return Number.isSafeInteger(own) && own >= 1 && numRows % (own * numLanes) === 0 ? own : numSteps
}

/** The largest possible log density of one number, with the smallest deviations of f32. */
const DENSITY_MAX = 104

function checkLogprobs(table: Table, fields: Fields, valid: Column, { environment }: EpisodeCohort): string | null {
  const logprob = fields.get('logprob')!
  checkWithin(logprob, valid, REWARD_MAX)
  const sizes = choiceSizes(environment.actionSpace)
  if (table.metadata.logprob === UNKNOWN_LOGPROB.logprob) return null
  const largest = sizes.length > 0 ? LOGPROB_MAX : DENSITY_MAX * fields.get('action')!.width
  const mask = fields.get('actionMask')
  const sums = new LogprobSums()
  let [isZero, choices] = [true, 0]
  const numAll = sizes.reduce((product, size) => product * size, 1)
  for (let row = 0; row < valid.length; row++) {
    if (valid[row] !== 1) continue
    const value = logprob.column[row]!
    if (value > largest) {
      const expected = 'the log-probability of a choice, in nats'
      const density = 'the logarithm of the density of its numbers, in nats'
      throw refuse(
        'logprob',
        row,
        value,
        sizes.length > 0 ? `at most 0: ${expected}` : `at most ${largest}: ${density}`,
      )
    }
    const numActions = mask === undefined ? numAll : numLegal(mask, row, sizes)
    if (value !== 0) isZero = false
    if (sizes.length === 0 || numActions > 1) choices++
    if (sizes.length > 0) sums.add(value, numActions)
  }
  if (isZero && choices > 1) {
    return 'logprob: 0 in every row, as of a policy that always does the same; where nobody knows the log-probabilities, the metadata of the table have logprob = unknown'
  }
  return sums.verdict()
}

/** The number of actions that a row's mask allows. */
function numLegal({ column, width }: Field, row: number, sizes: readonly number[]): number {
  let [product, first] = [1, row * width]
  for (const size of sizes) {
    let legal = 0
    for (let i = first; i < first + size; i++) legal += column[i]!
    product *= legal
    first += size
  }
  return product
}

function at(value: number, k: number, width: number): string {
  return width === 1 ? String(value) : `${value} at place ${k}`
}

function refuse(name: string, row: number, got: string | number, expected: string): InputError {
  return new InputError(`${name} of row ${row}`, String(got), expected)
}
