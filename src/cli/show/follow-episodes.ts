import { group } from '../../base/metrics.ts'
import { recordedUpdates } from '../../entries/data.ts'
import type { EpisodeRunDefinition } from '../../index.ts'
import type { Row, Words } from './follow-words.ts'
import { returnFormat, shares } from './progress.ts'

/** Progress and results of a training of episodes. */
export const episodeWords: Words<EpisodeRunDefinition> = {
  unit: 'this update',
  header({ definition, trainer }) {
    const { environment, policy, algorithm, settings, recorded } = definition
    const { numLanes, seed, totalSteps } = settings
    const { numParameters } = trainer.world.cohort().model
    const { hidden } = policy.parameters as { hidden?: unknown }
    const layers = Array.isArray(hidden) && hidden.length > 0 ? ` ${hidden.join(' × ')}` : ''
    const rate = algorithm.parameters.learningRate
    const by = `${algorithm.id}${rate == null ? '' : `, learning rate ${rate}`}`
    const threads = trainer.world.threads.count
    const where = `${group(numLanes)} lanes, ${threads} ${threads === 1 ? 'thread' : 'threads'}, seed ${seed}`
    const row: Row[] = [
      ['learns', environment.id],
      ['policy', `${policy.id}${layers}, ${group(numParameters)} parameters`],
      ['algorithm', by],
    ]
    if (recorded !== null) {
      const { from, epochs } = settings
      const before = trainer.update > 0 ? `, from update ${group(trainer.update)}` : ''
      const passes = `${group(epochs)} ${epochs === 1 ? 'pass' : 'passes'} over ${group(recorded.rows)} rows of ${from}`
      return [...row, ['budget', `${passes}${before}, ${where}`]]
    }
    const from = trainer.steps > 0 ? `, from step ${group(trainer.steps)}` : ''
    const { returnThreshold } = environment
    const solved = `at a mean return of ${returnThreshold} over the last 100 episodes`
    return [
      ...row,
      ['budget', `${group(totalSteps)} steps${from}, ${where}`],
      ...(returnThreshold === null ? [] : [['solved', solved] as const]),
    ]
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
    const { episodeReturn, ...others } = metrics
    const value = Number.isNaN(episodeReturn)
      ? 'no finished episode'
      : `return ${returnFormat(episodeReturn)(episodeReturn)}`
    const rows = Object.entries(others).filter(([name]) => /^staleRows\d+$/.test(name)) // Declared from 0 on.
    const stale = rows.length > 0 ? [`stale ${shares(rows.map(([, count]) => count as number))}`] : []
    return [value, ...stale]
  },
  rate: ({ stepsPerSecond }, { definition }) =>
    definition.recorded === null ? { value: stepsPerSecond, unit: 'steps/s' } : null,
  curve: ({ episodeReturn }) => episodeReturn,
  summary(summary, { environment }) {
    const { from, updates } = summary
    if (from !== null) return { did: `${group(updates)} updates`, lines: [` from the rollouts of ${from}`] }
    const { episodeReturnLast100, totalSteps, stepsPerSecond, episodes, solvedAtStep, solvedAtSeconds } = summary
    const { mean, std } = episodeReturnLast100
    const format = returnFormat(mean, std)
    const did = `${group(totalSteps)} steps and ${group(episodes)} episodes`
    const lines = [Number.isFinite(stepsPerSecond) ? ` (${group(Math.round(stepsPerSecond))} steps/s)` : '']
    if (episodes === 0) return { did, lines: [...lines, 'no finished episode'] }
    lines.push(`return of the last 100 episodes: ${format(mean)} ± ${format(std)}`)
    const { returnThreshold: threshold } = environment
    if (threshold !== null) {
      const solved = `solved (mean ≥ ${threshold}) at step ${group(solvedAtStep ?? 0)}, after ${solvedAtSeconds?.toFixed(2)} s`
      lines.push(solvedAtStep === null ? `not solved yet (mean ≥ ${threshold})` : solved)
    }
    return { did, lines }
  },
  next: (folder, { environment, recorded }) => [
    ['evaluate', folder, '100 fresh episodes'],
    ...(recorded === null && environment.draw !== undefined
      ? [['replay', folder, 'an animated episode'] as const]
      : []),
  ],
}
