/** Reports errors in a user's timers, and in promises that are not awaited. */
import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { thrownText } from '../../base/errors.ts'

const OURS = fileURLToPath(new URL('../..', import.meta.url))

/** Ends the process at such an error, with one line that names its place. Call it once. */
export function tellStrayErrors(): void {
  const tell = (error: unknown, origin: NodeJS.UncaughtExceptionOrigin) => {
    console.error(`colonnade: ${describeStray(error, origin)}`)
    process.off('exit', tellEarlyEnd)
    process.exit(1)
  }
  process.on('uncaughtException', tell)
  process.on('unhandledRejection', (reason) => tell(reason, 'unhandledRejection'))
  process.on('exit', tellEarlyEnd)
}

/** The command is done: the process may end now. */
export function commandIsDone(): void {
  process.off('exit', tellEarlyEnd)
}

/** Exit codes above this are those of signals. */
const SIGNAL = 128

/** Reports a process that ends before its command, as by a user's `process.exit`, with a nonzero exit code. */
function tellEarlyEnd(code: number): void {
  if (code > SIGNAL) return
  const place = placeOf(new Error().stack!)
  const got =
    place === null ? 'an await of a promise that never settles' : `an end of the process with code ${code} at ${place}`
  console.error(`colonnade: got ${got}, expected none before the command is done`)
  if (code === 0) process.exitCode = 1
}

/** The error in one line, with the user's source line; without one, the whole stack. */
export function describeStray(error: unknown, origin: NodeJS.UncaughtExceptionOrigin): string {
  const { stack = '' } = error instanceof Error ? error : {}
  const place = placeOf(stack)
  if (place === null && stack !== '') return stack
  const what = error instanceof Error ? `${error.name}: ${error.message.split('\n')[0]}` : thrownText(error)
  const how =
    origin === 'unhandledRejection'
      ? 'a promise that nobody awaits was rejected'
      : 'an error that nobody catches was thrown'
  return `${how}${place === null ? '' : ` at ${place}`}: ${what}`
}

/** The first line of a stack that is neither ours nor Node's. */
function placeOf(stack: string): string | null {
  for (const line of stack.split('\n').slice(1)) {
    const [, where, at] = /\(?((?:file:\/\/)?\/[^()]*?)(:\d+:\d+)\)?$/.exec(line.trim()) ?? []
    if (where === undefined || line.includes('node:')) continue
    const path = where.startsWith('file:') ? fileURLToPath(where) : where
    if (!path.startsWith(OURS)) return relative(process.cwd(), path) + at
  }
  return null
}
