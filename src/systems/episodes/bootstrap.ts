/**
 * Lists of states after rows. The bootstrap list has rows whose next state no later row of the rollout values, with its observation,
 * memory and action mask: store adds truncated rows, and the horizon adds unfinished lanes. The list of final observations keeps states
 * that no later row contains, for the rollout's table.
 *
 * The next `infer` completes `nextValue` of lanes that continued. The bootstrap list covers the other rows, which are
 * valued after the last tick with the weights that filled the rollout. A `restart` within a rollout truncates the lane's last row and adds it to the list.
 */
import { assert } from '../../base/errors.ts'
import type { ObservationColumn } from '../../components/observation.ts'
import { Listed } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'

/**
 * Runs a rollout's bootstrap inference at its horizon: values the final observations of truncated rows and the observations of unfinished
 * lanes.
 */
export function bootstrapEpisodes(kernels: Kernels, cohort: EpisodeCohort): void | Promise<void> {
  if (!cohort.recorded) return
  makeRoom(kernels, cohort)
  listToValue(kernels, cohort, cohort.t - 1, Listed.goesOn, cohort.from, cohort.to)
  return valueList(kernels, cohort)
}

/** Adds the selected rows of lanes `from` to `to` in block `t` to the bootstrap list. */
export function listToValue(
  kernels: Kernels,
  cohort: EpisodeCohort,
  t: number,
  wanted: number,
  from: number,
  to: number,
): void {
  const { bootstrap: list, windows } = cohort
  const { row, observation, memory, actionMask, length } = list
  const remembered = windows.memory[t]!.next
  list.length = append(kernels, cohort, row, observation, length, windows.observation[t]!.next, t, wanted, from, to)
  if (remembered.length > 0) append(kernels, cohort, row, memory, length, remembered, t, wanted, from, to)
  copyMasks(cohort, t, row, actionMask, length, list.length)
}

/** Adds the selected rows of lanes `from` to `to` in block `t` to the list of final observations. Returns their number. */
export function listFinal(
  kernels: Kernels,
  cohort: EpisodeCohort,
  t: number,
  wanted: number,
  from: number,
  to: number,
): number {
  const { row, observation, actionMask, count } = cohort.final
  const { next } = cohort.windows.observation[t]!
  const length = count[0]!
  count[0] = append(kernels, cohort, row, observation, length, next, t, wanted, from, to)
  copyMasks(cohort, t, row, actionMask, length, count[0])
  return count[0] - length
}

function append(
  kernels: Kernels,
  { windows, numLanes }: EpisodeCohort,
  listRow: Uint32Array,
  listed: ObservationColumn,
  length: number,
  next: ObservationColumn,
  t: number,
  wanted: number,
  from: number,
  to: number,
): number {
  const { terminated, truncated, valid } = windows.transition[t]!
  const width = next.length / numLanes
  return kernels.listRows(
    listRow,
    listed,
    next,
    terminated,
    truncated,
    valid,
    wanted,
    length,
    t * numLanes,
    width,
    from,
    to,
  )
}

/** Copies the action masks of list rows `from` to `to`, which belong to block `t`. */
function copyMasks(
  { windows, numLanes }: EpisodeCohort,
  t: number,
  row: Uint32Array,
  listed: Uint8Array,
  from: number,
  to: number,
): void {
  const { next } = windows.actionMask[t]!
  const width = next.length / numLanes
  for (let i = from; i < to && width > 0; i++) {
    const at = (row[i]! - t * numLanes) * width
    for (let k = 0; k < width; k++) listed[i * width + k] = next[at + k]!
  }
}

/** Values the list before this thread's lanes could overflow it. The list of an asynchronous policy has room for all rows. */
export function makeRoom(kernels: Kernels, cohort: EpisodeCohort): void {
  const { bootstrap, from, to, model } = cohort
  if (bootstrap.length + to - from <= bootstrap.row.length) return
  assert(!model.answersLater, 'the bootstrap list of an asynchronous policy overflows')
  valueList(kernels, cohort)
}

/** Values each row of the list with the weights that learn from it, writes the values to the rows, and clears the list. */
function valueList(kernels: Kernels, { bootstrap, policy, rollout, league }: EpisodeCohort): void | Promise<void> {
  const { value, row, length } = bootstrap
  bootstrap.length = 0
  const valued = policy.values(value, bootstrap, length)
  if (valued !== undefined) return valued.then(() => kernels.scatterValues(rollout.nextValue, row, value, length))
  kernels.scatterValues(rollout.nextValue, row, value, length)
  for (let set = 1; set < (league?.learned.length ?? 1); set++) {
    const { policies, acted } = league!
    policies[set]!.values(value, bootstrap, length)
    for (let i = 0; i < length; i++) if (acted[row[i]!] === set) rollout.nextValue[row[i]!] = value[i]!
  }
}
