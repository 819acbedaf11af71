/** Warns when a policy's entropy falls to almost 0 within a few updates without a good return. */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import { choiceSizes } from '../../base/space.ts'
import type { World } from '../../world/world.ts'
import type { UpdateMetrics } from '../loop/metrics.ts'

/** Updates within which it falls. */
const UPDATES = 5
/** Fractions of the maximum: from above the first to below the second. */
const BEFORE = 0.5
const AFTER = 0.01

interface Watched {
  readonly name: string
  readonly algorithm: AlgorithmDefinition
  /** The entropy of random choices, in nats. */
  readonly most: number
  readonly returnThreshold: number
  /** Of the last updates, the oldest first; a policy begins almost random. */
  readonly entropies: number[]
}

/** Watches the entropy of each cohort with discrete actions. */
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

  /** Returns warnings after an update, once per cohort. */
  look({ update, cohorts }: UpdateMetrics): string[] {
    const told = this.#watched.flatMap((watched) => {
      const { name, algorithm, most, returnThreshold, entropies } = watched
      const { entropy, episodeReturn } = cohorts[name] as unknown as { entropy?: number; episodeReturn: number }
      if (entropy === undefined || Number.isNaN(entropy)) return [] // NaN if no lane acted.
      if (update === 1) entropies.push(most)
      entropies.push(entropy)
      if (entropies.length > UPDATES + 1) entropies.shift()
      const before = Math.max(...entropies)
      if (before < BEFORE * most || entropy >= AFTER * most || episodeReturn >= returnThreshold) return []
      const learningRate = String(algorithm.parameters.learningRate)
      const fell = `from ${before.toPrecision(2)} to ${entropy.toPrecision(2)} nats (at random: ${most.toPrecision(2)})`
      const line = `${algorithm.id} of cohort ${name}: the entropy of its choices fell ${fell} within ${UPDATES} updates, at update ${update}: it no longer explores; try a learningRate below ${learningRate}, or more entropyCoef`
      return [{ watched, line }]
    })
    this.#watched = this.#watched.filter((each) => !told.some(({ watched }) => watched === each))
    return told.map(({ line }) => line)
  }
}
