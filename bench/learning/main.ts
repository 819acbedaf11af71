/** `npm run bench -- learning`: whole trainings by the presets, judged over fresh episodes. */
import {
  configureRun,
  createTrainer,
  createWorld,
  type EnvironmentId,
  evaluate,
  type PolicyDefinition,
} from '../../src/index.ts'
import { type Figure, figure, type Wanted } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { type Task, tasks } from './tasks.ts'

/** Trains once; `policy` stands in for the preset's. Seconds are those of the training alone. */
async function learn(task: Task, seed: number, policy?: PolicyDefinition) {
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
  return { steps, seconds, episodeReturn: judged.episodeReturn.mean, policy: learner.id }
}

async function figuresOf(task: Task, wanted: Wanted, policy?: PolicyDefinition): Promise<Figure[]> {
  const runs: Awaited<ReturnType<typeof learn>>[] = []
  for (const seed of task.seeds) runs.push(await learn(task, seed, policy))
  const { steps, policy: id } = runs[0]!
  const name = `${task.environment} by ${id}, ${steps.toLocaleString('en')} steps, seeds ${task.seeds.join(', ')}`
  const returns = runs.map(({ episodeReturn }) => episodeReturn)
  const seconds = runs.map((run) => run.seconds)
  return [
    figure(`${name}, return of ${task.episodes} fresh episodes`, 'return', returns, wanted),
    figure(`${name}, training`, 's', seconds),
  ]
}

const figures: Figure[] = []
for (const task of tasks) {
  figures.push(...(await figuresOf(task, task.wanted)))
  if (task.control) figures.push(...(await figuresOf(task, task.control.wanted, task.control.policy)))
}
reportRoom('learning', figures)
