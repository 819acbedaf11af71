/** Recorded rows for fitted Q evaluation, with the actions that a policy takes in their states. */
import { InputError } from '../../base/errors.ts'
import { choiceSizes } from '../../base/space.ts'
import type { Table } from '../../tables/table.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { FittedRows } from './fitted-q.ts'

/** Actions of the policy per state. */
const DRAWS = 8

/**
 * Rows of whole episodes. `cohort` acts with the policy in at most `most` states at once.
 * @throws InputError for a truncated row without the observation after it, or without its mask if the environment has masks.
 */
export async function fittedRows(table: Table, cohort: EpisodeCohort, most: number): Promise<FittedRows> {
  const column = (name: string) => table.fields.find((field) => field.name === name)!.column
  const [terminated, truncated, reward] = [column('terminated'), column('truncated'), column('reward')]
  const states = statesOf(table)
  const next = new Int32Array(table.numRows)
  const episode = new Uint32Array(table.numRows)
  const begins = [0]
  for (let row = 0; row < table.numRows; row++) {
    episode[row] = begins.length - 1
    const isOver = (terminated[row]! | truncated[row]!) !== 0
    next[row] = terminated[row] !== 0 ? -1 : isOver ? states.after(row) : row + 1
    if (isOver && row + 1 < table.numRows) begins.push(row + 1)
  }
  const { environment, bounds } = cohort
  const sizes = choiceSizes(environment.actionSpace)
  const encode = (actions: ArrayLike<number>) => encoded(actions, sizes, bounds)
  return {
    observation: normalized(states.observation, states.width),
    observationWidth: states.width,
    action: encode(column('action')),
    actionWidth: sizes.length > 0 ? sizes.reduce((sum, size) => sum + size, 0) : bounds.low.length,
    own: encode(await drawn(states, cohort, most)),
    draws: DRAWS,
    ...{ reward, next, episode, begins },
  }
}

interface States {
  readonly observation: Float32Array
  readonly width: number
  /** A byte per choice; empty without masks. */
  readonly mask: Uint8Array
  readonly count: number
  /** The state after a truncated row. */
  after(row: number): number
}

/** The states of all rows, then those after truncated ones. */
function statesOf({ fields, numRows }: Table): States {
  const field = (name: string) => fields.find((each) => each.name === name)
  const { column: observation, width } = field('observation')!
  const final = field('finalObservation')
  const [masks, finalMasks] = [field('actionMask'), field('finalActionMask')]
  const rows = final?.rows ?? Uint32Array.from({ length: final === undefined ? 0 : numRows }, (_, row) => row)
  const places = new Map(Array.from(rows, (row, i) => [row, numRows + i]))
  const joined = new Float32Array((numRows + rows.length) * width)
  joined.set(observation as Float32Array)
  if (final !== undefined) joined.set(final.column as Float32Array, numRows * width)
  const mask = new Uint8Array(masks === undefined ? 0 : (numRows + rows.length) * masks.width).fill(1)
  if (masks !== undefined) mask.set(masks.column as Uint8Array)
  if (masks !== undefined && finalMasks !== undefined) mask.set(finalMasks.column as Uint8Array, numRows * masks.width)
  return {
    ...{ observation: joined, width, mask, count: numRows + rows.length },
    after(row) {
      const place = places.get(row)
      if (place === undefined)
        throw new InputError('finalObservation', `none for row ${row}`, 'the observation after it')
      if (masks === undefined || finalMasks !== undefined) return place
      throw new InputError('finalActionMask', `none for row ${row}`, 'the legal actions after it, for fitted values')
    },
  }
}

/** `DRAWS` actions of the policy in each state. */
async function drawn(states: States, cohort: EpisodeCohort, most: number): Promise<Float32Array> {
  const { rollout, action, episode, policy } = cohort
  const { observation, mask, width, count } = states
  const maskWidth = mask.length / count
  const actionWidth = action.chosen.length / episode.lane.length
  const all = new Float32Array(count * DRAWS * actionWidth)
  for (let from = 0; from < count; from += most) {
    const rows = Math.min(most, count - from)
    rollout.observation.set(observation.subarray(from * width, (from + rows) * width))
    if (maskWidth > 0) rollout.actionMask.set(mask.subarray(from * maskWidth, (from + rows) * maskWidth))
    episode.step.fill(from)
    for (let draw = 0; draw < DRAWS; draw++) {
      episode.episode.fill(draw)
      await policy.infer(cohort, true, 0, rows)
      for (let i = 0; i < rows * actionWidth; i++) {
        const row = from + Math.floor(i / actionWidth)
        all[(row * DRAWS + draw) * actionWidth + (i % actionWidth)] = action.chosen[i]!
      }
    }
  }
  return all
}

/** Actions as numbers: choices as ones among zeros, others clipped to their bounds and, if these are finite, scaled to ±1. */
function encoded(
  actions: ArrayLike<number>,
  sizes: readonly number[],
  { low, high }: { readonly low: ArrayLike<number>; readonly high: ArrayLike<number> },
): Float32Array {
  if (sizes.length === 0) {
    return Float32Array.from(actions, (action, i) => {
      const [least, most] = [low[i % low.length]!, high[i % low.length]!]
      const applied = Math.min(Math.max(action, least), most)
      return Number.isFinite(most - least) ? (2 * (applied - least)) / (most - least) - 1 : applied
    })
  }
  const width = sizes.reduce((sum, size) => sum + size, 0)
  const ones = new Float32Array((actions.length / sizes.length) * width)
  for (let row = 0; row * sizes.length < actions.length; row++) {
    let at = row * width
    for (const [k, size] of sizes.entries()) {
      ones[at + actions[row * sizes.length + k]!] = 1
      at += size
    }
  }
  return ones
}

/** Each number with mean 0 and deviation 1; 0 if it never changes. */
function normalized(observation: Float32Array, width: number): Float32Array {
  const count = observation.length / width
  const result = new Float32Array(observation.length)
  for (let k = 0; k < width; k++) {
    let [sum, squares] = [0, 0]
    for (let i = k; i < observation.length; i += width) sum += observation[i]!
    const mean = sum / count
    for (let i = k; i < observation.length; i += width) squares += (observation[i]! - mean) ** 2
    const deviation = Math.sqrt(squares / count)
    if (deviation < 1e-6) continue
    for (let i = k; i < observation.length; i += width) result[i] = (observation[i]! - mean) / deviation
  }
  return result
}
