import { checkCount, checkGiven, InputError, thrownBy } from '../../base/errors.ts'
import type { BoxSpace } from '../../base/space.ts'
import { Phase } from '../../components/episode.ts'
import type { ObservationColumn } from '../../components/observation.ts'
import { refusedReturn } from '../../environments/environment.ts'
import { Listed } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { type EpisodeCohort, openRow } from '../../world/episodes/cohort.ts'
import { shareLanes } from '../../world/episodes/shares.ts'
import { listFinal, listToValue } from './bootstrap.ts'

/**
 * Opens the tick. Moves the components to the next row block, or after a full rollout to the first, carrying over observations and
 * memories. Then begins an episode in every lane that waits for one.
 *
 * Reads phase. Writes the environment's state, observation.current, actionMask.current, memory.current, episode. Runs first, so that
 * every lane acts on an observation of a running episode.
 * @throws InputError if an environment begins an episode with an observation outside its space.
 */
export function resetEpisodes(kernels: Kernels, cohort: EpisodeCohort): void {
  if (cohort.rests) return
  const begins = cohort.t === cohort.numSteps
  if (begins) shareLanes(cohort)
  if (cohort.sliding) {
    if (begins) {
      cohort.t = 0
      cohort.final.count[0] = 0
      for (const { firstBlock, carried } of cohort.sliders) firstBlock.set(carried)
    }
    openRow(cohort, cohort.t)
  }
  const { laneList, episode, autoreset, from, to } = cohort
  const lowest = autoreset === 'same-step' ? Phase.ended : Phase.fresh
  const count = kernels.listPhase(laneList, episode.phase, lowest, from, to)
  beginEpisodes(cohort, cohort.environmentLanes.died.length === 0 ? count : leaveAbsent(cohort, count), 'current')
}

/** Removes absent lanes from the first `count` of the list. Returns how many remain. */
function leaveAbsent({ laneList, episode }: EpisodeCohort, count: number): number {
  let left = 0
  for (let i = 0; i < count; i++) {
    if (episode.phase[laneList[i]!] === Phase.absent) continue
    laneList[left] = laneList[i]!
    left++
  }
  return left
}

/** Begins an episode in the first `count` lanes of the cohort's list and writes its observation to `current` or `next`. */
export function beginEpisodes(cohort: EpisodeCohort, count: number, seenIn: 'current' | 'next'): void {
  if (count === 0) return
  const { laneList, environmentLanes } = cohort
  const { episode, step, episodeReturn, phase } = cohort.episode
  environmentLanes.kernels.beginEpisodes(episode, step, episodeReturn, phase, laneList, Phase.ready, count)
  forget(cohort, cohort.memory[seenIn], count)
  environmentLanes.observation = cohort.observation[seenIn]
  environmentLanes.actionMask = cohort.actionMask[seenIn]
  const { environment, watch } = cohort
  let returned: unknown
  try {
    returned =
      watch === null
        ? environment.reset(environmentLanes, laneList, count)
        : watch.reset(laneList, count, () => environment.reset(environmentLanes, laneList, count))
  } catch (error) {
    throw thrownBy(`environment ${environment.id}`, 'reset', error)
  }
  refuseReturn(cohort, 'reset', returned)
  checkBegun(cohort, cohort.observation[seenIn], count)
}

/** Elements per row from which a kernel call is faster than a loop. */
const WIDE = 16

/** @throws InputError if the first `count` lanes of the list see an observation outside the space. */
function checkBegun(cohort: EpisodeCohort, seen: ObservationColumn, count: number): void {
  const { laneList, numLanes, environmentLanes } = cohort
  const { low, high } = cohort.observationBounds
  const width = seen.length / numLanes
  if (width >= WIDE) {
    // Lanes that follow each other are looked at together.
    for (let i = 0; i < count; ) {
      const from = laneList[i]!
      let to = from
      while (i < count && laneList[i] === to) {
        i++
        to++
      }
      const at = findUnseen(environmentLanes.kernels, cohort, seen, from, to)
      if (at >= 0) throw unseen(cohort, 'reset', seen, at)
    }
    return
  }
  for (let i = 0; i < count; i++) {
    for (let k = 0, at = laneList[i]! * width; k < width; k++, at++) {
      if (!(seen[at]! >= low[k]! && seen[at]! <= high[k]!)) throw unseen(cohort, 'reset', seen, at)
    }
  }
}

/** The first element of lanes `from` to `to` of an observation that is outside the space, or −1. */
export function findUnseen(
  kernels: Kernels,
  { observationBounds, numLanes }: EpisodeCohort,
  seen: ObservationColumn,
  from: number,
  to: number,
): number {
  const { low, high } = observationBounds
  const width = seen.length / numLanes
  if (seen instanceof Uint8Array) {
    return kernels.findByteBeyond(seen, low as Uint8Array, high as Uint8Array, width, from, to)
  }
  return kernels.findBeyond(seen, low as Float32Array, high as Float32Array, width, from, to)
}

