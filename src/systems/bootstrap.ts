/**
 * The bootstrap list: rows whose action led somewhere that no later row of the rollout values, with what the lane saw and
 * remembered there. Truncated rows are put on it by store, unfinished lanes at the horizon.
 */

import type { Cohort } from '../cohort.ts'
import { assert } from '../errors.ts'
import type { Kernels } from '../kernels/bind.ts'
import type { World } from '../world.ts'

/** Which rows are listed: those whose episode goes on, or was truncated. */
export const Listed = { goesOn: 0, truncated: 1 } as const

/**
 * The one bootstrap inference of a rollout, at its horizon and with the weights that filled it: values the final
 * observations of truncated rows, and the observations of lanes whose episode goes on.
 */
export function bootstrap(world: World): void | Promise<void> {
  let valued: Promise<void> | undefined
  for (const cohort of world.cohorts) {
    if (!cohort.recorded) continue
    makeRoom(world, cohort)
    listRows(world.kernels, cohort, cohort.t - 1, Listed.goesOn)
    const pending = valueList(world, cohort)
    if (pending === undefined) continue
    valued = valued === undefined ? pending : Promise.all([valued, pending]).then(() => undefined)
  }
  return valued
}

/** Puts rows of block `t`, at which the components stand, on the list. */
export function listRows(kernels: Kernels, cohort: Cohort, t: number, wanted: number): void {
  const { bootstrap, observation, memory } = cohort
  const length = append(kernels, cohort, bootstrap.observation, observation.next, t, wanted)
  if (memory.next.length > 0) append(kernels, cohort, bootstrap.memory, memory.next, t, wanted)
  bootstrap.length = length
}

function append(
  kernels: Kernels,
  { transition, numLanes, from, to, bootstrap }: Cohort,
  listed: Float32Array,
  next: Float32Array,
  t: number,
  wanted: number,
): number {
  return kernels.listBootstrap(
    bootstrap.row,
    listed,
    next,
    transition.terminated,
    transition.truncated,
    transition.valid,
    wanted,
    bootstrap.length,
    t * numLanes,
    next.length / numLanes,
    from,
    to,
  )
}

/** Values the list before this thread's lanes could overflow it. That of a policy that answers later has room for all. */
export function makeRoom(world: World, cohort: Cohort): void {
  const { bootstrap, from, to, model } = cohort
  if (bootstrap.length + to - from <= bootstrap.row.length) return
  assert(!model.answersLater, 'the bootstrap list of a policy that answers later overflows')
  valueList(world, cohort)
}

/** Values the list, writes the values to their rows, and empties it. */
function valueList({ kernels }: World, { bootstrap, policy, rollout }: Cohort): void | Promise<void> {
  const { value, row, length } = bootstrap
  bootstrap.length = 0
  const valued = policy.values(value, bootstrap, length)
  if (valued !== undefined) return valued.then(() => kernels.scatterValues(rollout.nextValue, row, value, length))
  kernels.scatterValues(rollout.nextValue, row, value, length)
}
