/**
 * Steps environments and checks what they write by the time `reset` and `step` return: observations within their space, finite rewards of
 * at most 2^50, and flags of 0 or 1. An error names the lane, episode, step and function.
 */
import { InputError, thrownBy } from '../../base/errors.ts'
import { spaceWidth } from '../../base/space.ts'
import type { ActionMask } from '../../components/action.ts'
import { Phase } from '../../components/episode.ts'
import type { Observation } from '../../components/observation.ts'
import { REWARD_MAX } from '../../environments/environment.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import { beginEpisodes, findUnseen, refuseReturn, unseen, where, wrote } from './reset.ts'

/**
 * Steps every environment.
 *
 * Reads action.chosen. Writes action.applied, the environment's state, observation.next (for an ended episode the final observation),
 * actionMask.next, reward, terminated, truncated, valid. Runs when every lane has chosen.
 * @throws InputError for an action that is masked or outside its space, and for an environment that writes an observation outside its
 * space, an invalid reward, or a flag that is neither 0 nor 1.
 */
export function stepEpisodes(kernels: Kernels, cohort: EpisodeCohort): void {
  if (cohort.rests) return
  const { environment, environmentLanes, observation, actionMask, transition, episode, watch, from, to } = cohort
  const { reward, terminated, truncated, valid } = transition
  applyActions(kernels, cohort)
  kernels.clearFlags(terminated, truncated, from, to)
  environmentLanes.observation = observation.next
  environmentLanes.actionMask = actionMask.next
  const hasLives = environmentLanes.died.length > 0
  if (hasLives) kernels.clearFlags(environmentLanes.died, environmentLanes.births, from, to)
  if (cohort.late.size > 0) cohort.late.clear() // The environment marks waiting lanes again.
  let returned: unknown
  try {
    returned =
      watch === null
        ? environment.step(environmentLanes, from, to)
        : watch.step(() => environment.step(environmentLanes, from, to))
  } catch (error) {
    throw thrownBy(`environment ${environment.id}`, 'step', error)
  }
  refuseReturn(cohort, 'step', returned)
  if (environment.maxEpisodeSteps !== null) {
    kernels.limitSteps(truncated, episode.step, environment.maxEpisodeSteps, from, to)
  }
  const dead = kernels.settleDead(valid, reward, terminated, truncated, episode.phase, Phase.ready, from, to)
  if (dead > 0) settleObservations(kernels, cohort)
  if (cohort.late.size > 0) settleLate(cohort)
  checkWritten(kernels, cohort)
  if (hasLives) checkLives(cohort)
  if (environment.numPlayers !== undefined) checkGames(cohort, environment.numPlayers)
}

/** @throws InputError if the episode of one player of a game is over and another's continues. */
function checkGames(cohort: EpisodeCohort, numPlayers: number): void {
  const { transition, from, to } = cohort
  const { terminated, truncated } = transition
  for (let n = from; n < to; n++) {
    const first = n - (n % numPlayers)
    if ((terminated[n]! | truncated[n]!) === (terminated[first]! | truncated[first]!)) continue
    const got = `an end for ${where(cohort, terminated[n]! | truncated[n]! ? n : first)} from step, but not for its whole game`
    const expected = `an end for all its ${numPlayers} players, or for none`
    throw new InputError(`environment ${cohort.environment.id}`, got, expected)
  }
}

/** @throws InputError if a lane died whose episode continues, or if a flag is neither 0 nor 1. */
function checkLives(cohort: EpisodeCohort): void {
  const { transition, environmentLanes, episode, from, to } = cohort
  const { terminated, truncated } = transition
  const { died } = environmentLanes
  for (let n = from; n < to; n++) {
    if (died[n] === 0 || episode.phase[n] !== Phase.ready) continue
    if (died[n] !== 1) throw wrote(cohort, 'step', `${died[n]} in died`, n, '0 or 1')
    if (terminated[n] !== 0 || truncated[n] !== 0) continue
    throw wrote(cohort, 'step', '1 in died', n, '1 in terminated or truncated too: a death ends the episode')
  }
}

