/** What trainings come to: the returns of fresh episodes, and the seconds, over the seeds of each task. */
import type { PolicyDefinition } from '../../src/index.ts'
import { type Figure, figure, type Wanted } from '../measure.ts'
import { learn } from './learn.ts'
import type { Task } from './tasks.ts'

/** Trains each task with each of its seeds, and its control where it has one. */
export async function learnAll(tasks: readonly Task[]): Promise<Figure[]> {
  const figures: Figure[] = []
  for (const task of tasks) {
    figures.push(...(await figuresOf(task, task.wanted)))
    if (task.control) figures.push(...(await figuresOf(task, task.control.wanted, task.control.policy)))
  }
  return figures
}

async function figuresOf(task: Task, wanted: Wanted, policy?: PolicyDefinition): Promise<Figure[]> {
  const runs: Awaited<ReturnType<typeof learn>>[] = []
  for (const seed of task.seeds) runs.push(await learn(task, seed, policy))
  const { steps, policy: id, algorithm } = runs[0]!
  const name = `${task.environment} by ${algorithm} and ${id}, ${steps.toLocaleString('en')} steps, seeds ${task.seeds.join(', ')}`
  const returns = runs.map(({ episodeReturn }) => episodeReturn)
  const seconds = runs.map((run) => run.seconds)
  return [
    figure(`${name}, return of ${task.episodes} fresh episodes`, 'return', returns, wanted),
    figure(`${name}, training`, 's', seconds),
  ]
}
