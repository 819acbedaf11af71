/** Runs custom systems before or after the four systems, in the cohort's order. */
import { InputError } from '../../base/errors.ts'
import { REWARD_MAX } from '../../environments/environment.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { Systems } from '../../world/housing.ts'
import type { SystemName } from '../../world/system.ts'
import { where } from './reset.ts'

/** The four systems with the cohort's custom systems around them. */
export function withOwnSystems(four: Systems<EpisodeCohort>): Systems<EpisodeCohort> {
  const around = (name: 'reset' | 'step' | 'store') => {
    const system = four[name]
    return (kernels: Kernels, cohort: EpisodeCohort): void => {
      if (cohort.systems.length === 0 || cohort.rests) return void system(kernels, cohort)
      runOwn(kernels, cohort, 'before', name)
      system(kernels, cohort)
      runOwn(kernels, cohort, 'after', name)
    }
  }
  return {
    reset: around('reset'),
    infer(kernels, cohort) {
      if (cohort.systems.length === 0) return four.infer(kernels, cohort)
      const isAwaited = cohort.answer !== null
      if (cohort.rests && !isAwaited) return
      if (!isAwaited) runOwn(kernels, cohort, 'before', 'infer')
      four.infer(kernels, cohort)
      if (cohort.answer === null) runOwn(kernels, cohort, 'after', 'infer')
    },
    step: around('step'),
    store: around('store'),
  }
}

/** Runs a cohort's custom systems of this place over this thread's lanes. */
function runOwn(kernels: Kernels, cohort: EpisodeCohort, side: 'before' | 'after', name: SystemName): void {
  const { from, to, transition, observation, action } = cohort
  for (const { definition, lanes, windows } of cohort.systems) {
    if (definition[side] !== name || definition.run === undefined) continue
    lanes.observation = observation.current
    lanes.nextObservation = observation.next
    lanes.action = action.applied
    lanes.reward = transition.reward
    lanes.terminated = transition.terminated
    lanes.truncated = transition.truncated
    lanes.valid = transition.valid
    lanes.recorded = windows[rowBlock(cohort, side, name)]!
    definition.run(lanes, from, to)
    if (name === 'reset' || name === 'infer') continue // They see the row of the previous step, which was checked.
    const n = kernels.findMiswritten(lanes.reward, lanes.terminated, lanes.truncated, REWARD_MAX, from, to)
    if (n >= 0) throw miswritten(cohort, definition.id, lanes, n, where(cohort, n))
  }
}

/** The row block that this tick fills. */
function rowBlock({ t, numSteps, sliding }: EpisodeCohort, side: 'before' | 'after', name: SystemName): number {
  if (!sliding) return 0
  if (side === 'before' && name === 'reset') return t === numSteps ? 0 : t
  return side === 'after' && name === 'store' ? t - 1 : t
}

/** Runs the `afterRollout` functions of a cohort's systems on a full rollout, in the caller's thread. */
export function runAfterRollout(kernels: Kernels, cohort: EpisodeCohort): void {
  const { systems, rollout, present, numLanes, entities } = cohort
  if (entities === null) return // This thread shares another's columns.
  for (const system of systems) {
    const { id, afterRollout } = system.definition
    if (afterRollout === undefined) continue
    afterRollout({ ...system.rollout, present })
    const { reward, terminated, truncated } = rollout
    const row = kernels.findMiswritten(reward, terminated, truncated, REWARD_MAX, 0, reward.length)
    if (row < 0) continue
    const place = `lane ${rollout.lane[row]} (episode ${rollout.episode[row]}, step ${rollout.step[row]}, row ${row} of ${numLanes} lanes)`
    throw miswritten(cohort, id, rollout, row, place)
  }
}

function miswritten(
  { name }: EpisodeCohort,
  id: string,
  { reward, terminated, truncated }: Pick<EpisodeCohort['transition'], 'reward' | 'terminated' | 'truncated'>,
  n: number,
  place: string,
): InputError {
  const got = `reward ${reward[n]}, terminated ${terminated[n]} and truncated ${truncated[n]} in ${place}`
  return new InputError(
    `system ${id} of cohort ${name}`,
    got,
    `a finite reward from −${REWARD_MAX} to ${REWARD_MAX}, and flags of 0 or 1`,
  )
}
