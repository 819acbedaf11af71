/**
 * Rollouts that lie in a table, as `writeArrow` keeps them, or whole episodes, to be learned from in place of those that the lanes
 * would collect. Whatever policy has chosen their actions: the one that learns says anew what each row is worth, and how likely it
 * would have chosen the same.
 */
import type { EstimateAdvantages } from '../../algorithms/algorithm.ts'
import type { Staleness } from '../../algorithms/tokens/staleness.ts'
import { InputError, show } from '../../base/errors.ts'
import { spaceToJson } from '../../base/space.ts'
import type { RolloutColumns } from '../../components/rollout.ts'
import { createKernels } from '../../kernels/bind.ts'
import { BLOCK_ROWS } from '../../policies/policy.ts'
import type { ArrowTable } from '../../tables/arrow.ts'
import { isOfEpisodes, rolloutsOfEpisodes } from '../../tables/episodes/episode-rows.ts'
import { UNKNOWN_LOGPROB } from '../../tables/episodes/read-episodes.ts'
import type { Field, Table } from '../../tables/table.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import { checkRecordedRows, tellOnce } from './recorded-checks.ts'

/** What is done about rows that another policy has chosen, as about stale ones. */
export type RecordedCorrection = Pick<Staleness, 'correction' | 'rhoMax' | 'cMax'>

/** Columns that every table needs. */
const REQUIRED = ['observation', 'action', 'reward', 'terminated', 'truncated', 'valid', 'logprob'] as const
/** Those that are kept where the table has them: where the rows come from. */
const KEPT = ['appliedAction', 'step', 'lane', 'episode', 'episodeReturn', 'version'] as const
const FINAL = 'finalObservation'

type Name = (typeof REQUIRED)[number] | (typeof KEPT)[number] | 'actionMask'

/** The rollouts of a table, one after another, as a cohort would have collected them; whole episodes are laid side by side. */
export class RecordedRollouts {
  /** How many there are. */
  readonly count: number
  /** What may be meant and should be told, a sentence each. */
  readonly notes: readonly string[]
  readonly #cohort: EpisodeCohort
  readonly #rows: number
  readonly #fields: ReadonlyMap<Name, Field>
  /** What came after rows that no later row shows. */
  readonly #final: { readonly rows: Uint32Array; readonly column: Float32Array }
  /** Where in that list the row of the table is. */
  readonly #finalOf: ReadonlyMap<number, number>
  /** Log-probabilities under the weights as they are. */
  readonly #logprob: Float32Array

