import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { group } from '../../base/metrics.ts'
import { shellWord } from '../../base/shell.ts'
import {
  type IfExists,
  ifExistsSetting,
  parseSeeds,
  type SweepSummary,
  searches,
  trainSweep,
} from '../../entries/data.ts'
import { choice, integer, strings, text } from '../../entries/settings.ts'
import { follow, interruption, labeled, nextOfRuns, picturesFirst, tellLine } from '../show/follow.ts'
import { progressLine, returnFormat } from '../show/progress.ts'
import { alignWords } from '../show/table.ts'

/** Keys of the command that are not settings of its runs. */
export const sweepKeys = {
  ifExists: ifExistsSetting,
  seeds: text('1..3', 'seeds, like 1..5 or 3,7: one run per setting and seed'),
  samples: integer(0, 'settings to draw from values and ranges, like 1e-4..1e-2; 0: every combination', { min: 0 }),
  search: choice('quasi', searches, 'how samples are drawn: evenly (quasi), at random, or near the best so far (tpe)'),
  batch: integer(4, 'settings that tpe proposes at once', { min: 1 }),
  searchSeed: integer(0, 'seed of the drawn settings', { min: 0 }),
  halving: integer(0, 'at each rung one in this many settings continues; 0: all settings train to the end', { min: 0 }),
  rungs: integer(
    3,
    'number of rungs; the last is the end of the training, and each is `halving` times as long as the one before',
    { min: 2 },
  ),
  objective: text(
    '',
    'the metric to maximize, or with a minus sign to minimize, like -loss; empty: the return or reward',
  ),
  constraints: strings([], 'bounds of metrics at the end, like approxKl<0.05; settings that violate them rank last'),
}

/** colonnade sweep <environment> key=a,b,c [key2=d,e …] [seeds=1..3] [out=DIR] */
export const sweepCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'an environment, like CartPole-v1')
  const { out, ...all } = texts
  const isOwn = ([key]: [string, string]) => Object.hasOwn(sweepKeys, key)
  const { seeds, ifExists, ...search } = readKeys(sweepKeys, Object.fromEntries(Object.entries(all).filter(isOwn)))
  const others = Object.fromEntries(Object.entries(all).filter((entry) => !isOwn(entry)))
  const interrupt = interruption({ log: () => {} }, quiet, 'this update') // Runs that train alone have their own log.
  let progress: ReturnType<typeof progressLine> | undefined
  try {
    const summary = await trainSweep(subject, others, parseSeeds(seeds), {
      out,
      ...search,
      ifExists: ifExists as IfExists,
      tell: (line) => tellLine(quiet, line),
      signal: interrupt.signal,
      train(run, listeners) {
        if (run.ended !== null) return run.train(listeners) // Already trained side by side.
        interrupt.forget() // From here on each run has its own.
        return follow(run, { json: true, quiet }, listeners)
      },
      onUpdate(lines, totalSteps) {
        const { update, steps } = lines[0]!
        if (update === 1) {
          progress?.end() // Of the previous world.
          const learns = `${lines.length} runs of ${subject} train side by side, ${group(totalSteps)} steps each`
          tellLine(quiet, learns)
          progress = progressLine(totalSteps, 'steps of each', quiet)
        }
        const returns = lines.map(({ episodeReturn }) => episodeReturn).filter((value) => !Number.isNaN(value))
        const best = Math.max(...returns)
        const figures = returns.length === 0 ? [] : [`best return ${returnFormat(best)(best)}`]
        progress!.update(steps, figures, best, { value: lines[0]!.stepsPerSecond, unit: 'steps/s' })
      },
    })
    if (!json) console.log(describe(summary))
    return summary
  } finally {
    progress?.end()
    interrupt.forget()
  }
}

type Spread = SweepSummary['settings'][number]['figures'][string]

/** The results of a sweep: a row per setting, the best one, and the files. */
function describe({ status, folder, seeds, settings, best, importance, files }: SweepSummary): string {
  const keys = Object.keys(settings[0]?.varied ?? {})
  const isTimed = settings.some(({ apart }) => apart !== null) // Runs of one world share its time equally.
  const names = [...new Set(settings.flatMap(({ figures }) => Object.keys(figures)))].filter(
    (name) => isTimed || !TIMES.includes(name),
  )
  const cell = ({ mean, std, count }: Spread) =>
    `${short(mean)} ± ${short(std)}${count < seeds.length ? ` (${count} of ${seeds.length})` : ''}`
  const rows = settings.map(({ varied, figures }, i) => [
    ...keys.map((key) => varied[key]!),
    ...names.map((name) => (name in figures ? cell(figures[name]!) : '–')),
    settings[i]!.part < 1 ? `after ${Number((100 * settings[i]!.part).toPrecision(2))} %` : '',
    i === best?.setting ? `best by ${best.figure}` : '',
  ])
  const apart = new Set(settings.flatMap((setting) => (setting.apart === null ? [] : [setting.apart])))
  return [
    ...alignWords([[...keys, ...names, '', ''], ...rows], keys.length),
    ...(importance === null ? [] : [importanceLine(importance)]),
    ...[...apart].map((reason) => `trained one run after another: ${reason}`),
    ...labeled(picturesFirst(files), process.stdout),
    ...(status === 'interrupted' ? [`to continue: the same command with out=${shellWord(folder)}`] : []),
    ...nextOfRuns(folder, best === null ? undefined : `${settings[best.setting]!.folder}/seed-${seeds[0]}`),
  ].join('\n')
}

function importanceLine(importance: Readonly<Record<string, number>>): string {
  const shares = Object.entries(importance).map(([key, share]) => `${key} ${Math.round(100 * share)} %`)
  return `of the differences each key explains alone: ${shares.join(', ')}`
}

const TIMES = ['stepsPerSecond', 'seconds']

function short(value: number): string {
  return String(Number(value.toPrecision(4)))
}
