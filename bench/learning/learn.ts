/** A whole training by a preset, judged over fresh episodes. */
import {
  configureRun,
  createTrainer,
  createWorld,
  type EnvironmentId,
  evaluate,
  type PolicyDefinition,
} from '../../src/index.ts'
import type { Task } from './tasks.ts'

/** Trains once; `policy` stands in for the preset's. Seconds are those of the training alone. */
export async function learn(
  task: Pick<Task, 'environment' | 'settings' | 'episodes'>,
  seed: number,
  policy?: PolicyDefinition,
) {
  const run = await configureRun(task.environment as EnvironmentId, { ...task.settings, seed: String(seed) })
  const { settings, environment, algorithm } = run
  const learner = policy ?? run.policy
  const world = await createWorld({ environment, policy: learner, numLanes: settings.numLanes, seed })
  const trainer = createTrainer(world, algorithm)
  const start = performance.now()
  for await (const _ of trainer.updates({ totalSteps: settings.totalSteps }));
  const seconds = (performance.now() - start) / 1000
  const { weights } = world.cohorts[0]!
  const { episodes } = task
  const judged = await evaluate({ environment, policy: learner, weights, episodes, seed: 10_000 + seed })
  const { steps } = trainer
  trainer.close()
  return { steps, seconds, episodeReturn: judged.episodeReturn.mean, policy: learner.id, algorithm: algorithm.id }
}