/** @throws InputError for an invalid return value of an environment's `reset` or `step`. */
export function refuseReturn({ environment }: EpisodeCohort, name: 'reset' | 'step', returned: unknown): void {
  const refused = refusedReturn(name, returned)
  if (refused !== null) throw new InputError(`environment ${environment.id}`, refused.got, refused.expected)
}

/** The error of an observation outside its space, written by an environment's reset or step. */
export function unseen(cohort: EpisodeCohort, name: string, seen: ObservationColumn, at: number): InputError {
  const { environment, numLanes } = cohort
  const width = seen.length / numLanes
  const k = at % width
  const space = environment.observationSpace as BoxSpace
  const bounds = `${space.low[k]} to ${space.high[k]}, the bounds of its observation space`
  const expected = Number.isFinite(seen[at]!) ? bounds : 'finite numbers'
  return wrote(cohort, name, `${seen[at]} in observation[${k}]`, Math.floor(at / width), expected)
}

/** The error of an invalid value written by an environment's reset or step. */
export function wrote(cohort: EpisodeCohort, name: string, what: string, n: number, expected: string): InputError {
  const got = `${what} of ${where(cohort, n)} from ${name}`
  return new InputError(`environment ${cohort.environment.id}`, got, expected)
}

/** Describes a lane's position in words. */
export function where({ episode }: EpisodeCohort, n: number): string {
  return `lane ${episode.lane[n]} (episode ${episode.episode[n]}, step ${episode.step[n]})`
}

/** Clears the memory of the first `count` lanes of the list. */
function forget({ laneList, numLanes }: EpisodeCohort, memory: Float32Array, count: number): void {
  const width = memory.length / numLanes
  if (width === 0) return
  for (let i = 0; i < count; i++) memory.fill(0, laneList[i]! * width, (laneList[i]! + 1) * width)
}

/**
 * Makes lanes begin a new episode in the next tick: `lanes` are rows of the cohort, from 0; default: all lanes. Within a rollout this
 * truncates running episodes at the lane's last row, which is valued accordingly. After a rollout's last tick the rollout does not
 * change: its last rows are valued as unfinished, with the same result.
 * @throws InputError for an invalid row, before any lane restarts, and if other threads are within a rollout.
 */
export function restart(cohort: EpisodeCohort, lanes?: Iterable<number>): void {
  checkGiven('cohort of restart', cohort, ['episode'])
  const { name, present, t, numSteps, recorded, threads, episode } = cohort
  if (cohort.ahead !== null) {
    const expected = 'a trainer without actors'
    throw new InputError(`restart of cohort ${name}`, 'lanes whose rollouts actors collect ahead', expected)
  }
  const { numPlayers = 1 } = cohort.environment
  const isThere = (n: number) => episode.phase[n] !== Phase.absent
  const chosen = lanes === undefined ? Array.from({ length: present }, (_, n) => n).filter(isThere) : [...lanes]
  for (const n of chosen) {
    checkCount(`lane of cohort ${name}`, n, 0, present - 1)
    const game = n - (n % numPlayers)
    for (let player = game; numPlayers > 1 && player < game + numPlayers; player++) {
      if (chosen.includes(player)) continue
      throw new InputError(`lanes of cohort ${name}`, `${n} without ${player}`, 'all players of a game')
    }
    if (!isThere(n)) throw new InputError(`lane of cohort ${name}`, `${n}, which has died`, 'a present lane')
  }
  const isUnderWay = recorded && t > 0 && t < numSteps
  if (isUnderWay && threads.count > 1) {
    const expected = 'a call between two updates'
    throw new InputError(`restart of cohort ${name}`, 'a call during an update of several threads', expected)
  }
  const waiting = isUnderWay ? chosen.find((n) => cohort.late.has(n)) : undefined
  if (waiting !== undefined) {
    const got = `${waiting}, which waits for its environment within a rollout`
    throw new InputError(`lane of cohort ${name}`, got, 'a lane with an answer, or a call between two rollouts')
  }
  for (const n of chosen) {
    if (isUnderWay) cut(cohort, n)
    episode.phase[n] = Phase.fresh
  }
}

/** Truncates the episode of lane n at its last row, with the observation after it. */
function cut(cohort: EpisodeCohort, n: number): void {
  const { windows, t, environmentLanes } = cohort
  const { valid, terminated, truncated } = windows.transition[t - 1]!
  if (valid[n] === 0 || terminated[n] !== 0 || truncated[n] !== 0) return // The row belongs to no running episode.
  truncated[n] = 1
  listToValue(environmentLanes.kernels, cohort, t - 1, Listed.truncated, n, n + 1)
  listFinal(environmentLanes.kernels, cohort, t - 1, Listed.truncated, n, n + 1)
}
