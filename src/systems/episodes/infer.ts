/**
 * Chooses the lanes' actions. An asynchronous policy returns a promise: its cohort rests until the answer arrives while others continue,
 * and a tick is a promise only while an answer is pending.
 */
import { InputError } from '../../base/errors.ts'
import { spaceWidth } from '../../base/space.ts'
import { Phase } from '../../components/episode.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { Answer, EpisodeCohort } from '../../world/episodes/cohort.ts'
import { makeRoom } from './bootstrap.ts'
import { inferLeague } from './league.ts'

/**
 * Runs the policy of every lane in one pass. An asynchronous policy is called once, and its cohort rests in this and later ticks until
 * the answer has arrived.
 *
 * Reads observation.current, actionMask.current, memory.current, episode. Writes action.chosen, logprob and value, and memory.next. For
 * lanes that continued, completes nextValue of the previous row with this row's value. Runs when all lanes see a running episode.
 * @throws InputError if an environment leaves a lane no legal choice; the error of a failed policy.
 */
export function inferEpisodes(kernels: Kernels, cohort: EpisodeCohort): void {
  if (cohort.answer === null) {
    if (cohort.rests) return
    checkMasks(kernels, cohort)
    cohort.answer = awaited(ask(kernels, cohort))
    cohort.rests = cohort.answer !== null
  }
  if (cohort.answer !== null) {
    if (!cohort.answer.hasArrived) return
    if (cohort.answer.failure !== null) throw cohort.answer.failure.cause
    cohort.answer = null
    cohort.rests = false
  }
  if (cohort.late.size > 0) cohort.late.repeatChoices()
  const { action, from, to, t, recorded, windows } = cohort
  if (!recorded || t === 0) return
  const { nextValue, terminated, truncated, valid } = windows.transition[t - 1]!
  kernels.completeNextValue(nextValue, action.value, terminated, truncated, valid, from, to)
}

function ask(kernels: Kernels, cohort: EpisodeCohort): void | Promise<void> {
  const { policy, league, explore, from, to, recorded } = cohort
  if (recorded) makeRoom(kernels, cohort)
  if (league !== null) return inferLeague(cohort, league)
  return policy.infer(cohort, explore, from, to)
}

/** A promise with its state in fields. */
function awaited(promise: void | Promise<void>): Answer | null {
  if (promise === undefined) return null
  const answer: Answer = { hasArrived: false, failure: null, arrival: Promise.resolve() }
  answer.arrival = promise.then(
    () => {
      answer.hasArrived = true
    },
    (cause) => {
      answer.failure = { cause }
      answer.hasArrived = true
    },
  )
  return answer
}

function checkMasks(kernels: Kernels, cohort: EpisodeCohort): void {
  const { actionMask, episode, bounds, environment, from, to } = cohort
  const mask = actionMask.current
  if (mask.length === 0) return
  const width = spaceWidth(environment.actionSpace)
  const n = kernels.findStuck(mask, episode.phase, Phase.ready, bounds.sizes, width, from, to)
  if (n < 0) return
  const where = `lane ${episode.lane[n]} (episode ${episode.episode[n]}, step ${episode.step[n]})`
  const expected = 'at least one'
  throw new InputError(`environment ${environment.id}`, `an action mask without a legal choice in ${where}`, expected)
}
