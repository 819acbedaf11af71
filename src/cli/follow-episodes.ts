import type { EpisodeRunDefinition } from '../index.ts'
import type { Words } from './follow.ts'
import { group, returnFormat, shares } from './progress.ts'

/** What is said of the training of an environment whose lanes step. */
export const episodeWords: Words<EpisodeRunDefinition> = {
  unit: 'this update',
  header({ definition: { environment, algorithm, settings }, trainer, folder }) {
    const from = trainer.steps > 0 ? `, from step ${group(trainer.steps)}` : ''
    const { numLanes, seed, totalSteps } = settings
    const size = `${group(totalSteps)} steps${from}, ${numLanes} lanes, seed ${seed}`
    return [`${environment.id} by ${algorithm.id}: ${size} → ${folder}`]
  },
  total: ({ definition }) => definition.settings.totalSteps,
  done: ({ trainer }) => trainer.steps,
  figures({ episodeReturn, stepsPerSecond, ...others }) {
    const value = Number.isNaN(episodeReturn)
      ? 'no episode over'
      : `return ${returnFormat(episodeReturn)(episodeReturn)}`
    const rows = Object.entries(others).filter(([name]) => /^staleRows\d+$/.test(name)) // From 0 on, as they are declared.
    const stale = rows.length > 0 ? [`stale ${shares(rows.map(([, count]) => count as number))}`] : []
    return [value, `${group(Math.round(stepsPerSecond))} steps/s`, ...stale]
  },
  summary(
    { episodeReturnLast100, totalSteps, stepsPerSecond, episodes, solvedAtStep, solvedAtSeconds },
    { environment },
  ) {
    const { mean, std } = episodeReturnLast100
    const format = returnFormat(mean, std)
    const lines = [
      ` (${group(Math.round(stepsPerSecond))} steps/s)`,
      episodes === 0 ? 'no episode was over' : `return of the last 100 episodes: ${format(mean)} ± ${format(std)}`,
    ]
    const { returnThreshold: threshold } = environment
    if (threshold !== null) {
      const solved = `solved (mean ≥ ${threshold}) at step ${group(solvedAtStep ?? 0)}, after ${solvedAtSeconds?.toFixed(2)} s`
      lines.push(solvedAtStep === null ? `not solved (mean ≥ ${threshold})` : solved)
    }
    return { did: `${group(totalSteps)} steps and ${group(episodes)} episodes`, lines }
  },
}
