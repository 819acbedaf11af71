/** Programs that folders bring along: those that the command line names, those that are kept as trusted, and the question. */
import { createInterface } from 'node:readline/promises'
import { InputError, printable } from '../../base/errors.ts'
import type { Command } from '../../base/invocation.ts'
import { type ForeignModule, strings, trustList, trustModule } from '../../entries/settings.ts'

/** What every command takes that opens a run. */
export const trustKeys = {
  trust: strings([], 'modules outside the working directory that the run may import; modules are programs'),
}

/** Allows what the command line names; on a terminal it asks about the rest, elsewhere that is refused. */
export function askForModule(named: readonly string[]): (module: ForeignModule) => Promise<boolean> {
  return async (module) => {
    if ((await placesOf(named)).includes(module.path)) return true
    return process.stdin.isTTY && process.stderr.isTTY ? ask(module) : false
  }
}

async function placesOf(paths: readonly string[]): Promise<string[]> {
  const { realpath } = await import('node:fs/promises')
  return Promise.all(
    paths.map((path) =>
      realpath(path).catch((cause: Error) => {
        throw new InputError('trust', `${path} (${cause.message})`, 'modules that are there', { cause })
      }),
    ),
  )
}

async function ask({ folder, path, checksum }: ForeignModule): Promise<boolean> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  const closed = new AbortController()
  terminal.on('close', () => closed.abort()) // Ctrl-C and Ctrl-D say no; the question alone would wait for ever.
  const asked = 'Run it? y: yes, this once; a: always, as long as it is unchanged; else no: '
  try {
    const place = printable(path).replaceAll('\n', '\\n')
    process.stderr.write(
      `${printable(folder)} asks to run a program from elsewhere:\n  ${place}\n  SHA-256 ${checksum}\n`,
    )
    const answer = await terminal.question(asked, { signal: closed.signal }).catch((error) => {
      if (closed.signal.aborted) return ''
      throw error
    })
    if (!/^[ya]$/i.test(answer.trim())) return false
    if (/^a$/i.test(answer.trim())) await trustModule(path)
    return true
  } finally {
    terminal.close()
  }
}

/** colonnade trust <module> … */
export const trustCommand: Command = async ({ words: paths, json }) => {
  if (paths.length === 0) throw new InputError('first word', 'nothing', 'the modules to trust')
  const trusted = []
  for (const path of paths) trusted.push(await trustModule(path))
  if (!json) for (const { path, checksum } of trusted) console.log(`${checksum}  ${path}`)
  return { list: trustList(), trusted }
}
