/** `npm run bench -- learning`: whole trainings by the presets, judged over fresh episodes. */
import type { PolicyDefinition } from '../../src/index.ts'
import { type Figure, figure, type Wanted } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { learn } from './learn.ts'
import { type Task, tasks } from './tasks.ts'

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
