import { type Metrics, runKeys, runMetrics, type Setting } from '../entries/settings.ts'
import { benchKeys } from './bench.ts'
import { checkKeys } from './check.ts'
import { dashboardKeys } from './dashboard.ts'
import { evaluateKeys } from './evaluate.ts'
import { exportKeys, textExportKeys } from './export.ts'
import { gatewayKeys } from './gateway.ts'
import { generateKeys } from './generate.ts'
import { readTexts } from './invocation.ts'
import { pushKeys } from './push.ts'
import { replayKeys } from './replay.ts'
import { resumeKeys } from './resume.ts'
import { serveKeys } from './serve.ts'
import { serveEnvKeys } from './serve-env.ts'
import { simulateKeys } from './simulate.ts'
import { sweepKeys } from './sweep.ts'
import { trainKeys } from './train.ts'

/** How each command is called and what it does, by its name. */
const USAGE: Readonly<Record<string, string>> = {
  train: `  colonnade train <environment> [out=DIR] [key=value …]   train in a new run folder (default runs/<environment>-<n>)`,
  sweep: `  colonnade sweep <environment> key=a,b,c [key2=d,e …]     train several settings, each with several seeds (seeds=1..3), side by
                                                           side where they can be; lists between bars: mlp.hidden=64,64|128`,
  resume: `  colonnade resume <run> [from=N] [key=value …]            go on from the run's newest checkpoint, or from number N; further
                                                           than it was to go with totalSteps=…, or rl.updates=…`,
  evaluate: `  colonnade evaluate <run> [key=value …]                   play whole episodes with the newest checkpoint`,
  replay: `  colonnade replay <run> [out=FILE.gif] [key=value …]      an episode of the trained policy as an animated GIF or, as FILE.html, a page, and in
                                                           the terminal`,
  export: `  colonnade export <run> out=FILE [key=value …]            write rollouts, fresh episodes or the policy; of a language
                                                           model its folder, or its conversations`,
  push: `  colonnade push <run> <owner/name> [key=value …]         put the policy or language model, with a card, on the Hugging Face hub
                                                           (its token is taken from HF_TOKEN alone)`,
  generate: `  colonnade generate <run|model> prompt=TEXT [key=value …] let a language model answer`,
  serve: `  colonnade serve <run|model> [port=N] [key=value …]       answer OpenAI's clients over HTTP with a language model`,
  'serve-env': `  colonnade serve-env <environment> [key=value …]         give an environment's lanes to Python (python/colonnade.py starts it)`,
  gateway: `  colonnade gateway <run|model> [port=N] [key=value …]     answer agents over HTTP, and keep what they asked and what they
                                                           were worth as trajectories`,
  dashboard: `  colonnade dashboard [runs] [port=N]                      show the runs of a folder on a page, also while they train`,
  simulate: `  colonnade simulate [out=FILE.svg] [key=value …]          how fast sampling and learning would be, by engines and staleness`,
  environments: `  colonnade environments                                   list the environments`,
  check: `  colonnade check <environment> [key=value …]              whether an environment keeps its contract (exit code 0 or 1)`,
  bench: `  colonnade bench <environment> [key=value …]              how fast it steps, is played and trains here, by lanes and threads`,
  compile: `  colonnade compile <file> [out=FILE.wasm]                 compile kernels of your own from AssemblyScript (defineKernels)`,
  doctor: `  colonnade doctor [device]                                say what this machine can run, and how fast`,
  validate: `  colonnade validate [folder|task]                         check a language model's log-probabilities (exit code 0, 1 or 2)`,
  trust: `  colonnade trust <module> …                               let runs name a module that lies elsewhere, as it is now`,
}

const OPTIONS = `  --json     print one JSON document last, and nothing else on standard output
  --quiet    print no progress`

/** The keys of the commands but train, by what they are called. */
const KEYS: Readonly<Record<string, readonly (readonly [title: string, keys: Readonly<Record<string, Setting>>])[]>> = {
  sweep: [['Keys of sweep, beside out and those of train', sweepKeys]],
  resume: [['Keys of resume, beside those of train that leave what was done as it is', { from: resumeKeys.from }]],
  evaluate: [['Keys of evaluate', evaluateKeys]],
  replay: [['Keys of replay', replayKeys]],
  export: [
    ['Keys of export', exportKeys],
    ['Keys of export, of a run of a language model', textExportKeys],
  ],
  push: [['Keys of push', pushKeys]],
  generate: [['Keys of generate', generateKeys]],
  serve: [['Keys of serve', serveKeys]],
  'serve-env': [['Keys of serve-env, beside environment.… and wrappers', serveEnvKeys]],
  gateway: [['Keys of gateway', gatewayKeys]],
  check: [['Keys of check, beside environment.… and wrappers', checkKeys]],
  bench: [['Keys of bench, beside environment.…, wrappers and policy', benchKeys]],
  dashboard: [['Keys of dashboard', dashboardKeys]],
  simulate: [['Keys of simulate', simulateKeys]],
}

/** Usage of all commands, and every key with its default. */
export async function help(): Promise<string> {
  return `colonnade: a data-oriented simulator and trainer for reinforcement learning

${Object.values(USAGE).join('\n')}
  colonnade ./module.mjs …                                 run the command that a module of your own exports (defineCommand)
  colonnade <command> --help                               how that command is called, and its keys
  colonnade train <environment> [policy=…] [algorithm=…] --help   the keys as that environment, policy and algorithm have them

${OPTIONS}
  --version  print the version

<environment> is an id that colonnade environments lists, or the path of a module that exports one environment;
text/dataset learns from prompts of your own: environment.path=FILE.

${[await trainHelp([]), ...Object.keys(KEYS).flatMap(keysOf)].join('\n\n')}`
}

/** Usage of one command, and its keys; those of train as its words, if there are any, say: `CartPole-v1 policy=dense`. Null for a command of one's own. */
export async function helpOf(command: string, words: readonly string[]): Promise<string | null> {
  if (!Object.hasOwn(USAGE, command)) return null
  const keys = command === 'train' ? [await trainHelp(words)] : Object.hasOwn(KEYS, command) ? keysOf(command) : []
  return [USAGE[command], OPTIONS, ...keys].join('\n\n')
}

async function trainHelp([environment = 'CartPole-v1', ...words]: readonly string[]): Promise<string> {
  const given = readTexts(words.filter((word) => word.includes('=')))
  const [keys, metrics] = [await runKeys(environment, given), await runMetrics(environment, given)]
  return `Keys of train (defaults for ${environment}):
${table(new Map([...keys, ...Object.entries(trainKeys)]))}

Metrics that an update of it writes to metrics.jsonl:
${metricTable(metrics)}`
}

function keysOf(command: string): string[] {
  return KEYS[command]!.map(([title, keys]) => `${title}:\n${table(new Map(Object.entries(keys)))}`)
}

function metricTable(metrics: Metrics): string {
  return Object.entries(metrics)
    .map(([name, { unit, description }]) => `  ${name.padEnd(36)} ${description}${unit === null ? '' : `; ${unit}`}`)
    .join('\n')
}

function table(keys: ReadonlyMap<string, Setting>): string {
  return [...keys]
    .map(([key, setting]) => {
      const initial = Array.isArray(setting.default) ? setting.default.join(',') : String(setting.default)
      return `  ${`${key}=${initial}`.padEnd(36)} ${setting.description}; ${setting.expected}`
    })
    .join('\n')
}
