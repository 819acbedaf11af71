/** Finds a command by its words, prints what it says, and turns errors into exit codes. */
import { parseArgs } from 'node:util'
import { unknownWord } from '../errors.ts'
import { InputError, VERSION } from '../index.ts'
import { doctorCommand } from './doctor.ts'
import { environmentsCommand } from './environments.ts'
import { evaluateCommand } from './evaluate.ts'
import { exportCommand } from './export.ts'
import { generateCommand } from './generate.ts'
import { help } from './help.ts'
import type { Command, Invocation } from './invocation.ts'
import { resumeCommand } from './resume.ts'
import { trainCommand } from './train.ts'
import { trustCommand } from './trust.ts'
import { validateCommand } from './validate.ts'

const commands: Readonly<Record<string, Command>> = {
  train: trainCommand,
  resume: resumeCommand,
  evaluate: evaluateCommand,
  export: exportCommand,
  generate: generateCommand,
  environments: environmentsCommand,
  doctor: doctorCommand,
  validate: validateCommand,
  trust: trustCommand,
}

/** Runs the command of a command line, `args` being the words after the program. Sets `process.exitCode` where it fails. */
export async function runCommand(args: readonly string[]): Promise<void> {
  try {
    await run(args)
  } catch (error) {
    const isUsage = error instanceof InputError || (error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS')
    console.error(`colonnade: ${isUsage ? (error as Error).message : ((error as Error).stack ?? error)}`)
    process.exitCode = 1
  }
}

async function run(args: readonly string[]): Promise<void> {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      help: { type: 'boolean', short: 'h' },
      version: { type: 'boolean' },
      json: { type: 'boolean' },
      quiet: { type: 'boolean', short: 'q' },
    },
  })
  const [name, ...words] = positionals
  if (values.version) return console.log(VERSION)
  if (values.help || name === undefined) return console.log(await help(name === 'train' ? words : []))
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined
  if (command === undefined) throw unknownWord('command', name, Object.keys(commands))
  const invocation: Invocation = { words, json: values.json ?? false, quiet: values.quiet ?? false }
  const result = await command(invocation)
  if (invocation.json) console.log(JSON.stringify(result))
}
