/** Divides the lanes of a cohort of episodes among threads, with their parts of columns. */
import type { Column, Columns, Sliding } from '../../components/column.ts'
import type { FinalObservations } from '../../components/rollout.ts'
import type { Housing } from '../housing.ts'
import type { BootstrapList, EpisodeCohort, Slider } from './cohort.ts'
import type { EpisodeCohortPlan } from './draft.ts'

/** A thread's share of a cohort: lanes `from` to `to`, and its sliding components. */
export interface Share {
  readonly sliding: boolean
  readonly numSteps: number
  readonly numLanes: number
  readonly from: number
  readonly to: number
}

/**
 * The first lane of a thread's share, if `count` threads share `present` lanes; the next share begins where this one ends. The players of
 * a game are in one share.
 */
export function shareStart(thread: number, count: number, present: number, numPlayers = 1): number {
  return numPlayers * Math.floor((thread * (present / numPlayers)) / count)
}

/**
 * The number of collecting threads and this thread's index among them. All threads collect, or only the last ones if others learn; the
 * index is below 0 for a thread that only learns.
 */
export function collecting({ count, index, actors }: Housing['threads']): { index: number; count: number } {
  return actors === 0 ? { index, count } : { index: index - (count - actors), count: actors }
}

/** The shares of the present lanes for all collecting threads. */
export function sharesOf(
  cohort: Pick<EpisodeCohort, 'sliding' | 'numSteps' | 'numLanes' | 'environment'>,
  count: number,
  present: number,
) {
  const { sliding, numSteps, numLanes } = cohort
  const { numPlayers } = cohort.environment
  return Array.from({ length: count }, (_, thread): Share => {
    const [from, to] = [thread, thread + 1].map((i) => shareStart(i, count, present, numPlayers)) as [number, number]
    return { sliding, numSteps, numLanes, from, to }
  })
}

/** A thread's part of the final observations. */
export function finalObservations(
  { row, observation, actionMask, count }: Columns<EpisodeCohortPlan>['final'],
  share: Share,
  thread: number,
): FinalObservations {
  return {
    row: part(row, share),
    observation: part(observation, share),
    actionMask: part(actionMask, share),
    count: count.subarray(thread, thread + 1),
  }
}

export function bootstrapList(
  { row, observation, memory, actionMask, value }: Columns<EpisodeCohortPlan>['bootstrap'],
  share: Share,
): BootstrapList {
  return {
    row: part(row, share),
    observation: part(observation, share),
    memory: part(memory, share),
    actionMask: part(actionMask, share),
    value: part(value, share),
    length: 0,
  }
}

/** This thread's part of a column with the same number of elements per lane. */
function part<C extends Float32Array | Uint32Array | Uint8Array>(column: C, { numLanes, from, to }: Share): C {
  const perLane = column.length / numLanes
  return column.subarray(from * perLane, to * perLane) as C
}

/** Creates a sliding component over a column, with this thread's part in carrying it over. */
export function createSlider<C extends Float32Array | Uint8Array>(column: C, carried: C, share: Share): Slider<C> {
  const { sliding, numSteps } = share
  const windows = sliding ? slidingWindows(column, carried, numSteps) : [{ current: carried, next: carried }]
  const whole = { carried, firstBlock: column.subarray(0, carried.length) as C }
  return { component: { ...windows[0]! }, windows, whole, ...ownPart(whole, share) }
}

/** This thread's part in carrying a column over. */
function ownPart<C extends Float32Array | Uint8Array>({ carried, firstBlock }: Slider<C>['whole'], share: Share) {
  return { carried: part(carried, share), firstBlock: part(firstBlock, share) }
}

/** Divides the present lanes among the threads at the start of a rollout. Does nothing if neither number has changed. */
export function shareLanes(cohort: EpisodeCohort): void {
  const { population, whole, threads, sharers, numSteps, numLanes } = cohort
  const present = population.present[0]!
  if (present === cohort.present && present === cohort.cleared && sharers === cohort.dealt) return
  for (let t = 0; t < numSteps && threads.index === 0; t++) {
    clearRows(cohort, t * numLanes + present, t * numLanes + cohort.cleared)
  }
  cohort.cleared = present
  const shares = sharesOf(cohort, sharers, present)
  cohort.dealt = sharers
  cohort.present = present
  cohort.environmentLanes.present = present
  cohort.finals = shares.map((share, thread) => finalObservations(whole.final, share, thread))
  workOn(cohort, shares[threads.index]!, threads.index)
}

function workOn(cohort: EpisodeCohort, share: Share, number: number): void {
  const { whole, finals, sliders } = cohort
  cohort.from = share.from
  cohort.to = share.to
  cohort.laneList = whole.laneList.subarray(share.from, share.to)
  cohort.bootstrap = bootstrapList(whole.bootstrap, share)
  cohort.final = finals[number]!
  for (const slider of sliders) Object.assign(slider, ownPart(slider.whole, share))
}

/** Lets a process, which has one buffer for all lanes, collect for another member between two rollouts. */
export function collectFor(cohort: EpisodeCohort, member: number): void {
  workOn(cohort, sharesOf(cohort, cohort.sharers, cohort.present)[member]!, member)
  const buffer = cohort.ahead!.buffers[0]!
  buffer.final = cohort.final
  for (const [i, { firstBlock }] of cohort.sliders.entries()) buffer.sliders[i]!.firstBlock = firstBlock
}

/** Clears rows of a rollout without a lane: zeros, with step −1 as in dead steps. */
function clearRows({ rollout, league, systems, numSteps, numLanes }: EpisodeCohort, from: number, to: number): void {
  if (from >= to) return
  const recorded = systems.flatMap((system) => Object.values(system.rollout.recorded as Record<string, Column>))
  for (const column of [...Object.values(rollout as unknown as Record<string, Column>), ...recorded]) {
    const width = column.length / (numSteps * numLanes)
    column.fill(0, from * width, to * width)
  }
  rollout.step.fill(-1, from, to)
  league?.acted.fill(0, from, to)
}

/** The windows on a column of the rollout, one for each of its row blocks; the last `next` is `carried`. */
export function slidingWindows<C extends Float32Array | Uint8Array>(
  rollout: C,
  carried: C,
  numSteps: number,
): Sliding<C>[] {
  const elements = carried.length
  const blocks = Array.from({ length: numSteps }, (_, t) => rollout.subarray(t * elements, (t + 1) * elements) as C)
  return blocks.map((current, t) => ({ current, next: blocks[t + 1] ?? carried }))
}
