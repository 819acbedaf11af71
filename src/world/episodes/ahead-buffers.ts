/** The buffers of a cohort whose lanes collect ahead, as its rollouts open them. */
import type { Column } from '../../components/column.ts'
import type { EpisodeCohort } from './cohort.ts'

/** The cohort's rollout is from now on the one with this number: its components slide along that buffer. */
export function openBuffer(cohort: EpisodeCohort, number: number): void {
  if (cohort.ahead === null) return
  const { buffers } = cohort.ahead
  const { rollout, finals, final, windows, sliders } = buffers[number % buffers.length]!
  Object.assign(cohort, { rollout, finals, final, windows })
  for (const [i, slider] of cohort.sliders.entries()) Object.assign(slider, sliders[i])
}

/** Notes where this thread's lanes stand when the rollout with this number begins. */
export function keepBeginning({ ahead, carried, from, to, numLanes }: EpisodeCohort, number: number): void {
  const kept = ahead!.beginnings[number % ahead!.beginnings.length]!
  for (const [i, column] of carried.entries()) {
    const width = column.length / numLanes
    kept[i]!.set(column.subarray(from * width, to * width), from * width)
  }
}

/** The columns in which it is kept where lanes stand when that rollout begins, by those in which lanes stand now. */
export function beginningOf({ ahead, carried }: EpisodeCohort, number: number): ReadonlyMap<Column, Column> {
  const kept = ahead!.beginnings[number % ahead!.beginnings.length]!
  return new Map(carried.map((column, i) => [column, kept[i]!]))
}
