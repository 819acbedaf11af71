/** The words and keys of each command, for help, completions and switches like `--json`. */
import { runKeys, type Setting, type Settings, text } from '../../entries/settings.ts'
import { algorithms, environments, policies, textEnvironments } from '../../index.ts'
import { actorKeys } from '../commands/actor.ts'
import { benchKeys } from '../commands/bench.ts'
import { checkKeys } from '../commands/check.ts'
import { dashboardKeys } from '../commands/dashboard.ts'
import { diagnoseKeys } from '../commands/diagnose.ts'
import { evaluateKeys } from '../commands/evaluate.ts'
import { exportKeys, textExportKeys } from '../commands/export.ts'
import { fleetKeys } from '../commands/fleet.ts'
import { gatewayKeys } from '../commands/gateway.ts'
import { generateKeys } from '../commands/generate.ts'
import { launchKeys } from '../commands/launch.ts'
import { playKeys } from '../commands/play.ts'
import { pushKeys } from '../commands/push.ts'
import { replayKeys } from '../commands/replay.ts'
import { resumeKeys } from '../commands/resume.ts'
import { serveKeys } from '../commands/serve.ts'
import { serveEnvKeys } from '../commands/serve-env.ts'
import { simulateKeys } from '../commands/simulate.ts'
import { sweepKeys } from '../commands/sweep.ts'
import { trainKeys } from '../commands/train.ts'
import { type CommandName, type CommandUsage, usages } from './usage.ts'

export interface CommandDeclaration extends CommandUsage {
  /** Its own keys, by title. */
  readonly keys: readonly (readonly [title: string, keys: Settings])[]
}

const out = (description: string) => ({ out: text('', description) })

const KEYS: Readonly<Record<CommandName, CommandDeclaration['keys']>> = {
  train: [['Keys of train', { ...trainKeys, ...out('the run folder') }]],
  sweep: [['Keys of sweep, besides those of train', { ...sweepKeys, ...out('the folder of all runs') }]],
  resume: [['Keys of resume, besides those of train that may change', resumeKeys]],
  evaluate: [['Keys of evaluate', evaluateKeys]],
  diagnose: [['Keys of diagnose', diagnoseKeys]],
  replay: [['Keys of replay', { ...replayKeys, ...out('a file that ends in .gif or .html') }]],
  play: [['Keys of play', { ...playKeys, ...out('a file that ends in .gif or .html') }]],
  dashboard: [['Keys of dashboard', dashboardKeys]],
  export: [
    ['Keys of export', { ...exportKeys, ...out('the file or folder; its extension sets the format') }],
    ['Keys of export, for a run of a language model', textExportKeys],
  ],
  push: [['Keys of push', pushKeys]],
  generate: [['Keys of generate', generateKeys]],
  serve: [['Keys of serve', serveKeys]],
  gateway: [['Keys of gateway', gatewayKeys]],
  environments: [],
  check: [['Keys of check, besides environment.… and wrappers', checkKeys]],
  bench: [['Keys of bench, besides environment.…, wrappers and policy', benchKeys]],
  doctor: [],
  'serve-env': [['Keys of serve-env, besides environment.… and wrappers', serveEnvKeys]],
  actor: [['Keys of actor', actorKeys]],
  fleet: [['Keys of fleet', fleetKeys]],
  launch: [['Keys of launch', launchKeys]],
  simulate: [['Keys of simulate', simulateKeys]],
  validate: [],
  compile: [['Keys of compile', out('the file of WebAssembly')]],
  completion: [],
  trust: [],
}

export const declarations: Readonly<Record<string, CommandDeclaration>> = Object.fromEntries(
  (Object.keys(usages) as CommandName[]).map((name) => [name, { ...usages[name], keys: KEYS[name] }]),
)

/** Every key of all commands, and of runs of everything built-in, with its declaration. */
export async function everyKey(): Promise<ReadonlyMap<string, Setting>> {
  const own = Object.values(declarations).flatMap(({ keys }) => keys.flatMap(([, each]) => Object.entries(each)))
  const runs = [
    ...[...environments, ...textEnvironments].map(({ id }) => runKeys(id)),
    ...algorithms.map(({ id }) => runKeys('CartPole-v1', { algorithm: id })),
    ...policies.map(({ id }) => runKeys('CartPole-v1', { policy: id })),
  ]
  return new Map([...own, ...(await Promise.all(runs)).flatMap((keys) => [...keys])])
}
