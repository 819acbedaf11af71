/** Finds a command by its words, prints what it says, and turns errors into exit codes. */
import { InputError, printable, show, unknownWord } from '../errors.ts'
import type { Setting } from '../settings.ts'
import { VERSION } from '../version.ts'
import type { Command, Invocation } from './invocation.ts'
import { tellApart } from './words.ts'

/** Each command is loaded when it is asked for. */
const commands: Readonly<Record<string, () => Promise<Command>>> = {
  train: async () => (await import('./train.ts')).trainCommand,
  sweep: async () => (await import('./sweep.ts')).sweepCommand,
  resume: async () => (await import('./resume.ts')).resumeCommand,
  evaluate: async () => (await import('./evaluate.ts')).evaluateCommand,
  replay: async () => (await import('./replay.ts')).replayCommand,
  export: async () => (await import('./export.ts')).exportCommand,
  push: async () => (await import('./push.ts')).pushCommand,
  generate: async () => (await import('./generate.ts')).generateCommand,
  serve: async () => (await import('./serve.ts')).serveCommand,
  'serve-env': async () => (await import('./serve-env.ts')).serveEnvCommand,
  gateway: async () => (await import('./gateway.ts')).gatewayCommand,
  dashboard: async () => (await import('./dashboard.ts')).dashboardCommand,
  environments: async () => (await import('./environments.ts')).environmentsCommand,
  check: async () => (await import('./check.ts')).checkCommand,
  compile: async () => (await import('./compile.ts')).compileCommand,
  bench: async () => (await import('./bench.ts')).benchCommand,
  doctor: async () => (await import('./doctor.ts')).doctorCommand,
  validate: async () => (await import('./validate.ts')).validateCommand,
  simulate: async () => (await import('./simulate.ts')).simulateCommand,
  trust: async () => (await import('./trust.ts')).trustCommand,
}

/** Runs the command of a command line, `args` being the words after the program. Sets `process.exitCode` where it fails. */
export async function runCommand(args: readonly string[]): Promise<void> {
  try {
    await run(args)
  } catch (error) {
    const isUsage = error instanceof InputError
    console.error(`colonnade: ${printable(isUsage ? error.message : ((error as Error).stack ?? `${error}`))}`)
    process.exitCode = 1
  }
}

/** The declaration of a key of any command or run that comes with Colonnade. */
async function settingOf(key: string): Promise<Setting | undefined> {
  return (await (await import('./declarations.ts')).everyKey()).get(key)
}

async function run(args: readonly string[]): Promise<void> {
  const { names, pairs, flags } = await tellApart(args, settingOf)
  const [name, ...rest] = names[0] === 'help' ? names.slice(1) : names
  const words = [...rest, ...pairs]
  if (flags.has('version')) return console.log(VERSION)
  if (flags.has('help') || names[0] === 'help' || (name === undefined && pairs.length === 0)) {
    const { help, helpOf } = await import('./help.ts')
    return console.log((name === undefined ? null : await helpOf(name, words)) ?? (await help()))
  }
  if (name === undefined) throw unknownWord('command', pairs[0], Object.keys(commands))
  const load = Object.hasOwn(commands, name) ? commands[name]! : () => ownCommand(name)
  const command = await load()
  const invocation: Invocation = { words, json: flags.has('json'), quiet: flags.has('quiet') }
  const result = await command(invocation)
  if (invocation.json) console.log(JSON.stringify(result))
}

/** The command that a module exports: whoever calls names it, so it is trusted. */
async function ownCommand(path: string): Promise<Command> {
  const { findPart, isModulePath } = await import('../definition.ts')
  if (!isModulePath(path)) {
    throw unknownWord('command', path, Object.keys(commands), 'the path of a module that exports one')
  }
  const { pathToFileURL } = await import('node:url')
  const found = (await findPart('command', pathToFileURL(path).href, 'caller')) as unknown as Command
  return async (invocation) => {
    const result: unknown = await found(invocation)
    if (typeof result === 'object' && result !== null) return result
    throw new InputError(`answer of ${path}`, show(result), 'an object: what --json prints')
  }
}