  /**
   * @throws InputError where the table is of another environment, a column is missing or is not as the cohort has it, the rows
   * are no whole rollouts or not in their order, or what a row holds is nothing that the environment could have given
   * (`checkRecordedRows`).
   */
  constructor(given: Table, cohort: EpisodeCohort) {
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
      throw new InputError('lanes of the table', lanes, `${numLanes}, as the cohort ${name} has`)
    }
    if (given.numRows === 0 || (!hasEpisodes && given.numRows % this.#rows !== 0)) {
      const expected = `whole rollouts of ${numSteps} steps × ${numLanes} lanes: a multiple of ${this.#rows}`
      throw new InputError('rows of the table', String(given.numRows), expected)
    }
    this.notes = checkRecordedRows(given, fieldsOf(given, rollout, this.#rows), cohort)
    const table = hasEpisodes ? rolloutsOfEpisodes(given, numLanes, numSteps) : given
    this.count = table.numRows / this.#rows
    this.#fields = fieldsOf(table, rollout, this.#rows)
    const { rows, column } = table.fields.find((field) => field.name === FINAL)!
    const all = Uint32Array.from({ length: table.numRows }, (_, row) => row)
    this.#final = { rows: rows?.slice() ?? all, column: column.slice() as Float32Array }
    this.#finalOf = new Map(Array.from(this.#final.rows, (row, i) => [row, i]))
    this.#logprob = new Float32Array(this.#rows)
    this.#checkOrder(table.numRows)
    this.#checkNext(table.numRows)
  }

  #column(name: Name): Field['column'] {
    return this.#fields.get(name)!.column
  }

  /** @throws InputError for a row of which it is not known what came after it. */
  #checkNext(numRows: number): void {
    const [terminated, truncated, valid] = (['terminated', 'truncated', 'valid'] as const).map((name) =>
      this.#column(name),
    ) as [Uint8Array, Uint8Array, Uint8Array]
    for (let row = 0; row < numRows; row++) {
      if (valid[row] === 0) continue
      const next = row + this.#cohort.numLanes
      const isShown = truncated[row] === 0 && next < numRows && valid[next] !== 0
      if (terminated[row] !== 0 || isShown || this.#finalOf.has(row)) continue
      throw new InputError(`${FINAL} of row ${row}`, 'null', 'the final observation: no later row has it')
    }
  }

  /**
   * @throws InputError where rows are not in the order of a rollout: all lanes' first steps, then all their second ones; or where
   * a lane does not go on where the row before has left it, as of rollouts that do not follow one another.
   */
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
          const expected = `rows of ${numLanes} lanes side by side, step after step, as a run keeps its rollouts`
          throw new InputError(`lane of row ${row}`, `${lane[row]} after ${before}`, expected)
        }
      }
      const place = this.#finalOf.get(row)
      const next = row + numLanes
      const isLast = (row % this.#rows) + numLanes >= this.#rows
      if (place === undefined || isLast || valid[row] === 0 || terminated[row] !== 0 || truncated[row] !== 0) continue
      for (let k = 0; k < width; k++) {
        if (this.#final.column[place * width + k] === observation[next * width + k]) continue
        const expected = `what row ${row} led to: a rollout of its own, of as many steps as the algorithm's numSteps`
        throw new InputError(`observation of row ${next}`, 'that of another rollout', expected)
      }
    }
  }

  /** Writes rollout `i` where the cohort keeps the one that it has collected. */
  load(i: number): void {
    const { rollout, finals, observation, league } = this.#cohort
    const from = i * this.#rows
    league?.acted.fill(0) // Whoever chose them, the first set of weights learns from all rows.
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
      // Each thread's list has room for the rows of its lanes alone: where one is full, the next is taken.
      while (finals[list]!.count[0] === finals[list]!.row.length) list++
      const { row, observation: seen, actionMask, count } = finals[list]!
      const maskWidth = actionMask.length / row.length
      actionMask.fill(0, count[0]! * maskWidth, (count[0]! + 1) * maskWidth) // A table does not say what was legal there.
      row[count[0]!] = place - from
      seen.set(column.subarray(k * width, (k + 1) * width), count[0]! * width)
      count[0] = count[0]! + 1
    }
  }

  /**
   * Values the rows of rollout `i`, which is loaded, and what they led to, under the weights as they are. Yields what has to be
   * awaited of a policy that answers later.
   */
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

  /** As the lanes' own rollouts have it: 0 after a terminal state, else the value of what came next. */
  *#valueNext(i: number): Generator<void | Promise<void>, void> {
    const { rollout, numLanes, bootstrap, policy } = this.#cohort
    const { value, nextValue, terminated, truncated, valid } = rollout
    const from = i * this.#rows
    const observation = this.#column('observation') as Float32Array
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

  /** Makes advantages with the correction; undefined where there is none. The loss's old policy is then the one that learns. */
  estimate({ correction, rhoMax, cMax }: RecordedCorrection): EstimateAdvantages | undefined {
    if (correction === 'none') return undefined
    const plain = createKernels({ buffer: this.#logprob.buffer }, 'plain') // Columns lie in two memories.
    const weight = new Float32Array(this.#rows)
    const sums = new Float64Array(4)
    return (rollout, { kernels, carry, gamma, gaeLambda, numSteps, numLanes }) => {
      if (correction === 'vtrace') {
        plain.vtrace(rollout, carry, this.#logprob, gamma, gaeLambda, rhoMax, cMax, numSteps, numLanes)
      } else {
        kernels.gae(rollout, carry, gamma, gaeLambda, numSteps, numLanes)
        plain.importanceWeights(weight, sums, this.#logprob, rollout.logprob, rollout.valid, rhoMax, this.#rows)
        plain.weighAdvantages(rollout.advantage, weight, this.#rows)
      }
      rollout.logprob.set(this.#logprob)
    }
  }
}

/** The rollouts of a table from which an algorithm learns. @throws InputError as `refuseUnknownLogprob` and `RecordedRollouts` do. */
export async function rolloutsFor(
  cohort: EpisodeCohort,
  algorithm: { readonly id: string; readonly needsTable?: boolean },
  table: Table | ArrowTable,
  correction: RecordedCorrection['correction'],
): Promise<RecordedRollouts> {
  const working = cohort.systems.find(({ definition }) => definition.afterRollout !== undefined)
  if (working !== undefined) {
    const got = `system ${working.definition.id}, which works on rollouts that lanes have filled`
    throw new InputError('trainer.learn(table)', got, 'a cohort without it')
  }
  const { fromArrow } = await import('../../tables/arrow.ts')
  const own = 'fields' in table ? table : fromArrow(table)
  refuseUnknownLogprob(own, algorithm, correction)
  const rollouts = new RecordedRollouts(own, cohort)
  tellOnce(table, rollouts.notes)
  return rollouts
}

/**
 * @throws InputError for a table without the log-probabilities of its actions (`readEpisodes`) where they are needed: for an
 * algorithm that does more than imitate, and for a correction.
 */
export function refuseUnknownLogprob(
  { metadata }: Pick<Table, 'metadata'>,
  { id, needsTable = false }: { readonly id: string; readonly needsTable?: boolean },
  correction: RecordedCorrection['correction'],
): void {
  if (metadata.logprob !== UNKNOWN_LOGPROB.logprob || (needsTable && correction === 'none')) return
  const what = needsTable ? `the correction ${correction}` : `the algorithm ${id}`
  const got = `episodes whose actions have no log-probabilities, for ${what}`
  throw new InputError('table', got, needsTable ? 'the correction none' : 'an algorithm that imitates, like bc')
}

/** @throws InputError where the table's metadata name another environment, or one with other spaces. */
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
    throw new InputError(`${key} of the table`, show(got), `${show(expected)}, as the cohort ${name} has`)
  }
}

/** The columns of a table by name. @throws InputError that names the first one that is missing or does not fit. */
export function fieldsOf(table: Table, rollout: RolloutColumns, rows: number): Map<Name, Field> {
  const find = (name: string) => {
    const [first, second] = table.fields.filter((field) => field.name === name)
    if (second !== undefined) throw new InputError(`column ${name} of the table`, 'two of that name', 'one')
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
    const expected = `${describe({ name: FINAL, column, width })}, null but where no later row shows what came next`
    throw new InputError(`column ${FINAL} of the table`, got, expected)
  }
  const { rows: held } = final
  const isWhole = final.column.length === (held?.length ?? table.numRows) * width
  if (!isWhole || held?.some((row, i) => row >= table.numRows || (i > 0 && row <= held[i - 1]!))) {
    const got = `${final.column.length} numbers for the rows ${show(Array.from(held ?? []))}`
    const expected = `${width} for each row, the rows rising below ${table.numRows}`
    throw new InputError(`column ${FINAL} of the table`, got, expected)
  }
  return fields
}

function describe({ column, width, rows }: Field, numRows = column.length / width): string {
  const numbers = `${width === 1 ? 'one number' : `${width} numbers`} a row in a ${column.constructor.name}`
  if (rows !== undefined) return `${numbers}, and null in ${numRows - rows.length} of ${numRows} rows`
  return column.length === numRows * width ? numbers : `${numbers} of ${column.length} for ${numRows} rows`
}
