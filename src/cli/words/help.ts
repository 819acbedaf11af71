/** The help of a command, with its keys. */
import { environmentVariables } from '../../base/environment-variables.ts'
import { readTexts } from '../../base/invocation.ts'
import { isPair } from '../../base/pair.ts'
import { type Metrics, runKeys, runMetrics, type Setting } from '../../entries/settings.ts'
import { declarations } from './declarations.ts'

const OPTIONS = `--key value, --key=value and key=value are the same.
  --json     print one JSON document last, and nothing else on standard output
  --quiet    print no progress
  config=FILE reads keys from a YAML or JSON file; keys on the command line override them`

/** A command's usage and keys (of `train` with parts: `CartPole-v1 policy=dense`); null for a user's command. */
export async function helpOf(command: string, words: readonly string[]): Promise<string | null> {
  if (command === 'environment') return `Environment variables:\n${lines(Object.entries(environmentVariables))}`
  const declared = Object.hasOwn(declarations, command) ? declarations[command] : undefined
  if (declared === undefined) return null
  const { takes, does, more, keys } = declared
  const tables =
    command === 'train'
      ? [await trainHelp(words)]
      : keys.map(([title, each]) => `${title}:\n${table(Object.entries(each))}`)
  const usage = `  colonnade ${command} ${takes}${keys.length === 0 ? '' : ' [key=value …]'}`
  return [usage, `${does}${more === undefined ? '' : `. ${more}`}`, OPTIONS, ...tables].join('\n\n')
}

type Entries = readonly (readonly [key: string, setting: Setting])[]

/** Keys of a run without a prefix, by subject. */
export const GROUPS: Readonly<Record<string, string>> = {
  Run: 'out ifExists seed seeds mode totalSteps from epochs weights stopWhenSolved',
  Environment: `numLanes wrappers opponents opponentsEvery opponentsFraction tooLong cutTurn segmentation rewardReduction replySeconds
    turnSeconds agent agentSeconds maxAgents`,
  Policy: 'policy',
  Algorithm: 'algorithm systems',
  Evaluation: 'evaluateEvery evaluateEpisodes stopAt stop patience heldOutFraction heldOutSeed heldOutEpisodes',
  'Files and logging': 'checkpointEvery checkpointsKept rollouts trajectories loggers callbacks profile dashboard',
  Machine:
    'kernels threads actors fleet store acknowledge learners actorSeconds engine engineSettings backend backendSettings stallSeconds onStall',
}

/** The group of a run's key, given its parts' ids; for a key of another part (a wrapper, a system) that part. */
export function groupOf(key: string, { policy, algorithm }: { policy?: unknown; algorithm?: unknown } = {}): string {
  const [, prefix] = /^(.+)\.[^.]+$/.exec(key) ?? []
  if (prefix === undefined)
    return Object.keys(GROUPS).find((group) => GROUPS[group]!.split(/\s+/).includes(key)) ?? 'Run'
  if (prefix === 'environment') return 'Environment'
  if (prefix === policy || prefix === 'languageModel') return 'Policy'
  return prefix === algorithm || ['sft', 'rl', 'loss'].includes(prefix) ? 'Algorithm' : prefix
}

async function trainHelp([environment = 'CartPole-v1', ...words]: readonly string[]): Promise<string> {
  const given = readTexts(words.filter(isPair))
  const [keys, metrics] = [await runKeys(environment, given), await runMetrics(environment, given)]
  const own = declarations.train!.keys.flatMap(([, each]) => Object.entries(each))
  const parts = { policy: keys.get('policy')?.default, algorithm: keys.get('algorithm')?.default }
  const groups = new Map<string, [key: string, setting: Setting][]>(Object.keys(GROUPS).map((group) => [group, []]))
  for (const entry of [...own, ...keys]) {
    const group = groupOf(entry[0], parts)
    groups.set(group, [...(groups.get(group) ?? []), entry])
  }
  const tables = [...groups].map(([group, entries]) => `${group}:\n${table(entries)}`)
  return `Keys of train (defaults for ${environment}):

${tables.join('\n\n')}

Metrics that each update writes to metrics.jsonl:
${metricTable(metrics)}`
}

function metricTable(metrics: Metrics): string {
  return lines(
    Object.entries(metrics).map(([name, { unit, description }]) => [
      name,
      `${description}${unit === null ? '' : `; ${unit}`}`,
    ]),
  )
}

function table(keys: Entries): string {
  return lines(
    keys.map(([key, setting]) => {
      const initial = Array.isArray(setting.default) ? setting.default.join(',') : String(setting.default)
      return [`${key}=${initial}`, `${setting.description}; ${setting.expected}`]
    }),
  )
}

/** One line each; on a terminal cut at its width. */
function lines(rows: readonly (readonly [left: string, right: string])[]): string {
  const width = process.stdout.isTTY ? process.stdout.columns : Number.POSITIVE_INFINITY
  return rows
    .map(([left, right]) => `  ${left.padEnd(36)} ${right}`)
    .map((line) => (line.length > width ? `${line.slice(0, width - 1)}…` : line))
    .join('\n')
}
