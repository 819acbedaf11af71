import { type Cohort, openRow } from '../cohort.ts'
import { Phase } from '../components/episode.ts'
import { InputError, show } from '../errors.ts'
import type { World } from '../world.ts'
import { resetText } from './text/reset.ts'

/**
 * Opens the tick. Moves the components to the next row block (to the first, with what the lanes see and remember carried over, when the
 * rollout is full), then begins an episode in every lane that waits for one.
 *
 * Reads phase. Writes the environment's state, observation.current, actionMask.current, memory.current, episode. Runs first, so that every lane that acts in
 * this tick sees an observation of a running episode.
 */
export function reset(world: World): void {
  for (const cohort of world.cohorts) {
    if (cohort.rests) continue
    if (cohort.sliding) {
      if (cohort.t === cohort.numSteps) {
        cohort.t = 0
        for (const { firstBlock, carried } of cohort.sliders) firstBlock.set(carried)
      }
      openRow(cohort, cohort.t)
    }
    const { laneList, episode, autoreset, from, to } = cohort
    const lowest = autoreset === 'same-step' ? Phase.ended : Phase.fresh
    beginEpisodes(cohort, world.kernels.listPhase(laneList, episode.phase, lowest, from, to), 'current')
  }
  resetText(world)
}

/** Begins an episode in the first `count` lanes of the cohort's list; they see it in the current or the next observation. */
export function beginEpisodes(cohort: Cohort, count: number, seenIn: 'current' | 'next'): void {
  if (count === 0) return
  const { laneList, environmentLanes } = cohort
  const { episode, step, episodeReturn, phase } = cohort.episode
  environmentLanes.kernels.beginEpisodes(episode, step, episodeReturn, phase, laneList, Phase.ready, count)
  forget(cohort, cohort.memory[seenIn], count)
  environmentLanes.observation = cohort.observation[seenIn]
  environmentLanes.actionMask = cohort.actionMask[seenIn]
  cohort.environment.reset(environmentLanes, laneList, count)
}

/** The first `count` lanes of the list remember nothing. */
function forget({ laneList, numLanes }: Cohort, memory: Float32Array, count: number): void {
  const width = memory.length / numLanes
  if (width === 0) return
  for (let i = 0; i < count; i++) memory.fill(0, laneList[i]! * width, (laneList[i]! + 1) * width)
}

/**
 * Tells lanes to begin a new episode at the next tick, whatever they are doing. All lanes of the cohort if none are named.
 * `lanes` are rows of the cohort, from 0.
 * @throws InputError where one of them is not.
 */
export function restart(cohort: Cohort, lanes?: Iterable<number>): void {
  if (lanes === undefined) cohort.episode.phase.fill(Phase.fresh)
  else {
    for (const n of lanes) {
      if (!(Number.isInteger(n) && n >= 0 && n < cohort.numLanes)) {
        throw new InputError(
          `lane of cohort ${cohort.name}`,
          show(n),
          `a whole number from 0 to ${cohort.numLanes - 1}`,
        )
      }
      cohort.episode.phase[n] = Phase.fresh
    }
  }
}
