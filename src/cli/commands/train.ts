import { dirname } from 'node:path'
import { pathToFileURL } from 'node:url'
import { findPart } from '../../base/definition.ts'
import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { shellWord } from '../../base/shell.ts'
import { type IfExists, ifExistsSetting, parseSeeds, type RunGroupSummary, trainSeeds } from '../../entries/data.ts'
import { type Callbacks, type Dashboard, defineCallbacks, joinListeners, openDashboard } from '../../entries/loggers.ts'
import { boolean, strings, text } from '../../entries/settings.ts'
import { configureRun, type Run, startRun } from '../../index.ts'
import { follow, labeled, nextOfRuns, picturesFirst, tellLine, tellPlan, tellWarnings } from '../show/follow.ts'
import { alignWords } from '../show/table.ts'

/** Keys of the command that are not settings of the run. */
export const trainKeys = {
  ifExists: ifExistsSetting,
  seeds: text('', 'seeds, like 1..5 or 3,7: train one run per seed and combine the results; empty: one run'),
  callbacks: strings(
    [],
    'paths of modules that export callbacks (defineCallbacks) for updates, evaluations and checkpoints',
  ),
  dashboard: boolean(false, 'show this run and those beside it on a web page during the training'),
}

/** colonnade train <environment> [out=DIR] [seeds=1..5] [dashboard=true] [key=value …] */
export const trainCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'an environment, like CartPole-v1')
  const { out, ...others } = texts
  const ofTrain = ([key]: [string, string]) => Object.hasOwn(trainKeys, key)
  const { dashboard, seeds, callbacks, ifExists } = readKeys(
    trainKeys,
    Object.fromEntries(Object.entries(others).filter(ofTrain)),
  )
  const given = Object.fromEntries(Object.entries(others).filter((entry) => !ofTrain(entry)))
  const own = await findCallbacks(callbacks)
  let page: Dashboard | null = null
  const train = async (run: Run, isQuiet: boolean, listeners: Parameters<Run['train']>[0] = {}) => {
    if (dashboard) page ??= await openPage(dirname(run.folder))
    return follow(run, { json: isQuiet, quiet }, joinListeners([listeners, ...own.map((listen) => listen(run))]))
  }
  try {
    if (seeds === '') {
      const definition = await configureRun(subject, given)
      return await train(await startRun(definition, out, tellPlan(quiet), ifExists as IfExists), json)
    }
    const place = { out, ifExists: ifExists as IfExists, tell: (line: string) => tellLine(quiet, line) }
    const summary = await trainSeeds(subject, given, parseSeeds(seeds), {
      ...place,
      train: (run, listeners) => train(run, true, listeners),
    })
    if (!json) console.log(describeSeeds(summary))
    return summary
  } finally {
    await (page as Dashboard | null)?.close()
  }
}

/** The callbacks that modules export, whose answers are checked; the caller names the modules, so they are trusted. */
export async function findCallbacks(paths: readonly string[]): Promise<Callbacks[]> {
  const found = await Promise.all(paths.map((path) => findPart('callbacks', pathToFileURL(path).href, 'caller')))
  return found.map((part) => defineCallbacks({ id: part.id, listen: part as unknown as Callbacks }))
}

/** The results of several seeds: a row each, their mean and spread, and the files. */
function describeSeeds({ status, folder, runs, figures, files }: RunGroupSummary): string {
  const names = Object.keys(figures)
  const cell = (value: number | null) => (value === null ? '–' : String(Number(value.toPrecision(4))))
  const rows = [
    ['seed', 'status', ...names],
    ...runs.map((run) => [String(run.seed), run.status, ...names.map((name) => cell(run.figures[name] ?? null))]),
    ['mean', '', ...names.map((name) => cell(figures[name]!.mean))],
    ['std', '', ...names.map((name) => cell(figures[name]!.std))],
  ]
  const lines = alignWords(rows, 2)
  const further = status === 'interrupted' ? [`to continue: the same command with out=${shellWord(folder)}`] : []
  const next = nextOfRuns(folder, runs[0]?.folder)
  return [...lines, ...labeled(picturesFirst(files), process.stdout), ...further, ...next].join('\n')
}

/** Opens a page of the runs in a folder, at the default port if it is free. The training does not depend on it. */
async function openPage(folder: string): Promise<Dashboard | null> {
  const options = { folder, ownThread: true }
  try {
    const page = await openDashboard(options).catch(() => openDashboard({ ...options, port: 0 }))
    process.stderr.write(`${page.url} shows it while it trains; later: colonnade dashboard ${folder}\n`)
    return page
  } catch (error) {
    tellWarnings([`dashboard: ${(error as Error).message}`])
    return null
  }
}
