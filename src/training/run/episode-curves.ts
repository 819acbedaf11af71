/** The learning curves of runs of environments whose lanes step. */
import { evaluationPoints, type Judgment } from '../evaluate/judge.ts'

/** A line of `metrics.jsonl`, as far as the learning curve reads it. */
export interface EpisodeLine {
  readonly update: number
  readonly steps: number
  readonly episodeReturn: number | null
  readonly evaluation?: Judgment
  /** What else it says, by the metric's name. */
  readonly [metric: string]: unknown
}

/** What episodes have returned, by the steps done. */
export function returnCurve({ id, lines }: { readonly id: string; readonly lines: readonly EpisodeLine[] }) {
  const points = lines.flatMap(({ steps, episodeReturn }) =>
    episodeReturn === null ? [] : [{ x: steps, y: episodeReturn }],
  )
  return {
    points,
    evaluations: evaluationPoints(lines, 'steps'),
    labels: { x: `${id}: environment steps`, y: 'mean return of the last 100 episodes' },
  }
}

/** The first metric that the algorithm tells, by the updates done: where no episodes are played. */
export function lossCurve({ id, lines }: { readonly id: string; readonly lines: readonly EpisodeLine[] }, metric = '') {
  const points = lines.flatMap(({ update, [metric]: y }) => (typeof y === 'number' ? [{ x: update, y }] : []))
  return { points, evaluations: [], labels: { x: `${id}: updates`, y: metric } }
}
