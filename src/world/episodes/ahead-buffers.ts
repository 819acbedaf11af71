/** Opens the buffers of a cohort that collects rollouts ahead. */
import type { Column } from '../../components/column.ts'
import type { EpisodeCohort } from './cohort.ts'

/** Opens the rollout with this number: the cohort's components slide along its buffer. */
export function openBuffer(cohort: EpisodeCohort, number: number): void {
  if (cohort.ahead === null) return
  const { buffers } = cohort.ahead
  const { rollout, finals, final, windows, sliders } = buffers[number % buffers.length]!
  Object.assign(cohort, { rollout, finals, final, windows })
  for (const [i, slider] of cohort.sliders.entries()) Object.assign(slider, sliders[i])
}

/** Saves the state of this thread's lanes at the start of the rollout with this number. */
export function keepBeginning({ ahead, carried, from, to, numLanes }: EpisodeCohort, number: number): void {
  const kept = ahead!.beginnings[number % ahead!.beginnings.length]!
  for (const [i, column] of carried.entries()) {
    const width = column.length / numLanes
    kept[i]!.set(column.subarray(from * width, to * width), from * width)
  }
}

/** Maps the columns of the lanes' current state to their saved state at the start of that rollout. */
export function beginningOf({ ahead, carried }: EpisodeCohort, number: number): ReadonlyMap<Column, Column> {
  const kept = ahead!.beginnings[number % ahead!.beginnings.length]!
  return new Map(carried.map((column, i) => [column, kept[i]!]))
}
