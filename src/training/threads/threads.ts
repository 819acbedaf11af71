/**
 * How many threads are of use to a training of lanes. Threads meet several times a minibatch, so each of them needs enough to do
 * between two meetings; what that is was measured, and `npm run bench -- training` compares the choice with the
 * others.
 */
import { group } from '../../base/metrics.ts'

/** What the choice goes by. */
export interface Workload {
  readonly numLanes: number
  readonly numSteps: number
  /** Minibatches of a pass over the rollout. */
  readonly numMinibatches: number
  readonly numParameters: number
  /** Rows that are differentiated together: what threads take of a minibatch is whole blocks. */
  readonly blockRows: number
  /** Threads that run at once on this machine. */
  readonly cores: number
}

/** How many threads, and why not one more. */
export interface ThreadChoice {
  readonly threads: number
  readonly reason: string
}

/** Rows × parameters of a minibatch for each thread beside the first. */
export const WORK_PER_THREAD = 4_000_000

/** The number of threads for a workload: of those that the machine has, as many as have a block and work enough. */
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
