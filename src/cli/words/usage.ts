/** The description of each command, and the help that lists all commands. The keys are elsewhere, because their modules take time to load. */
import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'

export interface CommandUsage {
  /** The words after its name. */
  readonly takes: string
  readonly does: string
  /** Further notes. */
  readonly more?: string
  /** Whether the help of all commands shows only its name. */
  readonly isRare?: true
}

const USAGES = {
  train: {
    takes: '<environment>',
    does: 'train in a new run folder',
    more: 'The folder is runs/<environment>-<n>, unless out=DIR names it. --print-config prints all keys with their values, as a file for config=FILE.',
  },
  sweep: {
    takes: '<environment>',
    does: 'train several settings and seeds, and compare them',
    more: 'Write the values of a setting as key=a,b,c; separate lists by bars: mlp.hidden=64,64|128. Where possible, runs train side by side in one world.',
  },
  resume: {
    takes: '<run>',
    does: "continue from a run's newest checkpoint",
    more: 'A larger totalSteps=… or rl.updates=… trains longer than planned. A zip file of a run, saved from a web page, is unpacked beside the file.',
  },
  evaluate: {
    takes: '<run>',
    does: 'play whole episodes with the trained policy',
  },
  diagnose: {
    takes: '<run>',
    does: 'find out why a run does not learn',
    more: 'Each finding names its evidence and settings to change. The exit code is 1 if there is a finding, or if no check was possible.',
  },
  replay: {
    takes: '<run>',
    does: 'write an episode as an animated GIF or a page',
  },
  play: {
    takes: '<environment>',
    does: 'show a trained policy at once',
    more: 'It takes a policy that comes with the package; without one, it trains a policy for `seconds`.',
  },
  dashboard: {
    takes: '[runs]',
    does: 'show runs on a web page, also during training',
  },
  export: {
    takes: '<run>',
    does: 'write episodes, the policy or the language model',
  },
  push: {
    takes: '<run> <owner/name>',
    does: 'push a policy or model to the Hugging Face hub',
    more: 'The token is read from HF_TOKEN only.',
  },
  generate: {
    takes: '<run|model>',
    does: 'generate text with a language model',
  },
  serve: {
    takes: '<run|model>',
    does: 'serve a language model over HTTP',
  },
  gateway: {
    takes: '<run|model>',
    does: 'serve a model to agents over HTTP, and record them',
  },
  environments: {
    takes: '',
    does: 'list the environments',
  },
  check: {
    takes: '<environment>',
    does: 'check that an environment keeps its contract',
    more: 'The exit code is 0 or 1.',
  },
  bench: {
    takes: '<environment>',
    does: 'measure how fast an environment steps and trains',
  },
  doctor: {
    takes: '[device]',
    does: 'list what this machine can run, and how fast',
  },
  'serve-env': {
    takes: '<environment>',
    does: "step an environment's lanes for Python (python/colonnade.py starts it)",
    isRare: true,
  },
  actor: {
    takes: '<fleet>',
    does: "collect rollouts for another machine's training (train … fleet=ADDRESS)",
    more: 'ADDRESS is like nats://host:4222/name. The learner sends settings, but no code.',
    isRare: true,
  },
  fleet: {
    takes: '<fleet>',
    does: 'show the learner and the actors of a fleet, or end them',
    isRare: true,
  },
  launch: {
    takes: 'slurm|kubernetes|ssh <environment>',
    does: 'start a learner and actors on several machines',
    more: 'It also takes the keys of train, of which fleet and store are required.',
    isRare: true,
  },
  simulate: {
    takes: '',
    does: 'simulate the speed of sampling and learning, by engines and staleness',
    isRare: true,
  },
  validate: {
    takes: '[folder|task]',
    does: "check a language model's log-probabilities",
    more: 'The exit code is 0, 1 or 2.',
    isRare: true,
  },
  compile: {
    takes: '<file>',
    does: 'compile your own kernels from AssemblyScript (defineKernels)',
    isRare: true,
  },
  completion: {
    takes: 'bash|zsh|fish',
    does: 'print a script for shell completion of commands, keys and runs',
    more: 'In ~/.bashrc: source <(colonnade completion bash). In ~/.zshrc: source <(colonnade completion zsh). In config.fish: colonnade completion fish | source.',
    isRare: true,
  },
  trust: {
    takes: '<module> …',
    does: 'let runs import the current version of a module outside their folder',
    isRare: true,
  },
} as const satisfies Readonly<Record<string, CommandUsage>>

export type CommandName = keyof typeof USAGES

export const usages: Readonly<Record<CommandName, CommandUsage>> = USAGES

/** All commands, on one screen of 24 lines and 80 columns. */
export function help(): string {
  const [usual, rare] = [false, true].map((isRare) =>
    Object.entries(usages).filter(([, { isRare: is = false }]) => is === isRare),
  )
  const lines = usual!.map(([name, { takes, does }]) => `  ${`${name} ${takes}`.padEnd(24)} ${does}`)
  return `colonnade: a simulator and trainer for reinforcement learning
usage: colonnade <command|own.mjs> [--key value | key=value] [--json] [--quiet]
${lines.join('\n')}
  also: ${rare!.map(([name]) => name).join(' ')}
<command> --help: its keys; train <environment> --help: keys of that training
help environment: the environment variables; --version: the version
guides: ${docs('guides/first-hour.md')}`
}

/** The path to a page of the documentation, from the working directory. */
function docs(page: string): string {
  return relative(process.cwd(), fileURLToPath(new URL(`../../../../docs/${page}`, import.meta.url)))
}
