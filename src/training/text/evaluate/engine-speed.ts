/** Measures an engine's speed over the number of answers that it generates at the same time, for simulations. */
import { checkCount, checkGiven, InputError } from '../../../base/errors.ts'
import type { EngineSpeed } from '../../../fleet/simulation.ts'
import { realTime } from '../../../fleet/time.ts'
import { tick } from '../../../systems/tick.ts'
import type { ConversationCohortOptions } from '../../../world/conversations/cohort.ts'
import { createWorld } from '../../../world/world.ts'

/** The engine to measure, and the prompts. */
export type SpeedOptions = Pick<ConversationCohortOptions, 'environment' | 'policy' | 'engine'> & {
  /** Numbers of answers to generate at the same time, each whole number ≥ 1. */
  readonly answers: readonly number[]
  /** Finished answers per lane to measure, after as many without measuring; default 2. */
  readonly rounds?: number
}

/**
 * Measures an engine: for each number of answers, that many lanes converse without a pause. The speed includes prompts,
 * replies and rewards. An engine in this process is measured with one thread.
 * @throws InputError for wrong numbers, and as `createWorld` does; errors of the engine.
 * @example const speeds = await measureEngineSpeed({ environment, policy, engine, answers: [1, 4, 16] })
 */
export async function measureEngineSpeed(options: SpeedOptions): Promise<EngineSpeed[]> {
  checkGiven('options of measureEngineSpeed', options, ['environment', 'policy', 'answers'])
  const { answers, rounds = 2, ...cohort } = options
  checkCount('rounds', rounds)
  if (answers.length === 0) throw new InputError('answers', 'none', 'at least one number')
  const speeds: EngineSpeed[] = []
  for (const count of answers.toSorted((a, b) => a - b)) {
    checkCount('answers', count)
    speeds.push({ answers: count, tokensPerSecond: await speedOf(cohort, count, rounds) })
  }
  return speeds
}

async function speedOf(
  cohort: Pick<ConversationCohortOptions, 'environment' | 'policy' | 'engine'>,
  numLanes: number,
  rounds: number,
): Promise<number> {
  const world = await createWorld({ ...cohort, numLanes, seed: 1 })
  try {
    const { trajectories } = world.cohort()
    const until = async (conversations: number): Promise<{ tokens: number; at: number }> => {
      while (trajectories.numConversations < conversations) {
        const waiting = tick(world)
        if (waiting !== undefined) await waiting
      }
      const { lossMask } = trajectories.columns()
      return { tokens: lossMask.reduce((sum, each) => sum + each, 0), at: realTime.now() }
    }
    const before = await until(rounds * numLanes)
    const after = await until(2 * rounds * numLanes)
    return (after.tokens - before.tokens) / (after.at - before.at)
  } finally {
    world.close()
  }
}
