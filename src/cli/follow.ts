/** Training with somebody watching: progress, Ctrl-C, and what came of it. */
import { formatBytes } from '../entries/data.ts'
import type { TextRunPlan } from '../entries/text.ts'
import type { CohortOfRun, MetricsOf, Run, RunDefinition, RunSummary, SummaryOfRun } from '../index.ts'
import { conversationWords } from './follow-conversations.ts'
import { episodeWords } from './follow-episodes.ts'
import { progressLine, returnFormat } from './progress.ts'
import { onEndSignal } from './signals.ts'
import { onLostStream } from './streams.ts'

/** What is said of a run of one kind while somebody watches. */
export interface Words<D extends RunDefinition> {
  /** What ends before the run does, when it is interrupted. */
  readonly unit: string
  /** What the run is, a line each. */
  header(run: Run<D>): readonly string[]
  /** Of how many steps it is, and how many are done. */
  total(run: Run<D>): number
  done(run: Run<D>): number
  /** What those are. */
  noun(run: Run<D>): string
  figures(metrics: MetricsOf<CohortOfRun<D>>, run: Run<D>): string[]
  /** What is drawn as a curve; null where an update has none. */
  curve(metrics: MetricsOf<CohortOfRun<D>>): number | null
  /** What came of it: but for how it ended, its files and what to do next. */
  summary(summary: SummaryOfRun<D>, definition: D): { readonly did: string; readonly lines: readonly string[] }
}

const words = { episodes: episodeWords, conversations: conversationWords } as unknown as Readonly<
  Record<RunDefinition['kind'], Words<RunDefinition>>
>

/** Trains the run to its end, or until Ctrl-C: then it ends where it can go on, writes a checkpoint and says how to go on. */
export async function follow(run: Run, { json, quiet }: { json: boolean; quiet: boolean }): Promise<RunSummary> {
  const { unit, header, total, done, noun, figures, curve } = words[run.definition.kind]
  const interrupt = interruption(run, quiet, unit)
  if (!quiet) for (const line of [...header(run), ...run.choices]) process.stderr.write(`${line}\n`)
  const progress = progressLine(total(run), noun(run), quiet)
  try {
    const summary = await run.train({
      onUpdate: (metrics) => progress.update(done(run), figures(metrics, run), curve(metrics)),
      signal: interrupt.signal,
    })
    progress.end()
    if (!json) console.log(describe(summary, run.definition))
    return summary
  } catch (error) {
    progress.end()
    throw error
  } finally {
    interrupt.forget()
  }
}

/** What came of a run, what it wrote and what to do next. */
function describe(summary: RunSummary, definition: RunDefinition): string {
  const { status, folder, seconds, presetReached, evaluation, files } = summary
  const { did, lines } = words[definition.kind].summary(summary, definition)
  const preset = presetReached === null ? [] : [told(presetReached)]
  return [
    `${status}: ${did} in ${seconds.toFixed(1)} s${lines[0]}`,
    ...lines.slice(1),
    ...judged(evaluation),
    ...preset,
    ...Object.entries(files).map(([name, path]) => `  ${name.padEnd(14)} ${path}`),
    status === 'interrupted' ? `to go on: colonnade resume ${folder}` : `to judge it: colonnade evaluate ${folder}`,
  ].join('\n')
}

/** What the evaluations of a run came to, and from where the best of them can be had. */
function judged(evaluation: RunSummary['evaluation']): string[] {
  if (evaluation === null) return []
  const { best, last } = evaluation
  const words = ({ mean, std }: typeof last) =>
    mean === null ? 'unknown' : `${returnFormat(mean, std!)(mean)} ± ${returnFormat(mean, std!)(std!)}`
  const kept = best === null ? '' : `; the best: ${words(best)}, kept as checkpoint ${best.checkpoint}`
  return [`evaluated at last with ${words(last)}${kept}`]
}

function told(by: NonNullable<RunSummary['presetReached']>): string {
  const wanted =
    'episodeReturn' in by
      ? `a return of ${by.episodeReturn} over fresh episodes`
      : `a mean reward of ${by.groupReward} in the last 100 groups`
  return `by this preset ${by.reached} of ${by.seeds} seeds reach ${wanted}: try others`
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
  const forget = onEndSignal((signal) => {
    run.log(`${signal}: ends after ${unit}, with a checkpoint`)
    stop.abort()
    if (!quiet) process.stderr.write(`\nfinishing ${unit}; once more to stop at once\n`)
  })
  const hangUp = (): void =>
    run.log(`SIGHUP: the terminal is closed; the training goes on (to end it: kill ${process.pid})`)
  onLostStream((line) => run.log(line))
  process.on('SIGHUP', hangUp)
  return {
    signal: stop.signal,
    forget() {
      forget()
      process.off('SIGHUP', hangUp)
    },
  }
}

/** Says a line for people on standard error. */
export function tellLine(quiet: boolean, line: string): void {
  if (!quiet) process.stderr.write(`${line}\n`)
}

/** Says what a user should know before a run goes on. */
export function tellWarnings(warnings: readonly string[]): void {
  for (const warning of warnings) console.error(`colonnade: warning: ${warning}`)
}

/** Says what a run will take of the memory and what was chosen for it, before weights are read. */
export function tellPlan(quiet: boolean): (plan: TextRunPlan) => void {
  return ({ bytes, parts, notes }) => {
    if (quiet) return
    const largest = Object.entries(parts).slice(0, 4)
    const words = largest.map(([name, size]) => `${name} ${formatBytes(size)}`).join(', ')
    process.stderr.write(`plan: ${formatBytes(bytes)} (${words})\n`)
    for (const note of notes) process.stderr.write(`${note}\n`)
  }
}
