/** Learning curves of runs of episodes. */
import { evaluationPoints, type Judgment } from '../evaluate/judge.ts'

/** The fields of a line of `metrics.jsonl` that learning curves read. */
export interface EpisodeLine {
  readonly update: number
  readonly steps: number
  readonly episodeReturn: number | null
  readonly evaluation?: Judgment
  /** Further metrics, by name. */
  readonly [metric: string]: unknown
}

/** Mean return by steps. */
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

/** The algorithm's first metric by updates, for runs that play no episodes. */
export function lossCurve({ id, lines }: { readonly id: string; readonly lines: readonly EpisodeLine[] }, metric = '') {
  const points = lines.flatMap(({ update, [metric]: y }) => (typeof y === 'number' ? [{ x: update, y }] : []))
  return { points, evaluations: [], labels: { x: `${id}: updates`, y: metric } }
}
