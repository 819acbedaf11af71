/** The words and keys of each command, for help, completions and `--switch`. */
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
import { pushKeys } from '../commands/push.ts'
import { replayKeys } from '../commands/replay.ts'
import { resumeKeys } from '../commands/resume.ts'
import { serveKeys } from '../commands/serve.ts'
import { serveEnvKeys } from '../commands/serve-env.ts'
import { simulateKeys } from '../commands/simulate.ts'
import { sweepKeys } from '../commands/sweep.ts'
import { trainKeys } from '../commands/train.ts'

export interface CommandDeclaration {
  /** The words after its name. */
  readonly takes: string
  readonly does: string
  /** Further notes. */
  readonly more?: string
  /** Its own keys, by title. */
  readonly keys: readonly (readonly [title: string, keys: Settings])[]
  /** Whether the help of all commands shows only its name. */
  readonly isRare?: true
}

const out = (description: string) => ({ out: text('', description) })

const COMMANDS_OF_ALL = {
  train: {
    takes: '<environment>',
    does: 'train in a new run folder',
    more: 'The folder is runs/<environment>-<n>, unless out=DIR names it. --print-config prints all keys with their values, in the form of config=FILE.',
    keys: [['Keys of train', { ...trainKeys, ...out('the run folder') }]],
  },
  sweep: {
    takes: '<environment>',
    does: 'train several settings and seeds, and compare them',
    more: 'Settings are key=a,b,c, lists between bars: mlp.hidden=64,64|128. Runs train side by side in one world if they can.',
    keys: [['Keys of sweep, besides those of train', { ...sweepKeys, ...out('the folder of all runs') }]],
  },
  resume: {
    takes: '<run>',
    does: "continue from a run's newest checkpoint",
    more: 'A larger totalSteps=… or rl.updates=… trains longer than planned. The zip of a run, as a page hands it out, is unpacked beside it.',
    keys: [['Keys of resume, besides those of train that may change', resumeKeys]],
  },
  evaluate: {
    takes: '<run>',
    does: 'play whole episodes with the trained policy',
    keys: [['Keys of evaluate', evaluateKeys]],
  },
  diagnose: {
    takes: '<run>',
    does: 'find out why a run does not learn',
    more: 'Each finding names its evidence and settings to change. The exit code is 0 or 1.',
    keys: [['Keys of diagnose', diagnoseKeys]],
  },
  replay: {
    takes: '<run>',
    does: 'write an episode as an animated GIF or a page',
    keys: [['Keys of replay', { ...replayKeys, ...out('a file that ends in .gif or .html') }]],
  },
  dashboard: {
    takes: '[runs]',
    does: 'show runs on a web page, also during training',
    keys: [['Keys of dashboard', dashboardKeys]],
  },
  export: {
    takes: '<run>',
    does: 'write episodes, the policy or the language model',
    keys: [
      ['Keys of export', { ...exportKeys, ...out('the file or folder; its ending says the format') }],
      ['Keys of export, for a run of a language model', textExportKeys],
    ],
  },
  push: {
    takes: '<run> <owner/name>',
    does: 'push a policy or model to the Hugging Face hub',
    more: 'The token is read from HF_TOKEN only.',
    keys: [['Keys of push', pushKeys]],
  },
  generate: {
    takes: '<run|model>',
    does: 'generate text with a language model',
    keys: [['Keys of generate', generateKeys]],
  },
  serve: {
    takes: '<run|model>',
    does: 'serve a language model over HTTP',
    keys: [['Keys of serve', serveKeys]],
  },
  gateway: {
    takes: '<run|model>',
    does: 'serve agents over HTTP, and keep trajectories',
    keys: [['Keys of gateway', gatewayKeys]],
  },
  environments: { takes: '', does: 'list the environments', keys: [] },
  check: {
    takes: '<environment>',
    does: 'check that an environment keeps its contract',
    more: 'The exit code is 0 or 1.',
    keys: [['Keys of check, besides environment.… and wrappers', checkKeys]],
  },
  bench: {
    takes: '<environment>',
    does: 'measure how fast an environment steps and trains',
    keys: [['Keys of bench, besides environment.…, wrappers and policy', benchKeys]],
  },
  doctor: { takes: '[device]', does: 'list what this machine can run, and how fast', keys: [] },
  'serve-env': {
    takes: '<environment>',
    does: "step an environment's lanes for Python (python/colonnade.py starts it)",
    keys: [['Keys of serve-env, besides environment.… and wrappers', serveEnvKeys]],
    isRare: true,
  },
  actor: {
    takes: '<fleet>',
    does: "collect rollouts for another machine's training (train … fleet=ADDRESS)",
    more: 'The address is like nats://host:4222/name; settings come from the learner, code does not.',
    keys: [['Keys of actor', actorKeys]],
    isRare: true,
  },
  fleet: {
    takes: '<fleet>',
    does: 'show the learner and the actors of a fleet, or end them',
    keys: [['Keys of fleet', fleetKeys]],
    isRare: true,
  },
  launch: {
    takes: 'slurm|kubernetes|ssh <environment>',
    does: 'start a learner and actors on several machines',
    more: 'Other keys are those of train; fleet and store are needed.',
    keys: [['Keys of launch', launchKeys]],
    isRare: true,
  },
  simulate: {
    takes: '',
    does: 'simulate the speed of sampling and learning, by engines and staleness',
    keys: [['Keys of simulate', simulateKeys]],
    isRare: true,
  },
  validate: {
    takes: '[folder|task]',
    does: "check a language model's log-probabilities",
    more: 'The exit code is 0, 1 or 2.',
    keys: [],
    isRare: true,
  },
  compile: {
    takes: '<file>',
    does: 'compile your own kernels from AssemblyScript (defineKernels)',
    keys: [['Keys of compile', out('the file of WebAssembly')]],
    isRare: true,
  },
  completion: {
    takes: 'bash|zsh|fish',
    does: 'print a script for shell completion of commands, keys and runs',
    more: 'In ~/.bashrc: source <(colonnade completion bash). In ~/.zshrc: source <(colonnade completion zsh). In config.fish: colonnade completion fish | source.',
    keys: [],
    isRare: true,
  },
  trust: {
    takes: '<module> …',
    does: 'let runs import a module elsewhere, in its current version',
    keys: [],
    isRare: true,
  },
} as const satisfies Readonly<Record<string, CommandDeclaration>>

export const declarations: Readonly<Record<string, CommandDeclaration>> = COMMANDS_OF_ALL

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
