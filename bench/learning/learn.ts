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

/** What was trained, and how long that took. */
export interface Training {
  readonly algorithm: string
  readonly policy: string
  readonly steps: number
  readonly seconds: number
}

/** A training that took so many steps, and has just ended; `start` is of `performance.now()`. */
export function trainingOf(
  { algorithm, policy }: { readonly algorithm: { readonly id: string }; readonly policy: { readonly id: string } },
  steps: number,
  start: number,
): Training {
  return { algorithm: algorithm.id, policy: policy.id, steps, seconds: (performance.now() - start) / 1000 }
}

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
  const training = trainingOf({ policy: learner, algorithm }, trainer.steps, start)
  const { weights } = world.cohorts[0]!
  const { episodes } = task
  const judged = await evaluate({ environment, policy: learner, weights, episodes, seed: 10_000 + seed })
  trainer.close()
  return { ...training, episodeReturn: judged.episodeReturn.mean }
}
