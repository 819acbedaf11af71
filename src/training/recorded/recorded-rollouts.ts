/** Trains on a table's rollouts or episodes from any policy; the learning one recomputes values and probabilities. */
import type { EstimateAdvantages } from '../../algorithms/algorithm.ts'
import type { Staleness } from '../../algorithms/tokens/staleness.ts'
import { InputError, show } from '../../base/errors.ts'
import { spaceToJson } from '../../base/space.ts'
import type { ObservationColumn } from '../../components/observation.ts'
import type { RolloutColumns } from '../../components/rollout.ts'
import { importanceWeights, vtrace, weighAdvantages } from '../../kernels/apart.ts'
import { BLOCK_ROWS } from '../../policies/policy.ts'
import { isOfEpisodes, rolloutsOfEpisodes, UNKNOWN_LOGPROB } from '../../tables/episodes/episode-rows.ts'
import type { ArrowTable } from '../../tables/read-arrow.ts'
import type { Field, Table } from '../../tables/table.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import { checkRecordedRows, tellOnce } from './recorded-checks.ts'

/** The correction of rows chosen by another policy, as for stale rows. */
export type RecordedCorrection = Pick<Staleness, 'correction' | 'rhoMax' | 'cMax'>

const REQUIRED = ['observation', 'action', 'reward', 'terminated', 'truncated', 'valid', 'logprob'] as const
/** Columns kept if the table has them, about the rows' origin. */
const KEPT = ['appliedAction', 'step', 'lane', 'episode', 'episodeReturn', 'version'] as const
const FINAL = 'finalObservation'

type Name = (typeof REQUIRED)[number] | (typeof KEPT)[number] | 'actionMask'

/** The rollouts of a table in order, as a cohort would have collected them. Whole episodes are laid side by side. */
export class RecordedRollouts {
  readonly count: number
  /** Warnings, one sentence each. */
  readonly notes: readonly string[]
  readonly #cohort: EpisodeCohort
  readonly #rows: number
  readonly #fields: ReadonlyMap<Name, Field>
  /** The final observations of rows without a next row. */
  readonly #final: { readonly rows: Uint32Array; readonly column: ObservationColumn }
  /** Index in that list by row of the table. */
  readonly #finalOf: ReadonlyMap<number, number>
  /** Log-probabilities under the current weights. */
  readonly #logprob: Float32Array
  readonly #keepsRows: boolean

