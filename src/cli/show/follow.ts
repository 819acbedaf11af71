/** Trains with progress, Ctrl-C and a summary. */

import { dirname } from 'node:path'
import type { WriteStream } from 'node:tty'
import { printable } from '../../base/errors.ts'
import { shellWord } from '../../base/shell.ts'
import { formatBytes } from '../../entries/data.ts'
import type { TextRunPlan } from '../../entries/text.ts'
import type { Run, RunDefinition, RunSummary } from '../../index.ts'
import { conversationWords } from './follow-conversations.ts'
import { episodeWords } from './follow-episodes.ts'
import type { Row, Words } from './follow-words.ts'
import { progressLine, returnFormat } from './progress.ts'
import { onEndSignal } from './signals.ts'
import { onLostStream } from './streams.ts'
import { styleFor } from './terminal.ts'

const words = { episodes: episodeWords, conversations: conversationWords } as unknown as Readonly<
  Record<RunDefinition['kind'], Words<RunDefinition>>
>

/** Trains the run to its end. Ctrl-C stops it where it can continue, with a checkpoint and a hint how. */
export async function follow(
  run: Run,
  { json, quiet }: { json: boolean; quiet: boolean },
  listeners: Parameters<Run['train']>[0] = {},
): Promise<RunSummary> {
  const { unit, header, total, done, noun, figures, curve, rate } = words[run.definition.kind]
  tellWarnings(run.warnings)
  const interrupt = interruption(run, quiet, unit)
  if (run.ended === null) {
    for (const choice of run.choices) run.log(choice)
    for (const line of labeled([...header(run), ['folder', run.folder]], process.stderr)) tellLine(quiet, line)
  }
  if (run.moved !== null) tellLine(quiet, run.moved)
  const progress = progressLine(total(run), noun(run), quiet)
  try {
    const summary = await run.train({
      onUpdate(metrics, state) {
        progress.update(done(run), figures(metrics, run), curve(metrics), rate(metrics, run))
        return listeners.onUpdate?.(metrics, state)
      },
      onEvaluation: listeners.onEvaluation?.bind(listeners),
      onCheckpoint: listeners.onCheckpoint?.bind(listeners),
      signal: listeners.signal ? AbortSignal.any([interrupt.signal, listeners.signal]) : interrupt.signal,
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

/** A run's results, picture and next commands. */
function describe(summary: RunSummary, definition: RunDefinition): string {
  const { status, folder, seconds, presetReached, evaluation, files } = summary
  const { summary: wordsOf, next } = words[definition.kind]
  const { did, lines } = wordsOf(summary, definition)
  const preset = presetReached === null ? [] : [told(presetReached)]
  const style = styleFor(process.stdout)
  const head = `${status}: ${did} in ${seconds.toFixed(1)} s${lines[0]}`
  const others = Object.entries(files).filter(
    ([name]) => !['config', 'metrics', 'summary', 'learningCurve'].includes(name),
  )
  const place = shellWord(folder)
  return [
    style('bold', head),
    ...lines.slice(1),
    ...judged(evaluation),
    ...preset,
    ...labeled([['picture', files.learningCurve!], ...others], process.stdout),
    ...commands([
      ...(status === 'interrupted'
        ? [['resume', place, 'continues with the same bits'] as const]
        : next(place, definition)),
      ['dashboard', shellWord(dirname(folder)), 'all curves, as a page'],
    ]),
  ].join('\n')
}

/** Rows of a word and its text, in two columns. */
export function labeled(all: readonly Row[], stream: WriteStream): string[] {
  const style = styleFor(stream)
  const width = Math.max(...all.map(([name]) => name.length))
  return all.map(([name, text]) => `  ${style('dim', name.padEnd(width))}  ${printable(text)}`)
}

/** Next commands, ready to paste, with their purpose. */
export function commands(all: readonly (readonly [command: string, words: string, shows: string])[]): string[] {
  const style = styleFor(process.stdout)
  const typed = all.map(([command, words]) => `npx colonnade ${command} ${words}`)
  const width = Math.max(...typed.map((line) => line.length))
  return [
    'next:',
    ...typed.map((line, i) => `  ${style('cyan', line.padEnd(width))}  ${style('dim', `# ${all[i]![2]}`)}`),
  ]
}

/** The files of several runs, pictures first. */
export function picturesFirst({ summary, best, ...pictures }: Readonly<Record<string, string>>): Row[] {
  const preset: Row[] = best === undefined ? [] : [['config=', best]]
  return [...Object.values(pictures).map((path): Row => ['picture', path]), ...preset, ['summary', summary!]]
}

/** Commands for a folder of several runs and one of them. */
export function nextOfRuns(folder: string, run: string | undefined): string[] {
  const one = run === undefined ? [] : [['evaluate', shellWord(run), 'fresh episodes of one of them'] as const]
  return commands([['dashboard', shellWord(folder), 'all curves, as a page'], ...one])
}

/** A run's evaluations, and where the best weights are. */
function judged(evaluation: RunSummary['evaluation']): string[] {
  if (evaluation === null) return []
  const { best, last } = evaluation
  const words = ({ mean, std }: typeof last) =>
    mean === null ? 'unknown' : `${returnFormat(mean, std!)(mean)} ± ${returnFormat(mean, std!)(std!)}`
  const kept = best === null ? '' : `; the best: ${words(best)}, kept as checkpoint ${best.checkpoint}`
  return [`last evaluation ${words(last)}${kept}`]
}

function told(by: NonNullable<RunSummary['presetReached']>): string {
  const wanted =
    'episodeReturn' in by
      ? `a return of ${by.episodeReturn} over fresh episodes`
      : `a mean reward of ${by.groupReward} in the last 100 groups`
  return `with this preset ${by.reached} of ${by.seeds} seeds reach ${wanted}: try others`
}

/** The first Ctrl-C or end request aborts, the second ends the process. A closed terminal is only logged. */
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
    run.log(`SIGHUP: the terminal is closed; the training continues (to end it: kill ${process.pid})`)
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

/** Writes a line for people to standard error. */
export function tellLine(quiet: boolean, line: string): void {
  if (!quiet) process.stderr.write(`${line}\n`)
}

export function tellWarnings(warnings: readonly string[]): void {
  for (const warning of warnings) console.error(`colonnade: warning: ${warning}`)
}

/** Prints a run's memory and automatic choices, before weights are read. */
export function tellPlan(quiet: boolean): (plan: TextRunPlan) => void {
  return ({ bytes, parts, notes }) => {
    if (quiet) return
    const largest = Object.entries(parts).slice(0, 4)
    const words = largest.map(([name, size]) => `${name} ${formatBytes(size)}`).join(', ')
    process.stderr.write(`plan: ${formatBytes(bytes)} (${words})\n`)
    for (const note of notes) process.stderr.write(`${note}\n`)
  }
}
