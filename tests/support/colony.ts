import { colony } from '../../examples/colony.ts'
import {
  createTrainer,
  createWorld,
  type EpisodeCohort,
  type EpisodeCohortOptions,
  mlp,
  ppo,
  type Trainer,
} from '../../src/index.ts'

/** A training of a population with births and deaths: 24 of at most 96 lanes are present at first. */
export async function colonyTrainer(
  options: Partial<EpisodeCohortOptions> = {},
  settings: Parameters<typeof ppo>[0] = {},
  threads = 1,
): Promise<Trainer<EpisodeCohort>> {
  const world = await createWorld({
    environment: colony({ meals: 10, lifespan: 40 }),
    ...{ policy: mlp({ hidden: [8] }), numLanes: 96, present: 24, seed: 5 },
    ...options,
  })
  const learner = ppo({ numSteps: 16, numMinibatches: 2, updateEpochs: 2, learningRate: 3e-3, ...settings })
  return createTrainer(world, learner, { threads }) as Trainer<EpisodeCohort>
}