/** Checks chosen actions, and clips them to a box space. */
function applyActions(kernels: Kernels, cohort: EpisodeCohort): void {
  const { action, bounds, episode, from, to, environment } = cohort
  const width = spaceWidth(environment.actionSpace)
  const { chosen, applied } = action
  if (chosen instanceof Float32Array) {
    const at = kernels.findNonFinite(chosen, from * width, to * width)
    if (at >= 0) throw outside(cohort, at, width)
    kernels.clipRows(applied as Float32Array, chosen, bounds.low, bounds.high, width, from, to)
  } else {
    const at = kernels.findOutside(chosen, bounds.sizes, width, from, to)
    if (at >= 0) throw outside(cohort, at, width)
    const mask = cohort.actionMask.current
    if (mask.length === 0) return
    const illegal = kernels.findIllegal(chosen, mask, episode.phase, Phase.ready, bounds.sizes, width, from, to)
    if (illegal >= 0) throw outside(cohort, illegal, width, 'a choice allowed by the action mask')
  }
}

/** Lanes whose episode is over: with next-step they begin a new one now; otherwise they keep their observation. */
function settleObservations(kernels: Kernels, cohort: EpisodeCohort): void {
  const { laneList, episode, from, to, autoreset } = cohort
  const count = kernels.listPhase(laneList, episode.phase, Phase.ended, from, to)
  if (autoreset === 'next-step') beginEpisodes(cohort, count, 'next')
  else {
    keep(cohort, cohort.observation, count)
    keep(cohort, cohort.actionMask, count)
  }
}

/** Marks rows of lanes that wait for their environment as invalid; they keep the observation. */
function settleLate({ late, transition, observation, actionMask, numLanes }: EpisodeCohort): void {
  const { valid, reward, terminated, truncated } = transition
  for (const n of late.rows()) {
    for (const column of [valid, reward, terminated, truncated]) column[n] = 0
    for (const { current, next } of [observation, actionMask]) {
      const width = next.length / numLanes
      next.set(current.subarray(n * width, (n + 1) * width) as never, n * width)
    }
  }
}

function keep({ laneList, numLanes }: EpisodeCohort, { current, next }: Observation | ActionMask, count: number): void {
  const width = next.length / numLanes
  for (let i = 0; i < count; i++) {
    const start = laneList[i]! * width
    for (let k = start; k < start + width; k++) next[k] = current[k]!
  }
}

function checkWritten(kernels: Kernels, cohort: EpisodeCohort): void {
  const { observation, transition, from, to } = cohort
  const { reward, terminated, truncated } = transition
  const { next } = observation
  const at = findUnseen(kernels, cohort, next, from, to)
  if (at >= 0) throw unseen(cohort, 'step', next, at)
  const n = kernels.findMiswritten(reward, terminated, truncated, REWARD_MAX, from, to)
  if (n < 0) return
  if (!Number.isFinite(reward[n]!)) throw wrote(cohort, 'step', `${reward[n]} in reward[0]`, n, 'finite numbers')
  if (Math.abs(reward[n]!) > REWARD_MAX) {
    throw wrote(cohort, 'step', `${reward[n]} in reward[0]`, n, `a number from −${REWARD_MAX} to ${REWARD_MAX}`)
  }
  throw wrote(cohort, 'step', `${terminated[n]} in terminated and ${truncated[n]} in truncated`, n, '0 or 1')
}

function outside(cohort: EpisodeCohort, at: number, width: number, legal?: string): InputError {
  const { action, environment, policyDefinition } = cohort
  const space = environment.actionSpace
  const sizes = cohort.bounds.sizes
  const expected = space.kind === 'box' ? 'a finite number' : `a whole number from 0 to ${sizes[at % width]! - 1}`
  const got = `${action.chosen[at]} in action[${at % width}] of ${where(cohort, Math.floor(at / width))}`
  return new InputError(`policy ${policyDefinition.id}`, got, legal ?? expected)
}
