/** Training with somebody watching: progress, Ctrl-C, and what came of it. */
import type { Run, RunSummary, UpdateMetrics } from '../index.ts'
import { group, progressLine, returnFormat } from './progress.ts'
import { onLostStream } from './streams.ts'

/** Trains the run to its end, or until Ctrl-C: then it finishes the update, writes a checkpoint and says how to go on. */
export async function follow(run: Run, { json, quiet }: { json: boolean; quiet: boolean }): Promise<RunSummary> {
  const { settings, environment, algorithm } = run.definition
  const interrupt = interruption(run, quiet, 'this update')
  if (!quiet) {
    const from = run.trainer.steps > 0 ? `, from step ${group(run.trainer.steps)}` : ''
    const { numLanes, seed, totalSteps } = settings
    process.stderr.write(
      `${environment.id} by ${algorithm.id}: ${group(totalSteps)} steps${from}, ${numLanes} lanes, seed ${seed} → ${run.folder}\n`,
    )
  }
  const progress = progressLine(settings.totalSteps, 'steps', quiet)
  try {
    const summary = await run.train({
      onUpdate: (metrics) => progress.update(metrics.steps, figuresOf(metrics)),
      signal: interrupt.signal,
    })
    progress.end()
    if (!json) console.log(describe(summary, environment.returnThreshold))
    return summary
  } catch (error) {
    progress.end()
    throw error
  } finally {
    interrupt.forget()
  }
}

/**
 * Ctrl-C, or a request to end: the first time a signal, the second time the end. A terminal that is closed, and a reader who
 * goes, end nothing: the training goes on, and its log says so.
 */
export function interruption(
  run: { log(line: string): void },
  quiet: boolean,
  unit: string,
): { readonly signal: AbortSignal; forget(): void } {
  const stop = new AbortController()
  const interrupt = (signal: NodeJS.Signals): void => {
    if (stop.signal.aborted) process.exit(130) // The second time at once: saved checkpoints are whole.
    run.log(`${signal}: ends after ${unit}, with a checkpoint`)
    stop.abort()
    if (!quiet) process.stderr.write(`\nfinishing ${unit}; once more to stop at once\n`)
  }
  const hangUp = (): void =>
    run.log(`SIGHUP: the terminal is closed; the training goes on (to end it: kill ${process.pid})`)
  onLostStream((line) => run.log(line))
  process.on('SIGINT', interrupt)
  process.on('SIGTERM', interrupt)
  process.on('SIGHUP', hangUp)
  return {
    signal: stop.signal,
    forget() {
      process.off('SIGINT', interrupt)
      process.off('SIGTERM', interrupt)
      process.off('SIGHUP', hangUp)
    },
  }
}

function figuresOf({ episodeReturn, stepsPerSecond }: UpdateMetrics): string[] {
  const value = Number.isNaN(episodeReturn) ? 'no episode over' : `return ${returnFormat(episodeReturn)(episodeReturn)}`
  return [value, `${group(Math.round(stepsPerSecond))} steps/s`]
}

function describe(summary: RunSummary, threshold: number | null): string {
  const { status, folder, episodeReturnLast100, totalSteps, seconds, stepsPerSecond, episodes } = summary
  const { mean, std } = episodeReturnLast100
  const format = returnFormat(mean, std)
  const lines = [
    `${status}: ${group(totalSteps)} steps and ${group(episodes)} episodes in ${seconds.toFixed(1)} s (${group(Math.round(stepsPerSecond))} steps/s)`,
    episodes === 0 ? 'no episode was over' : `return of the last 100 episodes: ${format(mean)} ± ${format(std)}`,
  ]
  if (threshold !== null) {
    const { solvedAtStep, solvedAtSeconds } = summary
    const solved = `solved (mean ≥ ${threshold}) at step ${group(solvedAtStep ?? 0)}, after ${solvedAtSeconds?.toFixed(2)} s`
    lines.push(solvedAtStep === null ? `not solved (mean ≥ ${threshold})` : solved)
  }
  if (summary.presetReached !== null) {
    const { reached, seeds, episodeReturn } = summary.presetReached
    lines.push(
      `by this preset ${reached} of ${seeds} seeds reach a return of ${episodeReturn} over fresh episodes: try others`,
    )
  }
  for (const [name, path] of Object.entries(summary.files)) lines.push(`  ${name.padEnd(14)} ${path}`)
  lines.push(
    status === 'interrupted' ? `to go on: colonnade resume ${folder}` : `to judge it: colonnade evaluate ${folder}`,
  )
  return lines.join('\n')
}

/** Says what a user should know before a run goes on. */
export function tellWarnings(warnings: readonly string[]): void {
  for (const warning of warnings) console.error(`colonnade: warning: ${warning}`)
}
