/**
 * How lanes join and leave. Within a rollout, the thread that owns a lane's row writes its death as a phase and its births as a number.
 * After the rollout these become entities, a query finds the present lanes, and their rows are packed to the front in order of arrival.
 * So ranges of lanes stay contiguous, and a newborn's row does not depend on threads.
 */
import { InputError } from '../../base/errors.ts'
import type { Column } from '../../components/column.ts'
import { Phase } from '../../components/episode.ts'
import { Lives } from '../../components/population.ts'
import type { LaneEntities } from '../lanes.ts'
import type { EpisodeCohort } from './cohort.ts'

/** The parent's row of each newborn entity, in the order in which newborns get their rows. */
type Parents = ReadonlyMap<number, number>
const NONE: Parents = new Map()

/**
 * Updates the rows of a cohort to the present lanes, after births and deaths in the last rollout and after lanes that the program added
 * or removed. Call it between two rollouts. Does nothing in a thread that shares another's columns.
 * @throws InputError for more lanes than rows or lane numbers, for an incomplete game, and for lanes that left while actors collect their
 * rollouts ahead.
 */
export function settleLanes(cohort: EpisodeCohort): void {
  const { entities, population } = cohort
  if (entities === null) return
  const parents = population.offspring.length === 0 ? NONE : settleLives(cohort, entities)
  if (entities.hasChanged) packLanes(cohort, entities, parents)
}

/** Removes the entities of lanes that died in the rollout, and creates entities for newborns while there is room. */
function settleLives({ population, episode, numLanes }: EpisodeCohort, entities: LaneEntities): Parents {
  const { present, offspring, totals } = population
  const { phase } = episode
  for (let n = 0; n < present[0]!; n++) {
    if (phase[n] !== Phase.absent) continue
    entities.removeRow(n)
    totals[Lives.died]!++
  }
  const parents = new Map<number, number>()
  let room = numLanes - entities.count
  for (let n = 0; n < present[0]!; n++) {
    for (; offspring[n]! > 0; offspring[n]!--) {
      if (room > 0) {
        const [newborn] = entities.spawn(1)
        parents.set(newborn!, n)
        totals[Lives.born]!++
        room--
      } else totals[Lives.refused]!++
    }
  }
  return parents
}

function packLanes(cohort: EpisodeCohort, entities: LaneEntities, parents: Parents): void {
  const { name, population, numLanes, carried, state, episode } = cohort
  const { rows, newcomers } = entities.find()
  const before = population.present[0]!
  const present = rows.length + newcomers.length
  if (present > numLanes) {
    throw new InputError(`cohort ${name}`, `${present} present lanes`, `at most its numLanes, ${numLanes}`)
  }
  checkCome(cohort, newcomers.length)
  checkGone(cohort, rows)
  const born = [...parents.keys()]
  const spawned = newcomers.filter((entity) => !parents.has(entity))
  const inheritance = Object.values(state as unknown as Record<string, Column>).map((column) => ({
    column,
    inherited: born.map((entity) => rowOf(column, parents.get(entity)!, numLanes).slice()),
  }))
  for (const column of carried) packRows(column, column.length / numLanes, rows, before)
  for (const { column, inherited } of inheritance) {
    for (const [i, values] of inherited.entries()) rowOf(column, rows.length + i, numLanes).set(values)
  }
  for (let n = rows.length; n < present; n++) {
    episode.lane[n] = cohort.firstLane + population.numbered[0]!
    population.numbered[0]!++
    episode.episode[n] = 0xffffffff // −1: the first reset makes it 0.
    episode.phase[n] = Phase.fresh
  }
  episode.phase.fill(Phase.absent, present)
  const kept = Array.from(rows, (row) => entities.lanes[row]!)
  cohort.lanes = entities.seat([...kept, ...born, ...spawned])
  population.present[0] = present
}

/** @throws InputError if the cohort has no lane numbers for this many newcomers. */
function checkCome({ name, population, numLanes, numNumbers }: EpisodeCohort, count: number): void {
  if (count === 0 || population.numbered[0]! + count <= numNumbers) return
  const expected =
    numNumbers === numLanes ? 'no new lanes without the option `present`' : `at most ${numNumbers} in a training`
  throw new InputError(`cohort ${name}`, `${count} new lanes`, expected)
}

/** @throws InputError if the lanes may not leave: a part of a game, or with rollouts collected ahead. */
function checkGone({ name, ahead, environment, population }: EpisodeCohort, rows: Uint32Array): void {
  const before = population.present[0]!
  if (rows.length === before) return
  const { numPlayers = 1 } = environment
  if (ahead !== null) {
    const got = `${rows.length} of its ${before} lanes while actors collect its rollouts ahead`
    throw new InputError(`cohort ${name}`, got, 'all lanes of the cohort')
  }
  for (let i = 0; i < rows.length; i += numPlayers) {
    const isGame = rows[i]! % numPlayers === 0 && rows[i + numPlayers - 1] === rows[i]! + numPlayers - 1
    if (isGame) continue
    const got = `lane ${rows[i]} without the other players of its game`
    throw new InputError(`cohort ${name}`, got, `all ${numPlayers} players of a game, or none`)
  }
}

function rowOf<C extends Column>(column: C, n: number, numLanes: number): C {
  const width = column.length / numLanes
  return column.subarray(n * width, (n + 1) * width) as C
}

/** Moves the given rows (ascending) to the front; the other ones of the first `before` rows become 0. */
function packRows(column: Column, width: number, rows: Uint32Array, before: number): void {
  for (let i = 0; i < rows.length; i++) {
    const from = rows[i]! * width
    if (rows[i] === i) continue
    for (let k = 0; k < width; k++) column[i * width + k] = column[from + k]!
  }
  column.fill(0, rows.length * width, before * width)
}

/** Restores the entities of a cohort whose columns come from a checkpoint: one for each row with a lane. */
export function restoreLanes(cohort: EpisodeCohort): void {
  const { entities, population, episode, numLanes } = cohort
  if (entities === null) return
  let present = 0
  while (present < numLanes && episode.phase[present] !== Phase.absent) present++
  const { newcomers } = entities.find()
  for (const entity of newcomers) entities.remove(entity)
  for (let n = present; n < entities.lanes.length; n++) entities.removeRow(n)
  const { rows } = entities.find()
  const kept = Array.from(rows, (row) => entities.lanes[row]!)
  cohort.lanes = entities.seat([...kept, ...entities.spawn(present - kept.length)])
  population.present[0] = present
  population.offspring.fill(0)
}