  /**
   * `keepsRows`: of the algorithm.
   * @throws InputError for another environment, wrong columns, partial rollouts, or impossible rows.
   */
  constructor(given: Table, cohort: EpisodeCohort, keepsRows = false) {
    const { rollout, numLanes, numSteps, model, present, environmentLanes, name } = cohort
    if (model.memoryWidth) {
      const expected = 'one without: a table does not keep what it remembers'
      throw new InputError(`table for ${name}`, 'a policy with a memory', expected)
    }
    if (present < numLanes || environmentLanes.died.length > 0)
      throw new InputError(`table for ${name}`, 'lanes that come and go', 'lanes that stay')
    this.#cohort = cohort
    this.#rows = numSteps * numLanes
    refuseOtherEnvironment(given, cohort)
    const hasEpisodes = isOfEpisodes(given)
    const lanes = given.metadata.numLanes
    if (!hasEpisodes && lanes !== undefined && lanes !== String(numLanes)) {
      throw new InputError('lanes of the table', lanes, `${numLanes}, as in the cohort ${name}`)
    }
    if (given.numRows === 0 || (!hasEpisodes && given.numRows % this.#rows !== 0)) {
      const expected = `whole rollouts of ${numSteps} steps × ${numLanes} lanes: a multiple of ${this.#rows}`
      throw new InputError('rows of the table', String(given.numRows), expected)
    }
    const stored = storedAs(given, rollout)
    this.notes = checkRecordedRows(stored, fieldsOf(stored, rollout, this.#rows), cohort)
    const table = hasEpisodes ? rolloutsOfEpisodes(stored, numLanes, numSteps) : stored
    this.count = table.numRows / this.#rows
    this.#fields = fieldsOf(table, rollout, this.#rows)
    const { rows, column } = table.fields.find((field) => field.name === FINAL)!
    const all = Uint32Array.from({ length: table.numRows }, (_, row) => row)
    this.#final = { rows: rows?.slice() ?? all, column: column.slice() as ObservationColumn }
    this.#finalOf = new Map(Array.from(this.#final.rows, (row, i) => [row, i]))
    this.#logprob = new Float32Array(this.#rows)
    this.#keepsRows = keepsRows
    this.#checkOrder(table.numRows)
    this.#checkNext(table.numRows)
  }

  #column(name: Name): Field['column'] {
    return this.#fields.get(name)!.column
  }

  /** @throws InputError for a row whose next observation is unknown. */
  #checkNext(numRows: number): void {
    const [terminated, truncated, valid] = (['terminated', 'truncated', 'valid'] as const).map((name) =>
      this.#column(name),
    ) as [Uint8Array, Uint8Array, Uint8Array]
    for (let row = 0; row < numRows; row++) {
      if (valid[row] === 0) continue
      const next = row + this.#cohort.numLanes
      const isShown = truncated[row] === 0 && next < numRows && valid[next] !== 0
      if (terminated[row] !== 0 || isShown || this.#finalOf.has(row)) continue
      throw new InputError(`${FINAL} of row ${row}`, 'null', 'the final observation, since no later row has it')
    }
  }

  /** @throws InputError if rows are not in a rollout's order, or a lane does not continue from its last row. */
  #checkOrder(numRows: number): void {
    const { numLanes } = this.#cohort
    const lane = this.#fields.get('lane')?.column
    const observation = this.#column('observation')
    const [terminated, truncated, valid] = (['terminated', 'truncated', 'valid'] as const).map((name) =>
      this.#column(name),
    ) as [Uint8Array, Uint8Array, Uint8Array]
    const width = observation.length / numRows
    for (let row = 0; row < numRows; row++) {
      const isFirst = row % this.#rows < numLanes
      if (lane !== undefined) {
        const before = isFirst ? lane[row - 1]! : lane[row - numLanes]!
        const isInOrder = isFirst ? row % numLanes === 0 || before < lane[row]! : before === lane[row]
        if (!isInOrder) {
          const expected = `rows of ${numLanes} lanes side by side, step after step, as in a run's rollouts`
          throw new InputError(`lane of row ${row}`, `${lane[row]} after ${before}`, expected)
        }
      }
      const place = this.#finalOf.get(row)
      const next = row + numLanes
      const isLast = (row % this.#rows) + numLanes >= this.#rows
      if (place === undefined || isLast || valid[row] === 0 || terminated[row] !== 0 || truncated[row] !== 0) continue
      for (let k = 0; k < width; k++) {
        if (this.#final.column[place * width + k] === observation[next * width + k]) continue
        const expected = `the next observation of row ${row}: a rollout of its own has as many steps as the algorithm's numSteps`
        throw new InputError(`observation of row ${next}`, 'that of another rollout', expected)
      }
    }
  }

  /** Writes rollout `i` in the place of a collected one. */
  load(i: number): void {
    const { rollout, finals, observation, league } = this.#cohort
    const from = i * this.#rows
    league?.acted.fill(0) // The first set of weights learns from all rows, including those of other sets.
    for (const [name, { column, width }] of this.#fields) {
      rollout[name].set(column.subarray(from * width, (from + this.#rows) * width) as never)
    }
    const { length } = observation.current
    const width = length / this.#cohort.numLanes
    for (const { count } of finals) count[0] = 0
    const { rows, column } = this.#final
    let list = 0
    for (const [k, place] of rows.entries()) {
      if (place < from || place >= from + this.#rows) continue
      // Each thread's list only has room for its lanes' rows; when one is full, the next is used.
      while (finals[list]!.count[0] === finals[list]!.row.length) list++
      const { row, observation: seen, actionMask, count } = finals[list]!
      const maskWidth = actionMask.length / row.length
      actionMask.fill(0, count[0]! * maskWidth, (count[0]! + 1) * maskWidth) // A table does not have the legal actions there.
      row[count[0]!] = place - from
      seen.set(column.subarray(k * width, (k + 1) * width), count[0]! * width)
      count[0] = count[0]! + 1
    }
    if (this.#keepsRows) this.#cut(from)
  }

  /** Truncates, in the place of a collected rollout, the episodes that the next rollout to be loaded does not continue. */
  #cut(from: number): void {
    const { rollout, numLanes } = this.#cohort
    const { terminated, truncated, valid, actionMask } = rollout
    for (let row = this.#rows - numLanes; row < this.#rows; row++) {
      if (valid[row] === 0 || terminated[row] !== 0 || truncated[row] !== 0 || this.#goesOn(from + row)) continue
      if (actionMask.length === 0 && this.#finalOf.has(from + row)) truncated[row] = 1
      else valid[row] = 0 // Its next state or the legal actions there are unknown, so that it cannot be learned from.
    }
  }

  /** Whether the next rollout continues the lane of a row of the last step. */
  #goesOn(row: number): boolean {
    const next = row + this.#cohort.numLanes
    const observation = this.#column('observation')
    const numRows = this.count * this.#rows
    if (next >= numRows) return false // The next pass begins with the first rollout.
    const [step, episode] = (['step', 'episode'] as const).map((name) => this.#fields.get(name)?.column)
    if (step !== undefined && step[next] !== step[row]! + 1) return false
    if (episode !== undefined && episode[next] !== episode[row]) return false
    const place = this.#finalOf.get(row)
    if (place === undefined) return true
    const width = observation.length / numRows
    const last = this.#final.column.subarray(place * width, (place + 1) * width)
    return last.every((value, k) => value === observation[next * width + k])
  }

  /** Values rollout `i` and its next states under current weights. Yields an asynchronous policy's promises. */
  *evaluate(i: number): Generator<void | Promise<void>, void> {
    const { rollout, policy, model } = this.#cohort
    const rows = { ...rollout, continues: new Uint8Array(0) }
    const blockRows = model.blockRows ?? BLOCK_ROWS
    for (let from = 0; from < this.#rows; from += blockRows) {
      const count = Math.min(blockRows, this.#rows - from)
      const keep = ({ logprob, value }: { readonly logprob: Float32Array; readonly value: Float32Array }): void => {
        this.#logprob.set(logprob.subarray(0, count), from)
        rollout.value.set(value.subarray(0, count), from)
      }
      const evaluated = policy.evaluate(rows, from, count)
      if (evaluated instanceof Promise) yield evaluated.then(keep)
      else keep(evaluated)
    }
    yield* this.#valueNext(i)
  }

  /** As in live rollouts: 0 after a terminal state, otherwise the value of the next state. */
  *#valueNext(i: number): Generator<void | Promise<void>, void> {
    const { rollout, numLanes, bootstrap, policy } = this.#cohort
    const { value, nextValue, terminated, truncated, valid } = rollout
    const from = i * this.#rows
    const observation = this.#column('observation') as ObservationColumn
    const width = rollout.observation.length / this.#rows
    const { row: listed, observation: seen, value: listedValue } = bootstrap
    let length = 0
    const valueListed = function* (): Generator<void | Promise<void>, void> {
      const valued = policy.values(listedValue, bootstrap, length)
      if (valued !== undefined) yield valued
      for (let k = 0; k < length; k++) nextValue[listed[k]!] = listedValue[k]!
      length = 0
    }
    for (let row = 0; row < this.#rows; row++) {
      nextValue[row] = 0
      if (valid[row] === 0 || terminated[row] !== 0) continue
      if (truncated[row] === 0 && row + numLanes < this.#rows) {
        nextValue[row] = value[row + numLanes]!
        continue
      }
      const place = this.#finalOf.get(from + row)
      const later = from + row + numLanes
      const next =
        place === undefined
          ? observation.subarray(later * width, (later + 1) * width)
          : this.#final.column.subarray(place * width, (place + 1) * width)
      seen.set(next, length * width)
      listed[length++] = row
      if (length === listed.length) yield* valueListed()
    }
    if (length > 0) yield* valueListed()
  }

  /** Computes advantages with the correction; undefined without one. The loss's old policy is then the learning one. */
  estimate({ correction, rhoMax, cMax }: RecordedCorrection): EstimateAdvantages | undefined {
    if (correction === 'none') return undefined
    const weight = new Float32Array(this.#rows)
    const sums = new Float64Array(4)
    // Columns lie in two memories, which plain bodies serve.
    return (rollout, { kernels, carry, gamma, gaeLambda, numSteps, numLanes }) => {
      if (correction === 'vtrace') {
        vtrace(rollout, carry, this.#logprob, gamma, gaeLambda, rhoMax, cMax, numSteps, numLanes)
      } else {
        kernels.gae(rollout, carry, gamma, gaeLambda, numSteps, numLanes)
        importanceWeights(weight, sums, this.#logprob, rollout.logprob, rollout.valid, rhoMax, this.#rows)
        weighAdvantages(rollout.advantage, weight, this.#rows)
      }
      rollout.logprob.set(this.#logprob)
    }
  }
}

/** The rollouts of a table for an algorithm. @throws InputError as `refuseUnknownLogprob` and `RecordedRollouts` do. */
export async function rolloutsFor(
  cohort: EpisodeCohort,
  algorithm: { readonly id: string; readonly needsTable?: boolean; readonly keepsRows?: boolean },
  table: Table | ArrowTable,
  correction: RecordedCorrection['correction'],
): Promise<RecordedRollouts> {
  const working = cohort.systems.find(({ definition }) => definition.afterRollout !== undefined)
  if (working !== undefined) {
    const got = `system ${working.definition.id}, which works on rollouts of lanes`
    throw new InputError('trainer.learn(table)', got, 'a cohort without that system')
  }
  const { fromArrow } = await import('../../tables/read-arrow.ts')
  const own = 'fields' in table ? table : fromArrow(table)
  refuseUnknownLogprob(own, algorithm, correction)
  const rollouts = new RecordedRollouts(own, cohort, algorithm.keepsRows)
  tellOnce(table, rollouts.notes)
  return rollouts
}

/** @throws InputError for a table without log-probabilities that the algorithm or correction needs. */
export function refuseUnknownLogprob(
  { metadata }: Pick<Table, 'metadata'>,
  { id, needsTable = false }: { readonly id: string; readonly needsTable?: boolean },
  correction: RecordedCorrection['correction'],
): void {
  if (metadata.logprob !== UNKNOWN_LOGPROB.logprob || (needsTable && correction === 'none')) return
  const what = needsTable ? `the correction ${correction}` : `the algorithm ${id}`
  const got = `episodes whose actions have no log-probabilities, for ${what}`
  throw new InputError('table', got, needsTable ? 'correction: none' : 'an algorithm that imitates, like bc')
}

/** @throws InputError if the table's metadata name another environment or other spaces. */
export function refuseOtherEnvironment({ metadata }: Table, { environment, name }: EpisodeCohort): void {
  const { id, observationSpace, actionSpace } = environment
  const own: Readonly<Record<string, string>> = {
    environment: id,
    observationSpace: spaceToJson(observationSpace),
    actionSpace: spaceToJson(actionSpace),
  }
  for (const [key, expected] of Object.entries(own)) {
    const got = metadata[key]
    if (got === undefined || got === expected) continue
    throw new InputError(`${key} of the table`, show(got), `${show(expected)}, as in the cohort ${name}`)
  }
}

/**
 * The table with observations as the rollout stores them, f32 or bytes; a table may have either.
 * @throws InputError for a number that is no byte, where the rollout has bytes.
 */
export function storedAs(table: Table, { observation }: Pick<RolloutColumns, 'observation'>): Table {
  const store = (field: Field): Field => {
    const { name, column, width } = field
    const isObservation = name === 'observation' || name === FINAL
    const isOther = observation instanceof Uint8Array ? column instanceof Float32Array : column instanceof Uint8Array
    if (!isObservation || !isOther) return field
    const own = observation instanceof Uint8Array ? Uint8Array.from(column) : Float32Array.from(column)
    const wrong = column.findIndex((value, i) => value !== own[i])
    if (wrong === -1) return { ...field, column: own }
    const place = Math.floor(wrong / width)
    const expected = 'a whole number from 0 to 255, as in the observation space'
    throw new InputError(`${name} of row ${field.rows?.[place] ?? place}`, show(column[wrong]), expected)
  }
  return { ...table, metadata: table.metadata, fields: table.fields.map(store) }
}

/** The columns of a table by name. @throws InputError that names the first missing or wrong one. */
export function fieldsOf(table: Table, rollout: RolloutColumns, rows: number): Map<Name, Field> {
  const find = (name: string) => {
    const [first, second] = table.fields.filter((field) => field.name === name)
    if (second !== undefined) throw new InputError(`column ${name} of the table`, 'two of that name', 'one column')
    return first
  }
  const fields = new Map<Name, Field>()
  const masked: Name[] = rollout.actionMask.length > 0 ? ['actionMask'] : []
  for (const name of [...REQUIRED, ...masked, ...KEPT]) {
    const field = find(name)
    const own = rollout[name]
    const width = own.length / rows
    const isKept = (KEPT as readonly string[]).includes(name)
    if (field === undefined && isKept && !table.unread?.has(name)) continue
    if (width === 0) continue
    const got = field === undefined ? (table.unread?.get(name) ?? 'none') : describe(field, table.numRows)
    const isSame = field?.width === width && field.column.constructor === own.constructor && field.rows === undefined
    const isWhole = isSame && field.column.length === table.numRows * width
    if (!isWhole) throw new InputError(`column ${name} of the table`, got, describe({ name, column: own, width }))
    fields.set(name, field)
  }
  const final = find(FINAL)
  const { column, width } = { column: rollout.observation, width: rollout.observation.length / rows }
  if (final?.width !== width || final.column.constructor !== column.constructor) {
    const got = final === undefined ? (table.unread?.get(FINAL) ?? 'none') : describe(final, table.numRows)
    const expected = `${describe({ name: FINAL, column, width })}, null except where no later row shows the next observation`
    throw new InputError(`column ${FINAL} of the table`, got, expected)
  }
  const { rows: held } = final
  const isWhole = final.column.length === (held?.length ?? table.numRows) * width
  if (!isWhole || held?.some((row, i) => row >= table.numRows || (i > 0 && row <= held[i - 1]!))) {
    const got = `${final.column.length} numbers for the rows ${show(Array.from(held ?? []))}`
    const expected = `${width} for each row, with rows ascending below ${table.numRows}`
    throw new InputError(`column ${FINAL} of the table`, got, expected)
  }
  return fields
}

function describe({ column, width, rows }: Field, numRows = column.length / width): string {
  const numbers = `${width === 1 ? 'one number' : `${width} numbers`} a row in a ${column.constructor.name}`
  if (rows !== undefined) return `${numbers}, and null in ${numRows - rows.length} of ${numRows} rows`
  return column.length === numRows * width ? numbers : `${numbers} of ${column.length} for ${numRows} rows`
}
