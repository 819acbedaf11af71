/**
 * Tells of a policy that stops to explore all at once: its entropy falls to next to nothing within a few updates, as a learning rate makes it
 * that is too high. A policy that has learned what to do comes there slowly, or with a return that is good.
 */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import { choiceSizes } from '../../base/space.ts'
import type { World } from '../../world/world.ts'
import type { UpdateMetrics } from '../loop/metrics.ts'

/** Updates within which it falls. */
const UPDATES = 5
/** Shares of the most that it can be: from above the first to below the second. */
const BEFORE = 0.5
const AFTER = 0.01

interface Watched {
  readonly name: string
  readonly algorithm: AlgorithmDefinition
  /** The entropy of choices at random, in nats. */
  readonly most: number
  readonly returnThreshold: number
  /** Of the last updates, the oldest first; a policy begins with choices next to random. */
  readonly entropies: number[]
}

/** Looks at the entropy of each cohort whose actions are choices. */
export class EntropyWatch {
  #watched: readonly Watched[]

  constructor({ drafts }: World, algorithms: Readonly<Record<string, unknown>>) {
    this.#watched = drafts.flatMap((draft): Watched[] => {
      const algorithm = algorithms[draft.name] as AlgorithmDefinition | undefined
      if (draft.kind !== 'episodes' || algorithm === undefined) return []
      const { actionSpace, returnThreshold } = draft.options.environment
      const most = choiceSizes(actionSpace).reduce((sum, size) => sum + Math.log(size), 0)
      const threshold = returnThreshold ?? Number.POSITIVE_INFINITY
      return most === 0 ? [] : [{ name: draft.name, algorithm, most, returnThreshold: threshold, entropies: [] }]
    })
  }

  /** What there is to tell after an update, once for each cohort. */
  look({ update, cohorts }: UpdateMetrics): string[] {
    const told = this.#watched.flatMap((watched) => {
      const { name, algorithm, most, returnThreshold, entropies } = watched
      const { entropy, episodeReturn } = cohorts[name] as unknown as { entropy?: number; episodeReturn: number }
      if (entropy === undefined || Number.isNaN(entropy)) return [] // NaN where nobody acted.
      if (update === 1) entropies.push(most)
      entropies.push(entropy)
      if (entropies.length > UPDATES + 1) entropies.shift()
      const before = Math.max(...entropies)
      if (before < BEFORE * most || entropy >= AFTER * most || episodeReturn >= returnThreshold) return []
      const learningRate = String(algorithm.parameters.learningRate)
      const fell = `from ${before.toPrecision(2)} to ${entropy.toPrecision(2)} nats (at random: ${most.toPrecision(2)})`
      const line = `${algorithm.id} of cohort ${name}: the entropy of its choices fell ${fell} within ${UPDATES} updates, at update ${update}: it explores no more; try a learningRate below ${learningRate}, or more entropyCoef`
      return [{ watched, line }]
    })
    this.#watched = this.#watched.filter((each) => !told.some(({ watched }) => watched === each))
    return told.map(({ line }) => line)
  }
}
