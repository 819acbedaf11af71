/** How many threads a training of lanes has, and how many it can use: each needs enough work between meetings (measured threshold). */
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import { checkCount, InputError, show } from '../../base/errors.ts'
import { group } from '../../base/metrics.ts'

export interface Workload {
  readonly numLanes: number
  readonly numSteps: number
  /** Minibatches per pass over the rollout. */
  readonly numMinibatches: number
  readonly numParameters: number
  /** Rows differentiated together: threads share a minibatch by whole blocks. */
  readonly blockRows: number
  /** Threads that this machine runs at once. */
  readonly cores: number
}

/** The number of threads, and why not one more. */
export interface ThreadChoice {
  readonly threads: number
  readonly reason: string
}

/** Rows × parameters of a minibatch per thread beyond the first. */
export const WORK_PER_THREAD = 4_000_000

/** The number of threads for a workload: as many as have a block and enough work, up to the machine's. */
export function chooseThreads(workload: Workload): ThreadChoice {
  const { numLanes, numSteps, numMinibatches, numParameters, blockRows, cores } = workload
  const rows = Math.ceil((numLanes * numSteps) / numMinibatches)
  const byBlocks = Math.ceil(rows / blockRows)
  const byWork = 1 + Math.floor((rows * numParameters) / WORK_PER_THREAD)
  const threads = Math.min(cores, byBlocks, byWork)
  const minibatch = `a minibatch of ${group(rows)} rows`
  const reasons: readonly (readonly [number, string])[] = [
    [cores, `the machine runs ${cores} at once`],
    [byBlocks, `${minibatch} has ${byBlocks} ${byBlocks === 1 ? 'block' : 'blocks'} of at most ${blockRows}`],
    [byWork, `${minibatch} for ${group(numParameters)} parameters is too little work for ${byWork + 1}`],
  ]
  return { threads, reason: reasons.find(([bound]) => bound === threads)![1] }
}

/** The number of threads and actors, and the staleness. @throws InputError for staleness without an actor. */
export function threadsFor(
  algorithms: readonly AlgorithmDefinition[],
  options: { readonly threads?: number; readonly actors?: number },
) {
  const maxStaleness = Math.max(0, ...algorithms.map(({ staleness }) => staleness?.maxStaleness ?? 0))
  const { actors = maxStaleness > 0 ? 1 : 0 } = options
  checkCount('actors', actors, 0)
  const { threads = actors === 0 ? 1 : 1 + actors } = options
  if (maxStaleness > 0 && threads < 2) {
    const expected = 'at least 2 threads: one collects while the other learns; or maxStaleness 0'
    throw new InputError('threads', `${show(threads)}, and a maxStaleness of ${maxStaleness}`, expected)
  }
  if (maxStaleness > 0 && actors === 0) {
    throw new InputError('actors', `0, and a maxStaleness of ${maxStaleness}`, 'at least 1, or maxStaleness 0')
  }
  return { threads, actors, maxStaleness }
}
