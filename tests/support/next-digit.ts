/** A task learned in a minute, for training services: the answer to a digit is the next one. */
import { tinkerEngine } from '../../src/engines/tinker/tinker.ts'
import { createTrainer, createWorld, rl } from '../../src/index.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { tinkerBackend } from '../../src/training/backends/tinker-backend.ts'
import { digits } from './conversations.ts'

/** What follows the answer does not matter. */
export const nextDigit = digits({
  ...{ numExamples: 2, maxTokens: 8 },
  respond: ({ example, completion }) => ({ reward: completion.startsWith(example.answer!) ? 1 : 0 }),
})
export const policy = languageModel({ width: 32, layers: 2, heads: 4, loraRank: 4, loraAlpha: 32 })
export const SEED = 5

/** Options of a training besides its defaults. */
interface Training {
  readonly loss: string
  readonly updates: number
  readonly groupSize: number
  readonly maxStaleness?: number
  readonly learningRateSchedule?: 'constant' | 'linear'
  readonly folder?: string
}

/** A trainer with the service at `url`. */
export async function trainerAt(url: string, training: Training) {
  const { loss, updates, groupSize, maxStaleness = 0, learningRateSchedule = 'constant', folder } = training
  const world = await createWorld({
    ...{ environment: nextDigit, policy, seed: SEED, numLanes: 2 * groupSize, groupSize },
    engine: tinkerEngine({ url, tolerance: 1e-4 }),
  })
  const parameters = {
    ...{ loss, lossSettings: { klCoef: 0 }, groupsPerUpdate: 2, groupSize, updates, maxStaleness },
    ...{ learningRate: 0.01, learningRateSchedule, maxGradNorm: 1e9 },
  }
  const backend = tinkerBackend({ url, reduction: 'mean' })
  return createTrainer(world, rl(parameters as never), { backend, ...(folder === undefined ? {} : { folder }) })
}
