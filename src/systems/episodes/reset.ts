import { checkCount, checkGiven, InputError, thrownBy } from '../../base/errors.ts'
import type { BoxSpace } from '../../base/space.ts'
import { Phase } from '../../components/episode.ts'
import { refusedReturn } from '../../environments/environment.ts'
import { Listed } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { type EpisodeCohort, openRow } from '../../world/episodes/cohort.ts'
import { shareLanes } from '../../world/episodes/shares.ts'
import { listFinal, listToValue } from './bootstrap.ts'

/**
 * Opens the tick. Moves the components to the next row block (to the first, with what the lanes see and remember carried over, when the
 * rollout is full), then begins an episode in every lane that waits for one.
 *
 * Reads phase. Writes the environment's state, observation.current, actionMask.current, memory.current, episode. Runs first, so that every lane that acts in
 * this tick sees an observation of a running episode.
 *
 * @throws InputError where an environment begins an episode with an observation outside its space.
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

/** Begins an episode in the first `count` lanes of the cohort's list; they see it in the current or the next observation. */
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

/** From so many elements a row on, a pass of the kernel takes less time than a loop, the call of it included. */
const WIDE = 16

/** Throws where what the first `count` lanes of the list see is not within the observation space. */
function checkBegun(cohort: EpisodeCohort, seen: Float32Array, count: number): void {
  const { laneList, numLanes, environmentLanes } = cohort
  const { low, high } = cohort.observationBounds
  const width = seen.length / numLanes
  if (width >= WIDE) {
    for (let i = 0; i < count; i++) {
      const at = environmentLanes.kernels.findBeyond(seen, low, high, width, laneList[i]!, laneList[i]! + 1)
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

/** @throws InputError for what an environment's `reset` or `step` may not return. */
export function refuseReturn({ environment }: EpisodeCohort, name: 'reset' | 'step', returned: unknown): void {
  const refused = refusedReturn(name, returned)
  if (refused !== null) throw new InputError(`environment ${environment.id}`, refused.got, refused.expected)
}

/** An observation that an environment's reset or step wrote and that is not in its space. */
export function unseen(cohort: EpisodeCohort, name: string, seen: Float32Array, at: number): InputError {
  const { environment, numLanes } = cohort
  const width = seen.length / numLanes
  const k = at % width
  const space = environment.observationSpace as BoxSpace
  const bounds = `${space.low[k]} to ${space.high[k]}, as its observation space has it`
  const expected = Number.isFinite(seen[at]!) ? bounds : 'finite numbers'
  return wrote(cohort, name, `${seen[at]} in observation[${k}]`, Math.floor(at / width), expected)
}

/** What an environment's reset or step should not have written. */
export function wrote(cohort: EpisodeCohort, name: string, what: string, n: number, expected: string): InputError {
  const got = `${what} of ${where(cohort, n)} from ${name}`
  return new InputError(`environment ${cohort.environment.id}`, got, expected)
}

/** A lane and where it is, in words. */
export function where({ episode }: EpisodeCohort, n: number): string {
  return `lane ${episode.lane[n]} (episode ${episode.episode[n]}, step ${episode.step[n]})`
}

/** The first `count` lanes of the list remember nothing. */
function forget({ laneList, numLanes }: EpisodeCohort, memory: Float32Array, count: number): void {
  const width = memory.length / numLanes
  if (width === 0) return
  for (let i = 0; i < count; i++) memory.fill(0, laneList[i]! * width, (laneList[i]! + 1) * width)
}

/**
 * Tells lanes to begin a new episode at the next tick, whatever they are doing. All lanes of the cohort if none are named.
 * `lanes` are rows of the cohort, from 0. In the middle of a rollout this cuts the episodes that go on: the lane's last row
 * is truncated, and valued as such. After a rollout's last tick that rollout stays as it is: its last rows are valued as those
 * of episodes that go on, which comes to the same.
 *
 * @throws InputError if one of them is not, before any is restarted; or if other threads are in the middle of a rollout.
 */
export function restart(cohort: EpisodeCohort, lanes?: Iterable<number>): void {
  checkGiven('cohort of restart', cohort, ['episode'])
  const { name, present, t, numSteps, recorded, from, to, episode } = cohort
  if (cohort.ahead !== null) {
    throw new InputError(`restart of cohort ${name}`, 'lanes whose rollouts actors collect ahead', 'a trainer without')
  }
  const { numAgents = 1 } = cohort.environment
  const isThere = (n: number) => episode.phase[n] !== Phase.absent
  const told = lanes === undefined ? Array.from({ length: present }, (_, n) => n).filter(isThere) : [...lanes]
  for (const n of told) {
    checkCount(`lane of cohort ${name}`, n, 0, present - 1)
    const game = n - (n % numAgents)
    for (let agent = game; numAgents > 1 && agent < game + numAgents; agent++) {
      if (told.includes(agent)) continue
      throw new InputError(`lanes of cohort ${name}`, `${n} without ${agent}`, 'all players of a game')
    }
    if (!isThere(n)) throw new InputError(`lane of cohort ${name}`, `${n}, which has died`, 'one that is there')
  }
  const isUnderWay = recorded && t > 0 && t < numSteps
  if (isUnderWay && to - from < present) {
    throw new InputError(
      `restart of cohort ${name}`,
      'a call in the middle of an update of several threads',
      'one between two',
    )
  }
  const waiting = isUnderWay ? told.find((n) => cohort.late.has(n)) : undefined
  if (waiting !== undefined) {
    const got = `${waiting}, which waits for its environment in the middle of a rollout`
    throw new InputError(`lane of cohort ${name}`, got, 'one that has its answer, or a call between two rollouts')
  }
  for (const n of told) {
    if (isUnderWay) cut(cohort, n)
    episode.phase[n] = Phase.fresh
  }
}

/** Ends the episode of lane n at its last row, with the observation after it. */
function cut(cohort: EpisodeCohort, n: number): void {
  const { windows, t, environmentLanes } = cohort
  const { valid, terminated, truncated } = windows.transition[t - 1]!
  if (valid[n] === 0 || terminated[n] !== 0 || truncated[n] !== 0) return // The row belongs to no running episode.
  truncated[n] = 1
  listToValue(environmentLanes.kernels, cohort, t - 1, Listed.truncated, n, n + 1)
  listFinal(environmentLanes.kernels, cohort, t - 1, Listed.truncated, n, n + 1)
}
