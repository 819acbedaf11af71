import { recordedUpdates } from '../entries/data.ts'
import type { EpisodeRunDefinition } from '../index.ts'
import { group } from '../metrics.ts'
import type { Words } from './follow.ts'
import { returnFormat, shares } from './progress.ts'

/** What is said of the training of an environment whose lanes step. */
export const episodeWords: Words<EpisodeRunDefinition> = {
  unit: 'this update',
  header({ definition, trainer, folder }) {
    const { environment, algorithm, settings, recorded } = definition
    if (recorded !== null) {
      const { from, epochs, numLanes, seed } = settings
      const before = trainer.update > 0 ? `, from update ${group(trainer.update)}` : ''
      const passes = `${group(epochs)} ${epochs === 1 ? 'pass' : 'passes'} over ${group(recorded.rows)} rows of ${from}`
      return [`${environment.id} by ${algorithm.id}: ${passes}${before}, ${numLanes} lanes, seed ${seed} → ${folder}`]
    }
    const from = trainer.steps > 0 ? `, from step ${group(trainer.steps)}` : ''
    const { numLanes, seed, totalSteps } = settings
    const size = `${group(totalSteps)} steps${from}, ${numLanes} lanes, seed ${seed}`
    return [`${environment.id} by ${algorithm.id}: ${size} → ${folder}`]
  },
  total: ({ definition }) =>
    definition.recorded === null ? definition.settings.totalSteps : recordedUpdates(definition),
  done: ({ definition, trainer }) => (definition.recorded === null ? trainer.steps : trainer.update),
  noun: ({ definition }) => (definition.recorded === null ? 'steps' : 'updates'),
  figures(metrics, { definition: { recorded, algorithm } }) {
    if (recorded !== null) {
      return Object.keys(algorithm.metrics)
        .slice(0, 2)
        .map((name) => `${name} ${(metrics[name] as number).toFixed(4)}`)
    }
    const { episodeReturn, stepsPerSecond, ...others } = metrics
    const value = Number.isNaN(episodeReturn)
      ? 'no episode over'
      : `return ${returnFormat(episodeReturn)(episodeReturn)}`
    const rows = Object.entries(others).filter(([name]) => /^staleRows\d+$/.test(name)) // From 0 on, as they are declared.
    const stale = rows.length > 0 ? [`stale ${shares(rows.map(([, count]) => count as number))}`] : []
    return [value, `${group(Math.round(stepsPerSecond))} steps/s`, ...stale]
  },
  curve: ({ episodeReturn }) => episodeReturn,
  summary(summary, { environment }) {
    const { from, updates } = summary
    if (from !== null) return { did: `${group(updates)} updates`, lines: [` from the rollouts of ${from}`] }
    const { episodeReturnLast100, totalSteps, stepsPerSecond, episodes, solvedAtStep, solvedAtSeconds } = summary
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
