/** How many threads a training of lanes can use: each needs enough work between meetings (measured threshold). */
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
