import { configureRun, createTrainer, createWorld, type EnvironmentId, evaluate } from '../../src/index.ts'

/** Trains an environment's preset, with keys as on the command line, and evaluates it on fresh episodes. */
export async function learn(environment: EnvironmentId, keys: Readonly<Record<string, string>>, episodes = 100) {
  const definition = await configureRun(environment, keys)
  const { settings, environment: played, policy, algorithm } = definition
  const { numLanes, seed } = settings
  const world = await createWorld({ environment: played, policy, numLanes, seed })
  const trainer = createTrainer(world, algorithm)
  for await (const _ of trainer.updates({ totalSteps: settings.totalSteps }));
  const { weights } = world.cohorts[0]!
  const judged = await evaluate({ environment: played, policy, weights, episodes, seed: 10_000 })
  return { steps: trainer.steps, progress: trainer.progress(), evaluation: judged.episodeReturn.mean }
}
