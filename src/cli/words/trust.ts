/** Decides on modules of folders: allowed on the command line, kept as trusted, or by asking. */
import { createInterface } from 'node:readline/promises'
import { InputError, printable } from '../../base/errors.ts'
import type { Command } from '../../base/invocation.ts'
import { type ForeignModule, strings, trustList, trustModule } from '../../entries/settings.ts'

/** Keys of all commands that open a run. */
export const trustKeys = {
  trust: strings([], 'paths of modules outside the working directory that the run may import and so execute'),
}

/** Allows the modules named on the command line; asks about others on a terminal, and refuses them elsewhere. */
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
        throw new InputError('trust', `${path} (${cause.message})`, 'modules that exist', { cause })
      }),
    ),
  )
}

async function ask({ folder, path, checksum }: ForeignModule): Promise<boolean> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  const closed = new AbortController()
  terminal.on('close', () => closed.abort()) // Ctrl-C and Ctrl-D mean no; the prompt alone would wait forever.
  const asked = 'Run it? y: yes, this once; a: always, as long as it is unchanged; otherwise no: '
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
