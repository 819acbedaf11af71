/** Finds a command by its words, prints its output, and turns errors into exit codes. */
import { InputError, printable, show, thrownText, unknownWord } from '../../base/errors.ts'
import type { Command } from '../../base/invocation.ts'
import type { Setting } from '../../base/settings.ts'
import { VERSION } from '../../base/version.ts'
import { tellApart } from './words.ts'

const commands: Readonly<Record<string, () => Promise<Command>>> = {
  train: async () => (await import('../commands/train.ts')).trainCommand,
  sweep: async () => (await import('../commands/sweep.ts')).sweepCommand,
  resume: async () => (await import('../commands/resume.ts')).resumeCommand,
  evaluate: async () => (await import('../commands/evaluate.ts')).evaluateCommand,
  diagnose: async () => (await import('../commands/diagnose.ts')).diagnoseCommand,
  replay: async () => (await import('../commands/replay.ts')).replayCommand,
  play: async () => (await import('../commands/play.ts')).playCommand,
  export: async () => (await import('../commands/export.ts')).exportCommand,
  push: async () => (await import('../commands/push.ts')).pushCommand,
  generate: async () => (await import('../commands/generate.ts')).generateCommand,
  serve: async () => (await import('../commands/serve.ts')).serveCommand,
  'serve-env': async () => (await import('../commands/serve-env.ts')).serveEnvCommand,
  gateway: async () => (await import('../commands/gateway.ts')).gatewayCommand,
  dashboard: async () => (await import('../commands/dashboard.ts')).dashboardCommand,
  environments: async () => (await import('../commands/environments.ts')).environmentsCommand,
  check: async () => (await import('../commands/check.ts')).checkCommand,
  compile: async () => (await import('../commands/compile.ts')).compileCommand,
  bench: async () => (await import('../commands/bench.ts')).benchCommand,
  doctor: async () => (await import('../commands/doctor.ts')).doctorCommand,
  validate: async () => (await import('../commands/validate.ts')).validateCommand,
  actor: async () => (await import('../commands/actor.ts')).actorCommand,
  fleet: async () => (await import('../commands/fleet.ts')).fleetCommand,
  launch: async () => (await import('../commands/launch.ts')).launchCommand,
  simulate: async () => (await import('../commands/simulate.ts')).simulateCommand,
  completion: async () => (await import('../commands/completion.ts')).completionCommand,
  trust: async () => (await import('./trust.ts')).trustCommand,
}

/** Runs a command line; `args` are the words after the program. Sets `process.exitCode` on failure. */
export async function runCommand(args: readonly string[]): Promise<void> {
  try {
    await run(args)
  } catch (error) {
    console.error(`colonnade: ${printable(thrownText(error, 'stack'))}`)
    process.exitCode = 1
  }
}

/** The declaration of a key of any built-in command or run. */
async function settingOf(key: string): Promise<Setting | undefined> {
  return (await (await import('./declarations.ts')).everyKey()).get(key)
}

async function run(args: readonly string[]): Promise<void> {
  if (args[0] === 'completion' && args[1] === 'candidates') {
    // The words to complete are not options of this program.
    const found = await (await import('../commands/completion.ts')).candidates(args.slice(2))
    if (found.length > 0) console.log(found.join('\n'))
    return
  }
  const { names, pairs, flags } = await tellApart(args, settingOf)
  const [name, ...rest] = names[0] === 'help' ? names.slice(1) : names
  const words = [...rest, ...pairs]
  if (flags.has('version')) return console.log(VERSION)
  if (flags.has('help') || names[0] === 'help' || (name === undefined && pairs.length === 0)) {
    const ofCommand = name === undefined ? null : await (await import('./help.ts')).helpOf(name, words)
    return console.log(ofCommand ?? (await import('./usage.ts')).help())
  }
  if (name === undefined) throw unknownWord('command', pairs[0], Object.keys(commands))
  const isOurs = Object.hasOwn(commands, name)
  const command = await (isOurs ? commands[name]! : () => ownCommand(name))()
  const files = isOurs ? pairs.filter((pair) => pair.startsWith(CONFIG)) : []
  const invocation = { json: flags.has('json'), quiet: flags.has('quiet') }
  const execute = async (words: readonly string[]) => {
    if (flags.has('print-config')) {
      return (await import('./print-config.ts')).printConfig(name, { ...invocation, words })
    }
    const result = await command({ ...invocation, words })
    if (invocation.json) console.log(JSON.stringify(result))
  }
  if (files.length === 0) return execute(words)
  const others = pairs.filter((pair) => !files.includes(pair))
  await withConfig(files, others, (told) => execute([...rest, ...told]))
}

const CONFIG = 'config='

/** Runs a command with a config file's keys, overridden by its own. @throws InputError with a wrong one's line. */
async function withConfig(
  files: readonly string[],
  pairs: readonly string[],
  execute: (pairs: readonly string[]) => Promise<void>,
): Promise<void> {
  if (files.length > 1) throw new InputError('config', 'a value twice', 'one file')
  const path = files[0]!.slice(CONFIG.length)
  const found = await (await import('./config-file.ts')).readConfigFile(path)
  const own = new Set(pairs.map((pair) => pair.slice(0, pair.indexOf('='))))
  const those = [...found].filter(([key]) => !own.has(key))
  try {
    await execute([...those.map(([key, { text }]) => `${key}=${text}`), ...pairs])
  } catch (error) {
    if (!(error instanceof InputError)) throw error
    const { subject, got, expected } = error
    const place = those.find(([key]) => subject === key || (subject === 'key' && got.startsWith(JSON.stringify(key))))
    if (place === undefined) throw error
    throw new InputError(`${path}:${place[1].line}, ${subject}`, got, expected, { cause: error })
  }
}

/** The command that a module exports. The caller names the module, so it is trusted. */
async function ownCommand(path: string): Promise<Command> {
  const { findPart, isModulePath } = await import('../../base/definition.ts')
  if (!isModulePath(path)) {
    throw unknownWord('command', path, Object.keys(commands), 'the path of a module that exports one')
  }
  const { pathToFileURL } = await import('node:url')
  const found = (await findPart('command', pathToFileURL(path).href, 'caller')) as unknown as Command
  return async (invocation) => {
    const result: unknown = await found(invocation)
    if (typeof result === 'object' && result !== null) return result
    throw new InputError(`answer of ${path}`, show(result), 'an object: the document that --json prints')
  }
}
