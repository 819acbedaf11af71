import { type Metrics, runKeys, runMetrics, type Setting } from '../entries/settings.ts'
import { checkKeys } from './check.ts'
import { dashboardKeys } from './dashboard.ts'
import { evaluateKeys } from './evaluate.ts'
import { exportKeys, textExportKeys } from './export.ts'
import { gatewayKeys } from './gateway.ts'
import { generateKeys } from './generate.ts'
import { resumeKeys } from './resume.ts'
import { serveKeys } from './serve.ts'
import { simulateKeys } from './simulate.ts'
import { trainKeys } from './train.ts'

/** Usage, and every key with its default; those of `train` as its words, if there are any, say: `CartPole-v1 policy=dense`. */
export async function help([environment = 'CartPole-v1', ...words]: readonly string[]): Promise<string> {
  const given = Object.fromEntries(words.filter((word) => word.includes('=')).map((word) => word.split('=', 2)))
  const [keys, metrics] = [await runKeys(environment, given), await runMetrics(environment, given)]
  return `colonnade: a data-oriented simulator and trainer for reinforcement learning

  colonnade train <environment> [out=DIR] [key=value …]   train in a new run folder (default runs/<environment>-<n>)
  colonnade resume <run> [from=N] [key=value …]            go on from the run's newest checkpoint, or from number N; further
                                                           than it was to go with totalSteps=…, or rl.updates=…
  colonnade evaluate <run> [key=value …]                   play whole episodes with the newest checkpoint
  colonnade export <run> out=FILE [key=value …]            write rollouts, fresh episodes or the policy; of a language
                                                           model its folder, or its conversations
  colonnade generate <run|model> prompt=TEXT [key=value …] let a language model answer
  colonnade serve <run|model> [port=N] [key=value …]       answer OpenAI's clients over HTTP with a language model
  colonnade gateway <run|model> [port=N] [key=value …]     answer agents over HTTP, and keep what they asked and what they
                                                           were worth as trajectories
  colonnade dashboard [runs] [port=N]                      show the runs of a folder on a page, also while they train
  colonnade simulate [out=FILE.svg] [key=value …]          how fast sampling and learning would be, by engines and staleness
  colonnade environments                                   list the environments
  colonnade check <environment> [key=value …]              whether an environment keeps its contract (exit code 0 or 1)
  colonnade doctor [device]                                say what this machine can run, and how fast
  colonnade validate [folder|task]                         check a language model's log-probabilities (exit code 0, 1 or 2)
  colonnade trust <module> …                               let runs name a module that lies elsewhere, as it is now
  colonnade ./module.mjs …                                 run the command that a module of your own exports (defineCommand)
  colonnade train <environment> [policy=…] [algorithm=…] --help   the keys as that environment, policy and algorithm have them

  --json     print one JSON document last, and nothing else on standard output
  --quiet    print no progress
  --version  print the version

<environment> is an id that colonnade environments lists, or the path of a module that exports one environment;
text/dataset learns from prompts of your own: environment.path=FILE.

Keys of train (defaults for ${environment}):
${table(new Map([...keys, ...Object.entries(trainKeys)]))}

Metrics that an update of it writes to metrics.jsonl:
${metricTable(metrics)}

Keys of resume, beside those of train that leave what was done as it is:
${table(new Map([['from', resumeKeys.from]]))}

Keys of evaluate:
${table(new Map(Object.entries(evaluateKeys)))}

Keys of export:
${table(new Map(Object.entries(exportKeys)))}

Keys of export, of a run of a language model:
${table(new Map(Object.entries(textExportKeys)))}

Keys of generate:
${table(new Map(Object.entries(generateKeys)))}

Keys of serve:
${table(new Map(Object.entries(serveKeys)))}

Keys of gateway:
${table(new Map(Object.entries(gatewayKeys)))}

Keys of check, beside environment.…:
${table(new Map(Object.entries(checkKeys)))}
Keys of dashboard:
${table(new Map(Object.entries(dashboardKeys)))}

Keys of simulate:
${table(new Map(Object.entries(simulateKeys)))}`
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
